"""LeaderAndIsr, written: sizes with every check, then bytes without any."""


@cython.nonecheck(False)
cdef int64_t lisr_rows_size(list rows, int version, str field) except -1:
    cdef bint flexible = version >= 4
    cdef int64_t total = 0
    cdef Py_ssize_t j = 0
    cdef LeaderAndIsrPartitionState v
    cdef object x
    try:
        for j in range(size_of(rows)):
            x = <object>PyList_GET_ITEM(rows, j)
            if type(x) is not LeaderAndIsrPartitionState:
                wrong(x, "LeaderAndIsrPartitionState", field, j)
            v = <LeaderAndIsrPartitionState>x
            total += kp_lisr_row_size(v.n, version)
            if version < 6 and v.leader_recovery_state:
                lacking(version, "leader_recovery_state")
            if version <= 1:
                total += text_size(row_topic(v.owner), False, "topic_name")
            if v.owner is not None and v.owner.tags is not None:
                total += tags_size(v.owner.tags, flexible, version) - 1
    except EncodeError as error:
        within(error, f"{field}[{j}]")
        raise
    return total


@cython.nonecheck(False)
cdef uint8_t *lisr_put_rows(uint8_t *q, list rows, int version, rp end) noexcept:
    cdef kp_state row
    cdef Py_ssize_t j
    cdef LeaderAndIsrPartitionState v
    for j in range(size_of(rows)):
        v = <LeaderAndIsrPartitionState>PyList_GET_ITEM(rows, j)
        if version <= 1:
            q = put_text(q, row_topic(v.owner), False)
        row.partition = v.partition_index
        row.controller_epoch = v.controller_epoch
        row.leader = v.leader
        row.leader_epoch = v.leader_epoch
        row.partition_epoch = v.partition_epoch
        row.is_new = v.is_new
        row.recovery = v.leader_recovery_state
        memcpy(row.n, v.n, sizeof(v.n))
        row.ids[0] = v.ids
        row.ids[1] = row.ids[0] + v.n[0]
        row.ids[2] = row.ids[1] + v.n[1]
        row.ids[3] = row.ids[2] + v.n[2]
        q = kp_put_lisr_row(q, &row, version, end)
        if version >= 4:
            q = put_row_tags(q, v.owner)
    return q


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
    if version >= 2 and size_of(m.ungrouped_):
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


cdef int lisr_settle(LeaderAndIsrRequest m, int version) except -1:
    """Make objects of leaders that are bytes of another form."""
    cdef Unread u = m.unread_leaders
    if u is not None and flexible_in(4, u.version) != flexible_in(4, version):
        lisr_read_unread(m)
    return 0


cdef int64_t lisr_tail_size(LeaderAndIsrRequest m, int version) except -1:
    """Live leaders and the request's tagged section: what stands behind the partition states."""
    cdef bint flexible = version >= 4
    cdef int64_t size = tags_size(m.tags, flexible, version)
    if m.unread_leaders is not None:
        return size + count_size(m.unread_leaders.count, flexible) + (m.unread_leaders.end - m.unread_leaders.at)
    return size + count_size(size_of(m.live_leaders_), flexible) + lisr_leaders_size(m.live_leaders_, version)


cdef uint8_t *lisr_put_tail(uint8_t *q, LeaderAndIsrRequest m, int version) noexcept:
    cdef bint flexible = version >= 4
    cdef Py_ssize_t i
    cdef LeaderAndIsrLiveLeader v
    cdef Unread u = m.unread_leaders
    if u is not None:
        q = kp_put_count(q, u.count, flexible)
        memcpy(q, u.at, u.end - u.at)
        return put_tags(q + (u.end - u.at), m.tags, flexible)
    q = kp_put_count(q, size_of(m.live_leaders_), flexible)
    for i in range(size_of(m.live_leaders_)):
        v = <LeaderAndIsrLiveLeader>PyList_GET_ITEM(m.live_leaders_, i)
        kp_put32(q, v.broker_id)
        q = put_text(q + 4, v.host_name, flexible)
        kp_put32(q, v.port)
        q = put_tags(q + 4, v.tags, flexible)
    return put_tags(q, m.tags, flexible)


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
        size += errors_size(m.partition_errors_, 4, version, flexible, True)
    else:
        size += count_size(size_of(m.topics_), True)
        try:
            for i in range(size_of(m.topics_)):
                x = <object>PyList_GET_ITEM(m.topics_, i)
                if type(x) is not LeaderAndIsrTopicError:
                    wrong(x, "LeaderAndIsrTopicError", "topics", i)
                topic = <LeaderAndIsrTopicError>x
                size += 16 + errors_size(topic.partition_errors_, 4, version, True, False)
                size += tags_size(topic.tags, True, version)
        except EncodeError as error:
            within(error, f"topics[{i}]")
            raise
    out = new_bytes(size)
    q = <uint8_t *>PyBytes_AS_STRING(out)
    kp_put16(q, m.error_code)
    q += 2
    if version < 5:
        q = put_errors(q, m.partition_errors_, flexible, True)
    else:
        q = kp_put_count(q, size_of(m.topics_), True)
        for i in range(size_of(m.topics_)):
            topic = <LeaderAndIsrTopicError>PyList_GET_ITEM(m.topics_, i)
            memcpy(q, topic.id, 16)
            q = put_errors(q + 16, topic.partition_errors_, True, False)
            q = put_tags(q, topic.tags, True)
    put_tags(q, m.tags, flexible)
    return out
