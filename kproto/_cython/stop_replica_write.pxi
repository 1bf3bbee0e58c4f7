"""StopReplica, written: sizes with every check, then bytes without any."""


cdef int sr_check(StopReplicaRequest m, int version) except -1:
    """Fields that the version lacks and that may not be dropped."""
    if version < 4 and m.is_kraft_controller:
        lacking(version, "is_kraft_controller")
    if version > 2 and m.delete_partitions:
        lacking(version, "delete_partitions")
    if version != 0 and size_of(m.ungrouped_partitions_):
        lacking(version, "ungrouped_partitions")
    if (version < 1 or version > 2) and size_of(m.topics_):
        lacking(version, "topics")
    if version < 3 and size_of(m.topic_states_):
        lacking(version, "topic_states")
    return 0


cdef int64_t sr_ungrouped_size(list partitions) except -1:
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    try:
        for i in range(size_of(partitions)):
            x = <object>PyList_GET_ITEM(partitions, i)
            if type(x) is not StopReplicaPartitionV0:
                wrong(x, "StopReplicaPartitionV0", "ungrouped_partitions", i)
            total += 4 + text_size((<StopReplicaPartitionV0>x).topic_name, False, "topic_name")
            total += tags_size((<StopReplicaPartitionV0>x).tags, False, 0)
    except EncodeError as error:
        within(error, f"ungrouped_partitions[{i}]")
        raise
    return total


cdef int64_t sr_topics_size(list topics, int version) except -1:
    cdef bint flexible = version >= 2
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef StopReplicaTopicV1 v
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not StopReplicaTopicV1:
                wrong(x, "StopReplicaTopicV1", "topics", i)
            v = <StopReplicaTopicV1>x
            total += text_size(v.name, flexible, "name") + count_size(v.n[0], flexible) + 4 * <int64_t>v.n[0]
            total += tags_size(v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"topics[{i}]")
        raise
    return total


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


cdef int64_t sr_topic_states_size(list topics, int version) except -1:
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef StopReplicaTopicState topic
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not StopReplicaTopicState:
                wrong(x, "StopReplicaTopicState", "topic_states", i)
            topic = <StopReplicaTopicState>x
            total += text_size(topic.topic_name, True, "topic_name") + tags_size(topic.tags, True, version)
            total += count_size(size_of(topic.partition_states_), True)
            total += sr_rows_size(topic.partition_states_, version)
    except EncodeError as error:
        within(error, f"topic_states[{i}]")
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


cdef bytes sr_write(StopReplicaRequest m, int version):
    cdef bint flexible = version >= 2
    cdef int64_t size = sr_head_size(version) + tags_size(m.tags, flexible, version)
    cdef Py_ssize_t i
    cdef bytes out
    cdef uint8_t *q
    cdef StopReplicaTopicV1 v
    cdef StopReplicaPartitionV0 single
    cdef StopReplicaTopicState topic
    cdef list groups = m.topic_states_ if version >= 3 else m.topics_ if version >= 1 else m.ungrouped_partitions_
    sr_check(m, version)
    size += count_size(size_of(groups), flexible)
    if version >= 3:
        size += sr_topic_states_size(groups, version)
    elif version >= 1:
        size += sr_topics_size(groups, version)
    else:
        size += sr_ungrouped_size(groups)
    out = new_bytes(size)
    q = put_count(sr_put_head(<uint8_t *>PyBytes_AS_STRING(out), m, version), size_of(groups), flexible)
    for i in range(size_of(groups)):
        if version >= 3:
            topic = <StopReplicaTopicState>PyList_GET_ITEM(groups, i)
            q = put_text(q, topic.topic_name, True)
            q = sr_put_rows(put_count(q, size_of(topic.partition_states_), True), topic.partition_states_)
            q = put_tags(q, topic.tags, True)
        elif version >= 1:
            v = <StopReplicaTopicV1>PyList_GET_ITEM(groups, i)
            q = put_text(q, v.name, flexible)
            q = put_list_of_ids(q, v.ids, v.n[0], flexible, <rp>PyBytes_AS_STRING(out) + size)
            q = put_tags(q, v.tags, flexible)
        else:
            single = <StopReplicaPartitionV0>PyList_GET_ITEM(groups, i)
            q = put_text(q, single.topic_name, False)
            kp_put32(q, single.partition_index)
            q += 4
    put_tags(q, m.tags, flexible)
    return out


cdef bytes sr_write_response(StopReplicaResponse m, int version):
    cdef bint flexible = version >= 2
    cdef int64_t size = 2 + tags_size(m.tags, flexible, version) + count_size(size_of(m.partition_errors_), flexible)
    cdef Py_ssize_t i = 0
    cdef bytes out
    cdef uint8_t *q
    cdef StopReplicaPartitionError v
    try:
        for i in range(size_of(m.partition_errors_)):
            x = <object>PyList_GET_ITEM(m.partition_errors_, i)
            if type(x) is not StopReplicaPartitionError:
                wrong(x, "StopReplicaPartitionError", "partition_errors", i)
            v = <StopReplicaPartitionError>x
            size += 6 + text_size(v.topic_name, flexible, "topic_name") + tags_size(v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"partition_errors[{i}]")
        raise
    out = new_bytes(size)
    q = <uint8_t *>PyBytes_AS_STRING(out)
    kp_put16(q, m.error_code)
    q = put_count(q + 2, size_of(m.partition_errors_), flexible)
    for i in range(size_of(m.partition_errors_)):
        v = <StopReplicaPartitionError>PyList_GET_ITEM(m.partition_errors_, i)
        q = put_text(q, v.topic_name, flexible)
        kp_put32(q, v.partition_index)
        kp_put16(q + 4, v.error_code)
        q = put_tags(q + 6, v.tags, flexible)
    put_tags(q, m.tags, flexible)
    return out
