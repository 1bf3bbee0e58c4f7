"""Columns handed in, ours or any that speak Arrow, as the pointers that requests are written from."""


cdef const void *no_nulls(ArrowArray *a, int64_t first, int64_t n, str name, int buffer) except? NULL:
    """A buffer of an array that must not hold nulls."""
    cdef const uint8_t *bits = <const uint8_t *>a.buffers[0]
    cdef int64_t i
    if bits != NULL and a.null_count != 0:
        for i in range(first, first + n):
            if not (bits[i >> 3] >> (i & 7)) & 1:
                raise ValueError(f"column {name} holds a null in row {i - first}")
    return a.buffers[buffer]


@cython.final
cdef class Taken:
    """Arrow columns handed in, as pointers; keeps them alive."""

    cdef kp_view view
    cdef object own, schema_capsule, array_capsule
    cdef ArrowSchema *schema
    cdef ArrowArray *array

    cdef int find(self, str name, bint optional=False) except -2:
        cdef int64_t i
        for i in range(self.schema.n_children):
            if self.schema.children[i].name != NULL and self.schema.children[i].name.decode() == name:
                return <int>i
        if optional:
            return -1
        raise ValueError(f"there is no column {name}")

    cdef const char *format_of(self, int at) noexcept:
        return self.schema.children[at].format

    cdef int refuse(self, str name, str expected, const char *got) except -1:
        raise TypeError(f"column {name}: expected Arrow's {expected}, got format {got.decode()!r}")

    cdef const void *plain(self, str name, str format, str expected, int64_t *at) except NULL:
        """A column's values, and where the first row stands in them."""
        cdef int i = self.find(name)
        cdef ArrowArray *a = self.array.children[i]
        if self.format_of(i).decode() != format or self.schema.children[i].dictionary != NULL:
            self.refuse(name, expected, self.format_of(i))
        at[0] = a.offset + self.array.offset
        return pointer(no_nulls(a, at[0], self.view.rows, name, 1))

    cdef const int32_t *ints(self, str name) except NULL:
        cdef int64_t at = 0
        cdef const int32_t *p = <const int32_t *>self.plain(name, "i", "int32", &at)
        return p + at

    cdef int list_of_ids(self, int k, str name) except -1:
        cdef int64_t at = 0, n = self.view.rows
        cdef const int32_t *offsets = <const int32_t *>self.plain(name, "+l", "list<int32>", &at)
        cdef int i = self.find(name)
        cdef ArrowArray *ids = self.array.children[i].children[0]
        if self.schema.children[i].children[0].format[0] != b"i":
            self.refuse(name, "list<int32>", self.schema.children[i].children[0].format)
        if n == 0:
            self.view.offsets[k] = kp_nothing
            return 0
        self.view.offsets[k] = offsets + at
        if offsets[at] < 0 or offsets[at + n] > ids.length:
            raise ValueError(f"column {name}: its offsets lie beyond its items")
        self.view.ids[k] = <const int32_t *>no_nulls(ids, ids.offset, ids.length, name, 1) + ids.offset
        return 0

    cdef const int32_t *codes(self, int i, str name, ArrowArray **values, const char **format) except? NULL:
        """The codes of a dictionary column (NULL: a plain one), and the array and format of its values."""
        cdef ArrowArray *a = self.array.children[i]
        cdef ArrowSchema *s = self.schema.children[i]
        cdef int64_t at = a.offset + self.array.offset
        cdef const void *p
        if s.dictionary == NULL:
            values[0] = a
            format[0] = s.format
            no_nulls(a, at, self.view.rows, name, 1)
            return NULL
        if s.format[0] != b"i" and s.format[0] != b"I":
            self.refuse(name, "dictionary with int32 codes", s.format)
        values[0] = a.dictionary
        format[0] = s.dictionary.format
        p = pointer(no_nulls(a, at, self.view.rows, name, 1))
        no_nulls(a.dictionary, a.dictionary.offset, a.dictionary.length, name, 1)
        return <const int32_t *>p + at

    cdef int topics(self, bint with_id) except -1:
        cdef int i = self.find("topic")
        cdef ArrowArray *a = NULL
        cdef const char *format = NULL
        cdef int64_t at
        self.view.codes = self.codes(i, "topic", &a, &format)
        at = a.offset + (self.array.offset if self.view.codes == NULL else 0)
        if format[0] == b"u":
            self.view.name_ends = <const int32_t *>pointer(a.buffers[1]) + at
        elif format[0] == b"U":
            self.view.long_name_ends = <const int64_t *>pointer(a.buffers[1]) + at
        else:
            self.refuse("topic", "string, or a dictionary of them", format)
        self.view.names = <const uint8_t *>a.buffers[2]
        self.view.names_count = a.length
        i = self.find("topic_id", True)
        if not with_id or i < 0:
            return 0
        self.view.id_codes = self.codes(i, "topic_id", &a, &format)
        if format.decode() != "w:16":
            self.refuse("topic_id", "fixed_size_binary(16), or a dictionary of it", format)
        at = a.offset + (self.array.offset if self.view.id_codes == NULL else 0)
        self.view.topic_ids = <const uint8_t *>pointer(a.buffers[1]) + 16 * at
        self.view.ids_count = a.length
        return 0


cdef const void *pointer(const void *p) noexcept:
    """Arrow may leave out the buffers of empty arrays."""
    return <const void *>kp_nothing if p == NULL else p


cdef Taken taken(object columns, int api):
    """Anything with Arrow's ``__arrow_c_array__``, or a mapping of sequences, as a request's columns."""
    cdef Taken t = Taken.__new__(Taken)
    cdef int64_t at = 0
    if type(columns) is not Columns and isinstance(columns, Mapping):
        columns = Columns.from_sequences(api, **columns)
    if type(columns) is Columns and (<Columns>columns).held().layout == api:
        t.own = columns  # whose memory the view points into
        kp_view_of((<Columns>columns).batch, &t.view)
        return t
    if not hasattr(columns, "__arrow_c_array__"):
        raise TypeError(f"expected one record batch (what has __arrow_c_array__) or a mapping of sequences, "
                        f"got {type(columns).__name__}")
    t.schema_capsule, t.array_capsule = columns.__arrow_c_array__()
    t.schema = <ArrowSchema *>PyCapsule_GetPointer(t.schema_capsule, "arrow_schema")
    t.array = <ArrowArray *>PyCapsule_GetPointer(t.array_capsule, "arrow_array")
    if t.schema.format.decode() != "+s":
        raise TypeError("expected a record batch or a struct array")
    t.view.rows = t.array.length
    no_nulls(t.array, t.array.offset, t.view.rows, "(row)", 0)
    t.topics(api != 5)
    t.view.ints[KP_PARTITION] = t.ints("partition")
    t.view.ints[KP_LEADER_EPOCH] = t.ints("leader_epoch")
    if api == 5:
        t.view.flag = <const uint8_t *>t.plain("delete_partition", "b", "bool", &t.view.flag_at)
        return t
    t.view.ints[KP_CONTROLLER_EPOCH] = t.ints("controller_epoch")
    t.view.ints[KP_LEADER] = t.ints("leader")
    t.view.ints[KP_PARTITION_EPOCH] = t.ints("partition_epoch")
    t.list_of_ids(0, "isr")
    t.list_of_ids(1, "replicas")
    if api == 6:
        t.list_of_ids(2, "offline_replicas")
    else:
        t.list_of_ids(2, "adding_replicas")
        t.list_of_ids(3, "removing_replicas")
        t.view.flag = <const uint8_t *>t.plain("is_new", "b", "bool", &t.view.flag_at)
        t.view.recovery = <const int8_t *>t.plain("leader_recovery_state", "c", "int8", &at) + at
    return t
