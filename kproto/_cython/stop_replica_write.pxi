"""StopReplica, written: sizes with every check, then bytes without any."""


cdef int sr_check(StopReplicaRequest m, int version) except -1:
    """Fields that the version lacks and that may not be dropped."""
    if version < 4 and m.is_kraft_controller:
        lacking(version, "is_kraft_controller")
    if version > 2 and m.delete_partitions:
        lacking(version, "delete_partitions")
    if version != 0 and size_of(m.ungrouped_):
        lacking(version, "ungrouped_partitions")
    if (version < 1 or version > 2) and size_of(m.topics_):
        lacking(version, "topics")
    if version < 3 and size_of(m.topic_states_):
        lacking(version, "topic_states")
    return 0


cdef int64_t sr_rows_size(list rows, int version) except -1:
    cdef int64_t total = 10 * size_of(rows)
    cdef Py_ssize_t j = 0
    cdef object x
    try:
        for j in range(size_of(rows)):
            x = <object>PyList_GET_ITEM(rows, j)
            if type(x) is not StopReplicaPartitionState:
                wrong(x, "StopReplicaPartitionState", "partition_states", j)
            if (<StopReplicaPartitionState>x).tags is not None:
                total += tags_size((<StopReplicaPartitionState>x).tags, True, version) - 1
    except EncodeError as error:
        within(error, f"partition_states[{j}]")
        raise
    return total


cdef int64_t sr_topics_size(list topics, int version) except -1:
    """Topics with their partitions, each of the version's own class."""
    cdef bint flexible = version >= 2
    cdef str field = "topic_states" if version >= 3 else "topics" if version >= 1 else "ungrouped_partitions"
    cdef type expected = StopReplicaTopicState if version >= 3 else StopReplicaTopicV1 if version >= 1 \
        else StopReplicaPartitionV0
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef StopReplicaTopicV1 v
    cdef StopReplicaTopicState topic
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not expected:
                wrong(x, expected.__name__, field, i)
            if version >= 3:
                topic = <StopReplicaTopicState>x
                total += text_size(topic.topic_name, True, "topic_name")
                total += count_size(size_of(topic.partition_states_), True)
                total += sr_rows_size(topic.partition_states_, version)
            elif version >= 1:
                v = <StopReplicaTopicV1>x
                total += text_size(v.name, flexible, "name") + count_size(v.n[0], flexible) + 4 * <int64_t>v.n[0]
            else:
                total += 4 + text_size((<StopReplicaPartitionV0>x).topic_name, False, "topic_name")
            total += tags_size((<Tagged>x).tags, flexible, version)
    except EncodeError as error:
        within(error, f"{field}[{i}]")
        raise
    return total


cdef uint8_t *sr_put_rows(uint8_t *q, list rows) noexcept:
    cdef Py_ssize_t j
    cdef StopReplicaPartitionState v
    for j in range(size_of(rows)):
        v = <StopReplicaPartitionState>PyList_GET_ITEM(rows, j)
        kp_put32(q, v.partition_index)
        kp_put32(q + 4, v.leader_epoch)
        q[8] = v.delete_partition
        q = put_tags(q + 9, v.tags, True)
    return q


cdef int64_t sr_head_size(int version) noexcept:
    return 8 + (8 if version >= 1 else 0) + (1 if version <= 2 or version >= 4 else 0)


cdef uint8_t *sr_put_head(uint8_t *q, StopReplicaRequest m, int version) noexcept:
    kp_put32(q, m.controller_id)
    q += 4
    if version >= 4:
        q[0] = m.is_kraft_controller
        q += 1
    kp_put32(q, m.controller_epoch)
    q += 4
    if version >= 1:
        kp_put64(q, m.broker_epoch)
        q += 8
    if version <= 2:
        q[0] = m.delete_partitions
        q += 1
    return q


cdef uint8_t *sr_put_topics(uint8_t *q, list topics, int version, rp end) noexcept:
    cdef bint flexible = version >= 2
    cdef Py_ssize_t i
    cdef StopReplicaTopicV1 v
    cdef StopReplicaPartitionV0 single
    cdef StopReplicaTopicState topic
    for i in range(size_of(topics)):
        if version >= 3:
            topic = <StopReplicaTopicState>PyList_GET_ITEM(topics, i)
            q = put_text(q, topic.topic_name, True)
            q = sr_put_rows(kp_put_count(q, size_of(topic.partition_states_), True), topic.partition_states_)
            q = put_tags(q, topic.tags, True)
        elif version >= 1:
            v = <StopReplicaTopicV1>PyList_GET_ITEM(topics, i)
            q = put_text(q, v.name, flexible)
            q = kp_put_ids_loose(kp_put_count(q, v.n[0], flexible), v.ids, v.n[0], end)
            q = put_tags(q, v.tags, flexible)
        else:
            single = <StopReplicaPartitionV0>PyList_GET_ITEM(topics, i)
            q = put_text(q, single.topic_name, False)
            kp_put32(q, single.partition_index)
            q += 4
    return q


cdef bytes sr_write_response(StopReplicaResponse m, int version):
    cdef bint flexible = version >= 2
    cdef int64_t size = 2 + tags_size(m.tags, flexible, version)
    size += errors_size(m.partition_errors_, 5, version, flexible, True)
    cdef bytes out = new_bytes(size)
    cdef uint8_t *q = <uint8_t *>PyBytes_AS_STRING(out)
    kp_put16(q, m.error_code)
    q = put_errors(q + 2, m.partition_errors_, flexible, True)
    put_tags(q, m.tags, flexible)
    return out
