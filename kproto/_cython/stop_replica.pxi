"""StopReplica, versions 0 to 4 (flexible from 2): classes and reading.

Version 1 gave the broker epoch and partitions by topic, 2 tagged fields, 3 the leader epoch and a delete flag for each
partition (one flag for the request before), 4 isKRaftController.
"""


class StopReplicaState(NamedTuple):
    """One partition to stop, whatever the version: below 3 the leader epoch is -1 and the flag the request's."""

    topic_name: str
    partition_index: int
    leader_epoch: int
    delete_partition: bool


@cython.final
cdef class StopReplicaPartitionV0(Tagged):
    """A partition to stop, version 0."""

    _fields = ("topic_name", "partition_index", "unknown_tagged_fields")

    def __init__(self, *, topic_name="", partition_index=0, unknown_tagged_fields=()):
        self.topic_name = as_text(topic_name, "topic_name")
        self.partition_index = int32(partition_index, "partition_index")
        self.tags = tags_kept(unknown_tagged_fields)


@cython.final
@cython.no_gc
cdef class StopReplicaTopicV1(Tagged):
    """A topic's partitions to stop, versions 1 and 2."""

    _fields = ("name", "partition_indexes", "unknown_tagged_fields")

    def __init__(self, *, name="", partition_indexes=(), unknown_tagged_fields=()):
        self.name = as_text(name, "name")
        self.partition_indexes = partition_indexes
        self.tags = tags_kept(unknown_tagged_fields)

    @property
    def partition_indexes(self):
        return ids_tuple(self.ids, self.n[0])

    @partition_indexes.setter
    def partition_indexes(self, value):
        self.owner = new_ids(self.n, (value,), ("partition_indexes",), None)
        self.ids = self.owner.data


@cython.final
cdef class StopReplicaPartitionState(Tagged):
    """A partition to stop, versions 3 and later. Leader epoch -1: unknown, -2: the topic is being deleted."""

    _fields = ("partition_index", "leader_epoch", "delete_partition", "unknown_tagged_fields")

    def __init__(self, *, partition_index=0, leader_epoch=-1, delete_partition=False, unknown_tagged_fields=()):
        self.partition_index = int32(partition_index, "partition_index")
        self.leader_epoch = int32(leader_epoch, "leader_epoch")
        self.delete_partition = boolean(delete_partition, "delete_partition")
        self.tags = tags_kept(unknown_tagged_fields)


@cython.final
@cython.no_gc
cdef class StopReplicaTopicState(Tagged):
    """A topic's partitions to stop, versions 3 and later."""

    _fields = ("topic_name", "partition_states", "unknown_tagged_fields")

    def __init__(self, *, topic_name="", partition_states=(), unknown_tagged_fields=()):
        self.topic_name = as_text(topic_name, "topic_name")
        self.partition_states_ = as_list(partition_states, "partition_states")
        self.tags = tags_kept(unknown_tagged_fields)

    @property
    def partition_states(self):
        if self.partition_states_ is None:
            self.partition_states_ = []
        return self.partition_states_

    @partition_states.setter
    def partition_states(self, value):
        self.partition_states_ = as_list(value, "partition_states")


@cython.final
cdef class StopReplicaRequest(ControlRequest):
    """Which partitions the broker is to stop replicating, and of which to delete the log."""

    api_key = 5
    kind = "request"
    _fields = ("controller_id", "is_kraft_controller", "controller_epoch", "broker_epoch", "delete_partitions",
               "ungrouped_partitions", "topics", "topic_states", "unknown_tagged_fields")

    def __init__(self, *, controller_id=0, is_kraft_controller=False, controller_epoch=0, broker_epoch=-1,
                 delete_partitions=False, ungrouped_partitions=(), topics=(), topic_states=(),
                 unknown_tagged_fields=(), version=4):
        self.controller_id = int32(controller_id, "controller_id")
        self.is_kraft_controller = boolean(is_kraft_controller, "is_kraft_controller")
        self.controller_epoch = int32(controller_epoch, "controller_epoch")
        self.broker_epoch = whole(broker_epoch, INT64_MIN, INT64_MAX, "broker_epoch")
        self.delete_partitions = boolean(delete_partitions, "delete_partitions")
        self.states = None
        self.ungrouped_ = as_list(ungrouped_partitions, "ungrouped_partitions")
        self.topics_ = as_list(topics, "topics")
        self.topic_states_ = as_list(topic_states, "topic_states")
        self.tags = tags_kept(unknown_tagged_fields)
        self.version = checked_version(5, version)

    @property
    def ungrouped_partitions(self):
        return ungrouped_of(self)

    @ungrouped_partitions.setter
    def ungrouped_partitions(self, value):
        read_states(self)
        self.ungrouped_ = as_list(value, "ungrouped_partitions")

    @property
    def topics(self):
        read_states(self)
        if self.topics_ is None:
            self.topics_ = []
        return self.topics_

    @topics.setter
    def topics(self, value):
        read_states(self)
        self.topics_ = as_list(value, "topics")

    @property
    def partition_states(self):
        """All partitions, whatever the version: a read-only view. From version 3 on the last of equal ones holds."""
        cdef StopReplicaTopicState topic
        cdef StopReplicaPartitionState row
        cdef bint delete = self.delete_partitions
        cdef list out = [StopReplicaState(p.topic_name, p.partition_index, -1, delete)
                         for p in self.ungrouped_partitions]
        for t in self.topics:
            out.extend([StopReplicaState(t.name, i, -1, delete) for i in t.partition_indexes])
        last = {}
        for topic in self.topic_states:
            for row in topic.partition_states:
                last[topic.topic_name, row.partition_index] = StopReplicaState(
                    topic.topic_name, row.partition_index, row.leader_epoch, row.delete_partition)
        out.extend(last.values())
        return tuple(out)

    def error_response(self, error_code):
        """The answer that reports an error for the request and each of its partitions, in the request's order."""
        cdef list named = [(p.topic_name, p.partition_index) for p in self.ungrouped_partitions]
        for t in self.topics:
            named.extend([(t.name, i) for i in t.partition_indexes])
        for t in self.topic_states:
            named.extend([(t.topic_name, p.partition_index) for p in t.partition_states])
        return StopReplicaResponse(error_code=error_code, version=self.version, partition_errors=[
            StopReplicaPartitionError(topic_name=name, partition_index=i, error_code=error_code) for name, i in named
        ])

    def to_json(self, version):
        return sr_to_json(self, checked_version(5, version))

    @classmethod
    def from_json(cls, json, version):
        return sr_from_json(json, checked_version(5, version))


@cython.final
cdef class StopReplicaPartitionError(PartitionError):
    """One partition's result."""


@cython.final
cdef class StopReplicaResponse(Message):
    """The broker's answer: a code for the request, one for each partition."""

    api_key = 5
    kind = "response"
    _fields = ("error_code", "partition_errors", "unknown_tagged_fields")

    def __init__(self, *, error_code=0, partition_errors=(), unknown_tagged_fields=(), version=4):
        self.error_code = int16(error_code, "error_code")
        self.partition_errors_ = as_list(partition_errors, "partition_errors")
        self.tags = tags_kept(unknown_tagged_fields)
        self.version = checked_version(5, version)

    @property
    def partition_errors(self):
        if self.partition_errors_ is None:
            self.partition_errors_ = []
        return self.partition_errors_

    @partition_errors.setter
    def partition_errors(self, value):
        self.partition_errors_ = as_list(value, "partition_errors")

    def error_counts(self):
        """The number of times each code is in the response; an error for the request counts for every partition too."""
        return counted(self.error_code, self.partition_errors)

    def to_json(self, version):
        return sr_response_to_json(self, checked_version(5, version))

    @classmethod
    def from_json(cls, json, version):
        return sr_response_from_json(json, checked_version(5, version))
