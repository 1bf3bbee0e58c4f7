"""The reference's messages in a person's hands: attributes, defaults, text, versions, normalised readings."""

import pytest
from wire import array, i16, i32, string, tags

from kproto import reference
from kproto.errors import UnsupportedApi, UnsupportedVersion
from kproto.reference import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from kproto.reference.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kproto.reference.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kproto.reference.find_coordinator import FindCoordinatorResponse
from kproto.reference.metadata import MetadataResponse, MetadataResponseTopic

# What stands on the wire of each version, in order.
LEADER_AND_ISR_STATE = {
    0: "topic_name partition_index controller_epoch leader leader_epoch isr partition_epoch replicas",
    1: "topic_name partition_index controller_epoch leader leader_epoch isr partition_epoch replicas is_new",
    2: "partition_index controller_epoch leader leader_epoch isr partition_epoch replicas is_new",
    3: "partition_index controller_epoch leader leader_epoch isr partition_epoch replicas adding_replicas "
    "removing_replicas is_new",
}


@pytest.mark.parametrize(("version", "names"), LEADER_AND_ISR_STATE.items())
def test_each_version_is_a_construct_struct(version: int, names: str) -> None:
    construct = LeaderAndIsrPartitionState.fields.at(LeaderAndIsrPartitionState, version, flexible=False)
    assert [part.name for part in construct.subcon.subcons] == names.split()
    assert construct is LeaderAndIsrPartitionState.fields.at(LeaderAndIsrPartitionState, version, flexible=False)


def test_a_flexible_version_ends_with_tagged_fields() -> None:
    assert LeaderAndIsrRequest.at(3).subcon.subcons[-1].name == "live_leaders"
    assert LeaderAndIsrRequest.at(4).subcon.subcons[-1].name == "_tagged"


def test_a_name_that_no_field_has() -> None:
    request = LeaderAndIsrRequest()
    with pytest.raises(AttributeError, match="no field 'leader'"):
        request.leader = 1
    with pytest.raises(AttributeError, match="no attribute 'leader'"):
        _ = request.leader
    with pytest.raises(TypeError, match="no field 'leader'"):
        LeaderAndIsrRequest(leader=1)
    assert "topic_states" in dir(request)


def test_no_field_hides_behind_a_method() -> None:
    """A field's name must not be one that its class uses otherwise: the attribute would not be the field."""
    for api in (3, 4, 5, 6, 7, 17, 18, 19, 20, 36, 37, 56, 58, 62, 63, 67):
        for kind in ("request", "response"):
            structs = [reference.message_class(api, kind)]
            for cls in structs:
                for name, field in cls.fields.all.items():
                    assert not hasattr(reference.struct.ReferenceMessage, name), (cls, name)
                    bare = getattr(field.type, "of", field.type)
                    structs += [bare.item.cls] if hasattr(getattr(bare, "item", None), "cls") else []


def test_fresh_objects_share_nothing() -> None:
    one, other = LeaderAndIsrRequest(), LeaderAndIsrRequest()
    one.topic_states.append(LeaderAndIsrTopicState(topic_name="t"))
    assert other.topic_states == []
    assert one != other


def test_arrays_of_numbers_are_tuples_and_of_structs_lists() -> None:
    state = LeaderAndIsrPartitionState(isr=[1, 2], replicas=range(3))
    assert (state.isr, state.replicas) == ((1, 2), (0, 1, 2))
    state.isr = [3]
    assert state.isr == (3,)
    topic = LeaderAndIsrTopicState(partition_states=(state,))
    assert topic.partition_states == [state]


def test_a_changed_message_is_written_as_it_is_now() -> None:
    request = reference.decode_request(5, 3, reference.encode(StopReplicaRequest(controller_id=1), 3))
    request.controller_id = 9
    request.topic_states.append(StopReplicaTopicState(topic_name="t"))
    again = reference.decode_request(5, 3, reference.encode(request, 3))
    assert (again.controller_id, again.topic_states[0].topic_name) == (9, "t")


def test_the_text_shows_what_is_not_at_its_default_and_stays_short() -> None:
    assert repr(LeaderAndIsrRequest()) == "LeaderAndIsrRequest()"
    state = LeaderAndIsrPartitionState(partition_index=3, isr=(1, 2))
    assert repr(state) == "LeaderAndIsrPartitionState(partition_index=3, isr=(1, 2))"
    topics = [CreatableTopic(name="t" * 1000, configs=[CreatableTopicConfig(name="n", value=None)] * 999)] * 999
    message = CreateTopicsRequest(topics=topics, unknown_tagged_fields=[(9, bytes(999))])
    assert "... 996 more" in repr(message)
    assert len(repr(message)) < 2000


def test_the_text_shows_a_dozen_replicas_whole_and_of_more_the_first_three() -> None:
    dozen = LeaderAndIsrPartitionState(replicas=range(12))
    assert repr(dozen) == "LeaderAndIsrPartitionState(replicas=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))"
    more = LeaderAndIsrPartitionState(replicas=range(13))
    assert repr(more) == "LeaderAndIsrPartitionState(replicas=(0, 1, 2, ... 10 more))"


def test_operations_that_were_not_requested_are_told_from_none_allowed() -> None:
    """Metadata's bit fields: all bits off would say that nothing is allowed."""
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t")])
    (topic,) = response.topics
    assert (response.cluster_authorized_operations, topic.topic_authorized_operations) == (-(2**31), -(2**31))
    assert reference.encode(response, 8).count(i32(-(2**31))) == 2


def test_a_field_that_is_null_in_every_version_is_null_in_the_first() -> None:
    data = i16(33) + string(None, flexible=False) + i32(0)
    response = reference.decode_response(36, 0, data)
    assert (response.error_code, response.error_message, response.auth_bytes) == (33, None, b"")
    assert reference.encode(response, 0) == data
    assert type(response).from_json(response.to_json(0), 0) == response


def test_a_deleted_topic_has_an_error_message_since_version_5() -> None:
    result = DeletableTopicResult(name="t", error_code=73, error_message="off")
    response = DeleteTopicsResponse(responses=[result])
    with_message = [string("t", flexible=True) + i16(73) + string("off", flexible=True) + tags()]
    without = [string("t", flexible=True) + i16(73) + tags()]
    assert reference.encode(response, 4) == i32(0) + array(without, flexible=True) + tags()
    assert reference.encode(response, 5) == i32(0) + array(with_message, flexible=True) + tags()


def test_a_coordinator_has_an_error_message_since_version_1() -> None:
    response = FindCoordinatorResponse(error_code=15, error_message="none yet", node_id=-1, host="", port=-1)
    nowhere = i32(-1) + string("", flexible=False) + i32(-1)
    assert reference.encode(response, 0) == i16(15) + nowhere
    assert reference.encode(response, 1) == i32(0) + i16(15) + string("none yet", flexible=False) + nowhere


def test_a_message_knows_its_version() -> None:
    assert LeaderAndIsrRequest().version == 7
    assert LeaderAndIsrRequest(version=3).version == 3
    assert LeaderAndIsrRequest.from_json(LeaderAndIsrRequest().to_json(4), 4).version == 4
    assert reference.decode_request(4, 2, bytes(64)).version == 2
    assert LeaderAndIsrRequest(version=3) == LeaderAndIsrRequest(version=4)  # it says nothing of the content
    with pytest.raises(UnsupportedVersion):
        LeaderAndIsrRequest(version=8)


def test_what_kproto_does_not_read() -> None:
    with pytest.raises(UnsupportedApi, match="OffsetCommit"):
        reference.decode_request(8, 3, b"")
    with pytest.raises(UnsupportedApi, match="4711"):
        reference.decode_request(4711, 0, b"")
    with pytest.raises(UnsupportedVersion, match="it has 0 to 7"):
        reference.decode_request(4, 8, b"")
    with pytest.raises(UnsupportedVersion, match="request header"):
        reference.decode_request_header(bytes(20), 3)


class TestNormalised:
    def test_stop_replica_rows(self) -> None:
        v0 = StopReplicaRequest(delete_partitions=True, ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t")])
        assert v0.partition_states == (("t", 0, -1, True),)
        v1 = StopReplicaRequest(topics=[StopReplicaTopicV1(name="t", partition_indexes=[3, 3])])
        assert v1.partition_states == (("t", 3, -1, False),) * 2
        first = StopReplicaPartitionState(partition_index=1, leader_epoch=5)
        second = StopReplicaPartitionState(partition_index=1, leader_epoch=6, delete_partition=True)
        between = StopReplicaPartitionState(partition_index=2)
        topics = [
            StopReplicaTopicState(topic_name="t", partition_states=[first, between]),
            StopReplicaTopicState(topic_name="t", partition_states=[second]),
        ]
        v3 = StopReplicaRequest(topic_states=topics)
        assert v3.partition_states == (
            ("t", 1, 6, True),
            ("t", 2, -1, False),
        )
        named = [(error.topic_name, error.partition_index) for error in v3.error_response(11).partition_errors]
        assert named == [("t", 1), ("t", 2), ("t", 1)]  # the answer names what was asked, as often as it was asked

    def test_a_security_protocol_that_nobody_knows_names_no_listener(self) -> None:
        broker = UpdateMetadataBroker(endpoints=[UpdateMetadataEndpoint(security_protocol=77)])
        request = UpdateMetadataRequest(version=2, live_brokers=[broker])
        assert request.broker_endpoints[0].endpoints[0].listener == ""
