"""LeaderAndIsr, read."""


@cython.nonecheck(False)
cdef rp lisr_read_rows(kp_reader *r, rp p, list rows, int version, IdArena arena, const char *field) except? NULL:
    """The partition states of a list that has one empty place for each."""
    cdef kp_row row
    cdef int64_t j
    cdef LeaderAndIsrPartitionState v
    for j in range(PyList_GET_SIZE(rows)):
        p = kp_read_lisr_row(r, p, version, &row)
        if p == NULL:
            return kp_inside(r, field, j)
        v = LeaderAndIsrPartitionState.__new__(LeaderAndIsrPartitionState)
        Py_INCREF(v)
        PyList_SET_ITEM(rows, j, v)
        v.ids = take_row(arena, &row, r.end)
        v.owner = row_owner(arena, &row, version <= 1)
        v.partition_index = row.partition
        v.controller_epoch = row.controller_epoch
        v.leader = row.leader
        v.leader_epoch = row.leader_epoch
        v.partition_epoch = row.partition_epoch
        v.is_new = row.is_new
        v.leader_recovery_state = row.recovery
        v.n[0] = <int32_t>row.n[0]
        v.n[1] = <int32_t>row.n[1]
        v.n[2] = <int32_t>row.n[2]
        v.n[3] = <int32_t>row.n[3]
    return p


cdef rp lisr_read_leaders(kp_reader *r, rp p, list leaders, int version) except? NULL:
    cdef bint flexible = version >= 4
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL
    cdef int64_t i, length = 0
    cdef LeaderAndIsrLiveLeader v
    for i in range(PyList_GET_SIZE(leaders)):
        if e - p < 4:
            kp_fault_group(r, p, "broker_id:4")
            return kp_inside(r, "live_leaders", i)
        v = LeaderAndIsrLiveLeader.__new__(LeaderAndIsrLiveLeader)
        Py_INCREF(v)
        PyList_SET_ITEM(leaders, i, v)
        v.broker_id = kp_i32(p)
        p = kp_string(r, p + 4, e, flexible, False, &length, "host_name")
        if p == NULL:
            return kp_inside(r, "live_leaders", i)
        v.host_name = text(p, length)
        p += length
        if e - p < 4:
            kp_fault_group(r, p, "port:4")
            return kp_inside(r, "live_leaders", i)
        v.port = kp_i32(p)
        p += 4
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "live_leaders", i)
            v.tags = kept(begin, end)
    return p


cdef rp lisr_read_topic_errors(kp_reader *r, rp p, list topics) except? NULL:
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL
    cdef int64_t i, n
    cdef LeaderAndIsrTopicError topic
    for i in range(PyList_GET_SIZE(topics)):
        if e - p < 17:
            kp_fault_group(r, p, "topic_id:16,partition_errors:1")
            return kp_inside(r, "topics", i)
        topic = LeaderAndIsrTopicError.__new__(LeaderAndIsrTopicError)
        Py_INCREF(topic)
        PyList_SET_ITEM(topics, i, topic)
        memcpy(topic.id, p, 16)
        p += 16
        n = kp_count(r, &p, e, True, 7, 1, "partition_errors", "unknown_tagged_fields:1")
        if n < 0:
            return kp_inside(r, "topics", i)
        if n > 0:
            topic.partition_errors_ = PyList_New(n)
            p = read_errors(r, p, topic.partition_errors_, 4, True, False)
            if p == NULL:
                return kp_inside(r, "topics", i)
        p = kp_tags(r, p, e, &begin, &end)
        if p == NULL:
            return kp_inside(r, "topics", i)
        topic.tags = kept(begin, end)
    return p


cdef LeaderAndIsrResponse lisr_read_response(kp_reader *r, int version):
    cdef bint flexible = version >= 4
    cdef LeaderAndIsrResponse m = LeaderAndIsrResponse.__new__(LeaderAndIsrResponse)
    cdef rp p, e = r.end
    cdef int64_t n
    m.version = version
    p = read_error_code(r, &m.error_code)
    if p == NULL:
        return None
    if version >= 5:
        n = kp_count(r, &p, e, True, 18, 1, "topics", "unknown_tagged_fields:1")
        if n < 0:
            return None
        m.topics_ = PyList_New(n)
        p = lisr_read_topic_errors(r, p, m.topics_)
    else:
        n = kp_count(r, &p, e, flexible, 8, flexible, "partition_errors", "unknown_tagged_fields:1")
        if n < 0:
            return None
        m.partition_errors_ = PyList_New(n)
        p = read_errors(r, p, m.partition_errors_, 4, flexible, True)
    if p != NULL and flexible:
        p = read_kept(r, p, m)
    if p == NULL:
        return None
    r.at = p
    return m
