"""Reading and writing that the three requests share; partitions stay bytes until a field of theirs is read."""


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class Unread:
    """A list that was checked and is still bytes, with the number of its elements and their version.

    ``plain``: encoding its objects for the same version would give these very bytes.
    """


cdef Unread unread(kp_reader *r, rp at, rp end, int64_t count, int version, bint plain):
    """Keep a list as bytes: inside the input if the list is most of it, else as a copy."""
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
    """Read the fields before the partitions."""
    if api == 6:
        return umr_read_head(r, <UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_read_head(r, <LeaderAndIsrRequest>m, version)
    return sr_read_head(r, <StopReplicaRequest>m, version)


cdef rp read_tail(kp_reader *r, rp p, ControlRequest m, int api, int version) except? NULL:
    """Read the fields behind the partitions."""
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
    """Make objects of partitions that are still bytes."""
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

# Memory that must grow, or be given back, costs more than the writing. So some of the partitions tell, before the first
# byte, how much all of them may take: one of sixteen, at most some 256, and in small lists the first.

cdef inline int64_t sample_step(int64_t count) noexcept:
    return 16 if count < 4096 else count // 256


@cython.nonecheck(False)
cdef int64_t likely_rows_size(list rows, int64_t step, bint umr, int version) noexcept:
    """What partition states of UpdateMetadata or LeaderAndIsr may take, judged by each one of ``step``."""
    cdef type expected = UpdateMetadataPartitionState if umr else LeaderAndIsrPartitionState
    cdef int64_t count = size_of(rows), seen = 0, size = 0, i = 0
    cdef PyObject *x
    cdef PyObject *owner
    cdef kp_state row
    while i < count:
        x = PyList_GET_ITEM(rows, i)
        if type(<object>x) is not expected:
            break  # the writing will end there
        if umr:
            owner = umr_state(<UpdateMetadataPartitionState>x, &row)
        else:
            owner = lisr_state(<LeaderAndIsrPartitionState>x, &row)
        size += kp_row_size(row.n, umr, version)
        if not kp_grouped(umr, version):
            size += 2 + kp_text_size(row_topic(<Block>owner))
        seen += 1
        i += step
    return size * count // seen if seen else 0


@cython.nonecheck(False)
cdef int reserve_topics(kp_writer *w, list topics, bint umr, int version) except -1:
    """Get memory for all topics of UpdateMetadata or LeaderAndIsr, and a little more, as it is an estimate."""
    cdef type expected = UpdateMetadataTopicState if umr else LeaderAndIsrTopicState
    cdef int64_t count = size_of(topics), step = 1 if count < 16 else sample_step(count)
    cdef int64_t rows = 0, looked_at = 0, their_rows = 0, heads = 0, size = 0, n, i
    cdef PyObject *x
    cdef TopicState topic
    for i in range(count):
        x = PyList_GET_ITEM(topics, i)
        if type(<object>x) is not expected:
            break  # the writing will end there
        topic = <TopicState>x
        n = size_of(topic.partition_states_)
        rows += n
        if i % step == 0:
            looked_at += 1
            their_rows += n
            heads += 0 if topic.topic_name is None else kp_text_size(topic.topic_name)
            size += likely_rows_size(topic.partition_states_, sample_step(n) if step == 1 else 1 + n // 4, umr, version)
    if their_rows == 0:
        return 0
    heads = heads * count // looked_at + count * (22 if kp_with_id(umr, version) else 6)
    size = size * rows // their_rows + heads
    return kp_reserve(w, size + size // 32)


cdef int settle(ControlRequest m, int api, int version) except -1:
    """Make objects of lists that are bytes in another version's form; the others are written as they are."""
    if m.states is not None and not (m.states.plain and form_of(api, m.states.version) == form_of(api, version)):
        read_states(m)
    if api == 6:
        umr_settle(<UpdateMetadataRequest>m, version)
    elif api == 4:
        lisr_settle(<LeaderAndIsrRequest>m, version)
    return 0


cdef int put_head(kp_writer *w, ControlRequest m, int api, int version) except -1:
    """Check the fields that the version lacks, and write those that precede the partitions."""
    kp_reserve(w, 32)
    if api == 6:
        umr_check(<UpdateMetadataRequest>m, version)
        w.q = umr_put_head(w.q, <UpdateMetadataRequest>m, version)
        w.tail = unread_size((<UpdateMetadataRequest>m).unread_brokers)
    elif api == 4:
        lisr_check(<LeaderAndIsrRequest>m, version)
        w.q = lisr_put_head(w.q, <LeaderAndIsrRequest>m, version)
        w.tail = unread_size((<LeaderAndIsrRequest>m).unread_leaders)
    else:
        sr_check(<StopReplicaRequest>m, version)
        w.q = sr_put_head(w.q, <StopReplicaRequest>m, version)
    return 0


cdef int put_tail(kp_writer *w, ControlRequest m, int api, int version) except -1:
    """Write the fields that follow the partitions."""
    w.tail = 0
    if api == 6:
        return umr_put_tail(w, <UpdateMetadataRequest>m, version)
    if api == 4:
        return lisr_put_tail(w, <LeaderAndIsrRequest>m, version)
    return put_tags(w, m.tags, flexible_in(5, version), version)


@cython.nonecheck(False)
cdef inline int put_rows_of(kp_writer *w, list rows, const bint umr, const int version, Py_ssize_t *j) except -1:
    """Write partition states; ``j`` tells of an error's place."""
    cdef type expected = UpdateMetadataPartitionState if umr else LeaderAndIsrPartitionState
    cdef int64_t count = size_of(rows), most, i
    cdef uint8_t *q = w.q
    cdef PyObject *x
    cdef PyObject *owner
    cdef PyObject *last = NULL
    cdef str name
    cdef kp_state row
    for i in range(count):
        x = PyList_GET_ITEM(rows, i)
        j[0] = i
        if type(<object>x) is not expected:
            wrong(<object>x, expected)
        if umr:
            owner = umr_state(<UpdateMetadataPartitionState>x, &row)
        else:
            owner = lisr_state(<LeaderAndIsrPartitionState>x, &row)
            if version < 6 and row.recovery:
                lacking(version, "leader_recovery_state")
        most = KP_ROW_WITHOUT_IDS + 4 * (<int64_t>row.n[0] + row.n[1] + row.n[2] + row.n[3])
        if kp_grouped(umr, version):
            q = kp_reserve_at(w, q, most)
        elif owner == last:
            q = kp_put_same_name(w, kp_reserve_at(w, q, w.name_size + most))
        else:
            name, last = row_topic(<Block>owner), owner
            q = put_name(w, q, <PyObject *>name, False, most)
        q = kp_put_row(q, &row, umr, version)
        if <object>owner is not None and (<Block>owner).tags is not None:
            w.q = q
            put_tags(w, (<Block>owner).tags, kp_flexible(umr, version), version)
            q = w.q
        elif kp_flexible(umr, version):
            q[0] = 0
            q += 1
    w.q = q
    return 0


cdef int put_rows_by_form(kp_writer *w, list rows, bint umr, int version, Py_ssize_t *j) except -1:
    """Write partition states by the loop that was compiled for the version's form."""
    cdef int form = kp_umr_form(version) if umr else kp_lisr_form(version)
    if umr:
        if form == 3:
            return put_rows_of(w, rows, True, 3, j)
        if form == 4:
            return put_rows_of(w, rows, True, 4, j)
        if form == 5:
            return put_rows_of(w, rows, True, 5, j)
        if form == 6:
            return put_rows_of(w, rows, True, 6, j)
        return put_rows_of(w, rows, True, 8, j)
    if form == 0:
        return put_rows_of(w, rows, False, 0, j)
    if form == 1:
        return put_rows_of(w, rows, False, 1, j)
    if form == 2:
        return put_rows_of(w, rows, False, 2, j)
    if form == 3:
        return put_rows_of(w, rows, False, 3, j)
    if form == 4:
        return put_rows_of(w, rows, False, 4, j)
    if form == 5:
        return put_rows_of(w, rows, False, 5, j)
    return put_rows_of(w, rows, False, 7, j)


cdef int put_rows(kp_writer *w, list rows, bint umr, int version, str field) except -1:
    """Write partition states of UpdateMetadata or LeaderAndIsr."""
    cdef Py_ssize_t j = 0
    try:
        put_rows_by_form(w, rows, umr, version, &j)
    except EncodeError as error:
        within(error, f"{field}[{j}]")
        raise
    return 0


cdef int put_topics(kp_writer *w, list topics, bint umr, int version) except -1:
    """Write topics of UpdateMetadata or LeaderAndIsr with their partition states."""
    cdef bint flexible = flexible_in(6 if umr else 4, version)
    cdef type expected = UpdateMetadataTopicState if umr else LeaderAndIsrTopicState
    cdef Py_ssize_t i = 0
    cdef TopicState topic
    reserve_topics(w, topics, umr, version)
    try:
        for i in range(size_of(topics)):
            x = <object>PyList_GET_ITEM(topics, i)
            if type(x) is not expected:
                wrong(x, expected)
            topic = <TopicState>x
            put_text(w, topic.topic_name, flexible, "topic_name")
            if version >= (7 if umr else 5):
                kp_add_bytes(w, topic.id, 16)
            kp_add_count(w, size_of(topic.partition_states_), flexible)
            put_rows(w, topic.partition_states_, umr, version, "partition_states")
            put_tags(w, topic.tags, flexible, version)
    except EncodeError as error:
        within(error, f"topic_states[{i}]")
        raise
    return 0


cdef int write_request(kp_writer *w, ControlRequest m, int version) except -1:
    cdef int api = api_of(m)
    cdef bint flexible = flexible_in(api, version), grouped = grouped_in(api, version)
    cdef list groups
    settle(m, api, version)
    put_head(w, m, api, version)
    if m.states is not None:
        put_unread(w, m.states, flexible)
        return put_tail(w, m, api, version)
    if api == 5 and 1 <= version <= 2:
        groups = (<StopReplicaRequest>m).topics_
    else:
        groups = m.topic_states_ if grouped else m.ungrouped_
    kp_add_count(w, size_of(groups), flexible)
    if api == 5 and version == 0:
        sr_put_ungrouped(w, groups)
    elif api == 5:
        sr_put_topics(w, groups, version)
    elif grouped:
        put_topics(w, groups, api == 6, version)
    else:
        kp_reserve(w, likely_rows_size(groups, sample_step(size_of(groups)), api == 6, version))
        put_rows(w, groups, api == 6, version, "ungrouped_partition_states")
    return put_tail(w, m, api, version)
