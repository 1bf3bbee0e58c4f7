"""LeaderAndIsr, written: sizes with every check, then bytes without any."""


cdef int64_t lisr_rows_size(list rows, int version, str field) except -1:
    cdef bint flexible = version >= 4
    cdef int64_t total = 0, ids
    cdef int64_t each = (24 if flexible else 36 if version == 3 else 28) + (1 if version >= 1 else 0) \
        + (1 if version >= 6 else 0) + (1 if flexible else 0)
    cdef Py_ssize_t j = 0
    cdef LeaderAndIsrPartitionState v
    cdef object x
    try:
        for j in range(size_of(rows)):
            x = <object>PyList_GET_ITEM(rows, j)
            if type(x) is not LeaderAndIsrPartitionState:
                wrong(x, "LeaderAndIsrPartitionState", field, j)
            v = <LeaderAndIsrPartitionState>x
            ids = <int64_t>v.n[0] + v.n[1]
            if version >= 3:
                ids += <int64_t>v.n[2] + v.n[3]
            total += each + 4 * ids
            if version < 6 and v.leader_recovery_state:
                lacking(version, "leader_recovery_state")
            if flexible:
                if (v.n[0] | v.n[1] | v.n[2] | v.n[3]) >= 127:
                    total += kp_varint_size(v.n[0] + 1) + kp_varint_size(v.n[1] + 1) \
                        + kp_varint_size(v.n[2] + 1) + kp_varint_size(v.n[3] + 1) - 4
                if v.owner is not None and v.owner.tags is not None:
                    total += tags_size(v.owner.tags, True, version) - 1
            else:
                if version <= 1:
                    total += text_size(row_topic(v.owner), False, "topic_name")
                tags_size(row_tags(v.owner), False, version)
    except EncodeError as error:
        within(error, f"{field}[{j}]")
        raise
    return total


cdef uint8_t *lisr_put_rows(uint8_t *q, list rows, int version, rp end) except NULL:
    cdef bint flexible = version >= 4
    cdef Py_ssize_t j
    cdef LeaderAndIsrPartitionState v
    cdef int32_t *ids
    for j in range(size_of(rows)):
        v = <LeaderAndIsrPartitionState>PyList_GET_ITEM(rows, j)
        if version <= 1:
            q = put_text(q, row_topic(v.owner), False)
        kp_put32(q, v.partition_index)
        kp_put32(q + 4, v.controller_epoch)
        kp_put32(q + 8, v.leader)
        kp_put32(q + 12, v.leader_epoch)
        ids = v.ids
        q = put_list_of_ids(q + 16, ids, v.n[0], flexible, end)
        ids += v.n[0]
        kp_put32(q, v.partition_epoch)
        q = put_list_of_ids(q + 4, ids, v.n[1], flexible, end)
        if version >= 3:
            ids += v.n[1]
            q = put_list_of_ids(q, ids, v.n[2], flexible, end)
            ids += v.n[2]
            q = put_list_of_ids(q, ids, v.n[3], flexible, end)
        if version >= 1:
            q[0] = v.is_new
            q += 1
        if version >= 6:
            q[0] = <uint8_t>v.leader_recovery_state
            q += 1
        if flexible:
            q = put_row_tags(q, v.owner)
    return q


cdef int64_t lisr_topics_size(list topics, int version) except -1:
    cdef bint flexible = version >= 4
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef LeaderAndIsrTopicState topic
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not LeaderAndIsrTopicState:
                wrong(x, "LeaderAndIsrTopicState", "topic_states", i)
            topic = <LeaderAndIsrTopicState>x
            total += text_size(topic.topic_name, flexible, "topic_name") + (16 if version >= 5 else 0)
            total += count_size(size_of(topic.partition_states_), flexible)
            total += lisr_rows_size(topic.partition_states_, version, "partition_states")
            total += tags_size(topic.tags, flexible, version)
    except EncodeError as error:
        within(error, f"topic_states[{i}]")
        raise
    return total


cdef int64_t lisr_leaders_size(list leaders, int version) except -1:
    cdef bint flexible = version >= 4
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef LeaderAndIsrLiveLeader v
    try:
        for i in range(size_of(leaders)):
            x = <object>PyList_GET_ITEM(leaders, i)
            if type(x) is not LeaderAndIsrLiveLeader:
                wrong(x, "LeaderAndIsrLiveLeader", "live_leaders", i)
            v = <LeaderAndIsrLiveLeader>x
            total += 8 + text_size(v.host_name, flexible, "host_name") + tags_size(v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"live_leaders[{i}]")
        raise
    return total


cdef int lisr_check(LeaderAndIsrRequest m, int version) except -1:
    """Fields that the version lacks and that may not be dropped."""
    if version < 7 and m.is_kraft_controller:
        lacking(version, "is_kraft_controller")
    if version < 5 and m.type:
        lacking(version, "type")
    if version >= 2 and size_of(m.ungrouped_partition_states_):
        lacking(version, "ungrouped_partition_states")
    if version < 2 and size_of(m.topic_states_):
        lacking(version, "topic_states")
    return 0


cdef int64_t lisr_head_size(int version) noexcept:
    return 8 + (8 if version >= 2 else 0) + (1 if version >= 5 else 0) + (1 if version >= 7 else 0)


cdef uint8_t *lisr_put_head(uint8_t *q, LeaderAndIsrRequest m, int version) noexcept:
    kp_put32(q, m.controller_id)
    q += 4
    if version >= 7:
        q[0] = m.is_kraft_controller
        q += 1
    kp_put32(q, m.controller_epoch)
    q += 4
    if version >= 2:
        kp_put64(q, m.broker_epoch)
        q += 8
    if version >= 5:
        q[0] = <uint8_t>m.type
        q += 1
    return q


cdef bint lisr_plain_as(LeaderAndIsrRequest m, int version) except -1:
    """Whether the leaders are still bytes, and those of this version; leaders of another form are read now."""
    if m.plain is None:
        return 0
    if (m.plain_version >= 4) == (version >= 4):
        return 1
    m.leaders()
    return 0


cdef int64_t lisr_tail_size(LeaderAndIsrRequest m, int version) except -1:
    """Live leaders and the request's tagged section: what stands behind the partition states."""
    cdef bint flexible = version >= 4
    cdef int64_t size = tags_size(m.tags, flexible, version)
    if lisr_plain_as(m, version):
        return size + count_size(m.plain_count, flexible) + PyBytes_GET_SIZE(m.plain)
    return size + count_size(size_of(m.live_leaders_), flexible) + lisr_leaders_size(m.live_leaders_, version)


cdef uint8_t *lisr_put_tail(uint8_t *q, LeaderAndIsrRequest m, int version) except NULL:
    cdef bint flexible = version >= 4
    cdef Py_ssize_t i
    cdef LeaderAndIsrLiveLeader v
    if m.plain is not None:
        q = put_count(q, m.plain_count, flexible)
        memcpy(q, PyBytes_AS_STRING(m.plain), PyBytes_GET_SIZE(m.plain))
        return put_tags(q + PyBytes_GET_SIZE(m.plain), m.tags, flexible)
    q = put_count(q, size_of(m.live_leaders_), flexible)
    for i in range(size_of(m.live_leaders_)):
        v = <LeaderAndIsrLiveLeader>PyList_GET_ITEM(m.live_leaders_, i)
        kp_put32(q, v.broker_id)
        q = put_text(q + 4, v.host_name, flexible)
        kp_put32(q, v.port)
        q = put_tags(q + 4, v.tags, flexible)
    return put_tags(q, m.tags, flexible)


cdef bytes lisr_write(LeaderAndIsrRequest m, int version):
    cdef bint flexible = version >= 4
    cdef int64_t size
    cdef Py_ssize_t i
    cdef bytes out
    cdef uint8_t *q
    cdef LeaderAndIsrTopicState topic
    cdef list groups = m.topic_states_ if version >= 2 else m.ungrouped_partition_states_
    lisr_check(m, version)
    lisr_plain_as(m, version)  # before the first size: objects may be made
    size = lisr_head_size(version) + count_size(size_of(groups), flexible) + lisr_tail_size(m, version)
    if version >= 2:
        size += lisr_topics_size(groups, version)
    else:
        size += lisr_rows_size(groups, version, "ungrouped_partition_states")
    out = new_bytes(size)
    q = lisr_put_head(<uint8_t *>PyBytes_AS_STRING(out), m, version)
    q = put_count(q, size_of(groups), flexible)
    if version < 2:
        q = lisr_put_rows(q, groups, version, <rp>PyBytes_AS_STRING(out) + size)
    else:
        for i in range(size_of(groups)):
            topic = <LeaderAndIsrTopicState>PyList_GET_ITEM(groups, i)
            q = put_text(q, topic.topic_name, flexible)
            if version >= 5:
                memcpy(q, topic.id, 16)
                q += 16
            q = put_count(q, size_of(topic.partition_states_), flexible)
            q = lisr_put_rows(q, topic.partition_states_, version, <rp>PyBytes_AS_STRING(out) + size)
            q = put_tags(q, topic.tags, flexible)
    lisr_put_tail(q, m, version)
    return out


cdef int64_t lisr_errors_size(list errors, int version) except -1:
    cdef bint flexible = version >= 4
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef LeaderAndIsrPartitionError v
    try:
        for i in range(size_of(errors)):
            x = <object>PyList_GET_ITEM(errors, i)
            if type(x) is not LeaderAndIsrPartitionError:
                wrong(x, "LeaderAndIsrPartitionError", "partition_errors", i)
            v = <LeaderAndIsrPartitionError>x
            total += 6 + tags_size(v.tags, flexible, version)
            if version <= 4:
                total += text_size(v.topic_name, flexible, "topic_name")
    except EncodeError as error:
        within(error, f"partition_errors[{i}]")
        raise
    return total


cdef uint8_t *lisr_put_errors(uint8_t *q, list errors, int version) except NULL:
    cdef bint flexible = version >= 4
    cdef Py_ssize_t i
    cdef LeaderAndIsrPartitionError v
    q = put_count(q, size_of(errors), flexible)
    for i in range(size_of(errors)):
        v = <LeaderAndIsrPartitionError>PyList_GET_ITEM(errors, i)
        if version <= 4:
            q = put_text(q, v.topic_name, flexible)
        kp_put32(q, v.partition_index)
        kp_put16(q + 4, v.error_code)
        q = put_tags(q + 6, v.tags, flexible)
    return q


cdef int lisr_check_response(LeaderAndIsrResponse m, int version) except -1:
    if version >= 5 and size_of(m.partition_errors_):
        lacking(version, "partition_errors")
    if version < 5 and size_of(m.topics_):
        lacking(version, "topics")
    return 0


cdef bytes lisr_write_response(LeaderAndIsrResponse m, int version):
    cdef bint flexible = version >= 4
    cdef int64_t size = 2 + tags_size(m.tags, flexible, version)
    cdef Py_ssize_t i = 0
    cdef bytes out
    cdef uint8_t *q
    cdef LeaderAndIsrTopicError topic
    lisr_check_response(m, version)
    if version < 5:
        size += count_size(size_of(m.partition_errors_), flexible) + lisr_errors_size(m.partition_errors_, version)
    else:
        size += count_size(size_of(m.topics_), True)
        try:
            for i in range(size_of(m.topics_)):
                x = <object>PyList_GET_ITEM(m.topics_, i)
                if type(x) is not LeaderAndIsrTopicError:
                    wrong(x, "LeaderAndIsrTopicError", "topics", i)
                topic = <LeaderAndIsrTopicError>x
                size += 16 + count_size(size_of(topic.partition_errors_), True) + tags_size(topic.tags, True, version)
                size += lisr_errors_size(topic.partition_errors_, version)
        except EncodeError as error:
            within(error, f"topics[{i}]")
            raise
    out = new_bytes(size)
    q = <uint8_t *>PyBytes_AS_STRING(out)
    kp_put16(q, m.error_code)
    q += 2
    if version < 5:
        q = lisr_put_errors(q, m.partition_errors_, version)
    else:
        q = put_count(q, size_of(m.topics_), True)
        for i in range(size_of(m.topics_)):
            topic = <LeaderAndIsrTopicError>PyList_GET_ITEM(m.topics_, i)
            memcpy(q, topic.id, 16)
            q = lisr_put_errors(q + 16, topic.partition_errors_, version)
            q = put_tags(q, topic.tags, True)
    put_tags(q, m.tags, flexible)
    return out
