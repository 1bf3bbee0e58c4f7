"""The decisions beside a real controller's: the same events, and what each broker was sent about one topic.

The broker's request log of a capture (``tests/data/captures``) is the truth. Two differences are allowed:

* When a replica goes offline a real controller repeats LeaderAndIsr with a leader epoch that it has sent before, which
  the broker ignores; these decisions send the UpdateMetadata that goes with it alone.
* The partitions of a request, and the replicas of an offline list, may stand in another order.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decided_cluster import DecidedCluster, broker

from channel.lead.events import (
    BrokerChange,
    PartitionReassignmentIsrChange,
    TopicChange,
    TopicDeletion,
)
from channel.lead.leader_election import Election
from kproto.api import ApiKey
from kproto.types import TopicPartition

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
TOPIC = "jyftDNVmNQUpTBQ-BjseaWqRPvTFBxLQvVQopdqn"
SECOND_TOPIC = "5FuinKaEyucf"
State = tuple[Any, ...]
Request = tuple[int, frozenset[State]]


def logged(topic_name: str, controller_epoch: int, capture: str = "ibp-3.9-a") -> dict[int, list[Request]]:
    """What the controller of an epoch sent each broker about a topic, in the order of its connections."""
    found: dict[int, list[Request]] = {}
    with gzip.open(CAPTURES / f"{capture}.truth.jsonl.gz", "rt") as lines:
        rows = [row for row in map(json.loads, lines) if row["request"].get("controllerEpoch") == controller_epoch]
    rows.sort(key=lambda row: (row["request"].get("brokerEpoch", 0), row["correlation_id"]))
    for row in rows:
        states = frozenset(
            _logged_state(row["api_key"], state)
            for topic in row["request"].get("topicStates", ())
            if topic.get("topicName") == topic_name
            for state in topic["partitionStates"]
        )
        if states:
            found.setdefault(row["broker"], []).append((row["api_key"], states))
    return found


def _logged_state(api_key: int, state: dict[str, Any]) -> State:
    if api_key == ApiKey.STOP_REPLICA:
        return state["partitionIndex"], state["leaderEpoch"], state["deletePartition"]
    common = (
        state["partitionIndex"],
        state["leader"],
        state["leaderEpoch"],
        tuple(state["isr"]),
        state.get("partitionEpoch", state.get("zkVersion")),
        tuple(state["replicas"]),
    )
    if api_key == ApiKey.UPDATE_METADATA:
        return *common, tuple(sorted(state["offlineReplicas"]))
    return *common, tuple(state["addingReplicas"]), tuple(state["removingReplicas"]), state["isNew"]


def _sent_state(api_key: int, state: Any) -> State:
    if api_key == ApiKey.STOP_REPLICA:
        return state.partition_index, state.leader_epoch, state.delete_partition
    common = (
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        state.zk_version if api_key == ApiKey.UPDATE_METADATA else state.partition_epoch,
        tuple(state.replicas),
    )
    if api_key == ApiKey.UPDATE_METADATA:
        return *common, tuple(sorted(state.offline_replicas))
    return *common, tuple(state.adding_replicas), tuple(state.removing_replicas), state.is_new


class Replay:
    """The decisions over brokers 0, 1 and 2, and what they sent each of them about the topic."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = DecidedCluster((0, 1, 2), settings)
        self.cluster.elect()

    def sent(self, topic: str) -> dict[int, list[Request]]:
        """What the controller that leads sent each broker about a topic."""
        found: dict[int, list[Request]] = {}
        for each in self.cluster.channels.sent:
            states = frozenset(
                _sent_state(each.kind, state) for tp, state in each.partitions.items() if tp.topic == topic
            )
            if states:
                found.setdefault(each.broker_id, []).append((each.kind, states))
        return found

    def create(self, topic: str, *replicas: tuple[int, ...]) -> None:
        self.cluster.store.create_topic(topic, dict(enumerate(replicas)))
        self.cluster.process(TopicChange())

    def reassign(self, partition: int, *target: int, topic: str = TOPIC) -> None:
        targets = {TopicPartition(topic, partition): target}
        self.cluster.decisions.reassignments.begin(targets)

    def alter(self, *partitions: tuple[int, tuple[int, ...]]) -> None:
        """One request of the partitions' leader for other ISRs."""
        context = self.cluster.decisions.context
        wanted = {TopicPartition(TOPIC, p): isr for p, isr in partitions}
        states = {tp: self.cluster.state(tp)._replace(isr=isr) for tp, isr in wanted.items()}
        (leader,) = {state.leader for state in states.values()}
        epoch = context.live_broker_id_and_epochs[leader]
        self.cluster.decisions.isr_changes.alter(leader, epoch, states, 3)

    def write_isr(self, tp: TopicPartition, *isr: int) -> None:
        """A leader writes its ISR itself; the controller watches the partition."""
        self.cluster.store.change_isr(tp, isr)
        self.cluster.process(PartitionReassignmentIsrChange(tp))

    def stop(self, broker_id: int) -> None:
        self.cluster.store.unregister_broker(broker_id)
        self.cluster.process(BrokerChange())

    def start(self, broker_id: int) -> None:
        self.cluster.store.register_broker(broker(broker_id))
        self.cluster.process(BrokerChange())

    def shut_down(self, broker_id: int) -> None:
        epoch = self.cluster.decisions.context.live_broker_id_and_epochs[broker_id]
        self.cluster.decisions.brokers.shut_down(broker_id, epoch)

    def delete(self, topic: str) -> None:
        self.cluster.store.mark_for_deletion(topic)
        self.cluster.process(TopicDeletion())

    def elect_preferred(self) -> None:
        self.cluster.decisions.balance.elect(Election.PREFERRED, None)


def without_repeats(requests: list[Request]) -> Iterator[Request]:
    """Requests without those LeaderAndIsr states that are the last ones that the broker got of their partitions."""
    last: dict[int, State] = {}
    for api_key, states in requests:
        if api_key == ApiKey.LEADER_AND_ISR:
            kept = frozenset(s for s in states if last.get(s[0]) != s)
            last.update((s[0], s) for s in states)
            if not kept:
                continue
            yield api_key, kept
        else:
            yield api_key, states


def test_topics_through_reassignments_deaths_elections_a_failover_and_a_deletion() -> None:
    replay = Replay()
    replay.create(TOPIC, (0, 1), (1, 2), (2, 0))
    replay.reassign(1, 1, 2, 0)
    replay.reassign(2, 0)
    replay.reassign(0, 1, 2)
    replay.alter((1, (1, 2, 0)))
    replay.alter((0, (0, 1, 2)))
    replay.stop(0)
    replay.stop(1)
    replay.start(0)
    replay.alter((1, (2, 0)))
    replay.start(1)
    replay.alter((0, (2, 1)), (1, (2, 0, 1)))
    replay.elect_preferred()
    replay.shut_down(0)
    replay.stop(0)
    replay.start(0)
    replay.alter((1, (2, 1, 0)))
    assert_same_requests(replay, TOPIC, 1)

    # The controller is killed with its broker, 2; broker 0 leads on.
    replay.cluster.store.unregister_broker(2)
    replay.cluster.elect()
    replay.create(SECOND_TOPIC, (0, 1), (1, 0), (0, 1), (1, 0))
    replay.start(2)
    replay.alter((0, (1, 2)), (1, (1, 0, 2)))
    replay.elect_preferred()
    replay.delete(SECOND_TOPIC)
    replay.shut_down(0)  # its broker has ended when the next one shuts down
    assert_same_requests(replay, TOPIC, 2, broker_ids=(0,))
    replay.shut_down(1)
    assert_same_requests(replay, TOPIC, 2, broker_ids=(1, 2))
    assert_same_requests(replay, SECOND_TOPIC, 2)


def test_reassignments_that_brokers_before_alter_partition_complete() -> None:
    topic, replay = "MZQ-Sg4B", Replay(inter_broker_protocol_version="2.6")
    replay.create(topic, (1, 2), (2, 0), (0, 1))
    replay.reassign(0, 2, 0, topic=topic)
    replay.reassign(1, 2, 0, 1, topic=topic)
    replay.reassign(2, 1, topic=topic)
    replay.write_isr(TopicPartition(topic, 0), 1, 2, 0)
    replay.write_isr(TopicPartition(topic, 1), 2, 0, 1)
    theirs = logged(topic, 1, "ibp-2.6-a")
    for broker_id, requests in replay.sent(topic).items():
        assert len(requests) > 10
        assert requests == theirs[broker_id][: len(requests)], f"broker {broker_id}"


def assert_same_requests(
    replay: Replay, topic: str, controller_epoch: int, broker_ids: tuple[int, ...] = (0, 1, 2)
) -> None:
    ours, theirs = replay.sent(topic), logged(topic, controller_epoch)
    for broker_id in broker_ids:
        mine, real = list(without_repeats(ours[broker_id])), list(without_repeats(theirs[broker_id]))
        assert mine == real, f"broker {broker_id}"
