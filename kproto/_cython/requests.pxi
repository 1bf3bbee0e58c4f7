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

    @classmethod
    def from_columns(cls, columns, version=None, message=None):
        """A request whose partition states are made of columns, as ``encode_columns`` takes them, all at once.

        Args:
            columns: ``Columns``, a record batch, or a mapping of sequences.
            version: The version whose form the request takes; the message's own by default.
            message: The request's other fields; those of a fresh request by default.
        """
        if message is None:
            message = cls()
        cdef int api = cls.api_key, v = checked_version(api, message.version if version is None else version)
        return read(encode_columns(message, v, columns), REQUEST, api, v, False, NULL)


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


cdef inline bint kraft_in(int api, int version) noexcept:
    return version >= (8 if api == 6 else 7 if api == 4 else 4)


cdef inline int form_of(int api, int version) noexcept:
    """Versions with one form have the same bytes for the same partitions."""
    if api == 6:
        return kp_umr_form(version)
    return kp_lisr_form(version) if api == 4 else min(version, 3)


cdef inline int live_form(int api, int version) noexcept:
    """Versions with one form have the same bytes for the same live brokers or leaders."""
    if api == 4:
        return flexible_in(4, version)
    return 4 if version >= 6 else 3 if version >= 3 else version


# ---- read ------------------------------------------------------------------------------------------------------------

cdef ControlRequest new_request(int api):
    if api == 6:
        return UpdateMetadataRequest.__new__(UpdateMetadataRequest)
    if api == 4:
        return LeaderAndIsrRequest.__new__(LeaderAndIsrRequest)
    return StopReplicaRequest.__new__(StopReplicaRequest)


cdef rp read_head(kp_reader *r, ControlRequest m, int api, int version) except? NULL:
    """Read the fields before the partitions. The broker epoch came with the version that groups partitions by topic."""
    cdef rp p = r.base
    cdef uint8_t flag = 0
    cdef bint kraft = kraft_in(api, version), epoch = grouped_in(api, version)
    cdef bint has_type = api == 4 and version >= 5, has_flag = api == 5 and version <= 2
    m.broker_epoch = -1
    if r.end - p < 8 + kraft + 8 * epoch + has_type + has_flag:
        return kp_fault_group(
            r, p, "controller_id:4,is_kraft_controller:1,controller_epoch:4,broker_epoch:8,type:1" if kraft
            else "controller_id:4,controller_epoch:4,broker_epoch:8,type:1" if not has_flag
            else "controller_id:4,controller_epoch:4,broker_epoch:8,delete_partitions:1" if epoch
            else "controller_id:4,controller_epoch:4,delete_partitions:1")
    m.controller_id = kp_i32(p)
    p += 4
    if kraft:
        p = kp_bool(r, p, &flag, "is_kraft_controller")
        if p == NULL:
            return NULL
        m.is_kraft_controller = flag
    m.controller_epoch = kp_i32(p)
    p += 4
    if epoch:
        m.broker_epoch = kp_i64(p)
        p += 8
    if has_type:
        (<LeaderAndIsrRequest>m).type = <int8_t>p[0]
        p += 1
    elif has_flag:
        p = kp_bool(r, p, &flag, "delete_partitions")
        if p == NULL:
            return NULL
        (<StopReplicaRequest>m).delete_partitions = flag
    return p


cdef rp read_live(kp_reader *r, rp p, list live, int api, int version) except? NULL:
    """The live brokers or leaders of a list that has one empty place for each."""
    return umr_read_brokers(r, p, live, version) if api == 6 else lisr_read_leaders(r, p, live, version)


cdef rp read_tail(kp_reader *r, rp p, ControlRequest m, int api, int version) except? NULL:
    """Read what follows the partitions: live brokers or leaders, and the request's tagged section."""
    cdef bint flexible = flexible_in(api, version)
    cdef int64_t n = 0
    cdef rp end = NULL
    if api == 6:
        n = kp_count(r, &p, r.end, flexible, 7 if flexible else 8, 0, "live_brokers", "")
    elif api == 4:
        n = kp_count(r, &p, r.end, flexible, 10, flexible, "live_leaders", "unknown_tagged_fields:1")
    if n < 0:
        return NULL
    if n > 0:
        end = kp_plain_brokers(p, r.end, n, version) if api == 6 else kp_plain_leaders(p, r.end, n, flexible)
    if end != NULL:
        m.unread_live = unread(r, p, end, n, version, True)
        p = end
    elif n > 0:
        m.live_ = PyList_New(n)
        p = read_live(r, p, m.live_, api, version)
        if p == NULL:
            return NULL
    if api == 6 and flexible:
        return umr_read_tags(r, p, <UpdateMetadataRequest>m, version)
    return read_kept(r, p, m) if flexible else p


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


cdef inline list objects_of(Unread u, int api, bint live):
    """Objects of a list that is still bytes: of live brokers or leaders, or of partitions."""
    cdef kp_reader r
    cdef list made
    cdef bint paused
    cdef rp p
    memset(&r, 0, sizeof(kp_reader))
    r.base = r.at = u.at
    r.end = u.end
    paused = kp_pause_collector()
    try:
        made = PyList_New(u.count)
        p = read_live(&r, u.at, made, api, u.version) if live else read_groups(&r, u.at, made, api, u.version)
    finally:
        kp_resume_collector(paused)
    if p == NULL:  # somebody has changed the bytes since they were checked
        raise fault_error(&r, api, u.version)
    return made


cdef int read_states(ControlRequest m) except -1:
    """Make objects of partitions that are still bytes."""
    cdef Unread u = m.states
    cdef list groups
    cdef int api = api_of(m)
    if u is None:
        return 0
    groups = objects_of(u, api, False)
    m.states = None
    if not grouped_in(api, u.version):
        m.ungrouped_ = groups
    elif api == 5 and u.version < 3:
        (<StopReplicaRequest>m).topics_ = groups
    else:
        m.topic_states_ = groups
    return 0


cdef list live_of(ControlRequest m):
    if m.unread_live is not None:
        m.live_ = objects_of(m.unread_live, api_of(m), True)
        m.unread_live = None
    elif m.live_ is None:
        m.live_ = []
    return m.live_


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
    if m.unread_live is not None and live_form(api, m.unread_live.version) != live_form(api, version):
        live_of(m)
    return 0


cdef int check_fields(ControlRequest m, int api, int version) except -1:
    """Settle a request, and refuse fields that the version lacks and that may not be dropped."""
    cdef bint grouped = grouped_in(api, version)
    settle(m, api, version)
    if m.is_kraft_controller and not kraft_in(api, version):
        lacking(version, "is_kraft_controller")
    if (api == 6 and version < 8 and (<UpdateMetadataRequest>m).type) \
            or (api == 4 and version < 5 and (<LeaderAndIsrRequest>m).type):
        lacking(version, "type")
    if api == 5 and version > 2 and (<StopReplicaRequest>m).delete_partitions:
        lacking(version, "delete_partitions")
    if grouped and size_of(m.ungrouped_):
        lacking(version, "ungrouped_partitions" if api == 5 else "ungrouped_partition_states")
    if api == 5 and not 1 <= version <= 2 and size_of((<StopReplicaRequest>m).topics_):
        lacking(version, "topics")
    if not (version >= 3 if api == 5 else grouped) and size_of(m.topic_states_):
        lacking(version, "topic_states")
    return 0


cdef int put_head(kp_writer *w, ControlRequest m, int api, int version) except -1:
    """Check the fields that the version lacks, and write those that precede the partitions."""
    cdef uint8_t *q
    check_fields(m, api, version)
    q = kp_reserve_at(w, w.q, 32)
    kp_put32(q, m.controller_id)
    q += 4
    if kraft_in(api, version):
        q[0] = m.is_kraft_controller
        q += 1
    kp_put32(q, m.controller_epoch)
    q += 4
    if grouped_in(api, version):
        kp_put64(q, m.broker_epoch)
        q += 8
    if api == 4 and version >= 5:
        q[0] = <uint8_t>(<LeaderAndIsrRequest>m).type
        q += 1
    elif api == 5 and version <= 2:
        q[0] = (<StopReplicaRequest>m).delete_partitions
        q += 1
    w.q = q
    w.tail = unread_size(m.unread_live)
    return 0


cdef int put_tail(kp_writer *w, ControlRequest m, int api, int version) except -1:
    """Write what follows the partitions: live brokers or leaders, and the request's tagged section."""
    cdef bint flexible = flexible_in(api, version)
    cdef uint8_t known[3]
    w.tail = 0
    if m.unread_live is not None:
        put_unread(w, m.unread_live, flexible)
    elif api == 6:
        umr_put_brokers(w, m.live_, version)
    elif api == 4:
        lisr_put_leaders(w, m.live_, version)
    if api != 6 or version < 8 or (<UpdateMetadataRequest>m).type == 0:
        return put_tags(w, m.tags, flexible, version)
    known[0], known[1], known[2] = 0, 1, <uint8_t>(<UpdateMetadataRequest>m).type
    return put_tagged(w, known, 3, m.tags, True, version)


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
