"""Keeps the state of a fleet, and makes the control requests that its controller sends after each change."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey

from .content import Content, Controller
from .fleet import random_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .content import Rows
    from .events import Event
    from .fleet import Fleet

__all__ = ["Cluster"]

_NO_LEADER: Final = -1
_BEING_DELETED: Final = -2
_FIRST_BROKER_EPOCH: Final = 4_294_967_296


class Cluster:
    """The state of the fleet as its controller knows it. Events are applied in order.

    Attributes:
        broker_epochs: The epoch of each broker's current registration.
        controller: The controller.
        live: Ids of the brokers that run, ascending.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        starts = fleet.topic_starts
        sizes = [end - start for start, end in pairwise(starts)]
        self._topic = [name for name, size in zip(fleet.topic_names, sizes, strict=True) for _ in range(size)]
        self._topic_id = [uuid for uuid, size in zip(fleet.topic_ids, sizes, strict=True) for _ in range(size)]
        self._index = [index for size in sizes for index in range(size)]
        self._replicas = [fleet.replicas(partition) for partition in range(fleet.partitions)]
        self._isr = list(self._replicas)
        self._leader = [replicas[0] for replicas in self._replicas]
        self._leader_epoch = [0] * fleet.partitions
        self._partition_epoch = [0] * fleet.partitions
        self._controller_epoch = [1] * fleet.partitions
        self._offline: list[list[int]] = [[]] * fleet.partitions
        self._gone: set[int] = set()  # partitions of deleted topics
        self._topics_left = list(range(fleet.topics))
        self._stopped: list[int] = []
        self._former: Controller | None = None
        self._registrations = 0
        self._turn = 0
        self.live = list(fleet.broker_ids)
        self.broker_epochs = {broker: self._register() for broker in self.live}
        self.controller = Controller(random_of(fleet.seed, "controller").choice(self.live), 1)

    def apply(self, event: Event) -> list[Content]:
        """Apply an event; return the requests that the controller then sends, in order."""
        happen: Callable[[Event], list[Content]] = getattr(self, f"_{event.kind}")
        return [content for content in happen(event) if content.recipients]

    # ---- the events ----

    def _first_controller(self, _event: Event) -> list[Content]:
        return self._take_over(repeated=False)

    def _failover(self, _event: Event) -> list[Content]:
        others = [broker for broker in self.live if broker != self.controller.id]
        if not others:
            return []
        self._former = self.controller
        successor = next((broker for broker in others if broker > self.controller.id), others[0])
        self.controller = Controller(successor, self.controller.epoch + 1)
        return self._take_over(repeated=True)

    def _stop(self, event: Event) -> list[Content]:
        keep = {self.controller.id, self._former.id if self._former else None}
        candidates = [broker for broker in self.live if broker not in keep]
        if not candidates:
            return []
        broker = self._random(event).choice(candidates)
        hosted = [p for p, replicas in enumerate(self._replicas) if broker in replicas and p not in self._gone]
        followed = [partition for partition in hosted if self._leader[partition] != broker]
        contents = [self._stop_replica([broker], followed, delete=False)] if followed else []
        self.live.remove(broker)
        self._stopped.append(broker)
        moved = []
        for partition in hosted:
            self._offline[partition] = sorted([*self._offline[partition], broker])
            if broker in self._isr[partition]:
                moved.append(partition)
                self._leave(partition, broker)
        return [*contents, *self._leader_and_isr(moved), self._update_metadata(hosted)]

    def _restart(self, _event: Event) -> list[Content]:
        if not self._stopped:
            return []
        broker = self._stopped.pop(0)
        others = list(self.live)
        self.live = sorted([*self.live, broker])
        self.broker_epochs[broker] = self._register()
        hosted = [p for p, replicas in enumerate(self._replicas) if broker in replicas and p not in self._gone]
        for partition in hosted:
            self._offline[partition] = [other for other in self._offline[partition] if other != broker]
        contents = [self._update_metadata([], others), self._update_metadata(self._all(), [broker])]
        contents += self._leader_and_isr(hosted, [broker])
        leaderless = [p for p in hosted if self._leader[p] == _NO_LEADER and broker in self._isr[p]]
        for partition in leaderless:
            self._elect(partition, broker, self._isr[partition])
        return [*contents, *self._leader_and_isr(leaderless), self._update_metadata(hosted)]

    def _election(self, event: Event) -> list[Content]:
        hot = self.fleet.elections // 20 + 1  # elections fall on few batches, so that leaders flap
        place = self._random(event).randrange(hot)
        moved = []
        for partition in self._batch(place * self.fleet.partitions // hot):
            isr, leader = self._isr[partition], self._leader[partition]
            if leader != _NO_LEADER and len(isr) > 1:
                self._elect(partition, isr[(isr.index(leader) + 1) % len(isr)], isr)
                moved.append(partition)
        return [*self._leader_and_isr(moved), self._update_metadata(moved)] if moved else []

    def _isr_change(self, event: Event) -> list[Content]:
        changed = self._batch(self._random(event).randrange(self.fleet.partitions))
        down = set(self._stopped)
        if down:
            changed = [partition for partition in changed if self._leader[partition] != _NO_LEADER]
        isrs, leaders, replicas, epochs = self._isr, self._leader, self._replicas, self._partition_epoch
        epoch = self.controller.epoch
        for partition in changed:
            assigned = replicas[partition]
            alive = assigned if not down else [broker for broker in assigned if broker not in down]
            isr = isrs[partition]
            if len(isr) < len(alive):
                isrs[partition] = alive
            elif len(isr) > 1:
                last = isr[-1] if isr[-1] != leaders[partition] else isr[-2]
                isrs[partition] = [broker for broker in isr if broker != last]
            epochs[partition] += 1
            self._controller_epoch[partition] = epoch
        return [self._update_metadata(changed)] if changed else []

    def _zombie(self, event: Event) -> list[Content]:
        if self._former is None:
            return []
        content = self._update_metadata(self._batch(self._random(event).randrange(self.fleet.partitions)))
        content.controller = self._former
        content.refused = True
        return [content]

    def _deletion(self, event: Event) -> list[Content]:
        topic = self._topics_left.pop(self._random(event).randrange(len(self._topics_left)))
        partitions = list(range(*self.fleet.topic_starts[topic : topic + 2]))
        leaving = self._update_metadata(partitions)
        count = len(partitions)
        leaving.rows |= {
            "leader": [_BEING_DELETED] * count,
            "leader_epoch": [0] * count,
            "partition_epoch": [0] * count,
        }
        hosts = self._by_broker(partitions)
        stops = [self._stop_replica([broker], hosted, delete=True) for broker, hosted in self._told(hosts)]
        self._gone.update(partitions)
        return [leaving, *stops]

    # ---- changes of one partition ----

    def _elect(self, partition: int, leader: int, isr: list[int]) -> None:
        self._leader[partition] = leader
        self._isr[partition] = isr
        self._leader_epoch[partition] += 1
        self._partition_epoch[partition] += 1
        self._controller_epoch[partition] = self.controller.epoch

    def _leave(self, partition: int, broker: int) -> None:
        """Remove a broker from a partition's ISR; the last member stays in the ISR, and the partition has no leader."""
        isr = [other for other in self._isr[partition] if other != broker]
        leader = self._leader[partition]
        if not isr:
            self._elect(partition, _NO_LEADER, [broker])
        else:
            self._elect(partition, isr[0] if leader == broker else leader, isr)

    # ---- requests ----

    def _take_over(self, *, repeated: bool) -> list[Content]:
        every = self._all()
        told = self._leader_and_isr(every)
        for content in told:
            content.repeated = repeated
        return [self._update_metadata([]), *told, self._update_metadata(every)]

    def _update_metadata(self, partitions: Sequence[int], recipients: list[int] | None = None) -> Content:
        recipients = list(self.live) if recipients is None else recipients
        if self.fleet.bodies == "distinct":
            recipients = self._one(recipients) if partitions else []
        rows = self._rows(partitions)
        rows["offline_replicas"] = _picked(self._offline, partitions)
        return self._content(ApiKey.UPDATE_METADATA, recipients, rows)

    def _leader_and_isr(self, partitions: Sequence[int], recipients: list[int] | None = None) -> list[Content]:
        hosts = self._by_broker(partitions)
        if recipients is not None:
            hosts = {broker: hosts[broker] for broker in recipients if broker in hosts}
        return [
            self._content(ApiKey.LEADER_AND_ISR, [broker], self._rows(hosted)) for broker, hosted in self._told(hosts)
        ]

    def _stop_replica(self, recipients: list[int], partitions: Sequence[int], *, delete: bool) -> Content:
        rows = {
            "topic": _picked(self._topic, partitions),
            "partition": _picked(self._index, partitions),
            "leader_epoch": [_BEING_DELETED] * len(partitions) if delete else _picked(self._leader_epoch, partitions),
            "delete_partition": [delete] * len(partitions),
        }
        return self._content(ApiKey.STOP_REPLICA, recipients, rows)

    def _content(self, api_key: ApiKey, recipients: list[int], rows: Rows) -> Content:
        return Content(self.fleet, api_key, self.controller, recipients, rows, list(self.live))

    def _rows(self, partitions: Sequence[int]) -> Rows:
        columns: Rows = {
            "topic": self._topic, "topic_id": self._topic_id, "partition": self._index,
            "controller_epoch": self._controller_epoch, "leader": self._leader, "leader_epoch": self._leader_epoch,
            "partition_epoch": self._partition_epoch, "isr": self._isr, "replicas": self._replicas,
        }  # fmt: skip
        return {name: _picked(values, partitions) for name, values in columns.items()}

    def _by_broker(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Return the partitions that each live broker hosts, brokers ascending."""
        hosts: dict[int, list[int]] = {broker: [] for broker in self.live}
        for partition in partitions:
            for broker in self._replicas[partition]:
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

    def _all(self) -> Sequence[int]:
        every = range(self.fleet.partitions)
        return every if not self._gone else [partition for partition in every if partition not in self._gone]

    def _batch(self, start: int) -> Sequence[int]:
        """Return a batch of consecutive partitions, without those of deleted topics."""
        start = min(start, max(self.fleet.partitions - self.fleet.batch, 0))
        batch = range(start, min(start + self.fleet.batch, self.fleet.partitions))
        return batch if not self._gone else [partition for partition in batch if partition not in self._gone]

    def _random(self, event: Event) -> Any:
        return random_of(self.fleet.seed, "event", event.number)

    def _register(self) -> int:
        self._registrations += 1
        return _FIRST_BROKER_EPOCH + 17 * self._registrations


def _picked(values: list[Any], partitions: Sequence[int]) -> list[Any]:
    if isinstance(partitions, range):
        return values[partitions.start : partitions.stop]
    return [values[partition] for partition in partitions]
