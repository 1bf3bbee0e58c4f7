"""Requests written straight from columns."""


cdef int request_alone(object message) except -1:
    """The api of a request that has no partition states of its own."""
    if type(message) not in (UpdateMetadataRequest, LeaderAndIsrRequest, StopReplicaRequest):
        raise TypeError(f"expected a request of this codec, got {type(message).__name__}")
    cdef int api = message.api_key
    if message.topic_states or (message.ungrouped_partitions or message.topics if api == 5
                                else message.ungrouped_partition_states):
        raise ValueError("the message holds partition states of its own; the columns are to give them all")
    return api


cdef int64_t states_size(object message, int api, int version, Columns columns, int64_t *groups) except -1:
    """The size of the rows of one batch, without the count of their groups."""
    cdef kp_problem x
    cdef int64_t size
    if api == 5:
        size = kp_stops_size(columns.batch, version, (<StopReplicaRequest>message).delete_partitions, groups, &x)
    else:
        size = kp_states_size(columns.batch, api == 6, version, groups, &x)
    if size < 0:
        problem_error(&x, version)
    return size


cdef int put_states(kp_writer *w, int api, int version, Columns columns, int64_t size) except -1:
    """Write the rows of one batch, whose size is known."""
    kp_reserve(w, size)
    if api == 6:
        w.q = kp_put_umr_states(w.q, columns.batch, version)
    elif api == 4:
        w.q = kp_put_lisr_states(w.q, columns.batch, version)
    else:
        w.q = kp_put_stops(w.q, columns.batch, version)
    return 0


def encode_columns(message, version, columns):
    """Write a request whose partition states are in columns.

    Rows of the same topic that follow each other become one group; the bytes are those of ``encode`` for the message
    with these rows.

    Args:
        message: A request without partition states, which has the other fields.
        version: As for ``encode``.
        columns: ``Columns``, or any record batch that offers ``__arrow_c_array__`` with columns named and typed
            alike (``frame`` is not looked at, ``topic_id`` may be missing), or a mapping as for
            ``Columns.from_sequences``. No nulls. All but ``Columns`` are checked and copied first.

    Raises:
        FieldNotInVersion, OutOfRange, EncodeError, UnsupportedVersion: As ``encode``.
        ValueError, TypeError: Columns missing, of other types, or broken.
    """
    cdef int api = request_alone(message), v = checked_version(api, version)
    cdef Columns rows = columns_given(columns, api)
    cdef int64_t groups = 0, size = states_size(message, api, v, rows, &groups)
    cdef kp_writer w
    kp_begin(&w)
    try:
        put_head(&w, message, api, v)
        kp_add_count(&w, groups, flexible_in(api, v))
        put_states(&w, api, v, rows, size)
        put_tail(&w, message, api, v)
        return <bytes>kp_finish(&w)
    finally:
        Py_XDECREF(w.out)


def encode_batches(message, version, batches):
    """``encode_columns`` in pieces, for a request whose columns should not all be in memory at once.

    A topic whose rows go on in the next batch becomes a group in each.

    Args:
        message, version: As for ``encode_columns``.
        batches: An iterable of such columns; each is let go before the next one is asked for.

    Returns:
        The request in pieces: the fields before the rows, the rows of each batch, the fields behind them.

    Raises:
        As ``encode_columns``.
    """
    cdef int api = request_alone(message), v = checked_version(api, version)
    cdef int64_t groups = 0, total = 0, size
    cdef Columns rows
    cdef list pieces = [b""]
    cdef kp_writer w
    for columns in batches:
        rows = columns_given(columns, api)
        size = states_size(message, api, v, rows, &groups)
        kp_begin(&w)
        try:
            put_states(&w, api, v, rows, size)
            pieces.append(kp_finish(&w))
        finally:
            Py_XDECREF(w.out)
        total += groups
        columns = rows = None
    if total >= INT32_MAX:
        raise OutOfRange(f"{total} topics or partitions are more than a message holds")
    pieces[0] = written_around(message, api, v, total)
    pieces.append(written_around(message, api, v, -1))
    return pieces


cdef bytes written_around(object message, int api, int version, int64_t groups):
    """A request's bytes before the first of its groups, whose number is given; for -1 those behind the last group."""
    cdef kp_writer w
    kp_begin(&w)
    try:
        if groups < 0:
            put_tail(&w, message, api, version)
        else:
            put_head(&w, message, api, version)
            kp_add_count(&w, groups, flexible_in(api, version))
        return <bytes>kp_finish(&w)
    finally:
        Py_XDECREF(w.out)
