"""UpdateMetadata, written: sizes with every check, then bytes without any."""


@cython.nonecheck(False)
cdef int64_t umr_rows_size(list rows, int version, str field) except -1:
    cdef bint flexible = version >= 6
    cdef int64_t total = 0
    cdef Py_ssize_t j = 0
    cdef UpdateMetadataPartitionState v
    cdef object x
    try:
        for j in range(size_of(rows)):
            x = <object>PyList_GET_ITEM(rows, j)
            if type(x) is not UpdateMetadataPartitionState:
                wrong(x, "UpdateMetadataPartitionState", field, j)
            v = <UpdateMetadataPartitionState>x
            total += kp_umr_row_size(v.n, version)
            if version <= 4:
                total += text_size(row_topic(v.owner), False, "topic_name")
            if v.owner is not None and v.owner.tags is not None:
                total += tags_size(v.owner.tags, flexible, version) - 1
    except EncodeError as error:
        within(error, f"{field}[{j}]")
        raise
    return total


@cython.nonecheck(False)
cdef uint8_t *umr_put_rows(uint8_t *q, list rows, int version, rp end) noexcept:
    cdef kp_state row
    cdef Py_ssize_t j
    cdef UpdateMetadataPartitionState v
    for j in range(size_of(rows)):
        v = <UpdateMetadataPartitionState>PyList_GET_ITEM(rows, j)
        if version <= 4:
            q = put_text(q, row_topic(v.owner), False)
        row.partition = v.partition_index
        row.controller_epoch = v.controller_epoch
        row.leader = v.leader
        row.leader_epoch = v.leader_epoch
        row.partition_epoch = v.zk_version
        memcpy(row.n, v.n, sizeof(v.n))
        row.ids[0] = v.ids
        row.ids[1] = row.ids[0] + v.n[0]
        row.ids[2] = row.ids[1] + v.n[1]
        q = kp_put_umr_row(q, &row, version, end)
        if version >= 6:
            q = put_row_tags(q, v.owner)
    return q


cdef int64_t umr_endpoints_size(list endpoints, int version) except -1:
    cdef bint flexible = version >= 6
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef UpdateMetadataEndpoint v
    try:
        for i in range(size_of(endpoints)):
            x = <object>PyList_GET_ITEM(endpoints, i)
            if type(x) is not UpdateMetadataEndpoint:
                wrong(x, "UpdateMetadataEndpoint", "endpoints", i)
            v = <UpdateMetadataEndpoint>x
            total += 6 + text_size(v.host, flexible, "host") + tags_size(v.tags, flexible, version)
            if version >= 3:
                total += text_size(v.listener, flexible, "listener")
    except EncodeError as error:
        within(error, f"endpoints[{i}]")
        raise
    return total


cdef int64_t umr_brokers_size(list brokers, int version) except -1:
    cdef bint flexible = version >= 6
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef UpdateMetadataBroker v
    try:
        for i in range(size_of(brokers)):
            x = <object>PyList_GET_ITEM(brokers, i)
            if type(x) is not UpdateMetadataBroker:
                wrong(x, "UpdateMetadataBroker", "live_brokers", i)
            v = <UpdateMetadataBroker>x
            total += 4 + tags_size(v.tags, flexible, version)
            if version == 0:
                total += 4 + text_size(v.v0_host, False, "v0_host")
            else:
                total += count_size(size_of(v.endpoints_), flexible) + umr_endpoints_size(v.endpoints_, version)
            if version >= 2:
                total += text_size(v.rack, flexible, "rack", True)
    except EncodeError as error:
        within(error, f"live_brokers[{i}]")
        raise
    return total


cdef uint8_t *umr_put_brokers(uint8_t *q, list brokers, int version) noexcept:
    cdef bint flexible = version >= 6
    cdef Py_ssize_t i, j
    cdef UpdateMetadataBroker v
    cdef UpdateMetadataEndpoint endpoint
    for i in range(size_of(brokers)):
        v = <UpdateMetadataBroker>PyList_GET_ITEM(brokers, i)
        kp_put32(q, v.id)
        q += 4
        if version == 0:
            q = put_text(q, v.v0_host, False)
            kp_put32(q, v.v0_port)
            q += 4
            continue
        q = kp_put_count(q, size_of(v.endpoints_), flexible)
        for j in range(size_of(v.endpoints_)):
            endpoint = <UpdateMetadataEndpoint>PyList_GET_ITEM(v.endpoints_, j)
            kp_put32(q, endpoint.port)
            q = put_text(q + 4, endpoint.host, flexible)
            if version >= 3:
                q = put_text(q, endpoint.listener, flexible)
            kp_put16(q, endpoint.security_protocol)
            q = put_tags(q + 2, endpoint.tags, flexible)
        if version >= 2:
            q = put_text(q, v.rack, flexible)
        q = put_tags(q, v.tags, flexible)
    return q


cdef int umr_check(UpdateMetadataRequest m, int version) except -1:
    """Fields that the version lacks and that may not be dropped."""
    if version < 8:
        if m.is_kraft_controller:
            lacking(version, "is_kraft_controller")
        if m.type:
            lacking(version, "type")
    if version >= 5 and size_of(m.ungrouped_):
        lacking(version, "ungrouped_partition_states")
    if version < 5 and size_of(m.topic_states_):
        lacking(version, "topic_states")
    return 0


cdef int64_t umr_head_size(int version) noexcept:
    return 8 + (8 if version >= 5 else 0) + (1 if version >= 8 else 0)


cdef uint8_t *umr_put_head(uint8_t *q, UpdateMetadataRequest m, int version) noexcept:
    kp_put32(q, m.controller_id)
    q += 4
    if version >= 8:
        q[0] = m.is_kraft_controller
        q += 1
    kp_put32(q, m.controller_epoch)
    q += 4
    if version >= 5:
        kp_put64(q, m.broker_epoch)
        q += 8
    return q


cdef inline int umr_broker_form(int version) noexcept:
    """Versions with the same number write brokers alike."""
    return 4 if version >= 6 else 3 if version >= 3 else version


cdef int umr_settle(UpdateMetadataRequest m, int version) except -1:
    """Make objects of brokers that are bytes of another form."""
    cdef Unread u = m.unread_brokers
    if u is not None and umr_broker_form(u.version) != umr_broker_form(version):
        umr_read_unread(m)
    return 0


cdef int64_t umr_tail_size(UpdateMetadataRequest m, int version) except -1:
    """Live brokers and the request's tagged section: what stands behind the partition states."""
    cdef bint flexible = version >= 6
    cdef int known = 1 if m.type and version >= 8 else 0
    cdef int64_t size = tags_size(m.tags, flexible, version, known) + 3 * known
    if m.unread_brokers is not None:
        return size + count_size(m.unread_brokers.count, flexible) + (m.unread_brokers.end - m.unread_brokers.at)
    return size + count_size(size_of(m.live_brokers_), flexible) + umr_brokers_size(m.live_brokers_, version)


cdef uint8_t *umr_put_tail(uint8_t *q, UpdateMetadataRequest m, int version) noexcept:
    cdef bint flexible = version >= 6
    cdef uint32_t count = 0
    cdef int32_t bad = 0
    cdef Unread u = m.unread_brokers
    if u is not None:
        q = kp_put_count(q, u.count, flexible)
        memcpy(q, u.at, u.end - u.at)
        q += u.end - u.at
    else:
        q = kp_put_count(q, size_of(m.live_brokers_), flexible)
        q = umr_put_brokers(q, m.live_brokers_, version)
    if version < 8 or m.type == 0:
        return put_tags(q, m.tags, flexible)
    if m.tags is not None:
        kp_own_tags_size(<rp>PyBytes_AS_STRING(m.tags), PyBytes_GET_SIZE(m.tags), &count, &bad)
    q = kp_put_varint(q, count + 1)
    q[0] = 0
    q[1] = 1
    q[2] = <uint8_t>m.type
    q += 3
    if m.tags is not None:
        q = kp_put_own_tags(q, <rp>PyBytes_AS_STRING(m.tags), PyBytes_GET_SIZE(m.tags))
    return q


cdef bytes umr_write_response(UpdateMetadataResponse m, int version):
    cdef bint flexible = version >= 6
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 2 + tags_size(m.tags, flexible, version))
    cdef uint8_t *q = <uint8_t *>PyBytes_AS_STRING(out)
    kp_put16(q, m.error_code)
    put_tags(q + 2, m.tags, flexible)
    return out
