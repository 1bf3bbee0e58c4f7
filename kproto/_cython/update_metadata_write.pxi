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


cdef int umr_write_response(kp_writer *w, UpdateMetadataResponse m, int version) except -1:
    kp_add16(w, m.error_code)
    return put_tags(w, m.tags, version >= 6, version)
