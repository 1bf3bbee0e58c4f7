"""StopReplica, read."""


cdef rp sr_read_ungrouped(kp_reader *r, rp p, list partitions) except? NULL:
    """Version 0's partitions."""
    cdef rp e = r.end, name, last_name = NULL
    cdef int64_t i, length = 0, last_length = -1
    cdef str topic_name = ""
    cdef StopReplicaPartitionV0 v
    for i in range(PyList_GET_SIZE(partitions)):
        name = kp_string(r, p, e, False, False, &length, "topic_name")
        if name == NULL:
            return kp_inside(r, "ungrouped_partitions", i)
        p = name + length
        if e - p < 4:
            kp_fault_group(r, p, "partition_index:4")
            return kp_inside(r, "ungrouped_partitions", i)
        if length != last_length or memcmp(name, last_name, length):
            topic_name = text(name, length)
            last_name, last_length = name, length
        v = StopReplicaPartitionV0.__new__(StopReplicaPartitionV0)
        Py_INCREF(v)
        PyList_SET_ITEM(partitions, i, v)
        v.topic_name = topic_name
        v.partition_index = kp_i32(p)
        p += 4
    return p


cdef rp sr_read_topics(kp_reader *r, rp p, list topics, bint flexible, Room room) except? NULL:
    """Version 1's and 2's topics with their partition indexes."""
    cdef rp e = r.end, name, begin = NULL, end = NULL
    cdef int64_t i, n, length = 0
    cdef StopReplicaTopicV1 v
    for i in range(PyList_GET_SIZE(topics)):
        name = kp_string(r, p, e, flexible, False, &length, "name")
        if name == NULL:
            return kp_inside(r, "topics", i)
        p = name + length
        n = kp_count(r, &p, e, flexible, 4, flexible, "partition_indexes", "unknown_tagged_fields:1")
        if n < 0:
            return kp_inside(r, "topics", i)
        v = StopReplicaTopicV1.__new__(StopReplicaTopicV1)
        Py_INCREF(v)
        PyList_SET_ITEM(topics, i, v)
        v.name = text(name, length)
        v.ids = take(room, n, e - p)
        v.n[0] = <int32_t>n
        v.owner = room.block
        kp_ids(v.ids, p, n)
        p += 4 * n
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                return kp_inside(r, "topics", i)
            v.tags = kept(begin, end)
    return p


cdef rp sr_read_rows(kp_reader *r, rp p, list rows) except? NULL:
    cdef rp e = r.end, begin = NULL, end = NULL
    cdef int64_t j
    cdef uint8_t delete = 0
    cdef StopReplicaPartitionState v
    for j in range(PyList_GET_SIZE(rows)):
        if e - p < 10:
            kp_fault_group(r, p, "partition_index:4,leader_epoch:4,delete_partition:1,unknown_tagged_fields:1")
            return kp_inside(r, "partition_states", j)
        if kp_bool(r, p + 8, &delete, "delete_partition") == NULL:
            return kp_inside(r, "partition_states", j)
        v = StopReplicaPartitionState.__new__(StopReplicaPartitionState)
        Py_INCREF(v)
        PyList_SET_ITEM(rows, j, v)
        v.partition_index = kp_i32(p)
        v.leader_epoch = kp_i32(p + 4)
        v.delete_partition = delete
        p = kp_tags(r, p + 9, e, &begin, &end)
        if p == NULL:
            return kp_inside(r, "partition_states", j)
        if begin != NULL:
            v.tags = kept(begin, end)
    return p


cdef rp sr_read_topic_states(kp_reader *r, rp p, list topics) except? NULL:
    """Version 3's and later topics with their partition states."""
    cdef rp e = r.end, name, begin = NULL, end = NULL
    cdef int64_t i, n, length = 0
    cdef StopReplicaTopicState topic
    for i in range(PyList_GET_SIZE(topics)):
        name = kp_string(r, p, e, True, False, &length, "topic_name")
        if name == NULL:
            return kp_inside(r, "topic_states", i)
        p = name + length
        n = kp_count(r, &p, e, True, 10, 1, "partition_states", "unknown_tagged_fields:1")
        if n < 0:
            return kp_inside(r, "topic_states", i)
        topic = StopReplicaTopicState.__new__(StopReplicaTopicState)
        Py_INCREF(topic)
        PyList_SET_ITEM(topics, i, topic)
        topic.topic_name = text(name, length)
        if n > 0:
            topic.partition_states_ = PyList_New(n)
            p = sr_read_rows(r, p, topic.partition_states_)
            if p == NULL:
                return kp_inside(r, "topic_states", i)
        p = kp_tags(r, p, e, &begin, &end)
        if p == NULL:
            return kp_inside(r, "topic_states", i)
        topic.tags = kept(begin, end)
    return p


cdef rp sr_read_head(kp_reader *r, StopReplicaRequest m, int version) except? NULL:
    """What stands before the partitions."""
    cdef rp p = r.base
    cdef uint8_t flag = 0
    m.broker_epoch = -1
    if r.end - p < 8 + (8 if version >= 1 else 0) + (1 if version <= 2 or version >= 4 else 0):
        return kp_fault_group(
            r, p, "controller_id:4,is_kraft_controller:1,controller_epoch:4,broker_epoch:8" if version >= 4
            else "controller_id:4,controller_epoch:4,broker_epoch:8,delete_partitions:1" if version >= 1
            else "controller_id:4,controller_epoch:4,delete_partitions:1")
    m.controller_id = kp_i32(p)
    p += 4
    if version >= 4:
        p = kp_bool(r, p, &flag, "is_kraft_controller")
        if p == NULL:
            return NULL
        m.is_kraft_controller = flag
    m.controller_epoch = kp_i32(p)
    p += 4
    if version >= 1:
        m.broker_epoch = kp_i64(p)
        p += 8
    if version <= 2:
        p = kp_bool(r, p, &flag, "delete_partitions")
        if p == NULL:
            return NULL
        m.delete_partitions = flag
    return p


cdef StopReplicaRequest sr_read(kp_reader *r, int version):
    """The whole request, or None after a fault; ``r.at`` tells where it ends."""
    cdef bint flexible = version >= 2
    cdef StopReplicaRequest m = StopReplicaRequest.__new__(StopReplicaRequest)
    cdef Room room
    cdef rp p = sr_read_head(r, m, version), e = r.end
    cdef int64_t n
    m.version = version
    if p == NULL:
        return None
    if version >= 3:
        n = kp_count(r, &p, e, True, 3, 1, "topic_states", "unknown_tagged_fields:1")
        if n < 0:
            return None
        m.topic_states_ = PyList_New(n)
        p = sr_read_topic_states(r, p, m.topic_states_)
    elif version >= 1:
        n = kp_count(r, &p, e, flexible, 3 if flexible else 6, flexible, "topics", "unknown_tagged_fields:1")
        if n < 0:
            return None
        m.topics_ = PyList_New(n)
        room = Room.__new__(Room)
        p = sr_read_topics(r, p, m.topics_, flexible, room)
    else:
        n = kp_count(r, &p, e, False, 6, 0, "ungrouped_partitions", "")
        if n < 0:
            return None
        m.ungrouped_partitions_ = PyList_New(n)
        p = sr_read_ungrouped(r, p, m.ungrouped_partitions_)
    if p != NULL and flexible:
        p = read_kept(r, p, m)
    if p == NULL:
        return None
    r.at = p
    return m


cdef StopReplicaResponse sr_read_response(kp_reader *r, int version):
    cdef bint flexible = version >= 2
    cdef StopReplicaResponse m = StopReplicaResponse.__new__(StopReplicaResponse)
    cdef rp p = r.base, e = r.end, begin = NULL, end = NULL, name, last_name = NULL
    cdef int64_t i, n, length = 0, last_length = -1
    cdef str topic_name = ""
    cdef StopReplicaPartitionError v
    m.version = version
    p = read_error_code(r, &m.error_code)
    if p == NULL:
        return None
    n = kp_count(r, &p, e, flexible, 8, flexible, "partition_errors", "unknown_tagged_fields:1")
    if n < 0:
        return None
    m.partition_errors_ = PyList_New(n)
    for i in range(n):
        name = kp_string(r, p, e, flexible, False, &length, "topic_name")
        if name != NULL and e - name - length < 6 + flexible:
            name = kp_fault_group(r, name + length, "partition_index:4,error_code:2,unknown_tagged_fields:1")
        if name == NULL:
            kp_inside(r, "partition_errors", i)
            return None
        p = name + length
        if length != last_length or memcmp(name, last_name, length):
            topic_name = text(name, length)
            last_name, last_length = name, length
        v = StopReplicaPartitionError.__new__(StopReplicaPartitionError)
        Py_INCREF(v)
        PyList_SET_ITEM(m.partition_errors_, i, v)
        v.topic_name = topic_name
        v.partition_index = kp_i32(p)
        v.error_code = kp_i16(p + 4)
        p += 6
        if flexible:
            p = kp_tags(r, p, e, &begin, &end)
            if p == NULL:
                kp_inside(r, "partition_errors", i)
                return None
            v.tags = kept(begin, end)
    if flexible:
        p = read_kept(r, p, m)
        if p == NULL:
            return None
    r.at = p
    return m
