"""A leader's in-sync replicas: silent followers leave, followers that fetch come back, and how each is made known."""

import pytest
from control_messages import broker as live_broker
from control_messages import leader_and_isr, leader_state, topic_id, update_metadata

from channel.broker.embedded import EmbeddedBroker
from channel.broker.isr import LedPartitions, propose_to_controller
from channel.errors import Disconnected
from channel.network.request import ClientRequest, ClientResponse
from kproto import codec
from kproto.api import ApiKey
from kproto.messages import (
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from kproto.types import ZERO_UUID, TopicPartition

LAG_MS = 30_000
ORDERS_0 = TopicPartition("orders", 0)


def unreachable(led, proposals):
    raise Disconnected("ZooKeeper does not answer")


class Leader:
    """Broker 0, which leads partitions with followers 1 and 2."""

    def __init__(self, ids=None):
        self.broker = EmbeddedBroker(0, broker_epoch=7)
        self.broker.metadata.update_metadata(0, update_metadata({}, [live_broker(i) for i in range(3)]), version=8)
        self.fetching = {1, 2}
        self.led = LedPartitions(
            self.broker, lambda follower, tp, replica: follower in self.fetching, LAG_MS, unreachable
        )
        self.ids = ids
        self.becomes_leader(0)

    def becomes_leader(self, *partitions, epoch=0, isr=(0, 1, 2)):
        rows = [leader_state(p, 0, epoch=epoch, isr=list(isr), replicas=[0, 1, 2]) for p in partitions]
        self.broker.replicas.become_leader_or_follower(0, leader_and_isr({"orders": rows}, ids=self.ids))

    @property
    def replica(self):
        return self.broker.replicas.hosted[ORDERS_0]


@pytest.fixture
def leader():
    return Leader()


def test_a_silent_follower_leaves_after_the_lag_and_not_before(leader):
    leader.fetching = {2}
    assert leader.led.proposals(0) == []
    assert leader.led.proposals(LAG_MS - 1) == []
    (proposal,) = leader.led.proposals(LAG_MS)
    assert (proposal.tp, proposal.isr, proposal.topic_id) == (ORDERS_0, (0, 2), topic_id("orders"))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)


def test_a_follower_that_fetched_meanwhile_has_the_whole_lag_again(leader):
    leader.fetching = {2}
    leader.led.proposals(0)
    leader.fetching = {1, 2}
    leader.led.proposals(LAG_MS - 1)
    leader.fetching = {2}
    assert leader.led.proposals(LAG_MS) == []
    assert leader.led.proposals(2 * LAG_MS - 1) == []
    assert len(leader.led.proposals(2 * LAG_MS)) == 1


def test_a_follower_outside_of_the_isr_comes_back_as_soon_as_it_fetches(leader):
    leader.becomes_leader(0, epoch=1, isr=[0])
    leader.fetching = {2}
    (proposal,) = leader.led.proposals(0)
    assert (proposal.isr, proposal.leader_epoch) == ((0, 2), 1)


def test_an_unanswered_proposal_is_not_repeated(leader):
    leader.fetching = set()
    leader.led.proposals(0)
    (proposal,) = leader.led.proposals(LAG_MS)
    assert leader.led.proposals(LAG_MS + 1) == []
    leader.led.forget(proposal)
    assert leader.led.proposals(LAG_MS + 2) == [proposal]


def test_a_new_leader_epoch_is_proposed_for_anew(leader):
    leader.fetching = set()
    leader.led.proposals(0)
    leader.led.proposals(LAG_MS)
    leader.becomes_leader(0, epoch=1)
    (proposal,) = leader.led.proposals(LAG_MS + 1)
    assert (proposal.isr, proposal.leader_epoch) == ((0,), 1)


def test_followers_propose_nothing(leader):
    rows = [leader_state(0, 1, epoch=5, isr=[0, 1, 2], replicas=[0, 1, 2])]
    leader.broker.replicas.become_leader_or_follower(0, leader_and_isr({"orders": rows}))
    leader.fetching = set()
    leader.led.proposals(0)
    assert leader.led.proposals(LAG_MS) == []


def test_an_accepted_proposal_is_the_new_state(leader):
    leader.fetching = {2}
    leader.led.proposals(0)
    (proposal,) = leader.led.proposals(LAG_MS)
    leader.led.accepted(proposal, (0, 2), 1)
    assert (leader.replica.isr, leader.replica.partition_epoch) == ((0, 2), 1)


def test_an_answer_that_comes_after_an_election_changes_nothing(leader):
    leader.fetching = {2}
    leader.led.proposals(0)
    (proposal,) = leader.led.proposals(LAG_MS)
    leader.becomes_leader(0, epoch=3)
    leader.led.accepted(proposal, (0, 2), 9)
    assert (leader.replica.isr, leader.replica.partition_epoch) == ((0, 1, 2), 3)


def test_what_cannot_be_proposed_now_is_proposed_again(leader):
    leader.fetching = {2}
    leader.led.check(0)
    leader.led.check(LAG_MS)
    (proposal,) = leader.led.proposals(LAG_MS + 1)
    assert proposal.isr == (0, 2)


# ---- AlterPartition --------------------------------------------------------------------------------------------------


class Channel:
    """A channel to a controller that answers when a test says so."""

    def __init__(self):
        self.builders = []

    def send_request(self, builder, on_complete, on_timeout=None):
        self.builders.append(builder)
        self.on_complete = on_complete

    def answer(self, body):
        request = ClientRequest("0-to-controller-9", self.builders[-1], 0, 0, 1000)
        self.on_complete(ClientResponse(request, 0, body))


@pytest.fixture
def channel():
    return Channel()


def proposed(leader, channel):
    leader.fetching = {2}
    leader.led.proposals(0)
    proposals = leader.led.proposals(LAG_MS)
    propose_to_controller(channel, leader.led, proposals)
    return proposals


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_one_request_proposes_all_partitions_in_every_version(leader, channel, version):
    leader.becomes_leader(1)
    proposed(leader, channel)
    (builder,) = channel.builders
    assert (builder.oldest_version, builder.latest_version) == (0, 3)
    request = codec.decode_request(ApiKey.ALTER_PARTITION, version, b"".join(builder.build(version)))
    assert (request.broker_id, request.broker_epoch) == (0, 7)
    (topic,) = request.topics
    if version >= 2:
        assert topic.topic_id == topic_id("orders")
    else:
        assert topic.topic_name == "orders"
    isrs = {
        row.partition_index: [s.broker_id for s in row.new_isr_with_epochs] if version >= 3 else list(row.new_isr)
        for row in topic.partitions
    }
    assert isrs == {0: [0, 2], 1: [0, 2]}


def test_a_topic_without_an_id_is_named(channel):
    leader = Leader(ids={})
    (proposal,) = proposed(leader, channel)
    assert proposal.topic_id == ZERO_UUID
    assert channel.builders[0].latest_version == 1


def answer(*rows, error_code=0):
    topic = AlterPartitionResponseTopic(topic_id=topic_id("orders"), partitions=list(rows))
    return AlterPartitionResponse(error_code=error_code, topics=[topic])


def test_the_controllers_answer_is_taken_over(leader, channel):
    proposed(leader, channel)
    row = AlterPartitionResponsePartition(partition_index=0, leader_id=0, isr=[0, 2], partition_epoch=1)
    channel.answer(answer(row))
    assert (leader.replica.isr, leader.replica.partition_epoch) == ((0, 2), 1)


def test_an_answer_about_a_partition_that_was_not_proposed_costs_the_others_nothing(leader, channel):
    proposed(leader, channel)
    other = AlterPartitionResponsePartition(partition_index=9, partition_epoch=1)
    row = AlterPartitionResponsePartition(partition_index=0, leader_id=0, isr=[0, 2], partition_epoch=1)
    channel.answer(answer(other, row))
    assert (leader.replica.isr, leader.replica.partition_epoch) == ((0, 2), 1)


@pytest.mark.parametrize(
    "body",
    [
        answer(AlterPartitionResponsePartition(partition_index=0, error_code=95)),
        answer(AlterPartitionResponsePartition(partition_index=9, partition_epoch=1)),
        AlterPartitionResponse(error_code=77),
        None,
    ],
    ids=["refused", "another partition", "stale broker epoch", "no answer"],
)
def test_what_was_not_accepted_is_proposed_again(leader, channel, body):
    proposals = proposed(leader, channel)
    channel.answer(body)
    assert (leader.replica.isr, leader.replica.partition_epoch) == ((0, 1, 2), 0)
    assert leader.led.proposals(LAG_MS + 1) == proposals
