"""UpdateMetadata, read."""


cdef rp umr_read_rows(kp_reader *r, rp p, list rows, int version, Room room, const char *field) except? NULL:
    """The partition states of a list that has one empty place for each."""
    cdef bint flexible = version >= 6
    cdef rp e = r.end
    cdef rp a, b, c = NULL, begin = NULL, end = NULL, name = NULL, last_name = NULL
    cdef int64_t j, n0, n1, n2 = 0, length = 0, last_length = -1
    cdef int64_t least = 1 if flexible else 4
    cdef UpdateMetadataPartitionState v
    cdef int32_t *ids
    cdef Block named = None
    for j in range(PyList_GET_SIZE(rows)):
        if version <= 4:
            name = kp_string(r, p, e, False, False, &length, "topic_name")
            if name == NULL:
                return kp_inside(r, field, j)
            p = name + length
        if e - p < 16 + least:
            kp_fault_group(r, p, "partition_index:4,controller_epoch:4,leader:4,leader_epoch:4,isr:1")
            return kp_inside(r, field, j)
        a = p + 16
        n0 = kp_count(r, &a, e, flexible, 4, 4 + least, "isr", "zk_version:4,replicas:1")
        if n0 < 0:
            return kp_inside(r, field, j)
        b = a + 4 * n0 + 4
        if version >= 4:
            n1 = kp_count(r, &b, e, flexible, 4, least, "replicas", "offline_replicas:1")
            if n1 < 0:
                return kp_inside(r, field, j)
            c = b + 4 * n1
            n2 = kp_count(r, &c, e, flexible, 4, flexible, "offline_replicas", "unknown_tagged_fields:1")
            if n2 < 0:
                return kp_inside(r, field, j)
        else:
            n1 = kp_count(r, &b, e, flexible, 4, 0, "replicas", "")
            if n1 < 0:
                return kp_inside(r, field, j)
            c = b + 4 * n1
        v = UpdateMetadataPartitionState.__new__(UpdateMetadataPartitionState)
        Py_INCREF(v)
        PyList_SET_ITEM(rows, j, v)
        ids = take(room, n0 + n1 + n2, e - a)
        v.partition_index = kp_i32(p)
        v.controller_epoch = kp_i32(p + 4)
        v.leader = kp_i32(p + 8)
        v.leader_epoch = kp_i32(p + 12)
        v.zk_version = kp_i32(a + 4 * n0)
        v.n[0] = <int32_t>n0
        v.n[1] = <int32_t>n1
        v.n[2] = <int32_t>n2
        v.ids = ids
        kp_ids_loose(ids, a, n0, e)
        kp_ids_loose(ids + n0, b, n1, e)
        kp_ids_loose(ids + n0 + n1, c, n2, e)
        p = c + 4 * n2
        if version <= 4:
            if named is None or named.parent is not room.block or length != last_length \
                    or memcmp(name, last_name, length):
                named = labelled(room.block, text(name, length), None)
                last_name, last_length = name, length
            v.owner = named
        else:
            v.owner = room.block
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, field, j)
            if begin != NULL:
                v.owner = labelled(v.owner, None, kept(begin, end))
    return p


cdef rp umr_read_topics(kp_reader *r, rp p, list topics, int version, Room room) except? NULL:
    cdef bint flexible = version >= 6
    cdef rp e = r.end
    cdef rp name, begin = NULL, end = NULL
    cdef int64_t i, n, length = 0
    cdef int64_t after = (16 if version >= 7 else 0) + (1 if flexible else 4)
    cdef int64_t least = 24 if flexible else 32
    cdef UpdateMetadataTopicState topic
    for i in range(PyList_GET_SIZE(topics)):
        name = kp_string(r, p, e, flexible, False, &length, "topic_name")
        if name == NULL:
            return kp_inside(r, "topic_states", i)
        p = name + length
        if e - p < after:
            kp_fault_group(r, p, "topic_id:16,partition_states:1" if version >= 7 else "partition_states:1")
            return kp_inside(r, "topic_states", i)
        topic = UpdateMetadataTopicState.__new__(UpdateMetadataTopicState)
        Py_INCREF(topic)
        PyList_SET_ITEM(topics, i, topic)
        topic.topic_name = text(name, length)
        if version >= 7:
            memcpy(topic.id, p, 16)
            p += 16
        n = kp_count(r, &p, e, flexible, least, flexible, "partition_states", "unknown_tagged_fields:1")
        if n < 0:
            return kp_inside(r, "topic_states", i)
        if n > 0:
            topic.partition_states_ = PyList_New(n)
            p = umr_read_rows(r, p, topic.partition_states_, version, room, "partition_states")
            if p == NULL:
                return kp_inside(r, "topic_states", i)
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "topic_states", i)
            topic.tags = kept(begin, end)
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


cdef list umr_plain_brokers(bytes plain, int count, int version):
    """Brokers that were kept as bytes."""
    cdef kp_reader r
    cdef list brokers = PyList_New(count)
    memset(&r, 0, sizeof(r))
    r.base = <rp>PyBytes_AS_STRING(plain)
    r.end = r.base + PyBytes_GET_SIZE(plain)
    if umr_read_brokers(&r, r.base, brokers, version) != r.end:
        raise SystemError("plain brokers cannot be read again")
    return brokers


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


cdef rp umr_read_head(kp_reader *r, UpdateMetadataRequest m, int version) except? NULL:
    """What stands before the partition states."""
    cdef rp p = r.base
    cdef uint8_t kraft = 0
    m.broker_epoch = -1
    if r.end - p < 8 + (8 if version >= 5 else 0) + (1 if version >= 8 else 0):
        return kp_fault_group(
            r, p, "controller_id:4,is_kraft_controller:1,controller_epoch:4,broker_epoch:8" if version >= 8
            else "controller_id:4,controller_epoch:4,broker_epoch:8")
    m.controller_id = kp_i32(p)
    p += 4
    if version >= 8:
        p = kp_bool(r, p, &kraft, "is_kraft_controller")
        if p == NULL:
            return NULL
        m.is_kraft_controller = kraft
    m.controller_epoch = kp_i32(p)
    p += 4
    if version >= 5:
        m.broker_epoch = kp_i64(p)
        p += 8
    return p


cdef rp umr_read_tail(kp_reader *r, rp p, UpdateMetadataRequest m, int version) except? NULL:
    """Live brokers and the request's tagged section: what stands behind the partition states."""
    cdef bint flexible = version >= 6
    cdef int64_t n = kp_count(r, &p, r.end, flexible, 7 if flexible else 8, 0, "live_brokers", "")
    if n < 0:
        return NULL
    cdef rp end = kp_plain_brokers(p, r.end, n, version) if n > 0 else NULL
    if end != NULL:
        m.plain = <bytes>p[:end - p]
        m.plain_count = <int>n
        m.plain_version = version
        p = end
    elif n > 0:
        m.live_brokers_ = PyList_New(n)
        p = umr_read_brokers(r, p, m.live_brokers_, version)
        if p == NULL:
            return NULL
    return umr_read_tags(r, p, m, version) if flexible else p


cdef UpdateMetadataRequest umr_read(kp_reader *r, int version):
    """The whole request, or None after a fault; ``r.at`` tells where it ends."""
    cdef bint flexible = version >= 6
    cdef UpdateMetadataRequest m = UpdateMetadataRequest.__new__(UpdateMetadataRequest)
    cdef Room room = Room.__new__(Room)
    cdef rp p = umr_read_head(r, m, version), e = r.end
    cdef int64_t n
    m.version = version
    if p == NULL:
        return None
    if version >= 5:
        n = kp_count(r, &p, e, flexible, 19 if version >= 7 else 3 if flexible else 6, 0, "topic_states", "")
        if n < 0:
            return None
        m.topic_states_ = PyList_New(n)
        p = umr_read_topics(r, p, m.topic_states_, version, room)
    else:
        n = kp_count(r, &p, e, False, 34 if version >= 4 else 30, 0, "ungrouped_partition_states", "")
        if n < 0:
            return None
        m.ungrouped_partition_states_ = PyList_New(n)
        p = umr_read_rows(r, p, m.ungrouped_partition_states_, version, room, "ungrouped_partition_states")
    if p != NULL:
        p = umr_read_tail(r, p, m, version)
    if p == NULL:
        return None
    r.at = p
    return m


cdef UpdateMetadataResponse umr_read_response(kp_reader *r, int version):
    cdef UpdateMetadataResponse m = UpdateMetadataResponse.__new__(UpdateMetadataResponse)
    cdef rp p = r.base, begin = NULL, end = NULL
    m.version = version
    if r.end - p < 2:
        kp_fault_group(r, p, "error_code:2")
        return None
    m.error_code = kp_i16(p)
    p += 2
    if version >= 6:
        p = kp_tags(r, p, r.end, &begin, &end)
        if p == NULL:
            return None
        m.tags = kept(begin, end)
    r.at = p
    return m
