"""UpdateMetadata, versions 0 to 8 (flexible from 6).

Version 1 gave brokers endpoints, 2 a rack, 3 listener names; 4 added offline replicas, 5 the broker epoch and topics as
groups, 6 tagged fields, 7 topic ids, 8 isKRaftController and type (tag 0).
"""

_UMR_ROW = ("topic_name", "partition_index", "controller_epoch", "leader", "leader_epoch", "isr", "zk_version",
            "replicas", "offline_replicas", "unknown_tagged_fields")
_UMR_LISTS = ("isr", "replicas", "offline_replicas")


@cython.final
@cython.no_gc
cdef class UpdateMetadataPartitionState(Struct):
    """One partition's state. Ids are tuples; ``topic_name`` is on the wire in versions 0-4 only."""

    _fields = _UMR_ROW

    def __init__(self, *, topic_name="", partition_index=0, controller_epoch=0, leader=0, leader_epoch=0, isr=(),
                 zk_version=0, replicas=(), offline_replicas=(), unknown_tagged_fields=()):
        self.partition_index = int32(partition_index, "partition_index")
        self.controller_epoch = int32(controller_epoch, "controller_epoch")
        self.leader = int32(leader, "leader")
        self.leader_epoch = int32(leader_epoch, "leader_epoch")
        self.zk_version = int32(zk_version, "zk_version")
        self.owner = new_ids(self.n, (isr, replicas, offline_replicas), _UMR_LISTS, None)
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
        if name is "zk_version":
            return shared_int(self.zk_version)
        if name is "offline_replicas":
            return ids_tuple(self.ids + self.n[0] + self.n[1], self.n[2])
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
        self.owner = changed_ids(self.n, self.ids, _UMR_LISTS, 0, value, self.owner)
        self.ids = self.owner.data

    @property
    def replicas(self):
        return ids_tuple(self.ids + self.n[0], self.n[1])

    @replicas.setter
    def replicas(self, value):
        self.owner = changed_ids(self.n, self.ids, _UMR_LISTS, 1, value, self.owner)
        self.ids = self.owner.data

    @property
    def offline_replicas(self):
        return ids_tuple(self.ids + self.n[0] + self.n[1], self.n[2])

    @offline_replicas.setter
    def offline_replicas(self, value):
        self.owner = changed_ids(self.n, self.ids, _UMR_LISTS, 2, value, self.owner)
        self.ids = self.owner.data


cdef UpdateMetadataPartitionState umr_view(UpdateMetadataPartitionState row, Block owner):
    """A row of the flat view: the same values under another owner."""
    cdef UpdateMetadataPartitionState v = UpdateMetadataPartitionState.__new__(UpdateMetadataPartitionState)
    v.partition_index = row.partition_index
    v.controller_epoch = row.controller_epoch
    v.leader = row.leader
    v.leader_epoch = row.leader_epoch
    v.zk_version = row.zk_version
    memcpy(v.n, row.n, sizeof(row.n))
    v.ids = row.ids
    v.owner = owner
    return v


@cython.final
@cython.no_gc
cdef class UpdateMetadataTopicState(TopicState):
    """A topic's partitions; ``topic_id`` is on the wire from version 7."""


@cython.final
cdef class UpdateMetadataEndpoint(Tagged):
    """An address of a broker (versions 1 and later); ``listener`` is on the wire from version 3."""

    _fields = ("port", "host", "listener", "security_protocol", "unknown_tagged_fields")

    def __init__(self, *, port=0, host="", listener="", security_protocol=0, unknown_tagged_fields=()):
        self.port = int32(port, "port")
        self.host = as_text(host, "host")
        self.listener = as_text(listener, "listener")
        self.security_protocol = int16(security_protocol, "security_protocol")
        self.tags = tags_kept(unknown_tagged_fields)


@cython.final
@cython.no_gc
cdef class UpdateMetadataBroker(Tagged):
    """A live broker: one address in version 0, endpoints from version 1, a rack (or None) from version 2."""

    _fields = ("id", "v0_host", "v0_port", "endpoints", "rack", "unknown_tagged_fields")

    def __init__(self, *, id=0, v0_host="", v0_port=0, endpoints=(), rack="", unknown_tagged_fields=()):
        self.id = int32(id, "id")
        self.v0_host = as_text(v0_host, "v0_host")
        self.v0_port = int32(v0_port, "v0_port")
        self.endpoints_ = as_list(endpoints, "endpoints")
        self.rack = as_text_or_none(rack, "rack")
        self.tags = tags_kept(unknown_tagged_fields)

    @property
    def endpoints(self):
        if self.endpoints_ is None:
            self.endpoints_ = []
        return self.endpoints_

    @endpoints.setter
    def endpoints(self, value):
        self.endpoints_ = as_list(value, "endpoints")


@cython.final
cdef class UpdateMetadataRequest(ControlRequest):
    """The cluster as brokers are to know it: partition states by topic (ungrouped below version 5), live brokers."""

    api_key = 6
    kind = "request"
    _fields = ("controller_id", "is_kraft_controller", "type", "controller_epoch", "broker_epoch",
               "ungrouped_partition_states", "topic_states", "live_brokers", "unknown_tagged_fields")

    def __init__(self, *, controller_id=0, is_kraft_controller=False, type=0, controller_epoch=0, broker_epoch=-1,
                 ungrouped_partition_states=(), topic_states=(), live_brokers=(), unknown_tagged_fields=(), version=8):
        self.controller_id = int32(controller_id, "controller_id")
        self.is_kraft_controller = boolean(is_kraft_controller, "is_kraft_controller")
        self.type = int8(type, "type")
        self.controller_epoch = int32(controller_epoch, "controller_epoch")
        self.broker_epoch = whole(broker_epoch, INT64_MIN, INT64_MAX, "broker_epoch")
        self.states = None
        self.ungrouped_ = as_list(ungrouped_partition_states, "ungrouped_partition_states")
        self.topic_states_ = as_list(topic_states, "topic_states")
        self.live_brokers = live_brokers
        self.tags = tags_kept(unknown_tagged_fields)
        self.version = checked_version(6, version)

    @property
    def ungrouped_partition_states(self):
        return ungrouped_of(self)

    @ungrouped_partition_states.setter
    def ungrouped_partition_states(self, value):
        read_states(self)
        self.ungrouped_ = as_list(value, "ungrouped_partition_states")

    @property
    def live_brokers(self):
        return live_of(self)

    @live_brokers.setter
    def live_brokers(self, value):
        self.live_ = as_list(value, "live_brokers")
        self.unread_live = None

    @property
    def partition_states(self):
        """All partition states, each with its topic's name, whatever the version: a read-only view."""
        cdef list out = []
        cdef UpdateMetadataPartitionState row
        cdef UpdateMetadataTopicState topic
        cdef Block owner = None
        for row in self.ungrouped_partition_states:
            owner = view_owner(row.owner, row_topic(row.owner), owner)
            out.append(umr_view(row, owner))
        for topic in self.topic_states:
            for row in topic.partition_states:
                owner = view_owner(row.owner, topic.topic_name, owner)
                out.append(umr_view(row, owner))
        return tuple(out)

    @property
    def topic_ids(self):
        """Topic ids by name: empty where the version has no groups, zero where it has no ids."""
        cdef UpdateMetadataTopicState topic
        return {topic.topic_name: topic.topic_id for topic in self.topic_states}

    @property
    def _unread_brokers(self):
        """The live brokers as they were read, while nothing has looked at them; else None."""
        cdef Unread u = self.unread_live
        return None if u is None else PyBytes_FromStringAndSize(<char *>u.at, u.end - u.at)

    @property
    def broker_endpoints(self):
        """``(broker id, endpoints, rack)`` of each live broker, whatever the version.

        Version 0's address becomes a PLAINTEXT endpoint; below version 3 a listener is named after its protocol.
        """
        return [(b.id, umr_endpoints(b, self.version), b.rack) for b in self.live_brokers]

    def error_response(self, error_code):
        """The answer that reports an error: its code alone."""
        return UpdateMetadataResponse(error_code=error_code, version=self.version)

    def to_json(self, version):
        return umr_to_json(self, checked_version(6, version))

    @classmethod
    def from_json(cls, json, version):
        return umr_from_json(json, checked_version(6, version))


@cython.final
cdef class UpdateMetadataResponse(Message):
    """The broker's answer: one error code for the whole request."""

    api_key = 6
    kind = "response"
    _fields = ("error_code", "unknown_tagged_fields")

    def __init__(self, *, error_code=0, unknown_tagged_fields=(), version=8):
        self.error_code = int16(error_code, "error_code")
        self.tags = tags_kept(unknown_tagged_fields)
        self.version = checked_version(6, version)

    def error_counts(self):
        """The number of times each code is in the response: once for its only code."""
        return {self.error_code: 1}

    def to_json(self, version):
        checked_version(6, version)
        return {"errorCode": self.error_code}

    @classmethod
    def from_json(cls, json, version):
        version = checked_version(6, version)
        return cls(error_code=json_int16(json, "errorCode"), version=version)


_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


cdef list umr_endpoints(UpdateMetadataBroker b, int version):
    if version == 0:
        return [UpdateMetadataEndpoint(port=b.v0_port, host=b.v0_host, listener="PLAINTEXT")]
    if version >= 3:
        return list(b.endpoints)
    return [UpdateMetadataEndpoint(port=e.port, host=e.host, security_protocol=e.security_protocol,
                                   listener=e.listener or _PROTOCOLS.get(e.security_protocol, ""))
            for e in b.endpoints]
