"""A caller's columns: ``Columns`` as they are, Arrow data checked and copied, Python sequences converted."""


cdef int problem_error(kp_problem *x, int version) except -1:
    """Raise the error for a problem found in columns."""
    column = x.column.decode(errors="replace")
    if x.trouble == KP_NO_COLUMN:
        raise ValueError(f"there is no column {column}")
    if x.trouble == KP_BAD_TYPE:
        got = x.format.decode(errors="replace")
        if not column:
            raise TypeError(f"expected a record batch or a struct array, got Arrow's format {got!r}")
        raise TypeError(f"column {column}: expected Arrow's {x.expected.decode()}, got format {got!r}")
    if x.trouble == KP_UNFIT:
        raise ValueError(f"column {column}: its Arrow array does not fit its schema, or was consumed")
    if x.trouble == KP_NULL_ROW:
        raise ValueError(f"column {column} holds a null in row {x.row}")
    if x.trouble == KP_BAD_OFFSETS:
        raise ValueError(f"column {column}: its offsets descend or lie beyond its items in row {x.row}")
    if x.trouble == KP_BAD_CODE:
        raise ValueError(f"column {column}: code {x.value} in row {x.row} is not in its dictionary")
    if x.trouble == KP_LONG_NAME:
        raise OutOfRange(f"a string of {x.value} bytes, more than {KP_MAX_STRING}", f"topic[{x.row}]")
    if x.trouble == KP_RECOVERING:
        raise FieldNotInVersion(f"version {version} has no place for it", f"leader_recovery_state[{x.row}]")
    if x.trouble == KP_FLAGS_DIFFER:
        raise FieldNotInVersion(f"version {version} has one flag for all partitions, and the message's differs",
                                f"delete_partition[{x.row}]")
    if x.trouble == KP_MANY:
        raise OutOfRange(f"{x.value} rows are more than a message holds")
    raise MemoryError


cdef Columns columns_given(object columns, int api):
    """The columns of a request from any of the forms that users hand in."""
    cdef Columns out
    cdef kp_batch *b
    cdef ArrowSchema *schema
    cdef ArrowArray *array
    cdef kp_problem x
    if type(columns) is Columns and (<Columns>columns).held().layout == api:
        return <Columns>columns
    if type(columns) is not Columns and isinstance(columns, Mapping):
        return columns_of(api, dict(columns))
    if not hasattr(columns, "__arrow_c_array__"):
        raise TypeError(f"expected one record batch (with __arrow_c_array__) or a mapping of sequences, "
                        f"got {type(columns).__name__}")
    schema_capsule, array_capsule = columns.__arrow_c_array__()
    b = kp_batch_new(api)
    if b == NULL:
        raise MemoryError
    try:
        schema = <ArrowSchema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        array = <ArrowArray *>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release == NULL or array.release == NULL:
            raise ValueError("the Arrow capsules were consumed before")
        if kp_copy_arrow(b, schema, array, &x):
            problem_error(&x, 0)
        out = Columns.__new__(Columns)
        out.batch, b = b, NULL
    finally:
        kp_batch_drop(b)
    return out


# ---- columns of sequences --------------------------------------------------------------------------------------------

cdef int fill_ints(int32_t *to, object values, int64_t n, str name) except -1:
    """n int32 from a buffer of them, or from any sequence."""
    cdef Py_buffer view
    cdef object seq
    if len(values) != n:
        raise ValueError(f"column {name} has {len(values)} rows, partition has {n}")
    if PyObject_CheckBuffer(values) and not isinstance(values, (bytes, bytearray)):
        PyObject_GetBuffer(values, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)
        try:
            if view.itemsize == 4 and view.ndim == 1 and view.format in (b"i", b"l", b"<i", b"<l"):
                if view.len != 4 * n:
                    raise ValueError(f"column {name} has {view.len // 4} values in its buffer, and says {n}")
                memcpy(to, view.buf, 4 * n)
                return 0
        finally:
            PyBuffer_Release(&view)
    seq = fast(values, name)
    if PySequence_Fast_GET_SIZE(seq) != n:
        raise ValueError(f"column {name} has changed its length")
    return put_list(to, n, seq, name)


cdef int fill_topics(kp_batch *b, object names, object ids) except -1:
    """The topics' codes."""
    cdef kp_reader r
    cdef uint8_t id[16]
    cdef int64_t row, code = -1
    cdef str name, last = None
    cdef bytes encoded = b""
    cdef rp uuid = NULL
    memset(&r, 0, sizeof(r))
    if len(names) != b.rows or (ids is not None and len(ids) != b.rows):
        raise ValueError(f"columns topic and topic_id must have {b.rows} rows, as partition has")
    for row in range(b.rows):
        name = as_text(names[row], "topic")
        if name is not last:
            encoded = new_bytes(kp_text_size(name))
            kp_put_text(<uint8_t *>PyBytes_AS_STRING(encoded), name)
            last = name
        if ids is not None:
            put_uuid(id, ids[row], "topic_id")
            uuid = id
        code = kp_topic(&r, b, <rp>PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded), uuid, code)
        if code < 0:
            raise OutOfRange("more topics than a column holds", "topic") if r.code == KP_FULL else MemoryError()
        b.ints[KP_TOPIC][row] = <int32_t>code
    return 0


cdef int fill_lists(kp_batch *b, int k, object lists, str name) except -1:
    cdef int64_t row, capacity = b.ids_capacity[k], used = 0, n
    cdef int32_t *grown
    cdef object seq
    if len(lists) != b.rows:
        raise ValueError(f"column {name} has {len(lists)} rows, partition has {b.rows}")
    for row in range(b.rows):
        seq = lists[row]
        if type(seq) is not tuple and type(seq) is not list:
            seq = fast(seq, f"{name}[{row}]")
        n = PySequence_Fast_GET_SIZE(seq)
        if used + n + KP_SLACK > capacity:
            capacity = max(2 * capacity, used + n + KP_SLACK, 4 * b.rows)
            if capacity >= INT32_MAX:
                raise OutOfRange("more ids than a column holds", name)
            grown = <int32_t *>realloc(b.ids[k], capacity * 4)
            if grown == NULL:
                raise MemoryError
            b.ids[k] = grown
            b.ids_capacity[k] = capacity
        try:
            put_list(b.ids[k] + used, n, seq, name)
        except (OutOfRange, TypeError):
            put_list(b.ids[k] + used, n, seq, f"{name}[{row}]")  # the row's name is made for its error alone
        used += n
        b.offsets[k][row + 1] = <int32_t>used
    b.used[k] = used
    return 0


cdef Columns columns_of(int api, dict given):
    """The columns of a request from sequences by name; a missing column holds Kafka's default."""
    cdef Columns out
    cdef kp_batch *b = kp_batch_new(api)
    if b == NULL:
        raise MemoryError
    try:
        fill_columns(b, api, given)
        out = Columns.__new__(Columns)
        out.batch, b = b, NULL
    finally:
        kp_batch_drop(b)
    return out


cdef int fill_columns(kp_batch *b, int api, dict given) except -1:
    cdef const kp_field *f = kp_fields(api)
    cdef int64_t row
    cdef int column
    for name in ("topic", "partition"):
        if name not in given:
            raise TypeError(f"there is no column {name}")
    row = len(given["partition"])
    if row >= INT32_MAX - 1:
        raise OutOfRange(f"{row} rows are more than a message holds")
    if row > b.capacity and kp_resize_rows(b, row):
        raise MemoryError
    b.rows = row
    fill_topics(b, given.pop("topic"), given.pop("topic_id", None) if api != 5 else None)
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
                fill_lists(b, column - KP_LIST, values, name)
        elif values is not None and len(values) != b.rows:
            raise ValueError(f"column {name} has {len(values)} rows, partition has {b.rows}")
        elif column == KP_FLAG:
            for row in range(b.rows):
                b.flag[row] = values is not None and boolean(values[row], name)
        elif column == KP_RECOVERY:
            for row in range(b.rows):
                b.recovery[row] = 0 if values is None else int8(values[row], name)
        elif values is not None:
            fill_ints(b.ints[column], values, b.rows, name)
        else:
            for row in range(b.rows):
                b.ints[column][row] = -1 if api == 5 and column == KP_LEADER_EPOCH else 0
    if given:
        raise TypeError(f"these requests have no column {', '.join(given)}")
    if kp_seal(b):
        raise MemoryError
    return 0
