"""UpdateMetadata, written."""


@cython.nonecheck(False)
cdef inline PyObject *umr_state(UpdateMetadataPartitionState v, kp_state *row) noexcept:
    """A row's values, and its owner, borrowed."""
    row.head = &v.partition_index
    row.partition_epoch = v.zk_version
    row.n[0], row.n[1], row.n[2], row.n[3] = v.n[0], v.n[1], v.n[2], 0
    row.ids[0] = v.ids
    row.ids[1] = row.ids[0] + v.n[0]
    row.ids[2] = row.ids[1] + v.n[1]
    return <PyObject *>v.owner


cdef int umr_put_endpoints(kp_writer *w, list endpoints, int version) except -1:
    cdef bint flexible = version >= 6
    cdef Py_ssize_t i = 0
    cdef UpdateMetadataEndpoint v
    kp_add_count(w, size_of(endpoints), flexible)
    try:
        for i in range(size_of(endpoints)):
            x = <object>PyList_GET_ITEM(endpoints, i)
            if type(x) is not UpdateMetadataEndpoint:
                wrong(x, UpdateMetadataEndpoint)
            v = <UpdateMetadataEndpoint>x
            kp_add32(w, v.port)
            put_text(w, v.host, flexible, "host")
            if version >= 3:
                put_text(w, v.listener, flexible, "listener")
            kp_add16(w, v.security_protocol)
            put_tags(w, v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"endpoints[{i}]")
        raise
    return 0


cdef int umr_put_brokers(kp_writer *w, list brokers, int version) except -1:
    cdef bint flexible = version >= 6
    cdef Py_ssize_t i = 0
    cdef UpdateMetadataBroker v
    kp_add_count(w, size_of(brokers), flexible)
    try:
        for i in range(size_of(brokers)):
            x = <object>PyList_GET_ITEM(brokers, i)
            if type(x) is not UpdateMetadataBroker:
                wrong(x, UpdateMetadataBroker)
            v = <UpdateMetadataBroker>x
            kp_add32(w, v.id)
            if version == 0:
                put_text(w, v.v0_host, False, "v0_host")
                kp_add32(w, v.v0_port)
            else:
                umr_put_endpoints(w, v.endpoints_, version)
            if version >= 2:
                put_text(w, v.rack, flexible, "rack", True)
            put_tags(w, v.tags, flexible, version)
    except EncodeError as error:
        within(error, f"live_brokers[{i}]")
        raise
    return 0


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


cdef int umr_put_tail(kp_writer *w, UpdateMetadataRequest m, int version) except -1:
    """Write live brokers and the request's tagged section, which follow the partition states."""
    cdef uint8_t known[3]
    if m.unread_brokers is not None:
        put_unread(w, m.unread_brokers, version >= 6)
    else:
        umr_put_brokers(w, m.live_brokers_, version)
    if version < 8 or m.type == 0:
        return put_tags(w, m.tags, version >= 6, version)
    known[0], known[1], known[2] = 0, 1, <uint8_t>m.type
    return put_tagged(w, known, 3, m.tags, True, version)


cdef int umr_write_response(kp_writer *w, UpdateMetadataResponse m, int version) except -1:
    kp_add16(w, m.error_code)
    return put_tags(w, m.tags, version >= 6, version)
