"""Requests written straight from columns, and columns made of Python's sequences."""


cdef int problem_error(kp_problem *x, int version) except -1:
    if x.what == KP_LONG_NAME:
        raise OutOfRange(f"a string of {x.value} bytes, more than {KP_MAX_STRING}", f"topic[{x.row}]")
    if x.what == KP_RECOVERING:
        raise FieldNotInVersion(f"version {version} has no place for it", f"leader_recovery_state[{x.row}]")
    if x.what == KP_FLAGS_DIFFER:
        raise FieldNotInVersion(f"version {version} has one flag for all partitions, and the message's differs",
                                f"delete_partition[{x.row}]")
    if x.what == KP_MANY:
        raise OutOfRange(f"{x.value} rows are more than a message holds")
    if x.what == KP_BAD_CODE:
        raise ValueError(f"column topic or topic_id: code {x.value} in row {x.row} is not in its dictionary")
    raise ValueError("the offsets of a list column do not ascend")


cdef inline bint flexible_in(int api, int version) noexcept:
    return version >= (6 if api == 6 else 4 if api == 4 else 2)


cdef int request_alone(object message) except -1:
    """The api of a request that has no partition states of its own."""
    if type(message) not in (UpdateMetadataRequest, LeaderAndIsrRequest, StopReplicaRequest):
        raise TypeError(f"expected a request of this codec, got {type(message).__name__}")
    cdef int api = message.api_key
    if message.topic_states or (message.ungrouped_partitions or message.topics if api == 5
                                else message.ungrouped_partition_states):
        raise ValueError("the message holds partition states of its own; the columns are to give them all")
    return api


cdef int64_t states_size(object message, int api, int version, Taken t, int64_t *groups) except -1:
    """What the rows of one batch take, without the count of their groups."""
    cdef kp_problem x
    cdef int64_t size
    if api == 5:
        size = kp_stops_size(&t.view, version, (<StopReplicaRequest>message).delete_partitions, groups, &x)
    else:
        size = kp_states_size(&t.view, api == 6, version, groups, &x)
    if size < 0:
        problem_error(&x, version)
    return size


cdef uint8_t *put_states(uint8_t *q, int api, int version, Taken t) noexcept:
    if api == 6:
        return kp_put_umr_states(q, &t.view, version)
    if api == 4:
        return kp_put_lisr_states(q, &t.view, version)
    return kp_put_stops(q, &t.view, version)


cdef int64_t head_size(object message, int api, int version) except -1:
    """What stands before the count of the groups; the message is checked."""
    if api == 6:
        umr_check(<UpdateMetadataRequest>message, version)
        return umr_head_size(version)
    if api == 4:
        lisr_check(<LeaderAndIsrRequest>message, version)
        return lisr_head_size(version)
    sr_check(<StopReplicaRequest>message, version)
    return sr_head_size(version)


cdef uint8_t *put_head(uint8_t *q, object message, int api, int version) noexcept:
    if api == 6:
        return umr_put_head(q, <UpdateMetadataRequest>message, version)
    if api == 4:
        return lisr_put_head(q, <LeaderAndIsrRequest>message, version)
    return sr_put_head(q, <StopReplicaRequest>message, version)


cdef int64_t tail_size(object message, int api, int version) except -1:
    """What stands behind the groups."""
    if api == 6:
        return umr_tail_size(<UpdateMetadataRequest>message, version)
    if api == 4:
        return lisr_tail_size(<LeaderAndIsrRequest>message, version)
    return tags_size((<Tagged>message).tags, flexible_in(5, version), version)


cdef uint8_t *put_tail(uint8_t *q, object message, int api, int version) except NULL:
    if api == 6:
        return umr_put_tail(q, <UpdateMetadataRequest>message, version)
    if api == 4:
        return lisr_put_tail(q, <LeaderAndIsrRequest>message, version)
    return put_tags(q, (<Tagged>message).tags, flexible_in(5, version))


def encode_columns(message, version, columns):
    """Write a request whose partition states stand in columns.

    Rows of the same topic that follow each other become one group; the bytes are those of ``encode`` for the message
    with these rows.

    Args:
        message: A request without partition states: what stands around them.
        version: As for ``encode``.
        columns: ``Columns``, or any record batch that offers ``__arrow_c_array__`` with columns named and typed
            alike (``frame`` is not looked at, ``topic_id`` may be missing), or a mapping as for
            ``Columns.from_sequences``. No nulls.

    Raises:
        FieldNotInVersion, OutOfRange, EncodeError, UnsupportedVersion: As ``encode``.
        ValueError, TypeError: Columns missing or of other types.
    """
    cdef int api = request_alone(message), v = checked_version(api, version)
    cdef Taken t = taken(columns, api)
    cdef int64_t groups = 0, size = states_size(message, api, v, t, &groups)
    cdef bytes out
    cdef uint8_t *q
    cdef bint collected = PyGC_Disable()  # as in encode: nothing else may run between the sizes and the bytes
    try:
        size += head_size(message, api, v) + count_size(groups, flexible_in(api, v)) + tail_size(message, api, v)
        out = new_bytes(size)
        q = put_head(<uint8_t *>PyBytes_AS_STRING(out), message, api, v)
        q = put_states(put_count(q, groups, flexible_in(api, v)), api, v, t)
        put_tail(q, message, api, v)
    finally:
        if collected:
            PyGC_Enable()
    return out


def encode_batches(message, version, batches):
    """``encode_columns`` in pieces, for a request whose columns should not all be in memory at once.

    A topic whose rows go on in the next batch becomes a group in each.

    Args:
        message, version: As for ``encode_columns``.
        batches: An iterable of such columns; each is let go before the next one is asked for.

    Returns:
        Pieces that are the request one after the other: what stands before the rows, those of each batch, the rest.

    Raises:
        As ``encode_columns``.
    """
    cdef int api = request_alone(message), v = checked_version(api, version)
    cdef bint collected
    cdef int64_t groups = 0, total = 0
    cdef Taken t
    cdef bytes piece
    cdef list pieces = [b""]
    for columns in batches:
        t = taken(columns, api)
        piece = new_bytes(states_size(message, api, v, t, &groups))
        put_states(<uint8_t *>PyBytes_AS_STRING(piece), api, v, t)
        pieces.append(piece)
        total += groups
        columns = t = None
    if total >= INT32_MAX:
        raise OutOfRange(f"{total} topics or partitions are more than a message holds")
    collected = PyGC_Disable()
    try:
        piece = new_bytes(head_size(message, api, v) + count_size(total, flexible_in(api, v)))
        put_count(put_head(<uint8_t *>PyBytes_AS_STRING(piece), message, api, v), total, flexible_in(api, v))
        pieces[0] = piece
        piece = new_bytes(tail_size(message, api, v))
        put_tail(<uint8_t *>PyBytes_AS_STRING(piece), message, api, v)
        pieces.append(piece)
    finally:
        if collected:
            PyGC_Enable()
    return pieces


cdef object from_columns(type cls, int api, object columns, object version, object message):
    """A request whose partition states are made of columns, all at once."""
    cdef Message made
    if message is None:
        message = cls()
    if version is None:
        version = message.version
    made = read(encode_columns(message, version, columns), REQUEST, api, checked_version(api, version), False, NULL)
    return made


# ---- columns of sequences --------------------------------------------------------------------------------------------

cdef int put_ints(int32_t *to, object values, int64_t n, str name) except -1:
    """n int32 from a buffer of them, or from any sequence."""
    cdef Py_buffer view
    cdef object seq
    if len(values) != n:
        raise ValueError(f"column {name} has {len(values)} rows, partition has {n}")
    if PyObject_CheckBuffer(values) and not isinstance(values, (bytes, bytearray)):
        PyObject_GetBuffer(values, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
        try:
            if view.itemsize == 4 and view.ndim == 1 and view.format in (b"i", b"l", b"<i", b"<l"):
                memcpy(to, view.buf, 4 * n)
                return 0
        finally:
            PyBuffer_Release(&view)
    seq = fast(values, name)
    if PySequence_Fast_GET_SIZE(seq) != n:
        raise ValueError(f"column {name} has changed its length")
    return put_list(to, n, seq, name)


cdef int put_topics(kp_batch *b, object names, object ids) except -1:
    """The topics' codes."""
    cdef kp_reader r
    cdef uint8_t id[16]
    cdef int64_t row, code = -1
    cdef Py_ssize_t n = 0
    cdef str name
    cdef bytes odd
    cdef const char *p
    cdef rp uuid = NULL
    memset(&r, 0, sizeof(r))
    if len(names) != b.rows or (ids is not None and len(ids) != b.rows):
        raise ValueError(f"columns topic and topic_id must have {b.rows} rows, as partition has")
    for row in range(b.rows):
        name = as_text(names[row], "topic")
        p = utf8(name, &n)
        if n < 0:
            odd = odd_utf8(name)
            p, n = PyBytes_AS_STRING(odd), PyBytes_GET_SIZE(odd)
        if ids is not None:
            put_uuid(id, ids[row], "topic_id")
            uuid = id
        code = kp_topic(&r, b, <rp>p, n, uuid, code)
        if code < 0:
            raise MemoryError
        b.ints[KP_TOPIC][row] = <int32_t>code
    return 0


cdef int put_lists(kp_batch *b, int k, object lists, str name) except -1:
    cdef int64_t row, room = b.ids_room[k], used = 0, n
    cdef int32_t *grown
    cdef object seq
    if len(lists) != b.rows:
        raise ValueError(f"column {name} has {len(lists)} rows, partition has {b.rows}")
    for row in range(b.rows):
        seq = lists[row]
        if type(seq) is not tuple and type(seq) is not list:
            seq = fast(seq, f"{name}[{row}]")
        n = PySequence_Fast_GET_SIZE(seq)
        if used + n > room:
            room = max(2 * room, used + n, 4 * b.rows)
            if room >= INT32_MAX:
                raise OutOfRange("more ids than a column holds", name)
            grown = <int32_t *>realloc(b.ids[k], room * 4)
            if grown == NULL:
                raise MemoryError
            b.ids[k] = grown
            b.ids_room[k] = room
        try:
            put_list(b.ids[k] + used, n, seq, name)
        except (OutOfRange, TypeError):
            put_list(b.ids[k] + used, n, seq, f"{name}[{row}]")  # the row's name is made for its error alone
        used += n
        b.offsets[k][row + 1] = <int32_t>used
    b.used[k] = used
    return 0


cdef Columns columns_of(int api, dict given):
    """The columns of a request from sequences by name; what is not given holds Kafka's default."""
    cdef Columns out = Columns.__new__(Columns)
    cdef kp_batch *b = kp_batch_new(api)
    cdef const kp_field *f
    cdef int64_t row
    cdef int column
    if b == NULL:
        raise MemoryError
    out.batch = b
    for name in ("topic", "partition"):
        if name not in given:
            raise TypeError(f"there is no column {name}")
    b.rows = len(given["partition"])
    if b.rows >= INT32_MAX or (b.rows > b.room and kp_resize_rows(b, b.rows)):
        raise MemoryError
    put_topics(b, given.pop("topic"), given.pop("topic_id", None) if api != 5 else None)
    f = kp_fields(api)
    while f.name != NULL:
        name = f.name.decode()
        column = f.column
        f += 1
        if column in (KP_TOPIC, KP_TOPIC_ID):
            continue
        values = given.pop(name, None)
        if column >= KP_LIST:
            if values is None:
                memset(b.offsets[column - KP_LIST], 0, 4 * (b.rows + 1))
            else:
                put_lists(b, column - KP_LIST, values, name)
        elif values is not None and len(values) != b.rows:
            raise ValueError(f"column {name} has {len(values)} rows, partition has {b.rows}")
        elif column == KP_FLAG:
            for row in range(b.rows):
                b.flag[row] = values is not None and boolean(values[row], name)
        elif column == KP_RECOVERY:
            for row in range(b.rows):
                b.recovery[row] = 0 if values is None else int8(values[row], name)
        elif values is not None:
            put_ints(b.ints[column], values, b.rows, name)
        else:
            for row in range(b.rows):
                b.ints[column][row] = -1 if api == 5 and column == KP_LEADER_EPOCH else 0
    if given:
        raise TypeError(f"these requests have no column {', '.join(given)}")
    if kp_seal(b):
        raise MemoryError
    return out
