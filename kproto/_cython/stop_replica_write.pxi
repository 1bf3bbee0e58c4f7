"""StopReplica, written."""


@cython.nonecheck(False)
cdef int sr_put_rows(kp_writer *w, list rows, int version) except -1:
    """Write partition states, of versions 3 and later."""
    cdef Py_ssize_t j = 0
    cdef PyObject *x
    cdef uint8_t *q = kp_reserve_at(w, w.q, 10 * size_of(rows))
    try:
        for j in range(size_of(rows)):
            x = PyList_GET_ITEM(rows, j)
            if type(<object>x) is not StopReplicaPartitionState:
                wrong(<object>x, StopReplicaPartitionState)
            kp_put32(q, (<StopReplicaPartitionState>x).partition_index)
            kp_put32(q + 4, (<StopReplicaPartitionState>x).leader_epoch)
            q[8] = (<StopReplicaPartitionState>x).delete_partition
            q[9] = 0
            q += 10
            if (<StopReplicaPartitionState>x).tags is not None:
                w.q = q - 1
                put_tags(w, (<StopReplicaPartitionState>x).tags, True, version)
                q = kp_reserve_at(w, w.q, 10 * (PyList_GET_SIZE(rows) - j))
        w.q = q
    except EncodeError as error:
        within(error, f"partition_states[{j}]")
        raise
    return 0


@cython.nonecheck(False)
cdef int sr_put_ungrouped(kp_writer *w, list partitions) except -1:
    """Write the partitions of version 0, each with its topic."""
    cdef Py_ssize_t i = 0
    cdef int64_t at = w.q - w.start
    cdef PyObject *x
    cdef uint8_t *q = w.q
    try:
        for i in range(size_of(partitions)):
            x = PyList_GET_ITEM(partitions, i)
            if type(<object>x) is not StopReplicaPartitionV0:
                wrong(<object>x, StopReplicaPartitionV0)
            q = put_name(w, q, <PyObject *>(<StopReplicaPartitionV0>x).topic_name, False, 4)
            kp_put32(q, (<StopReplicaPartitionV0>x).partition_index)
            q += 4
            if (<StopReplicaPartitionV0>x).tags is not None:
                put_tags(w, (<StopReplicaPartitionV0>x).tags, False, 0)  # which raises
            if i == 0:
                q = kp_reserve_at(w, q, (PyList_GET_SIZE(partitions) - 1) * (q - w.start - at))
        w.q = q
    except EncodeError as error:
        within(error, f"ungrouped_partitions[{i}]")
        raise
    return 0


cdef inline int64_t sr_rows_of(PyObject *topic, type expected) noexcept:
    """How many partitions a topic has, and one for its name."""
    if type(<object>topic) is not expected:
        return 1
    if expected is StopReplicaTopicV1:
        return 1 + (<StopReplicaTopicV1>topic).n[0]
    return 1 + size_of((<StopReplicaTopicState>topic).partition_states_)


cdef int sr_reserve_topics(kp_writer *w, list topics, type expected, int64_t first_size) except -1:
    """Get memory for all topics after the first, as if their partitions took as much as the first one's."""
    cdef int64_t rows = 0, first = sr_rows_of(PyList_GET_ITEM(topics, 0), expected)
    cdef Py_ssize_t i
    for i in range(1, PyList_GET_SIZE(topics)):
        rows += sr_rows_of(PyList_GET_ITEM(topics, i), expected)
    return kp_reserve(w, first_size * rows // first)


cdef int sr_put_topics(kp_writer *w, list topics, int version) except -1:
    """Write topics with their partitions, each of the version's own class (1 and later)."""
    cdef bint flexible = version >= 2
    cdef str field = "topic_states" if version >= 3 else "topics"
    cdef type expected = StopReplicaTopicState if version >= 3 else StopReplicaTopicV1
    cdef int64_t at = w.q - w.start
    cdef Py_ssize_t i = 0
    cdef StopReplicaTopicV1 v
    cdef StopReplicaTopicState topic
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not expected:
                wrong(x, expected)
            if version >= 3:
                topic = <StopReplicaTopicState>x
                put_text(w, topic.topic_name, True, "topic_name")
                kp_add_count(w, size_of(topic.partition_states_), True)
                sr_put_rows(w, topic.partition_states_, version)
            else:
                v = <StopReplicaTopicV1>x
                put_text(w, v.name, flexible, "name")
                kp_add_count(w, v.n[0], flexible)
                kp_reserve(w, 4 * <int64_t>v.n[0])
                w.q = kp_put_ids_loose(w.q, v.ids, v.n[0])
            put_tags(w, (<Tagged>x).tags, flexible, version)
            if i == 0:
                sr_reserve_topics(w, topics, expected, w.q - w.start - at)
    except EncodeError as error:
        within(error, f"{field}[{i}]")
        raise
    return 0


cdef int sr_write_response(kp_writer *w, StopReplicaResponse m, int version) except -1:
    kp_add16(w, m.error_code)
    put_errors(w, m.partition_errors_, 5, version, True)
    return put_tags(w, m.tags, version >= 2, version)
