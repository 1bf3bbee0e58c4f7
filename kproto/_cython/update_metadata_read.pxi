"""UpdateMetadata, read."""


@cython.nonecheck(False)
cdef rp umr_read_rows(kp_reader *r, rp p, list rows, int version, IdArena arena, const char *field) except? NULL:
    """The partition states of a list that has one empty place for each."""
    cdef kp_row row
    cdef int64_t j
    cdef UpdateMetadataPartitionState v
    for j in range(PyList_GET_SIZE(rows)):
        p = kp_read_umr_row(r, p, version, &row)
        if p == NULL:
            return kp_inside(r, field, j)
        v = UpdateMetadataPartitionState.__new__(UpdateMetadataPartitionState)
        Py_INCREF(v)
        PyList_SET_ITEM(rows, j, v)
        v.ids = take_row(arena, &row, r.end)
        v.owner = row_owner(arena, &row, version <= 4)
        v.partition_index = row.partition
        v.controller_epoch = row.controller_epoch
        v.leader = row.leader
        v.leader_epoch = row.leader_epoch
        v.zk_version = row.partition_epoch
        v.n[0] = <int32_t>row.n[0]
        v.n[1] = <int32_t>row.n[1]
        v.n[2] = <int32_t>row.n[2]
    return p


cdef rp umr_read_endpoints(kp_reader *r, rp p, list endpoints, int version) except? NULL:
    cdef bint flexible = version >= 6
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL
    cdef int64_t i, length = 0
    cdef UpdateMetadataEndpoint v
    for i in range(PyList_GET_SIZE(endpoints)):
        if e - p < 4:
            kp_fault_group(r, p, "port:4")
            return kp_inside(r, "endpoints", i)
        v = UpdateMetadataEndpoint.__new__(UpdateMetadataEndpoint)
        Py_INCREF(v)
        PyList_SET_ITEM(endpoints, i, v)
        v.port = kp_i32(p)
        p = kp_string(r, p + 4, e, flexible, False, &length, "host")
        if p == NULL:
            return kp_inside(r, "endpoints", i)
        v.host = text(p, length)
        p += length
        v.listener = ""
        if version >= 3:
            p = kp_string(r, p, e, flexible, False, &length, "listener")
            if p == NULL:
                return kp_inside(r, "endpoints", i)
            v.listener = text(p, length)
            p += length
        if e - p < 2:
            kp_fault_group(r, p, "security_protocol:2")
            return kp_inside(r, "endpoints", i)
        v.security_protocol = kp_i16(p)
        p += 2
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "endpoints", i)
            v.tags = kept(begin, end)
    return p


cdef rp umr_read_brokers(kp_reader *r, rp p, list brokers, int version) except? NULL:
    cdef bint flexible = version >= 6
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL
    cdef int64_t i, n, length = 0
    cdef UpdateMetadataBroker v
    for i in range(PyList_GET_SIZE(brokers)):
        if e - p < 4:
            kp_fault_group(r, p, "id:4")
            return kp_inside(r, "live_brokers", i)
        v = UpdateMetadataBroker.__new__(UpdateMetadataBroker)
        Py_INCREF(v)
        PyList_SET_ITEM(brokers, i, v)
        v.id = kp_i32(p)
        p += 4
        v.v0_host = v.rack = ""
        if version == 0:
            p = kp_string(r, p, e, False, False, &length, "v0_host")
            if p == NULL:
                return kp_inside(r, "live_brokers", i)
            v.v0_host = text(p, length)
            p += length
            if e - p < 4:
                kp_fault_group(r, p, "v0_port:4")
                return kp_inside(r, "live_brokers", i)
            v.v0_port = kp_i32(p)
            p += 4
            continue
        n = kp_count(r, &p, e, flexible, 9 if flexible else 8, 0, "endpoints", "")
        if n < 0:
            return kp_inside(r, "live_brokers", i)
        if n > 0:
            v.endpoints_ = PyList_New(n)
            p = umr_read_endpoints(r, p, v.endpoints_, version)
            if p == NULL:
                return kp_inside(r, "live_brokers", i)
        if version >= 2:
            p = kp_string(r, p, e, flexible, True, &length, "rack")
            if p == NULL:
                return kp_inside(r, "live_brokers", i)
            v.rack = text(p, length)
            if length > 0:
                p += length
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "live_brokers", i)
            v.tags = kept(begin, end)
    return p


cdef rp umr_read_tags(kp_reader *r, rp p, UpdateMetadataRequest m, int version) except? NULL:
    """The request's own tagged section. Tag 0 is ``type`` in version 8, whatever size it names, and refused before."""
    cdef uint32_t count = 0, tag = 0, size = 0
    cdef rp at, data = NULL, begin = NULL
    cdef int64_t last = -1
    cdef bytearray others
    if p < r.end and p[0] == 0:
        return p + 1
    at = p
    p = kp_varint(r, p, r.end, &count, "unknown_tagged_fields")
    if p == NULL:
        return NULL
    if <int32_t>count < 0:
        if r.strict:
            return kp_fault(r, KP_STRICT_TAG_COUNT, at, <int32_t>count, "unknown_tagged_fields")
        return p
    others = bytearray()
    while count > 0:
        count -= 1
        at = p
        p = kp_varint(r, p, r.end, &tag, "unknown_tagged_fields")
        if p != NULL:
            p = kp_varint(r, p, r.end, &size, "unknown_tagged_fields")
        if p == NULL:
            return NULL
        if r.strict and (<int64_t>tag <= last or <int32_t>tag < 0):
            return kp_fault(r, KP_STRICT_TAG_ORDER, at, tag, "unknown_tagged_fields")
        last = tag
        if tag == 0:
            if version < 8:
                return kp_fault(r, KP_TAG_NOT_VALID, at, 0, "unknown_tagged_fields")
            if r.strict and size != 1:
                return kp_fault(r, KP_STRICT_TAG_SIZE, at, <int32_t>size, "type")
            if p >= r.end:
                return kp_fault(r, KP_SHORT, p, 1, "type")
            m.type = <int8_t>p[0]
            p += 1
            if begin != NULL:
                others += begin[:at - begin]
                begin = NULL
        else:
            p = kp_tag(r, at, &tag, &size, &data)
            if p == NULL:
                return NULL
            if begin == NULL:
                begin = at
    if begin != NULL:
        others += begin[:p - begin]
    if others:
        m.tags = bytes(others)
    return p


cdef UpdateMetadataResponse umr_read_response(kp_reader *r, int version):
    cdef UpdateMetadataResponse m = UpdateMetadataResponse.__new__(UpdateMetadataResponse)
    cdef rp p = read_error_code(r, &m.error_code)
    m.version = version
    if p != NULL and version >= 6:
        p = read_kept(r, p, m)
    if p == NULL:
        return None
    r.at = p
    return m
