"""What the three requests share: partitions that stay bytes until they are looked at, reading, and writing."""


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class Unread:
    """A list that was checked and is still bytes: where it stands, how many elements it has, of which version.

    ``plain``: encoding its objects for the same version would give these very bytes.
    """


cdef Unread unread(kp_reader *r, rp at, rp end, int64_t count, int version, bint plain):
    """Keep a list as bytes: within the bytes read, if it is most of them, else as a copy."""
    cdef Unread u = Unread.__new__(Unread)
    cdef int64_t size = end - at
    if r.owner != NULL and 2 * size >= r.end - r.base:
        u.holder, u.at = <bytes>r.owner, at
    else:
        u.holder = new_bytes(size)
        u.at = <rp>PyBytes_AS_STRING(u.holder)
        memcpy(<void *>u.at, at, size)
    u.end = u.at + size
    u.count, u.version, u.plain = count, version, plain
    return u


cdef void read_from(kp_reader *r, Unread u) noexcept:
    """Begin to read a kept list."""
    memset(r, 0, sizeof(kp_reader))
    r.base = r.at = u.at
    r.end = u.end


cdef class ControlRequest(Message):
    """A request of the controller to a broker."""

    @property
    def topic_states(self):
        read_states(self)
        if self.topic_states_ is None:
            self.topic_states_ = []
        return self.topic_states_

    @topic_states.setter
    def topic_states(self, value):
        read_states(self)
        self.topic_states_ = as_list(value, "topic_states")


@cython.no_gc
cdef class TopicState(Tagged):
    """A topic's partition states in UpdateMetadata and LeaderAndIsr."""

    _fields = ("topic_name", "topic_id", "partition_states", "unknown_tagged_fields")

    def __init__(self, *, topic_name="", topic_id=ZERO_UUID, partition_states=(), unknown_tagged_fields=()):
        self.topic_name = as_text(topic_name, "topic_name")
        put_uuid(self.id, topic_id, "topic_id")
        self.partition_states_ = as_list(partition_states, "partition_states")
        self.tags = tags_kept(unknown_tagged_fields)

    @property
    def topic_id(self):
        return <bytes>self.id[:16]

    @topic_id.setter
    def topic_id(self, value):
        put_uuid(self.id, value, "topic_id")

    @property
    def partition_states(self):
        if self.partition_states_ is None:
            self.partition_states_ = []
        return self.partition_states_

    @partition_states.setter
    def partition_states(self, value):
        self.partition_states_ = as_list(value, "partition_states")


cdef inline int api_of(ControlRequest m) noexcept:
    return 6 if type(m) is UpdateMetadataRequest else 4 if type(m) is LeaderAndIsrRequest else 5


cdef inline bint flexible_in(int api, int version) noexcept:
    return version >= (6 if api == 6 else 4 if api == 4 else 2)


cdef inline bint grouped_in(int api, int version) noexcept:
    return version >= (5 if api == 6 else 2 if api == 4 else 1)


cdef inline int form_of(int api, int version) noexcept:
    """Versions with one form have the same bytes for the same partitions."""
    if api == 6:
        return kp_umr_form(version)
    return kp_lisr_form(version) if api == 4 else min(version, 3)


# ---- read ------------------------------------------------------------------------------------------------------------

cdef ControlRequest new_request(int api):
    if api == 6:
        return UpdateMetadataRequest.__new__(UpdateMetadataRequest)
    if api == 4:
        return LeaderAndIsrRequest.__new__(LeaderAndIsrRequest)
    return StopReplicaRequest.__new__(StopReplicaRequest)


cdef rp read_head(kp_reader *r, ControlRequest m, int api, int version) except? NULL:
    """What stands before the partitions."""
    if api == 6:
        return umr_read_head(r, <UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_read_head(r, <LeaderAndIsrRequest>m, version)
    return sr_read_head(r, <StopReplicaRequest>m, version)


cdef rp read_tail(kp_reader *r, rp p, ControlRequest m, int api, int version) except? NULL:
    """What stands behind the partitions."""
    if api == 6:
        return umr_read_tail(r, p, <UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_read_tail(r, p, <LeaderAndIsrRequest>m, version)
    return read_kept(r, p, m) if version >= 2 else p


cdef inline int64_t states_count(kp_reader *r, rp *p, int api, int version) noexcept nogil:
    if api == 6:
        return kp_umr_count(r, p, version)
    return kp_lisr_count(r, p, version) if api == 4 else kp_sr_count(r, p, version)


cdef inline rp check_states(kp_reader *r, rp p, int64_t n, int api, int version) noexcept nogil:
    if api == 6:
        return kp_check_umr_states(r, p, n, version)
    return kp_check_lisr_states(r, p, n, version) if api == 4 else kp_check_sr_states(r, p, n, version)


cdef ControlRequest read_request(kp_reader *r, int api, int version):
    """The whole request, checked to its end, or None after a fault; ``r.at`` tells where it ends."""
    cdef ControlRequest m = new_request(api)
    cdef rp p = read_head(r, m, api, version), at
    cdef int64_t n
    m.version = version
    if p == NULL:
        return None
    r.plain = True
    n = states_count(r, &p, api, version)
    if n < 0:
        return None
    at = p
    p = check_states(r, p, n, api, version)
    if p == NULL:
        return None
    if n > 0:
        m.states = unread(r, at, p, n, version, r.plain)
    p = read_tail(r, p, m, api, version)
    if p == NULL:
        return None
    r.at = p
    return m


cdef rp read_groups(kp_reader *r, rp p, list groups, int api, int version) except? NULL:
    """The topics (in old versions: the partitions) of a list that has one empty place for each."""
    cdef IdArena arena = IdArena.__new__(IdArena)
    if api == 5:
        return sr_read_topics(r, p, groups, version, arena)
    if grouped_in(api, version):
        return read_topics(r, p, groups, api == 6, version, arena)
    if api == 6:
        return umr_read_rows(r, p, groups, version, arena, "ungrouped_partition_states")
    return lisr_read_rows(r, p, groups, version, arena, "ungrouped_partition_states")


cdef int read_states(ControlRequest m) except -1:
    """Make objects of the partitions, where they are still bytes."""
    cdef Unread u = m.states
    cdef kp_reader r
    cdef list groups
    cdef bint paused
    cdef int api
    cdef rp p
    if u is None:
        return 0
    api = api_of(m)
    read_from(&r, u)
    paused = kp_pause_collector()
    try:
        groups = PyList_New(u.count)
        p = read_groups(&r, r.base, groups, api, u.version)
    finally:
        kp_resume_collector(paused)
    if p == NULL:  # somebody has changed the bytes since they were checked
        raise fault_error(&r, api, u.version)
    m.states = None
    if not grouped_in(api, u.version):
        m.ungrouped_ = groups
    elif api == 5 and u.version < 3:
        (<StopReplicaRequest>m).topics_ = groups
    else:
        m.topic_states_ = groups
    return 0


cdef list ungrouped_of(ControlRequest m):
    read_states(m)
    if m.ungrouped_ is None:
        m.ungrouped_ = []
    return m.ungrouped_


@cython.nonecheck(False)
cdef rp read_topics(kp_reader *r, rp p, list topics, bint umr, int version, IdArena arena) except? NULL:
    """Topics of UpdateMetadata or LeaderAndIsr."""
    cdef kp_topic_head head
    cdef rp begin = NULL, end = NULL
    cdef int64_t i
    cdef TopicState topic
    for i in range(PyList_GET_SIZE(topics)):
        p = kp_topic_of(r, p, umr, version, &head)
        if p == NULL:
            return kp_inside(r, "topic_states", i)
        if umr:
            topic = UpdateMetadataTopicState.__new__(UpdateMetadataTopicState)
        else:
            topic = LeaderAndIsrTopicState.__new__(LeaderAndIsrTopicState)
        Py_INCREF(topic)
        PyList_SET_ITEM(topics, i, topic)
        topic.topic_name = text(head.name, head.name_length)
        if head.id != NULL:
            memcpy(topic.id, head.id, 16)
        if head.rows > 0:
            topic.partition_states_ = PyList_New(head.rows)
            if umr:
                p = umr_read_rows(r, p, topic.partition_states_, version, arena, "partition_states")
            else:
                p = lisr_read_rows(r, p, topic.partition_states_, version, arena, "partition_states")
        if p != NULL and version >= (6 if umr else 4):
            p = kp_tags(r, p, r.end, &begin, &end)
            topic.tags = kept(begin, end)
        if p == NULL:
            return kp_inside(r, "topic_states", i)
    return p


# ---- written ---------------------------------------------------------------------------------------------------------

cdef int settle(ControlRequest m, int api, int version) except -1:
    """Make objects of what is bytes and cannot be written as it stands, before anything is sized."""
    if m.states is not None and not (m.states.plain and form_of(api, m.states.version) == form_of(api, version)):
        read_states(m)
    if api == 6:
        umr_settle(<UpdateMetadataRequest>m, version)
    elif api == 4:
        lisr_settle(<LeaderAndIsrRequest>m, version)
    return 0


cdef int64_t head_size(ControlRequest m, int api, int version) except -1:
    """What stands before the count of the groups; the message is checked."""
    if api == 6:
        umr_check(<UpdateMetadataRequest>m, version)
        return umr_head_size(version)
    if api == 4:
        lisr_check(<LeaderAndIsrRequest>m, version)
        return lisr_head_size(version)
    sr_check(<StopReplicaRequest>m, version)
    return sr_head_size(version)


cdef uint8_t *put_head(uint8_t *q, ControlRequest m, int api, int version) noexcept:
    if api == 6:
        return umr_put_head(q, <UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_put_head(q, <LeaderAndIsrRequest>m, version)
    return sr_put_head(q, <StopReplicaRequest>m, version)


cdef int64_t tail_size(ControlRequest m, int api, int version) except -1:
    """What stands behind the groups."""
    if api == 6:
        return umr_tail_size(<UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_tail_size(<LeaderAndIsrRequest>m, version)
    return tags_size(m.tags, flexible_in(5, version), version)


cdef uint8_t *put_tail(uint8_t *q, ControlRequest m, int api, int version) noexcept:
    if api == 6:
        return umr_put_tail(q, <UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_put_tail(q, <LeaderAndIsrRequest>m, version)
    return put_tags(q, m.tags, flexible_in(5, version))


cdef int64_t rows_size(list rows, bint umr, int version, str field) except -1:
    return umr_rows_size(rows, version, field) if umr else lisr_rows_size(rows, version, field)


cdef uint8_t *put_rows(uint8_t *q, list rows, bint umr, int version, rp end) noexcept:
    return umr_put_rows(q, rows, version, end) if umr else lisr_put_rows(q, rows, version, end)


cdef int64_t topics_size(list topics, bint umr, int version) except -1:
    cdef int api = 6 if umr else 4
    cdef bint flexible = flexible_in(api, version)
    cdef type expected = UpdateMetadataTopicState if umr else LeaderAndIsrTopicState
    cdef int64_t total = 0
    cdef Py_ssize_t i = 0
    cdef TopicState topic
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not expected:
                wrong(x, expected.__name__, "topic_states", i)
            topic = <TopicState>x
            total += text_size(topic.topic_name, flexible, "topic_name") + (16 if version >= (7 if umr else 5) else 0)
            total += count_size(size_of(topic.partition_states_), flexible)
            total += rows_size(topic.partition_states_, umr, version, "partition_states")
            total += tags_size(topic.tags, flexible, version)
    except EncodeError as error:
        within(error, f"topic_states[{i}]")
        raise
    return total


cdef uint8_t *put_topics(uint8_t *q, list topics, bint umr, int version, rp end) noexcept:
    cdef bint flexible = flexible_in(6 if umr else 4, version)
    cdef Py_ssize_t i
    cdef TopicState topic
    for i in range(size_of(topics)):
        topic = <TopicState>PyList_GET_ITEM(topics, i)
        q = put_text(q, topic.topic_name, flexible)
        if version >= (7 if umr else 5):
            memcpy(q, topic.id, 16)
            q += 16
        q = kp_put_count(q, size_of(topic.partition_states_), flexible)
        q = put_rows(q, topic.partition_states_, umr, version, end)
        q = put_tags(q, topic.tags, flexible)
    return q


cdef bytes write_request(ControlRequest m, int api, int version):
    cdef bint flexible = flexible_in(api, version), grouped = grouped_in(api, version)
    cdef list groups
    cdef int64_t size, states, count
    cdef bytes out
    cdef uint8_t *q
    cdef rp end
    settle(m, api, version)
    size = head_size(m, api, version) + tail_size(m, api, version)
    if api == 5 and 1 <= version <= 2:
        groups = (<StopReplicaRequest>m).topics_
    else:
        groups = m.topic_states_ if grouped else m.ungrouped_
    count = size_of(groups)
    if m.states is not None:
        count, states = m.states.count, m.states.end - m.states.at
    elif api == 5:
        states = sr_topics_size(groups, version)
    elif grouped:
        states = topics_size(groups, api == 6, version)
    else:
        states = rows_size(groups, api == 6, version, "ungrouped_partition_states")
    size += states + count_size(count, flexible)
    out = new_bytes(size)
    q = put_head(<uint8_t *>PyBytes_AS_STRING(out), m, api, version)
    end = <rp>PyBytes_AS_STRING(out) + size
    q = kp_put_count(q, count, flexible)
    if m.states is not None:
        memcpy(q, m.states.at, states)
        q += states
    elif api == 5:
        q = sr_put_topics(q, groups, version, end)
    elif grouped:
        q = put_topics(q, groups, api == 6, version, end)
    else:
        q = put_rows(q, groups, api == 6, version, end)
    put_tail(q, m, api, version)
    return out
