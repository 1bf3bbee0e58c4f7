"""A script of events in a cluster of three brokers, and the control requests that a controller sends at each."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from confluent_kafka.admin import NewPartitions, NewTopic
from control_traffic import ControlRequest, control_requests
from led_cluster import LedCluster
from real_brokers import eventually

from channel.errors import NoNode
from channel.zookeeper import cluster_state as zk
from channel.zookeeper import znodes
from kproto.types import TopicPartition

__all__ = ["EventRequests", "LedByKafka", "LedByOurs", "Traffic", "run_events"]

BROKERS = (0, 1, 2)
RING = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
PARTITIONS = {"moved": 6, "kept": 3}


class EventRequests(TypedDict):
    """The requests that a broker was sent at an event.

    Attributes:
        requests: The requests in their order, each as a line of text with the number of partitions.
        repeated: How many partitions came in LeaderAndIsr with a leader epoch that the broker had been sent before.
    """

    requests: list[str]
    repeated: int


Traffic = dict[str, dict[str, EventRequests]]
"""By event and broker."""

OPTIONS = (
    "--request-log", "--prop", "zookeeper.session.timeout.ms=9000", "--prop", "offsets.topic.replication.factor=3",
    "--prop", "replica.lag.time.max.ms=30000",
)  # fmt: skip


class LedByOurs(LedCluster):
    """Three brokers, led by ``kproto controller``, whose traffic it records itself."""

    def __init__(self, folder: Path, jars: Path, ibp: str, protocol: str = "PLAINTEXT") -> None:
        settings = {"inter.broker.protocol.version": ibp, "auto.leader.rebalance.enable": "false"}
        super().__init__(
            folder, jars, options=("--ibp", ibp, *OPTIONS), settings=settings, protocol=protocol,
        )  # fmt: skip

    def traffic(self) -> dict[int, list[ControlRequest]]:
        """The requests that each broker has answered."""
        found: dict[int, list[ControlRequest]] = {b: [] for b in BROKERS}
        for request in control_requests(self.recording):
            if request.port - self.base in found:  # the controller sends UpdateMetadata to its own listener too
                found[request.port - self.base].append(request)
        return found


class LedByKafka(LedCluster):
    """Four brokers; the fourth is the controller, and gets no replicas."""

    def __init__(self, folder: Path, jars: Path, ibp: str) -> None:
        super().__init__(folder, jars, 4, options=("--ibp", ibp, *OPTIONS))

    def lead(self, epoch: int = 1) -> None:
        """Start the fourth broker, which finds no other candidate."""
        self.start(3)
        eventually(lambda: zk.read_controller_epoch(self.session)[0] == epoch)

    def traffic(self) -> dict[int, list[ControlRequest]]:
        """The requests that each broker has logged."""
        return {b: control_requests(self.request_log(b)) for b in BROKERS}


def run_events(led: LedByOurs | LedByKafka, records: int, *, idempotent: bool) -> Traffic:
    """Lead the cluster from its start through all events; clients write and read records on the way.

    Raises:
        AssertionError: An event did not have its effect, or a record was lost.
    """
    led.lead()
    led.start(*BROKERS)
    found: Traffic = {}
    recount = {b: _Recount() for b in BROKERS}
    before = _settled(led)
    for event in (create, add_partitions, kill, come_back, prefer, reassign, delete, shut_down):
        event(led)
        after = _settled(led)
        found[event.__name__] = {str(b): recount[b](sent[len(before[b]) :]) for b, sent in after.items()}
        before = after
        if event is add_partitions:
            led.produce("kept", records, idempotent=idempotent)
        elif event is kill:
            led.produce("kept", records, first=records, idempotent=idempotent)
        elif event is reassign:
            assert led.consume("kept", 2 * records) == {*range(2 * records)}
        before = _settled(led)  # __consumer_offsets may have been created meanwhile
    return found


# ---- the events


def create(led: LedCluster) -> None:
    """Two topics are created, one after the other."""
    admin = led.admin()
    for topic in ("moved", "kept"):
        admin.create_topics([NewTopic(topic, 3, replica_assignment=RING)])[topic].result(120)
        eventually(lambda: led.is_in_sync(topic, 3, {0, 1, 2}))  # noqa: B023


def add_partitions(led: LedCluster) -> None:
    """A topic gets three more partitions."""
    admin = led.admin()
    admin.create_partitions([NewPartitions("moved", 6, replica_assignment=RING)])["moved"].result(120)
    eventually(lambda: led.is_in_sync("moved", 6, {0, 1, 2}))


def kill(led: LedCluster) -> None:
    """A broker is killed by kill -9."""
    led.stop(0, kill=True)
    _in_sync(led, {1, 2})


def come_back(led: LedCluster) -> None:
    """The broker is started again."""
    led.start(0)
    _in_sync(led, {0, 1, 2})


def prefer(led: LedCluster) -> None:
    """Preferred leaders are asked for by the znode."""
    wanted = [TopicPartition("moved", p) for p in range(6)] + [TopicPartition("kept", 0)]
    led.session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(wanted))
    eventually(lambda: [led.state("moved", p).leader for p in range(6)] == [0, 1, 2, 0, 1, 2])


def reassign(led: LedCluster) -> None:
    """A partition is reassigned by the znode: other order, one replica less."""
    tp = TopicPartition("moved", 0)
    led.session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({tp: (2, 1)}))
    eventually(lambda: led.session.exists(znodes.REASSIGN_PARTITIONS) is None)
    eventually(lambda: (led.state("moved").leader, {*led.state("moved").isr}) == (2, {1, 2}))


def delete(led: LedCluster) -> None:
    """A topic is deleted."""
    admin = led.admin()
    admin.delete_topics(["moved"])["moved"].result(120)
    eventually(lambda: led.session.exists(znodes.topic_path("moved")) is None)
    eventually(lambda: not led.folders("moved"))


def shut_down(led: LedCluster) -> None:
    """A broker ends by SIGTERM, after a controlled shutdown."""
    led.stop(1)
    eventually(lambda: led.is_in_sync("kept", 3, {0, 2}))
    log = (led.folder / "logs" / "broker-1" / "server.log").read_text()
    assert "Controlled shutdown request returned successfully" in log


def _in_sync(led: LedCluster, isr: set[int]) -> None:
    eventually(lambda: all(led.is_in_sync(topic, count, isr) for topic, count in PARTITIONS.items()))


# ---- the requests


def _settled(led: LedByOurs | LedByKafka) -> dict[int, list[ControlRequest]]:
    """Return the requests once all registered brokers were sent ZooKeeper's state and none came for a second."""
    deadline = time.monotonic() + 120
    before: dict[int, list[ControlRequest]] = {}
    while True:
        traffic = led.traffic()
        state = _state(led)
        up = [b for b in BROKERS if led.session.exists(znodes.broker_path(b))]
        if traffic == before and all(_told(traffic[b]) == state for b in up):
            return traffic
        assert time.monotonic() < deadline, f"brokers were told {[_told(traffic[b]) for b in up]}, not {state}"
        before = traffic
        time.sleep(1)


def _state(led: LedCluster) -> dict[tuple[str, int], tuple[int, frozenset[int]]]:
    """Leader and ISR of each partition in ZooKeeper."""
    found = {}
    for topic, count in PARTITIONS.items():
        for partition in range(count):
            try:
                state = led.state(topic, partition)
            except NoNode:
                continue
            found[topic, partition] = state.leader, frozenset(state.isr)
    return found


def _told(requests: Iterable[ControlRequest]) -> dict[tuple[str, int], tuple[int, frozenset[int]]]:
    """Read leader and ISR of each partition from the UpdateMetadata requests to one broker."""
    found = {}
    for request in requests:
        if request.api == "UpdateMetadata":
            for key, state in _partitions(request):
                if state["leader"] == -2:
                    found.pop(key, None)
                else:
                    found[key] = state["leader"], frozenset(state["isr"])
    return found


def _partitions(request: ControlRequest) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
    """Return the states of the script's partitions in a request."""
    body = request.body
    for state in (*body.get("ungroupedPartitionStates", ()), *body.get("ungroupedPartitions", ())):
        if state["topicName"] in PARTITIONS:
            yield (state["topicName"], state["partitionIndex"]), state
    for topic in (*body.get("topicStates", ()), *body.get("topics", ())):
        name = topic.get("topicName", topic.get("name"))
        if name in PARTITIONS:
            states = topic.get("partitionStates")
            if states is None:
                states = [{"partitionIndex": index} for index in topic["partitionIndexes"]]
            for state in states:
                yield (name, state["partitionIndex"]), state


class _Recount:
    """Recounts the requests to one broker, event after event."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, int], int] = {}
        self._source: object = None

    def __call__(self, requests: Iterable[ControlRequest]) -> EventRequests:
        """One line for each request that names partitions of the script's topics, or none at all.

        Requests of one kind that follow on each other make one line: how many partitions share a request is a matter
        of time where brokers report ISR changes one after the other. Partitions of LeaderAndIsr whose leader epoch the
        broker has been sent before, on the same connection, are counted apart.
        """
        lines: list[tuple[str, set[tuple[str, int]]]] = []
        repeated = 0
        for request in requests:
            if request.source != self._source:
                self._source = request.source
                self._epochs.clear()  # the broker was started again
            named = [*_partitions(request)]
            kinds: dict[str, set[tuple[str, int]]] = {}
            for tp, state in named:
                if request.api == "LeaderAndIsr":
                    if state["leaderEpoch"] <= self._epochs.get(tp, -1):
                        repeated += 1
                        continue
                    self._epochs[tp] = state["leaderEpoch"]
                kinds.setdefault(_kind(request, state), set()).add(tp)
            if not named and not _names_any(request):
                kinds[f"{request.api} v{request.version} of brokers alone"] = set()
            for kind in sorted(kinds):
                if not lines or lines[-1][0] != kind:
                    lines.append((kind, set()))
                lines[-1][1].update(kinds[kind])
        return {"requests": [f"{kind}: {len(tps)}" if tps else kind for kind, tps in lines], "repeated": repeated}


def _names_any(request: ControlRequest) -> bool:
    names = ("ungroupedPartitionStates", "ungroupedPartitions", "topicStates", "topics")
    return any(request.body.get(name) for name in names)


def _kind(request: ControlRequest, state: dict[str, Any]) -> str:
    """API, version and flags of a request, with those of one of its partitions."""
    body, found = request.body, f"{request.api} v{request.version}"
    flags = [name for name in ("type", "isKRaftController", "deletePartitions") if body.get(name)]
    flags += [name for name in ("isNew", "deletePartition", "leaderRecoveryState") if state.get(name)]
    flags += ["deleted"] if state.get("leader") == -2 or state.get("leaderEpoch") == -2 else []
    flags += ["no leader"] if state.get("leader") == -1 else []
    return " ".join([found, *flags])
