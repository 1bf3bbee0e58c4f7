"""LeaderAndIsr, written."""


@cython.nonecheck(False)
cdef inline PyObject *lisr_state(LeaderAndIsrPartitionState v, kp_state *row) noexcept:
    """A row's values, and its owner, borrowed."""
    row.head = &v.partition_index
    row.partition_epoch = v.partition_epoch
    row.is_new = v.is_new
    row.recovery = v.leader_recovery_state
    row.n[0], row.n[1], row.n[2], row.n[3] = v.n[0], v.n[1], v.n[2], v.n[3]
    row.ids[0] = v.ids
    row.ids[1] = row.ids[0] + v.n[0]
    row.ids[2] = row.ids[1] + v.n[1]
    row.ids[3] = row.ids[2] + v.n[2]
    return <PyObject *>v.owner


cdef int lisr_put_leaders(kp_writer *w, list leaders, int version) except -1:
    cdef bint flexible = version >= 4
    cdef Py_ssize_t i = 0
    cdef LeaderAndIsrLiveLeader v
    kp_add_count(w, size_of(leaders), flexible)
    try:
        for i in range(size_of(leaders)):
            x = <object>PyList_GET_ITEM(leaders, i)
            if type(x) is not LeaderAndIsrLiveLeader:
                wrong(x, LeaderAndIsrLiveLeader)
            v = <LeaderAndIsrLiveLeader>x
            kp_add32(w, v.broker_id)
            put_text(w, v.host_name, flexible, "host_name")
            kp_add32(w, v.port)
            put_tags(w, v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"live_leaders[{i}]")
        raise
    return 0


cdef int lisr_check_response(LeaderAndIsrResponse m, int version) except -1:
    if version >= 5 and size_of(m.partition_errors_):
        lacking(version, "partition_errors")
    if version < 5 and size_of(m.topics_):
        lacking(version, "topics")
    return 0


cdef int lisr_put_topic_errors(kp_writer *w, list topics, int version) except -1:
    cdef Py_ssize_t i = 0
    cdef LeaderAndIsrTopicError topic
    kp_add_count(w, size_of(topics), True)
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not LeaderAndIsrTopicError:
                wrong(x, LeaderAndIsrTopicError)
            topic = <LeaderAndIsrTopicError>x
            kp_add_bytes(w, topic.id, 16)
            put_errors(w, topic.partition_errors_, 4, version, False)
            put_tags(w, topic.tags, True, version)
    except EncodeError as error:
        within(error, f"topics[{i}]")
        raise
    return 0


cdef int lisr_write_response(kp_writer *w, LeaderAndIsrResponse m, int version) except -1:
    lisr_check_response(m, version)
    kp_add16(w, m.error_code)
    if version >= 5:
        lisr_put_topic_errors(w, m.topics_, version)
    else:
        put_errors(w, m.partition_errors_, 4, version, True)
    return put_tags(w, m.tags, version >= 4, version)
