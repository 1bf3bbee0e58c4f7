"""Keeps the state of a fleet, and makes the control requests that its controller sends after each change."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode

from .content import Content, PlannedController
from .fleet import KRAFT_CONTROLLER, random_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from .content import Rows
    from .fleet import Event, PlannedFleet

_NO_LEADER: Final = -1
_BEING_DELETED: Final = -2
_FIRST_BROKER_EPOCH: Final = 4_294_967_296
_FIRST_KRAFT_BROKER_EPOCH: Final = 3_000
_INCREMENTAL: Final = 1
FULL: Final = 2
"""The type of a KRaft controller's requests that hold everything."""


class Cluster:
    """The state of the fleet as its controller knows it. Events are applied in order.

    Attributes:
        broker_epochs: The epoch of each broker's current registration.
        controller, former: The controller, and the one before.
        live: Ids of the brokers that run, ascending.
        stopped: Ids of those that do not and are to come back.
        topic, topic_id, index, replicas: What each partition is.
        isr, leader, leader_epoch, partition_epoch, controller_epoch, offline: Its newest state.
        adding: Of partitions that are being reassigned: the replicas that are added.
        external: Host and port of brokers' second listener, of those that have one.
        gone: Partitions of deleted topics.
        undeleted: Of brokers that were down then, which they are told to delete when they come back.
        reserved: Partitions that belong to a planted fault; no other event changes their leader or ISR by itself.
        busy: Brokers that belong to a planted fault; no other event stops them.
    """

    def __init__(self, fleet: PlannedFleet) -> None:
        self.fleet = fleet
        starts = fleet.topic_starts
        sizes = [end - start for start, end in pairwise(starts)]
        self.topic: list[str] = [name for name, size in zip(fleet.topic_names, sizes, strict=True) for _ in range(size)]
        self.topic_id: list[bytes] = [
            uuid for uuid, size in zip(fleet.topic_ids, sizes, strict=True) for _ in range(size)
        ]
        self.index: list[int] = [index for size in sizes for index in range(size)]
        self.replicas = [fleet.replicas(partition) for partition in range(fleet.partitions)]
        self.isr = list(self.replicas)
        self.leader: list[int] = [replicas[0] for replicas in self.replicas]
        self.leader_epoch: list[int] = [0] * fleet.partitions
        self.partition_epoch: list[int] = [0] * fleet.partitions
        self.controller_epoch: list[int] = [1] * fleet.partitions
        self.offline: list[list[int]] = [[]] * fleet.partitions
        self.adding: dict[int, list[int]] = {}
        self.external: dict[int, tuple[str, int]] | None = None
        self.gone: set[int] = set()
        self.reserved: set[int] = set()
        self.busy: set[int] = set()
        self.undeleted: dict[int, list[int]] = {}
        self.topics_left: list[int] = list(range(fleet.topics))
        self.stopped: list[int] = []
        self.former: PlannedController | None = None
        self._registrations = 0
        self._turn = 0
        self._request_type = 0
        self.live: list[int] = list(fleet.broker_ids)
        self.controller = PlannedController(random_of(fleet.seed, "controller").choice(self.live), 1)
        self.broker_epochs = {broker: self.register() for broker in self.live}

    def apply(self, event: Event) -> list[Content]:
        """Apply an event, other than a planted fault; return the requests that the controller then sends, in order."""
        match event.kind:
            case "first_controller":
                return self.take_over()
            case "migration":
                return self.migrate()
            case "failover":
                return self.fail_over()
            case "restart":
                return self.start(self.stopped[0]) if self.stopped else []
            case kind:
                event_of: Callable[[Random], list[Content]] = getattr(self, f"_{kind}")
                return event_of(random_of(self.fleet.seed, "event", event.number))

    # ---- the events ----

    def _stop(self, random: Random) -> list[Content]:
        keep = {self.controller.id, self.former.id if self.former else None}
        candidates = [broker for broker in self.live if broker not in keep and broker not in self.busy]
        return self.stop(random.choice(candidates)) if candidates else []

    def stop(self, broker: int, kept: Iterable[int] = ()) -> list[Content]:
        """Let a broker shut down: it leaves ISRs and leads nothing any more, and then the live brokers lack it.

        It stays in the ISR of the partitions ``kept``, and leads none of them.
        """
        hosted = [p for p, replicas in enumerate(self.replicas) if broker in replicas and p not in self.gone]
        followed = [partition for partition in hosted if self.leader[partition] != broker]
        contents = [self.stop_replica([broker], followed, delete=False)] if followed else []
        moved = [partition for partition in hosted if broker in self.isr[partition] and partition not in kept]
        for partition in moved:
            self.leave(partition, broker)
        if moved:
            others = [other for other in self.live if other != broker]
            contents += [*self.leader_and_isr(moved, others), self.update_metadata(moved)]
        self.live.remove(broker)
        self.stopped.append(broker)
        for partition in hosted:
            self.offline[partition] = sorted([*self.offline[partition], broker])
        return [*contents, self.update_metadata(hosted)]

    def start(self, broker: int) -> list[Content]:
        """Let a broker start that was stopped."""
        self.stopped.remove(broker)
        others = list(self.live)
        self.live = sorted([*self.live, broker])
        self.broker_epochs[broker] = self.register()
        hosted = [p for p, replicas in enumerate(self.replicas) if broker in replicas and p not in self.gone]
        for partition in hosted:
            self.offline[partition] = [other for other in self.offline[partition] if other != broker]
        request_type, self._request_type = self._request_type, 0
        contents = [self.update_metadata([], others), self.update_metadata(self.all(), [broker])]
        self._request_type = request_type
        contents += self.leader_and_isr(hosted, [broker])
        if broker in self.undeleted:
            contents.append(self.stop_replica([broker], self.undeleted.pop(broker), delete=True))
        leaderless = [p for p in hosted if self.leader[p] == _NO_LEADER and broker in self.isr[p]]
        for partition in leaderless:
            self.elect(partition, broker, self.isr[partition])
        return [*contents, *self.leader_and_isr(leaderless), self.update_metadata(hosted)]

    def _election(self, random: Random) -> list[Content]:
        hot = self.fleet.elections // 20 + 1  # elections fall on few batches, so that leaders flap
        place = random.randrange(hot)
        moved = []
        for partition in self._batch(place * self.fleet.partitions // hot):
            isr = self.isr[partition]
            if self.leader[partition] != _NO_LEADER and len(isr) > 1 and set(isr) <= set(self.live):
                self.elect_next(partition)
                moved.append(partition)
        return [*self.leader_and_isr(moved), self.update_metadata(moved)] if moved else []

    def _isr_change(self, random: Random) -> list[Content]:
        changed = self._batch(random.randrange(self.fleet.partitions))
        down = set(self.fleet.broker_ids).difference(self.live) if len(self.live) < self.fleet.brokers else set()
        if down:
            changed = [partition for partition in changed if self.leader[partition] != _NO_LEADER]
        for partition in changed:
            isr, assigned = self.isr[partition], self.replicas[partition]
            alive = assigned if not down else [broker for broker in assigned if broker not in down]
            if len(isr) < len(alive):
                isr = alive
            elif len(isr) > 1:
                last = isr[-1] if isr[-1] != self.leader[partition] else isr[-2]
                isr = [broker for broker in isr if broker != last]
            self.set_isr(partition, isr)
        return [self.update_metadata(changed)] if changed else []

    def _zombie(self, random: Random) -> list[Content]:
        if self.former is None:
            return []
        content = self.update_metadata(self._batch(random.randrange(self.fleet.partitions)))
        content.controller = self.former
        content.error_code = ErrorCode.STALE_CONTROLLER_EPOCH
        return [content]

    def _deletion(self, random: Random) -> list[Content]:
        topics = [topic for topic in self.topics_left if self.reserved.isdisjoint(self.partitions_of(topic))]
        return self.delete(topics[random.randrange(len(topics))]) if topics else []

    # ---- changes of topics and controllers ----

    def partitions_of(self, topic: int) -> range:
        """Return a topic's partitions."""
        return range(*self.fleet.topic_starts[topic : topic + 2])

    def delete(self, topic: int) -> list[Content]:
        """Delete a topic; brokers that are down are told when they come back."""
        self.topics_left.remove(topic)
        partitions = list(self.partitions_of(topic))
        leaving = self.update_metadata(partitions)
        count = len(partitions)
        leaving.rows |= {
            "leader": [_BEING_DELETED] * count,
            "leader_epoch": [0] * count,
            "partition_epoch": [0] * count,
        }
        hosts = self.by_broker(partitions)
        stops = [self.stop_replica([broker], hosted, delete=True) for broker, hosted in self._told(hosts)]
        self.gone.update(partitions)
        for partition in partitions:
            for broker in set(self.replicas[partition]).difference(self.live):
                self.undeleted.setdefault(broker, []).append(partition)
        return [leaving, *stops]

    def recreate(self, topic: int, topic_id: bytes) -> list[Content]:
        """Create a topic of the name of a deleted one; replicas on brokers that are down are not in the ISR."""
        partitions = list(self.partitions_of(topic))
        self.gone.difference_update(partitions)
        self.topics_left.append(topic)
        for partition in partitions:
            alive = [broker for broker in self.replicas[partition] if broker in self.live]
            self.topic_id[partition] = topic_id
            self.isr[partition], self.leader[partition] = alive, alive[0]
            self.leader_epoch[partition] = self.partition_epoch[partition] = 0
            self.controller_epoch[partition] = self.controller.epoch
        return [*self.leader_and_isr(partitions), self.update_metadata(partitions)]

    def fail_over(self, without: int | None = None) -> list[Content]:
        """Let another node become the controller; it does not reach the broker ``without``."""
        epoch = self.controller.epoch + 1
        if self.controller.is_kraft_controller:
            self.former = self.controller
            self.controller = PlannedController(
                2 * KRAFT_CONTROLLER + 1 - self.controller.id, epoch, is_kraft_controller=True
            )
            return self.migrate(without, self.controller)
        others = [broker for broker in self.live if broker != self.controller.id]
        if not others:
            return []
        self.former = self.controller
        successor = next((broker for broker in others if broker > self.controller.id), others[0])
        self.controller = PlannedController(successor, epoch)
        return self.take_over(without)

    def migrate(self, without: int | None = None, controller: PlannedController | None = None) -> list[Content]:
        """Let a KRaft controller take over, which registers the brokers anew; it does not reach ``without``."""
        if controller is None:
            self.former = self.controller
            self.controller = PlannedController(KRAFT_CONTROLLER, self.controller.epoch + 1, is_kraft_controller=True)
            self.broker_epochs = {broker: self.register() for broker in self.live}
        told, every = [broker for broker in self.live if broker != without], self.all()
        self._request_type = 0
        contents = [self.update_metadata(every, told)]
        self._request_type = FULL
        contents += self.leader_and_isr(every, told)
        for content in contents[1:]:
            content.partition_error = ErrorCode.STALE_CONTROLLER_EPOCH
        contents.append(self.update_metadata(every, told))
        self._request_type = _INCREMENTAL
        return contents

    def return_to_zookeeper(self) -> list[Content]:
        """Let a broker become the controller after a migration."""
        self.former, self._request_type = self.controller, 0
        self.controller = PlannedController(self.live[0], self.controller.epoch + 1)
        self.broker_epochs = {broker: self.register() for broker in self.live}
        return self.take_over()

    # ---- changes of one partition ----

    def elect(self, partition: int, leader: int, isr: list[int]) -> None:
        """Give a partition a leader."""
        self.leader[partition] = leader
        self.leader_epoch[partition] += 1
        self.set_isr(partition, isr)

    def elect_next(self, partition: int) -> int:
        """Let the next member of the ISR lead; return the former leader."""
        isr, former = self.isr[partition], self.leader[partition]
        self.elect(partition, isr[(isr.index(former) + 1) % len(isr)], isr)
        return former

    def set_isr(self, partition: int, isr: list[int]) -> None:
        """Give a partition other in-sync replicas."""
        self.isr[partition] = isr
        self.partition_epoch[partition] += 1
        self.controller_epoch[partition] = self.controller.epoch

    def leave(self, partition: int, broker: int) -> None:
        """Remove a broker from a partition's ISR; the last member stays in the ISR, and the partition has no leader."""
        isr = [other for other in self.isr[partition] if other != broker]
        leader = self.leader[partition]
        if not isr:
            self.elect(partition, _NO_LEADER, [broker])
        else:
            self.elect(partition, isr[0] if leader == broker else leader, isr)

    # ---- requests ----

    def take_over(self, without: int | None = None) -> list[Content]:
        """Tell all brokers everything, as a new controller does."""
        every, brokers = self.all(), [broker for broker in self.live if broker != without]
        told = self.leader_and_isr(every, brokers)
        if self.former is not None:
            for content in told:
                content.partition_error = ErrorCode.STALE_CONTROLLER_EPOCH
        return [self.update_metadata([], brokers), *told, self.update_metadata(every, brokers)]

    def update_metadata(self, partitions: Sequence[int], recipients: list[int] | None = None) -> Content:
        """Make the request that tells brokers, all by default, the states of partitions."""
        recipients = list(self.live) if recipients is None else recipients
        if self.fleet.bodies == "distinct":
            recipients = self._one(recipients) if partitions else []
        rows = self._rows(partitions)
        rows["offline_replicas"] = _picked(self.offline, partitions)
        return self._content(ApiKey.UPDATE_METADATA, recipients, rows)

    def leader_and_isr(self, partitions: Sequence[int], recipients: list[int] | None = None) -> list[Content]:
        """Make the requests that tell each host, or those among ``recipients``, the states of its partitions."""
        hosts = self.by_broker(partitions)
        if recipients is not None:
            hosts = {broker: hosts[broker] for broker in recipients if broker in hosts}
        return [
            self._content(ApiKey.LEADER_AND_ISR, [broker], self._rows(hosted) | self._added(hosted))
            for broker, hosted in self._told(hosts)
        ]

    def _added(self, partitions: Sequence[int]) -> Rows:
        return {"adding_replicas": [self.adding.get(partition, []) for partition in partitions]} if self.adding else {}

    def stop_replica(self, recipients: list[int], partitions: Sequence[int], *, delete: bool) -> Content:
        """Make the request that stops replicas."""
        rows = {
            "topic": _picked(self.topic, partitions),
            "partition": _picked(self.index, partitions),
            "leader_epoch": [_BEING_DELETED] * len(partitions) if delete else _picked(self.leader_epoch, partitions),
            "delete_partition": [delete] * len(partitions),
        }
        return self._content(ApiKey.STOP_REPLICA, recipients, rows)

    def _content(self, api_key: ApiKey, recipients: list[int], rows: Rows) -> Content:
        # KRaft lists those that are down too.
        listed = sorted(self.broker_epochs if self.controller.is_kraft_controller else self.live)
        kind = self._request_type if api_key != ApiKey.STOP_REPLICA else 0
        return Content(self.fleet, api_key, self.controller, recipients, rows, listed, self.external, request_type=kind)

    def _rows(self, partitions: Sequence[int]) -> Rows:
        columns: Rows = {
            "topic": self.topic, "topic_id": self.topic_id, "partition": self.index,
            "controller_epoch": self.controller_epoch, "leader": self.leader, "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch, "isr": self.isr, "replicas": self.replicas,
        }  # fmt: skip
        return {name: _picked(values, partitions) for name, values in columns.items()}

    def by_broker(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Return the partitions that each live broker hosts, brokers ascending."""
        hosts: dict[int, list[int]] = {broker: [] for broker in self.live}
        for partition in partitions:
            for broker in self.replicas[partition]:
                if broker in hosts:
                    hosts[broker].append(partition)
        return {broker: hosted for broker, hosted in hosts.items() if hosted}

    def _told(self, hosts: dict[int, list[int]]) -> list[tuple[int, list[int]]]:
        """Return the brokers that are sent a request about their partitions."""
        brokers = list(hosts)
        if self.fleet.bodies == "distinct":
            brokers = self._one(brokers)
        return [(broker, hosts[broker]) for broker in brokers]

    def _one(self, brokers: list[int]) -> list[int]:
        """Return the next broker in turn."""
        self._turn += 1
        return [brokers[self._turn % len(brokers)]] if brokers else []

    def all(self) -> Sequence[int]:
        """Return the partitions that are not deleted."""
        every = range(self.fleet.partitions)
        return every if not self.gone else [partition for partition in every if partition not in self.gone]

    def _batch(self, start: int) -> Sequence[int]:
        """Return a batch of consecutive partitions, without those of deleted topics."""
        start = min(start, max(self.fleet.partitions - self.fleet.batch, 0))
        batch = range(start, min(start + self.fleet.batch, self.fleet.partitions))
        left_out = self.gone | self.reserved if self.reserved else self.gone
        return batch if not left_out else [partition for partition in batch if partition not in left_out]

    def register(self) -> int:
        """Return the broker epoch of another registration."""
        self._registrations += 1
        if self.controller.is_kraft_controller:
            return _FIRST_KRAFT_BROKER_EPOCH + self._registrations
        return _FIRST_BROKER_EPOCH + 17 * self._registrations


def _picked(values: list[Any], partitions: Sequence[int]) -> list[Any]:
    if isinstance(partitions, range):
        return values[partitions.start : partitions.stop]
    return [values[partition] for partition in partitions]
