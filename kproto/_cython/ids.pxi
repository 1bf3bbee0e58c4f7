"""Id lists: those of all rows of a message in a few int32 blocks; a tuple is made when a field is read."""

cdef enum:
    CHUNK = 16384  # ids in a block: large enough to be rare, small enough that a row kept alone keeps little alive


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class Block:
    """The ids of many rows, and fields that few rows have: a topic name of their own, unknown tagged fields.

    A row points into its owner's ids or into those of the owner's parent; the owner keeps them alive. A block's
    contents never change once a row points there, so that rows may share them.
    """

    def __dealloc__(self):
        free(self.data)


cdef Block block_of(int64_t ids):
    """A block for this number of ids, with KP_SLACK spare ones behind them, which copying in fours may touch."""
    cdef Block b = Block.__new__(Block)
    if ids > 0:
        b.data = <int32_t *>malloc((ids + KP_SLACK) * sizeof(int32_t))
        if b.data == NULL:
            raise MemoryError
        memset(b.data + ids, 0, KP_SLACK * sizeof(int32_t))
    return b


cdef Block labelled(Block ids, str topic_name, bytes tags):
    """A block that keeps another's ids alive and adds a topic name and tags."""
    cdef Block b
    if topic_name is None and tags is None:
        return None if ids is None else (ids.parent if ids.data == NULL else ids)
    b = Block.__new__(Block)
    if ids is not None:
        b.parent = ids.parent if ids.data == NULL else ids
    b.topic_name = topic_name
    b.tags = tags
    return b


cdef Block view_owner(Block owner, str topic_name, Block last):
    """The owner of a flat view's row: another row's ids and tags with a topic name; ``last`` if it has the same."""
    cdef Block ids = owner.parent if owner is not None and owner.data == NULL else owner
    cdef bytes tags = row_tags(owner)
    cdef Block b
    if last is not None and tags is None and last.tags is None and last.parent is ids and last.topic_name is topic_name:
        return last
    b = Block.__new__(Block)
    b.parent = ids
    b.topic_name = topic_name
    b.tags = tags
    b.read_only = True
    return b


@cython.nonecheck(False)
cdef inline str row_topic(Block owner):
    return "" if owner is None or owner.topic_name is None else owner.topic_name


cdef inline bytes row_tags(Block owner):
    return None if owner is None else owner.tags


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class IdArena:
    """Memory for the ids of rows that become objects, and the topic name of the row before."""

    cdef int32_t *next
    cdef int32_t *end
    cdef Block block, named
    cdef rp name
    cdef int64_t name_length


cdef int renew(IdArena arena, int64_t ids, int64_t bytes_left) except -1:
    """A fresh block, no larger than the bytes left can fill."""
    cdef int64_t size = max(min(bytes_left // 4, <int64_t>CHUNK), ids)
    arena.block = block_of(size)
    arena.next = arena.block.data
    arena.end = arena.next + size
    return 0


@cython.nonecheck(False)
cdef inline int32_t *take(IdArena arena, int64_t ids, int64_t bytes_left) except? NULL:
    """A place for a row's ids."""
    cdef int32_t *at
    if ids > arena.end - arena.next:
        renew(arena, ids, bytes_left)
    at = arena.next
    arena.next = at + ids
    return at


@cython.nonecheck(False)
cdef inline int32_t *take_row(IdArena arena, kp_row *row, rp end) except? NULL:
    """The ids of a row, copied."""
    cdef int32_t *ids = take(arena, row.n[0] + row.n[1] + row.n[2] + row.n[3], end - row.ids[0])
    kp_row_ids(ids, row, end)
    return ids


@cython.nonecheck(False)
cdef inline Block row_owner(IdArena arena, kp_row *row, bint named):
    """The block that keeps a row's ids alive, with its topic name (in versions that have it) and tags."""
    cdef Block owner = arena.block
    if named:
        if arena.named is None or arena.named.parent is not owner or row.name_length != arena.name_length \
                or memcmp(row.name, arena.name, row.name_length):
            arena.named = labelled(owner, text(row.name, row.name_length), None)
            arena.name, arena.name_length = row.name, row.name_length
        owner = arena.named
    return owner if row.tags == NULL else labelled(owner, None, kept(row.tags, row.tags_end))


# Most ids and epochs are small, and a reader asks for the same ones again and again: Python shares ints up to 256.
cdef enum:
    SHARED_INTS = 4096  # at most 160 kB in a process

cdef PyObject *shared_ints[SHARED_INTS]


cdef inline object shared_int(int32_t value):
    """An int; from 0 to 4095 the same object each time."""
    if <uint32_t>value >= <uint32_t>SHARED_INTS:
        return value
    if shared_ints[value] == NULL:
        share(value)
    return <object>shared_ints[value]


cdef int share(int32_t value) except -1:
    """Make a shared int; it is kept until the process ends."""
    cdef object made = <long>value
    Py_INCREF(made)
    shared_ints[value] = <PyObject *>made
    return 0


cdef tuple new_tuple(const int32_t *p, int64_t n):
    cdef tuple t = PyTuple_New(n)
    cdef int64_t i
    cdef object x
    for i in range(n):
        x = shared_int(p[i])
        Py_INCREF(x)
        PyTuple_SET_ITEM(t, i, x)
    return t


cdef extern from "Python.h":
    void Py_XSETREF(PyObject *, PyObject *) noexcept

# Tuples given out lately, by their ids: a cluster has few replica sets, and a reader asks for each again and again.
cdef enum:
    CACHED_IDS = 8     # longer lists are made anew each time
    CACHE_SIZE = 256   # a power of two

ctypedef struct cached_ids:
    PyObject *made
    int64_t n
    int32_t ids[CACHED_IDS]

cdef cached_ids tuple_cache[CACHE_SIZE]


cdef inline tuple ids_tuple(const int32_t *p, int64_t n):
    """Ids as a tuple, perhaps the tuple of another list with the same ids."""
    cdef uint32_t hash = 0
    cdef bint same
    cdef int64_t i
    cdef cached_ids *slot
    cdef tuple t
    if n == 0:
        return ()
    if n > CACHED_IDS:
        return new_tuple(p, n)
    for i in range(n):
        hash = (hash ^ <uint32_t>p[i]) * 0x9e3779b1u
    slot = &tuple_cache[hash >> 24]
    same = slot.n == n
    for i in range(n):
        same &= slot.ids[i] == p[i]
    if same:
        return <tuple>slot.made
    t = new_tuple(p, n)
    Py_INCREF(t)
    Py_XSETREF(slot.made, <PyObject *>t)
    slot.n = n
    memcpy(slot.ids, p, n * sizeof(int32_t))
    return t


cdef int put_list(int32_t *to, int64_t n, object values, str field) except -1:
    """Write a list or tuple of n int32 to memory that holds n."""
    cdef Py_ssize_t i
    cdef int overflow = 0
    cdef int64_t x
    cdef object value
    for i in range(n):
        if i >= PySequence_Fast_GET_SIZE(values):  # an element's own __index__ may have cut the list
            raise ValueError(f"{field}: the sequence has changed while it was read")
        value = <object>PySequence_Fast_GET_ITEM(values, i)
        if PyLong_Check(value):
            x = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow and INT32_MIN <= x <= INT32_MAX:
                to[i] = <int32_t>x
                continue
        to[i] = list_item(value, i, field)
    return 0


cdef int32_t list_item(object value, Py_ssize_t i, str field) except? -1:
    """An element that is no int of Python's own, or one that is no int32."""
    try:
        return int32(value, field)
    except OutOfRange as e:
        within(e, f"[{i}]")
        raise


cdef object fast(object values, str field):
    if values is None or isinstance(values, (str, bytes)):
        raise TypeError(f"{field}: expected a sequence of int, got {type(values).__name__}")
    try:
        return PySequence_Fast(values, "")
    except TypeError:
        raise TypeError(f"{field}: expected a sequence of int, got {type(values).__name__}") from None


cdef Block new_ids(int32_t *n, tuple lists, tuple fields, Block labels):
    """A block that holds these lists one behind the other; their lengths go to n."""
    cdef Py_ssize_t i, count = len(lists)
    cdef int64_t total = 0
    cdef int64_t lengths[4]
    cdef Block b
    cdef tuple parts = lists
    cdef int32_t *to
    for i in range(count):
        if type(lists[i]) is not tuple:
            parts = tuple([fast(lists[k], fields[k]) for k in range(count)])
            break
    for i in range(count):
        lengths[i] = PySequence_Fast_GET_SIZE(parts[i])
        total += lengths[i]
    if total >= INT32_MAX:
        raise OutOfRange(f"{total} ids are more than a partition holds")
    b = block_of(total)
    to = b.data
    for i in range(count):
        put_list(to, lengths[i], parts[i], fields[i])
        to += lengths[i]
    for i in range(count):
        n[i] = <int32_t>lengths[i]
    if labels is not None and (labels.topic_name is not None or labels.tags is not None):
        b.topic_name = labels.topic_name
        b.tags = labels.tags
    return b


cdef Block changed_ids(int32_t *n, const int32_t *ids, tuple fields, int which, object values, Block labels):
    """The same lists with one of them exchanged."""
    cdef list lists = []
    cdef int32_t lengths[4]
    cdef int i
    memcpy(lengths, n, len(fields) * sizeof(int32_t))
    for i in range(<int>len(fields)):
        lists.append(values if i == which else ids_tuple(ids, lengths[i]))
        ids += lengths[i]
    return new_ids(n, tuple(lists), fields, labels)
