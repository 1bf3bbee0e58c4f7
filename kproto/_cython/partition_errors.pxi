"""Partition errors, which the responses of LeaderAndIsr and StopReplica share."""


cdef class PartitionError(Tagged):
    """One partition's result."""

    _fields = ("topic_name", "partition_index", "error_code", "unknown_tagged_fields")

    def __init__(self, *, topic_name="", partition_index=0, error_code=0, unknown_tagged_fields=()):
        self.topic_name = as_text(topic_name, "topic_name")
        self.partition_index = int32(partition_index, "partition_index")
        self.error_code = int16(error_code, "error_code")
        self.tags = tags_kept(unknown_tagged_fields)


cdef dict counted(int error_code, list errors):
    cdef dict counts = {}
    if error_code:
        return {error_code: len(errors) + 1}
    counts[0] = 1
    for e in errors:
        counts[e.error_code] = counts.get(e.error_code, 0) + 1
    return counts


@cython.nonecheck(False)
cdef rp read_errors(kp_reader *r, rp p, list errors, int api, bint flexible, bint named) except? NULL:
    """The errors of a list that has one empty place for each; ``named``: each has its topic's name."""
    cdef kp_error row
    cdef rp last_name = NULL
    cdef int64_t i, last_length = -1
    cdef str topic_name = ""
    cdef PartitionError v
    for i in range(PyList_GET_SIZE(errors)):
        p = kp_read_error(r, p, r.end, flexible, named, &row)
        if p == NULL:
            return kp_inside(r, "partition_errors", i)
        if named and (row.name_length != last_length or memcmp(row.name, last_name, row.name_length)):
            topic_name = text(row.name, row.name_length)
            last_name, last_length = row.name, row.name_length
        if api == 4:
            v = LeaderAndIsrPartitionError.__new__(LeaderAndIsrPartitionError)
        else:
            v = StopReplicaPartitionError.__new__(StopReplicaPartitionError)
        Py_INCREF(v)
        PyList_SET_ITEM(errors, i, v)
        v.topic_name = topic_name
        v.partition_index = row.partition
        v.error_code = row.error_code
        if row.tags != NULL:
            v.tags = kept(row.tags, row.tags_end)
    return p


cdef int put_errors(kp_writer *w, list errors, int api, int version, bint named) except -1:
    """Write partition errors with their count; ``named``: each with its topic's name."""
    cdef type expected = LeaderAndIsrPartitionError if api == 4 else StopReplicaPartitionError
    cdef bint flexible = flexible_in(api, version)
    cdef Py_ssize_t i = 0
    cdef PartitionError v
    kp_add_count(w, size_of(errors), flexible)
    try:
        for i in range(size_of(errors)):
            x = <object>PyList_GET_ITEM(errors, i)
            if type(x) is not expected:
                wrong(x, expected)
            v = <PartitionError>x
            if named:
                w.q = put_name(w, w.q, <PyObject *>v.topic_name, flexible, 0)
            kp_add32(w, v.partition_index)
            kp_add16(w, v.error_code)
            put_tags(w, v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"partition_errors[{i}]")
        raise
    return 0
