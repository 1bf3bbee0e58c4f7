"""LeaderAndIsr, read."""


cdef rp lisr_read_rows(kp_reader *r, rp p, list rows, int version, Room room, const char *field) except? NULL:
    """The partition states of a list that has one empty place for each."""
    cdef bint flexible = version >= 4
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL, name = NULL, last_name = NULL, a, b, c = NULL, d = NULL
    cdef int64_t j, n0, n1, n2 = 0, n3 = 0, length = 0, last_length = -1
    cdef int64_t least = 1 if flexible else 4
    cdef int64_t last = (1 if version >= 1 else 0) + (1 if version >= 6 else 0) + flexible
    cdef LeaderAndIsrPartitionState v
    cdef int32_t *ids
    cdef uint8_t is_new = 0
    cdef Block named = None
    for j in range(PyList_GET_SIZE(rows)):
        if version <= 1:
            name = kp_string(r, p, e, False, False, &length, "topic_name")
            if name == NULL:
                return kp_inside(r, field, j)
            p = name + length
        if e - p < 16 + least:
            kp_fault_group(r, p, "partition_index:4,controller_epoch:4,leader:4,leader_epoch:4,isr:1")
            return kp_inside(r, field, j)
        a = p + 16
        n0 = kp_count(r, &a, e, flexible, 4, 4 + least, "isr", "partition_epoch:4,replicas:1")
        if n0 < 0:
            return kp_inside(r, field, j)
        b = a + 4 * n0 + 4
        if version >= 3:
            n1 = kp_count(r, &b, e, flexible, 4, least, "replicas", "adding_replicas:1")
            if n1 < 0:
                return kp_inside(r, field, j)
            c = b + 4 * n1
            n2 = kp_count(r, &c, e, flexible, 4, least, "adding_replicas", "removing_replicas:1")
            if n2 < 0:
                return kp_inside(r, field, j)
            d = c + 4 * n2
            n3 = kp_count(r, &d, e, flexible, 4, last, "removing_replicas",
                          "is_new:1,leader_recovery_state:1,unknown_tagged_fields:1" if version >= 6
                          else "is_new:1,unknown_tagged_fields:1")
            if n3 < 0:
                return kp_inside(r, field, j)
        else:
            n1 = kp_count(r, &b, e, False, 4, last, "replicas", "is_new:1")
            if n1 < 0:
                return kp_inside(r, field, j)
        v = LeaderAndIsrPartitionState.__new__(LeaderAndIsrPartitionState)
        Py_INCREF(v)
        PyList_SET_ITEM(rows, j, v)
        ids = take(room, n0 + n1 + n2 + n3, e - a)
        v.partition_index = kp_i32(p)
        v.controller_epoch = kp_i32(p + 4)
        v.leader = kp_i32(p + 8)
        v.leader_epoch = kp_i32(p + 12)
        v.partition_epoch = kp_i32(a + 4 * n0)
        v.n[0] = <int32_t>n0
        v.n[1] = <int32_t>n1
        v.n[2] = <int32_t>n2
        v.n[3] = <int32_t>n3
        v.ids = ids
        kp_ids_loose(ids, a, n0, e)
        ids += n0
        kp_ids_loose(ids, b, n1, e)
        p = b + 4 * n1
        if version >= 3:
            ids += n1
            kp_ids_loose(ids, c, n2, e)
            kp_ids_loose(ids + n2, d, n3, e)
            p = d + 4 * n3
        if version >= 1:
            p = kp_bool(r, p, &is_new, "is_new")
            if p == NULL:
                return kp_inside(r, field, j)
            v.is_new = is_new
        if version >= 6:
            v.leader_recovery_state = <int8_t>p[0]
            p += 1
        if version <= 1:
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


cdef rp lisr_read_topics(kp_reader *r, rp p, list topics, int version, Room room) except? NULL:
    cdef bint flexible = version >= 4
    cdef rp e = r.end
    cdef rp name, begin = NULL, end = NULL
    cdef int64_t i, n, length = 0
    cdef int64_t after = (16 if version >= 5 else 0) + (1 if flexible else 4)
    cdef int64_t least = 27 if version >= 6 else 26 if flexible else 37 if version == 3 else 29
    cdef LeaderAndIsrTopicState topic
    for i in range(PyList_GET_SIZE(topics)):
        name = kp_string(r, p, e, flexible, False, &length, "topic_name")
        if name == NULL:
            return kp_inside(r, "topic_states", i)
        p = name + length
        if e - p < after:
            kp_fault_group(r, p, "topic_id:16,partition_states:1" if version >= 5 else "partition_states:1")
            return kp_inside(r, "topic_states", i)
        topic = LeaderAndIsrTopicState.__new__(LeaderAndIsrTopicState)
        Py_INCREF(topic)
        PyList_SET_ITEM(topics, i, topic)
        topic.topic_name = text(name, length)
        if version >= 5:
            memcpy(topic.id, p, 16)
            p += 16
        n = kp_count(r, &p, e, flexible, least, flexible, "partition_states", "unknown_tagged_fields:1")
        if n < 0:
            return kp_inside(r, "topic_states", i)
        if n > 0:
            topic.partition_states_ = PyList_New(n)
            p = lisr_read_rows(r, p, topic.partition_states_, version, room, "partition_states")
            if p == NULL:
                return kp_inside(r, "topic_states", i)
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "topic_states", i)
            topic.tags = kept(begin, end)
    return p


cdef rp lisr_read_leaders(kp_reader *r, rp p, list leaders, int version) except? NULL:
    cdef bint flexible = version >= 4
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL
    cdef int64_t i, length = 0
    cdef LeaderAndIsrLiveLeader v
    for i in range(PyList_GET_SIZE(leaders)):
        if e - p < 4:
            kp_fault_group(r, p, "broker_id:4")
            return kp_inside(r, "live_leaders", i)
        v = LeaderAndIsrLiveLeader.__new__(LeaderAndIsrLiveLeader)
        Py_INCREF(v)
        PyList_SET_ITEM(leaders, i, v)
        v.broker_id = kp_i32(p)
        p = kp_string(r, p + 4, e, flexible, False, &length, "host_name")
        if p == NULL:
            return kp_inside(r, "live_leaders", i)
        v.host_name = text(p, length)
        p += length
        if e - p < 4:
            kp_fault_group(r, p, "port:4")
            return kp_inside(r, "live_leaders", i)
        v.port = kp_i32(p)
        p += 4
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "live_leaders", i)
            v.tags = kept(begin, end)
    return p


cdef rp lisr_read_head(kp_reader *r, LeaderAndIsrRequest m, int version) except? NULL:
    """What stands before the partition states."""
    cdef rp p = r.base
    cdef uint8_t kraft = 0
    m.broker_epoch = -1
    if r.end - p < 8 + (8 if version >= 2 else 0) + (1 if version >= 5 else 0) + (1 if version >= 7 else 0):
        return kp_fault_group(
            r, p, "controller_id:4,is_kraft_controller:1,controller_epoch:4,broker_epoch:8,type:1" if version >= 7
            else "controller_id:4,controller_epoch:4,broker_epoch:8,type:1")
    m.controller_id = kp_i32(p)
    p += 4
    if version >= 7:
        p = kp_bool(r, p, &kraft, "is_kraft_controller")
        if p == NULL:
            return NULL
        m.is_kraft_controller = kraft
    m.controller_epoch = kp_i32(p)
    p += 4
    if version >= 2:
        m.broker_epoch = kp_i64(p)
        p += 8
    if version >= 5:
        m.type = <int8_t>p[0]
        p += 1
    return p


cdef rp lisr_read_tail(kp_reader *r, rp p, LeaderAndIsrRequest m, int version) except? NULL:
    """Live leaders and the request's tagged section: what stands behind the partition states."""
    cdef bint flexible = version >= 4
    cdef int64_t n = kp_count(r, &p, r.end, flexible, 10, flexible, "live_leaders", "unknown_tagged_fields:1")
    if n < 0:
        return NULL
    cdef rp end = kp_plain_leaders(p, r.end, n, flexible) if n > 0 else NULL
    if end != NULL:
        m.plain = <bytes>p[:end - p]
        m.plain_count = <int>n
        m.plain_version = version
        p = end
    elif n > 0:
        m.live_leaders_ = PyList_New(n)
        p = lisr_read_leaders(r, p, m.live_leaders_, version)
        if p == NULL:
            return NULL
    return read_kept(r, p, m) if flexible else p


cdef list lisr_plain_leaders(bytes plain, int count, int version):
    """Leaders that were kept as bytes."""
    cdef kp_reader r
    cdef list leaders = PyList_New(count)
    memset(&r, 0, sizeof(r))
    r.base = <rp>PyBytes_AS_STRING(plain)
    r.end = r.base + PyBytes_GET_SIZE(plain)
    if lisr_read_leaders(&r, r.base, leaders, version) != r.end:
        raise SystemError("plain leaders cannot be read again")
    return leaders


cdef LeaderAndIsrRequest lisr_read(kp_reader *r, int version):
    """The whole request, or None after a fault; ``r.at`` tells where it ends."""
    cdef bint flexible = version >= 4
    cdef LeaderAndIsrRequest m = LeaderAndIsrRequest.__new__(LeaderAndIsrRequest)
    cdef Room room = Room.__new__(Room)
    cdef rp p = lisr_read_head(r, m, version), e = r.end
    cdef int64_t n
    m.version = version
    if p == NULL:
        return None
    if version >= 2:
        n = kp_count(r, &p, e, flexible, 19 if version >= 5 else 3 if flexible else 6, 0, "topic_states", "")
        if n < 0:
            return None
        m.topic_states_ = PyList_New(n)
        p = lisr_read_topics(r, p, m.topic_states_, version, room)
    else:
        n = kp_count(r, &p, e, False, 30 + version, 0, "ungrouped_partition_states", "")
        if n < 0:
            return None
        m.ungrouped_partition_states_ = PyList_New(n)
        p = lisr_read_rows(r, p, m.ungrouped_partition_states_, version, room, "ungrouped_partition_states")
    if p != NULL:
        p = lisr_read_tail(r, p, m, version)
    if p == NULL:
        return None
    r.at = p
    return m


cdef rp lisr_read_errors(kp_reader *r, rp p, list errors, int version) except? NULL:
    cdef bint flexible = version >= 4
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL, name = NULL, last_name = NULL
    cdef int64_t i, length = 0, last_length = -1
    cdef str topic_name = ""
    cdef LeaderAndIsrPartitionError v
    for i in range(PyList_GET_SIZE(errors)):
        if version <= 4:
            name = kp_string(r, p, e, flexible, False, &length, "topic_name")
            if name == NULL:
                return kp_inside(r, "partition_errors", i)
            if length != last_length or memcmp(name, last_name, length):
                topic_name = text(name, length)
                last_name, last_length = name, length
            p = name + length
        if e - p < 6 + flexible:
            kp_fault_group(r, p, "partition_index:4,error_code:2,unknown_tagged_fields:1")
            return kp_inside(r, "partition_errors", i)
        v = LeaderAndIsrPartitionError.__new__(LeaderAndIsrPartitionError)
        Py_INCREF(v)
        PyList_SET_ITEM(errors, i, v)
        v.topic_name = topic_name
        v.partition_index = kp_i32(p)
        v.error_code = kp_i16(p + 4)
        p += 6
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "partition_errors", i)
            v.tags = kept(begin, end)
    return p


cdef rp lisr_read_topic_errors(kp_reader *r, rp p, list topics, int version) except? NULL:
    cdef rp e = r.end
    cdef rp begin = NULL, end = NULL
    cdef int64_t i, n
    cdef LeaderAndIsrTopicError topic
    for i in range(PyList_GET_SIZE(topics)):
        if e - p < 17:
            kp_fault_group(r, p, "topic_id:16,partition_errors:1")
            return kp_inside(r, "topics", i)
        topic = LeaderAndIsrTopicError.__new__(LeaderAndIsrTopicError)
        Py_INCREF(topic)
        PyList_SET_ITEM(topics, i, topic)
        memcpy(topic.id, p, 16)
        p += 16
        n = kp_count(r, &p, e, True, 7, 1, "partition_errors", "unknown_tagged_fields:1")
        if n < 0:
            return kp_inside(r, "topics", i)
        if n > 0:
            topic.partition_errors_ = PyList_New(n)
            p = lisr_read_errors(r, p, topic.partition_errors_, version)
            if p == NULL:
                return kp_inside(r, "topics", i)
        p = kp_tags(r, p, e, &begin, &end)
        if p == NULL:
            return kp_inside(r, "topics", i)
        topic.tags = kept(begin, end)
    return p


cdef LeaderAndIsrResponse lisr_read_response(kp_reader *r, int version):
    cdef bint flexible = version >= 4
    cdef LeaderAndIsrResponse m = LeaderAndIsrResponse.__new__(LeaderAndIsrResponse)
    cdef rp p, e = r.end
    cdef int64_t n
    m.version = version
    p = read_error_code(r, &m.error_code)
    if p == NULL:
        return None
    if version >= 5:
        n = kp_count(r, &p, e, True, 18, 1, "topics", "unknown_tagged_fields:1")
        if n < 0:
            return None
        m.topics_ = PyList_New(n)
        p = lisr_read_topic_errors(r, p, m.topics_, version)
    else:
        n = kp_count(r, &p, e, flexible, 8, flexible, "partition_errors", "unknown_tagged_fields:1")
        if n < 0:
            return None
        m.partition_errors_ = PyList_New(n)
        p = lisr_read_errors(r, p, m.partition_errors_, version)
    if p != NULL and flexible:
        p = read_kept(r, p, m)
    if p == NULL:
        return None
    r.at = p
    return m
