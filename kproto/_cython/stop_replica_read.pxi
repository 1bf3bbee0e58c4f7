"""StopReplica, read."""


@cython.nonecheck(False)
cdef rp sr_read_rows(kp_reader *r, rp p, list rows) except? NULL:
    """The partition states of a list that has one empty place for each."""
    cdef kp_stop row
    cdef int64_t j
    cdef StopReplicaPartitionState v
    for j in range(PyList_GET_SIZE(rows)):
        p = kp_read_stop(r, p, r.end, &row)
        if p == NULL:
            return kp_inside(r, "partition_states", j)
        v = StopReplicaPartitionState.__new__(StopReplicaPartitionState)
        Py_INCREF(v)
        PyList_SET_ITEM(rows, j, v)
        v.partition_index = row.partition
        v.leader_epoch = row.leader_epoch
        v.delete_partition = row.flag
        if row.tags != NULL:
            v.tags = kept(row.tags, row.tags_end)
    return p


@cython.nonecheck(False)
cdef rp sr_read_topics(kp_reader *r, rp p, list topics, int version, IdArena arena) except? NULL:
    """Topics with their partitions, each of the version's own class; in version 0 partitions, each with its topic."""
    cdef kp_topic_head head
    cdef rp begin = NULL, end = NULL, last_name = NULL
    cdef int64_t i, last_length = -1
    cdef str name = ""
    cdef Tagged made
    cdef StopReplicaTopicState topic
    cdef StopReplicaTopicV1 indexes
    cdef StopReplicaPartitionV0 partition
    for i in range(PyList_GET_SIZE(topics)):
        p = kp_read_stop_topic(r, p, r.end, version, &head)
        if p == NULL:
            return kp_inside(r, kp_stops_field(version), i)
        if head.name_length != last_length or memcmp(head.name, last_name, head.name_length):
            name = text(head.name, head.name_length)
            last_name, last_length = head.name, head.name_length
        if version >= 3:
            made = topic = StopReplicaTopicState.__new__(StopReplicaTopicState)
            topic.topic_name = name
        elif version >= 1:
            made = indexes = StopReplicaTopicV1.__new__(StopReplicaTopicV1)
            indexes.name = name
            indexes.ids = take(arena, head.rows, r.end - p)
            indexes.n[0] = <int32_t>head.rows
            indexes.owner = arena.block
            kp_ids(indexes.ids, p, head.rows)
            p += 4 * head.rows
        else:
            made = partition = StopReplicaPartitionV0.__new__(StopReplicaPartitionV0)
            partition.topic_name = name
            partition.partition_index = kp_i32(p)
            p += 4
        Py_INCREF(made)
        PyList_SET_ITEM(topics, i, made)
        if version >= 3 and head.rows > 0:
            topic.partition_states_ = PyList_New(head.rows)
            p = sr_read_rows(r, p, topic.partition_states_)
        if p != NULL and version >= 2:
            p = kp_tags(r, p, r.end, &begin, &end)
            made.tags = kept(begin, end)
        if p == NULL:
            return kp_inside(r, kp_stops_field(version), i)
    return p


cdef StopReplicaResponse sr_read_response(kp_reader *r, int version):
    cdef bint flexible = version >= 2
    cdef StopReplicaResponse m = StopReplicaResponse.__new__(StopReplicaResponse)
    cdef rp p = read_error_code(r, &m.error_code)
    cdef int64_t n
    m.version = version
    if p == NULL:
        return None
    n = kp_count(r, &p, r.end, flexible, 8, flexible, "partition_errors", "unknown_tagged_fields:1")
    if n < 0:
        return None
    m.partition_errors_ = PyList_New(n)
    p = read_errors(r, p, m.partition_errors_, 5, flexible, True)
    if p != NULL and flexible:
        p = read_kept(r, p, m)
    if p == NULL:
        return None
    r.at = p
    return m
