"""LeaderAndIsr, versions 0 to 7 (flexible from 4): classes and reading.

Version 1 gave partitions isNew, 2 the broker epoch and topics as groups, 3 adding and removing replicas, 4 tagged
fields, 5 topic ids and the type (and a response by topic id), 6 the leader recovery state, 7 isKRaftController.
"""

_LISR_ROW = ("topic_name", "partition_index", "controller_epoch", "leader", "leader_epoch", "isr", "partition_epoch",
             "replicas", "adding_replicas", "removing_replicas", "is_new", "leader_recovery_state",
             "unknown_tagged_fields")
_LISR_LISTS = ("isr", "replicas", "adding_replicas", "removing_replicas")


@cython.final
@cython.no_gc
cdef class LeaderAndIsrPartitionState(Struct):
    """One partition's state. Ids are tuples; ``topic_name`` is on the wire in versions 0-1 only."""

    _fields = _LISR_ROW

    def __init__(self, *, topic_name="", partition_index=0, controller_epoch=0, leader=0, leader_epoch=0, isr=(),
                 partition_epoch=0, replicas=(), adding_replicas=(), removing_replicas=(), is_new=False,
                 leader_recovery_state=0, unknown_tagged_fields=()):
        self.partition_index = int32(partition_index, "partition_index")
        self.controller_epoch = int32(controller_epoch, "controller_epoch")
        self.leader = int32(leader, "leader")
        self.leader_epoch = int32(leader_epoch, "leader_epoch")
        self.partition_epoch = int32(partition_epoch, "partition_epoch")
        self.is_new = boolean(is_new, "is_new")
        self.leader_recovery_state = int8(leader_recovery_state, "leader_recovery_state")
        self.owner = new_ids(self.n, (isr, replicas, adding_replicas, removing_replicas), _LISR_LISTS, None)
        self.ids = self.owner.data
        if topic_name != "":
            self.topic_name = topic_name
        if unknown_tagged_fields != ():
            self.unknown_tagged_fields = unknown_tagged_fields

    def __getattribute__(self, name):
        """Most fields without a search in the type's dictionaries, which would take most of the time to read them."""
        if name is "partition_index":
            return shared_int(self.partition_index)
        if name is "leader":
            return shared_int(self.leader)
        if name is "leader_epoch":
            return shared_int(self.leader_epoch)
        if name is "isr":
            return ids_tuple(self.ids, self.n[0])
        if name is "replicas":
            return ids_tuple(self.ids + self.n[0], self.n[1])
        if name is "controller_epoch":
            return shared_int(self.controller_epoch)
        if name is "partition_epoch":
            return shared_int(self.partition_epoch)
        if name is "is_new":
            return self.is_new
        if name is "adding_replicas":
            return ids_tuple(self.ids + self.n[0] + self.n[1], self.n[2])
        if name is "removing_replicas":
            return ids_tuple(self.ids + self.n[0] + self.n[1] + self.n[2], self.n[3])
        if name is "leader_recovery_state":
            return self.leader_recovery_state
        return PyObject_GenericGetAttr(self, name)

    @property
    def topic_name(self):
        return row_topic(self.owner)

    @topic_name.setter
    def topic_name(self, value):
        self.owner = labelled(self.owner, as_text(value, "topic_name"), row_tags(self.owner))

    @property
    def unknown_tagged_fields(self):
        return tags_tuple(row_tags(self.owner))

    @unknown_tagged_fields.setter
    def unknown_tagged_fields(self, value):
        self.owner = labelled(self.owner, None if self.owner is None else self.owner.topic_name, tags_kept(value))

    @property
    def isr(self):
        return ids_tuple(self.ids, self.n[0])

    @isr.setter
    def isr(self, value):
        lisr_exchange(self, 0, value)

    @property
    def replicas(self):
        return ids_tuple(self.ids + self.n[0], self.n[1])

    @replicas.setter
    def replicas(self, value):
        lisr_exchange(self, 1, value)

    @property
    def adding_replicas(self):
        return ids_tuple(self.ids + self.n[0] + self.n[1], self.n[2])

    @adding_replicas.setter
    def adding_replicas(self, value):
        lisr_exchange(self, 2, value)

    @property
    def removing_replicas(self):
        return ids_tuple(self.ids + self.n[0] + self.n[1] + self.n[2], self.n[3])

    @removing_replicas.setter
    def removing_replicas(self, value):
        lisr_exchange(self, 3, value)


cdef int lisr_exchange(LeaderAndIsrPartitionState row, int which, object value) except -1:
    """Replace one list of a row. A function, since a method table would cost each row a pointer."""
    row.owner = changed_ids(row.n, row.ids, _LISR_LISTS, which, value, row.owner)
    row.ids = row.owner.data
    return 0


cdef LeaderAndIsrPartitionState lisr_view(LeaderAndIsrPartitionState row, Block owner):
    """A row of the flat view: the same values under another owner."""
    cdef LeaderAndIsrPartitionState v = LeaderAndIsrPartitionState.__new__(LeaderAndIsrPartitionState)
    v.partition_index = row.partition_index
    v.controller_epoch = row.controller_epoch
    v.leader = row.leader
    v.leader_epoch = row.leader_epoch
    v.partition_epoch = row.partition_epoch
    v.is_new = row.is_new
    v.leader_recovery_state = row.leader_recovery_state
    memcpy(v.n, row.n, sizeof(row.n))
    v.ids = row.ids
    v.owner = owner
    return v


@cython.final
@cython.no_gc
cdef class LeaderAndIsrTopicState(TopicState):
    """A topic's partitions (versions 2 and later); ``topic_id`` is on the wire from version 5."""


@cython.final
cdef class LeaderAndIsrLiveLeader(Tagged):
    """The address of a leader that the request names."""

    _fields = ("broker_id", "host_name", "port", "unknown_tagged_fields")

    def __init__(self, *, broker_id=0, host_name="", port=0, unknown_tagged_fields=()):
        self.broker_id = int32(broker_id, "broker_id")
        self.host_name = as_text(host_name, "host_name")
        self.port = int32(port, "port")
        self.tags = tags_kept(unknown_tagged_fields)


@cython.final
cdef class LeaderAndIsrRequest(ControlRequest):
    """Which partitions the broker is to lead or follow; ``type`` 1 means some of them, 2 all (versions 5 and later)."""

    api_key = 4
    kind = "request"
    _fields = ("controller_id", "is_kraft_controller", "controller_epoch", "broker_epoch", "type",
               "ungrouped_partition_states", "topic_states", "live_leaders", "unknown_tagged_fields")

    def __init__(self, *, controller_id=0, is_kraft_controller=False, controller_epoch=0, broker_epoch=-1, type=0,
                 ungrouped_partition_states=(), topic_states=(), live_leaders=(), unknown_tagged_fields=(), version=7):
        self.controller_id = int32(controller_id, "controller_id")
        self.is_kraft_controller = boolean(is_kraft_controller, "is_kraft_controller")
        self.controller_epoch = int32(controller_epoch, "controller_epoch")
        self.broker_epoch = whole(broker_epoch, INT64_MIN, INT64_MAX, "broker_epoch")
        self.type = int8(type, "type")
        self.states = None
        self.ungrouped_ = as_list(ungrouped_partition_states, "ungrouped_partition_states")
        self.topic_states_ = as_list(topic_states, "topic_states")
        self.live_leaders = live_leaders
        self.tags = tags_kept(unknown_tagged_fields)
        self.version = checked_version(4, version)

    @property
    def ungrouped_partition_states(self):
        return ungrouped_of(self)

    @ungrouped_partition_states.setter
    def ungrouped_partition_states(self, value):
        read_states(self)
        self.ungrouped_ = as_list(value, "ungrouped_partition_states")

    @property
    def live_leaders(self):
        return live_of(self)

    @live_leaders.setter
    def live_leaders(self, value):
        self.live_ = as_list(value, "live_leaders")
        self.unread_live = None

    @property
    def partition_states(self):
        """All partition states, each with its topic's name, whatever the version: a read-only view."""
        cdef list out = []
        cdef LeaderAndIsrPartitionState row
        cdef LeaderAndIsrTopicState topic
        cdef Block owner = None
        for row in self.ungrouped_partition_states:
            owner = view_owner(row.owner, row_topic(row.owner), owner)
            out.append(lisr_view(row, owner))
        for topic in self.topic_states:
            for row in topic.partition_states:
                owner = view_owner(row.owner, topic.topic_name, owner)
                out.append(lisr_view(row, owner))
        return tuple(out)

    @property
    def topic_ids(self):
        """Topic ids by name: empty where the version has no groups, zero where it has no ids."""
        cdef LeaderAndIsrTopicState topic
        return {topic.topic_name: topic.topic_id for topic in self.topic_states}

    def error_response(self, error_code):
        """The answer that reports an error for the request and each of its partitions."""
        cdef LeaderAndIsrTopicState topic
        if self.version >= 5:
            return LeaderAndIsrResponse(error_code=error_code, version=self.version, topics=[
                LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=[
                    LeaderAndIsrPartitionError(partition_index=row.partition_index, error_code=error_code)
                    for row in topic.partition_states
                ])
                for topic in self.topic_states
            ])
        return LeaderAndIsrResponse(error_code=error_code, version=self.version, partition_errors=[
            LeaderAndIsrPartitionError(topic_name=row.topic_name, partition_index=row.partition_index,
                                       error_code=error_code)
            for row in self.partition_states
        ])

    def to_json(self, version):
        return lisr_to_json(self, checked_version(4, version))

    @classmethod
    def from_json(cls, json, version):
        return lisr_from_json(json, checked_version(4, version))


@cython.final
cdef class LeaderAndIsrPartitionError(PartitionError):
    """One partition's result; ``topic_name`` is on the wire in versions 0-4 only."""


@cython.final
@cython.no_gc
cdef class LeaderAndIsrTopicError(Tagged):
    """A topic's results, by its id (versions 5 and later)."""

    _fields = ("topic_id", "partition_errors", "unknown_tagged_fields")

    def __init__(self, *, topic_id=ZERO_UUID, partition_errors=(), unknown_tagged_fields=()):
        put_uuid(self.id, topic_id, "topic_id")
        self.partition_errors_ = as_list(partition_errors, "partition_errors")
        self.tags = tags_kept(unknown_tagged_fields)

    @property
    def topic_id(self):
        return <bytes>self.id[:16]

    @topic_id.setter
    def topic_id(self, value):
        put_uuid(self.id, value, "topic_id")

    @property
    def partition_errors(self):
        if self.partition_errors_ is None:
            self.partition_errors_ = []
        return self.partition_errors_

    @partition_errors.setter
    def partition_errors(self, value):
        self.partition_errors_ = as_list(value, "partition_errors")


@cython.final
cdef class LeaderAndIsrResponse(Message):
    """The broker's answer: a code for the request, one for each partition (below version 5 by topic name)."""

    api_key = 4
    kind = "response"
    _fields = ("error_code", "partition_errors", "topics", "unknown_tagged_fields")

    def __init__(self, *, error_code=0, partition_errors=(), topics=(), unknown_tagged_fields=(), version=7):
        self.error_code = int16(error_code, "error_code")
        self.partition_errors_ = as_list(partition_errors, "partition_errors")
        self.topics_ = as_list(topics, "topics")
        self.tags = tags_kept(unknown_tagged_fields)
        self.version = checked_version(4, version)

    @property
    def partition_errors(self):
        if self.partition_errors_ is None:
            self.partition_errors_ = []
        return self.partition_errors_

    @partition_errors.setter
    def partition_errors(self, value):
        self.partition_errors_ = as_list(value, "partition_errors")

    @property
    def topics(self):
        if self.topics_ is None:
            self.topics_ = []
        return self.topics_

    @topics.setter
    def topics(self, value):
        self.topics_ = as_list(value, "topics")

    def error_counts(self):
        """The number of times each code is in the response; an error for the request counts for every partition too."""
        errors = list(self.partition_errors)
        for topic in self.topics:
            errors.extend(topic.partition_errors)
        return counted(self.error_code, errors)

    def to_json(self, version):
        return lisr_response_to_json(self, checked_version(4, version))

    @classmethod
    def from_json(cls, json, version):
        return lisr_response_from_json(json, checked_version(4, version))
