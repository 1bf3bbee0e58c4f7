"""Plants faults into a fleet's history: what a sick control plane sends, and which findings must and may come of it.

A plant is named as the rule of ``kproto doctor`` that finds it; this module shares no code with the doctor. Each is a
generator function that takes a ``_Scene`` and its cluster, and yields the requests of one event after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kproto.error_codes import ErrorCode

from .content import PlannedController
from .fleet import KRAFT_CONTROLLER, random_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from random import Random

    from .cluster import Cluster
    from .content import Content
    from .fleet import Event

SLOW_BROKER: Final = "slow-broker"
"""The plant by which one broker answers slowly all the time."""

_NO_LEADER: Final = -1
_SECOND: Final = 1_000_000_000
_RECOVERING: Final = 1


class NoPlace(Exception):
    """The cluster has no partition or broker where a fault can be planted now."""


@dataclass(frozen=True)
class PlantedFinding:
    """The subject that a finding must or may have; None stands for any.

    Attributes:
        rule: The rule's id.
        broker_id: The broker.
        topic, partition: The partition, or the topic alone.
    """

    rule: str
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None


@dataclass
class Planted:
    """A planted fault.

    Attributes:
        name: Of the plant.
        time_ns: The time at which it begins, ns since 1970.
        required: The findings that must come, one for each.
        allowed: Findings that may come with them: other sides of the same fault.
    """

    name: str
    time_ns: int
    required: list[PlantedFinding] = field(default_factory=list)
    allowed: list[PlantedFinding] = field(default_factory=list)


@dataclass
class _Scene:
    """The place of a planted fault.

    Attributes:
        cluster: The cluster.
        random: Decides what the fault is about.
        planted: The kind of fault.
    """

    cluster: Cluster
    random: Random
    planted: Planted

    def require(self, rule: str, broker: int | None = None, partition: int | None = None) -> None:
        """Say that a finding must come."""
        self.planted.required.append(self._finding(rule, broker, partition))

    def allow(self, *rules: str, broker: int | None = None, partition: int | None = None) -> None:
        """Say that findings may come."""
        self.planted.allowed += [self._finding(rule, broker, partition) for rule in rules]

    def _finding(self, rule: str, broker: int | None, partition: int | None) -> PlantedFinding:
        if partition is None:
            return PlantedFinding(rule, broker)
        return PlantedFinding(rule, broker, self.cluster.topic[partition], self.cluster.index[partition])

    def partition(self) -> int:
        """Reserve a partition with a leader and at least two in-sync replicas, all alive.

        Raises:
            NoPlace: There is none.
        """
        cluster = self.cluster
        live = set(cluster.live)
        fit = [
            partition
            for partition in cluster.all()
            if partition not in cluster.reserved
            and cluster.leader[partition] != _NO_LEADER
            and len(cluster.isr[partition]) > 1
            and live.issuperset(cluster.replicas[partition])
        ]
        if not fit:
            raise NoPlace
        found = self.random.choice(fit)
        cluster.reserved.add(found)
        cluster.busy.update(cluster.replicas[found])
        return found

    def broker(self, among: Sequence[int] | None = None) -> int:
        """Reserve a living broker that is neither the controller nor the one before.

        Raises:
            NoPlace: There is none.
        """
        cluster = self.cluster
        keep = {cluster.controller.id, cluster.former.id if cluster.former else None}
        fit = [broker for broker in cluster.live if broker not in keep and (among is None or broker in among)]
        if not fit:
            raise NoPlace
        found = self.random.choice(fit)
        cluster.busy.add(found)
        return found

    def others(self, *without: int) -> list[int]:
        """Return the living brokers without some."""
        return [broker for broker in self.cluster.live if broker not in without]

    def shrink(self, partition: int, left: int = 1) -> None:
        """Remove all but ``left`` members from an ISR."""
        cluster = self.cluster
        leader = cluster.leader[partition]
        cluster.set_isr(partition, [leader, *(b for b in cluster.isr[partition] if b != leader)][:left])

    def grow(self, partition: int) -> None:
        """Let all replicas join an ISR."""
        self.cluster.set_isr(partition, self.cluster.replicas[partition])

    def zombie(self, broker: int) -> Content:
        """Return a request of the former controller to a broker."""
        assert self.cluster.former is not None
        content = self.cluster.update_metadata(self.cluster.all()[:1], [broker])
        content.controller, content.request_type = self.cluster.former, 0
        return content

    def told(self, partition: int) -> list[Content]:
        """Return the requests that tell everybody of a partition."""
        return [*self.cluster.leader_and_isr([partition]), self.cluster.update_metadata([partition])]


def _after(seconds: float, *contents: Content) -> list[Content]:
    for content in contents:
        content.delay_ns = int(seconds * _SECOND)
    return list(contents)


_Stages: TypeAlias = "Iterator[list[Content]]"
_Run: TypeAlias = "Callable[[_Scene, Cluster], _Stages]"


@dataclass(frozen=True)
class Plant:
    """A fault that can be planted.

    Attributes:
        stages: The number of its events.
        run: Yields the requests of each event.
        is_last: Whether it has to come after all other events, as any of them might put it right.
        needs_zookeeper: Whether it cannot happen under a KRaft controller.
        tells_all: Above 0 where a controller tells all brokers all partitions, which puts earlier faults right: of such
            plants that with the highest number comes first.
        protocols: The protocols that show it.
    """

    stages: int
    run: _Run
    is_last: bool = False
    needs_zookeeper: bool = False
    tells_all: int = 0
    protocols: tuple[str, ...] = ("3.9", "2.4")


PLANTS: Final[dict[str, Plant]] = {}
"""The plants by name."""


def chosen(count: int, seed: int, protocol: str) -> tuple[str, ...]:
    """Return the names of ``count`` plants that a seed chooses among those that a protocol shows, none twice."""
    names = [name for name, one in PLANTS.items() if protocol in one.protocols]
    return tuple(random_of(seed, "chosen plants").sample(names, min(count, len(names))))


def _named(name: str, stages: int = 1, **options: Any) -> Callable[[_Run], object]:
    def register(run: _Run) -> object:
        PLANTS[name] = Plant(stages, run, **options)
        return run

    return register


class Planter:
    """Plants the faults of a fleet into its cluster.

    Args:
        cluster: The cluster.

    Attributes:
        planted: The faults that are planted so far.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._running: dict[int, _Stages] = {}
        self.planted: list[Planted] = []

    def apply(self, event: Event) -> list[Content]:
        """Return the requests of an event that is a stage of a planted fault."""
        running = self._running.get(event.plant)
        if running is None:
            fleet = self._cluster.fleet
            planted = Planted(fleet.plants[event.plant], event.time_ns)
            self.planted.append(planted)
            scene = _Scene(self._cluster, random_of(fleet.seed, "plant", event.plant), planted)
            running = self._running[event.plant] = PLANTS[planted.name].run(scene, self._cluster)
        try:
            return next(running, [])
        except NoPlace:
            return []


# ---- controllers ----


@_named("zombie-controller-accepted")
def _zombie_accepted(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    contents = cluster.fail_over(without=broker)
    zombie = scene.zombie(broker)
    contents += _after(30, zombie)
    contents += _after(60, cluster.update_metadata(cluster.all(), [broker]))
    contents += _after(60, *cluster.leader_and_isr(cluster.all(), [broker]))
    scene.require("KP001", broker)
    scene.allow("KP030", "KP031", "KP032", "KP006", broker=broker)
    yield contents


@_named("zombie-controller-refused")
def _zombie_refused(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    contents = cluster.fail_over()
    zombie = scene.zombie(broker)
    zombie.error_code = ErrorCode.STALE_CONTROLLER_EPOCH
    scene.require("KP002", broker)
    yield contents + _after(30, zombie)


@_named("two-controllers-in-one-epoch")
def _two_controllers(scene: _Scene, cluster: Cluster) -> _Stages:
    content = cluster.update_metadata(cluster.all()[:1])
    is_kraft_controller = cluster.controller.is_kraft_controller
    other = KRAFT_CONTROLLER + 2 if is_kraft_controller else scene.random.choice(scene.others(cluster.controller.id))
    content.controller = PlannedController(other, cluster.controller.epoch, is_kraft_controller)
    scene.require("KP003")
    yield [content]


@_named("controller-epoch-went-back")
def _epoch_back(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    contents = cluster.fail_over()
    zombie = scene.zombie(broker)
    scene.require("KP004", broker)
    scene.allow("KP001", broker=broker)
    yield contents + _after(30, zombie)


@_named("migration-broker-left-behind", needs_zookeeper=True, is_last=True, tells_all=2, protocols=("3.9",))
def _left_behind(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    if cluster.controller.is_kraft_controller:
        return
    scene.require("KP006", broker)
    scene.allow("KP030", "KP031", "KP032", "KP014", "KP015", broker=broker)
    yield cluster.migrate(without=broker)


@_named("dual-write-ended", stages=2, is_last=True, tells_all=1, protocols=("3.9",))
def _dual_write_ended(scene: _Scene, cluster: Cluster) -> _Stages:
    yield [] if cluster.controller.is_kraft_controller else cluster.migrate()
    scene.require("KP007")
    yield cluster.return_to_zookeeper()


# ---- leaders ----


@_named("no-leader")
def _no_leader(scene: _Scene, cluster: Cluster) -> _Stages:
    """The newest states say it: ``kproto.generate.truth`` requires the finding."""
    partition = scene.partition()
    scene.shrink(partition)
    contents = [cluster.update_metadata([partition])]
    cluster.elect(partition, _NO_LEADER, cluster.isr[partition])
    yield contents + _after(5, *scene.told(partition))


@_named("unclean-election")
def _unclean(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    scene.shrink(partition)
    contents = [cluster.update_metadata([partition])]
    leader = next(broker for broker in cluster.replicas[partition] if broker not in cluster.isr[partition])
    cluster.elect(partition, leader, [leader])
    told = scene.told(partition)
    if cluster.fleet.has_topic_ids:
        for content in told[:-1]:
            content.rows["leader_recovery_state"] = [_RECOVERING]
    contents += _after(5, *told)
    scene.grow(partition)
    contents += _after(20, cluster.update_metadata([partition]))
    scene.require("KP011", partition=partition)
    yield contents


@_named("leader-epoch-went-back")
def _leader_epoch_back(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = scene.broker()
    old = cluster.update_metadata([partition], [broker])
    cluster.elect_next(partition)
    contents = [*scene.told(partition), *_after(20, old)]
    contents += _after(40, cluster.update_metadata([partition]))
    scene.require("KP012", broker, partition)
    scene.allow("KP030", "KP031", broker=broker)
    yield contents


@_named("leader-epoch-used-twice")
def _leader_epoch_twice(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = scene.broker()
    former = cluster.elect_next(partition)
    contents = scene.told(partition)
    cluster.set_isr(partition, cluster.isr[partition])
    other = cluster.update_metadata([partition], [broker])
    other.rows["leader"] = [former]
    contents += _after(20, other)
    cluster.elect_next(partition)
    contents += _after(40, *scene.told(partition))
    scene.require("KP013", partition=partition)
    scene.allow("KP015", "KP014", partition=partition)
    scene.allow("KP030", "KP031")
    yield contents


@_named("two-leaders")
def _two_leaders(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    contents = scene.told(partition)  # the capture shows who leads
    former = cluster.elect_next(partition)
    told, update = cluster.leader_and_isr([partition], scene.others(former)), cluster.update_metadata([partition])
    contents += _after(5, *told, update)
    contents += _after(60, *cluster.leader_and_isr([partition], [former]))
    scene.require("KP014", partition=partition)
    scene.allow("KP030", broker=former)
    yield contents


@_named("leader-named-but-not-told")
def _named_not_told(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    cluster.elect_next(partition)
    leader = cluster.leader[partition]
    told, update = cluster.leader_and_isr([partition], scene.others(leader)), cluster.update_metadata([partition])
    late = cluster.leader_and_isr([partition], [leader])
    scene.require("KP015", leader, partition)
    scene.allow("KP030", broker=leader)
    yield [*told, update, *_after(60, *late)]


@_named("leader-flapping")
def _leader_flapping(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    contents: list[Content] = []
    for number in range(7):
        cluster.elect_next(partition)
        contents += _after(15 * number, *scene.told(partition))
    scene.require("KP016", partition=partition)
    yield contents


# ---- replicas ----


@_named("under-replicated", stages=3)
def _under_replicated(scene: _Scene, cluster: Cluster) -> _Stages:
    """The newest states say it: ``kproto.generate.truth`` requires the finding."""
    partition = scene.partition()
    scene.shrink(partition, len(cluster.isr[partition]) - 1)
    yield [cluster.update_metadata([partition])]


@_named("reassignment-lasts", stages=2)
def _reassigning(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    new = scene.broker([broker for broker in cluster.live if broker not in cluster.replicas[partition]])
    cluster.replicas[partition] = [*cluster.replicas[partition], new]
    cluster.adding[partition] = [new]
    cluster.elect(partition, cluster.leader[partition], cluster.isr[partition])
    scene.require("KP024", partition=partition)
    yield scene.told(partition)
    yield [cluster.update_metadata([])]


@_named("isr-flapping")
def _isr_flapping(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    contents: list[Content] = []
    for number in range(8):
        if number % 2:
            scene.grow(partition)
        else:
            scene.shrink(partition)
        contents += _after(12 * number, cluster.update_metadata([partition]))
    scene.require("KP022", partition=partition)
    yield contents


@_named("isr-or-leader-not-alive", needs_zookeeper=True)
def _isr_not_alive(scene: _Scene, cluster: Cluster) -> _Stages:
    if cluster.controller.is_kraft_controller:
        return
    partition = scene.partition()
    broker = scene.broker([b for b in cluster.isr[partition] if b != cluster.leader[partition]])
    scene.require("KP023", broker, partition)
    scene.allow("KP010", "KP035", "KP040", broker=broker)
    contents = cluster.stop(broker, kept=[partition])
    cluster.stopped.remove(broker)  # for good
    yield contents


# ---- brokers ----


@_named("behind", is_last=True)
def _behind(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = scene.broker()
    scene.shrink(partition)
    scene.require("KP030", broker)
    scene.allow("KP031", broker=broker)
    yield [cluster.update_metadata([partition], scene.others(broker))]


@_named("missed-update")
def _missed(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = scene.broker()
    scene.shrink(partition)
    contents = [cluster.update_metadata([partition], scene.others(broker))]
    scene.grow(partition)
    scene.require("KP031", broker)
    yield contents + _after(60, cluster.update_metadata([partition]))


@_named("told-late")
def _told_late(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = scene.broker()
    scene.shrink(partition, len(cluster.isr[partition]) - 1)
    content = cluster.update_metadata([partition], scene.others(broker))
    late = cluster.update_metadata([partition], [broker])
    scene.require("KP032", broker)
    yield [content, *_after(6, late)]


@_named("unanswered")
def _unanswered(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    content = cluster.update_metadata([], [broker])
    content.is_lost = True
    scene.require("KP033", broker)
    next_one = cluster.update_metadata([scene.partition()], [broker])  # a controller connects again at once
    yield [content, *_after(1, next_one)]


@_named(SLOW_BROKER)
def _slow(_scene: _Scene, _cluster: Cluster) -> _Stages:
    """The traffic makes it; ``kproto.generate.truth`` requires the finding."""
    yield []


@_named("registered-again", stages=2)
def _registered_again(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    scene.require("KP035", broker)
    yield cluster.stop(broker)
    yield cluster.start(broker)


@_named("registered-again-often")
def _registered_again_often(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    scene.require("KP038", broker)
    scene.allow("KP035", broker=broker)
    contents: list[Content] = []
    for number in range(4):
        for step, seconds in ((cluster.stop, 20 * number), (cluster.start, 20 * number + 10)):
            for content in step(broker):
                others = [other for other in content.recipients if other != broker]
                if len(others) < len(content.recipients):  # the epoch that the broker has now, not at the end
                    mine = replace(content, recipients=[broker], broker_epoch=cluster.broker_epochs[broker])
                    contents += _after(seconds, mine)
                content.recipients = others
                contents += _after(seconds, content)
    yield contents


@_named("listener-cannot-work")
def _listener(scene: _Scene, cluster: Cluster) -> _Stages:
    """From now on brokers have a second listener, which is wrong in one of three ways."""
    broker = scene.broker()
    external = {each: (f"broker-{each}.example", 9094) for each in cluster.fleet.broker_ids}
    way = scene.random.choice(("localhost", "shared", "lacking"))
    if way == "localhost":
        external[broker] = "localhost", 9094
    elif way == "shared":
        other = scene.random.choice(scene.others(broker))
        cluster.busy.add(other)
        external[broker] = external[other]
    else:
        del external[broker]
    cluster.external = external
    scene.require("KP039", None if way == "shared" else broker)
    yield [cluster.update_metadata([]), *_after(70, cluster.update_metadata([]))]


@_named("meant-for-earlier-registration", stages=2)
def _earlier_registration(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    former = cluster.broker_epochs[broker]
    yield cluster.stop(broker)
    contents = cluster.start(broker)
    late = cluster.update_metadata([], [broker])
    late.broker_epoch, late.error_code = former, ErrorCode.STALE_BROKER_EPOCH
    scene.require("KP036", broker)
    yield contents + _after(3, late)


# ---- topics ----


def _topic(scene: _Scene, cluster: Cluster) -> tuple[int, int]:
    """Reserve a topic, and a broker that has replicas of it.

    Raises:
        NoPlace: There is none.
    """
    live = set(cluster.live)
    for topic in scene.random.sample(cluster.topics_left, len(cluster.topics_left)):
        partitions = cluster.partitions_of(topic)
        hosts = {broker for partition in partitions for broker in cluster.replicas[partition]}
        if cluster.reserved.isdisjoint(partitions) and hosts <= live:
            try:
                broker = scene.broker(sorted(hosts - cluster.busy))
            except NoPlace:
                continue
            if all(len(cluster.isr[p]) > 1 for p in partitions):
                cluster.reserved.update(partitions)
                cluster.busy.update(hosts)
                return topic, broker
    raise NoPlace


@_named("deletion-waiting", stages=2)
def _deletion_waiting(scene: _Scene, cluster: Cluster) -> _Stages:
    topic, broker = _topic(scene, cluster)
    contents = cluster.stop(broker)
    cluster.stopped.remove(broker)  # for good
    yield contents
    scene.planted.required.append(PlantedFinding("KP040", broker, cluster.topic[cluster.partitions_of(topic)[0]]))
    yield cluster.delete(topic)


def _deleted_in_absence(scene: _Scene, cluster: Cluster) -> Generator[list[Content], None, tuple[int, int, str]]:
    """Stop a replica holder and delete its topic; it is never asked to delete. Gives topic, broker and the name."""
    topic, broker = _topic(scene, cluster)
    yield cluster.stop(broker)
    yield cluster.delete(topic)
    cluster.undeleted.pop(broker, None)
    return topic, broker, cluster.topic[cluster.partitions_of(topic)[0]]


@_named("stray-replica", stages=3)
def _stray(scene: _Scene, cluster: Cluster) -> _Stages:
    _, broker, name = yield from _deleted_in_absence(scene, cluster)
    scene.planted.required.append(PlantedFinding("KP041", broker, name))
    scene.planted.allowed.append(PlantedFinding("KP040", broker, name))
    yield cluster.start(broker)


@_named("name-used-again-over-stray", stages=4)
def _name_used_again(scene: _Scene, cluster: Cluster) -> _Stages:
    topic, broker, name = yield from _deleted_in_absence(scene, cluster)
    topic_id = scene.random.randbytes(16) if cluster.fleet.has_topic_ids else bytes(16)
    scene.planted.required.append(PlantedFinding("KP042", broker, name))
    scene.planted.allowed += [PlantedFinding(rule, broker, name) for rule in ("KP040", "KP041", "KP043")]
    yield cluster.recreate(topic, topic_id)
    yield cluster.start(broker)


@_named("topic-ids-differ", protocols=("3.9",))
def _topic_ids_differ(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = next(b for b in cluster.isr[partition] if b != cluster.leader[partition])
    cluster.elect_next(partition)
    told = cluster.leader_and_isr([partition], scene.others(broker))
    (refused,) = cluster.leader_and_isr([partition], [broker])
    refused.partition_error = ErrorCode.INCONSISTENT_TOPIC_ID
    (accepted,) = cluster.leader_and_isr([partition], [broker])
    scene.require("KP043", broker, partition)
    scene.allow("KP015", "KP030", broker=broker)
    yield [*told, refused, cluster.update_metadata([partition]), *_after(30, accepted)]


# ---- requests ----


@_named("refused")
def _refused(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    broker = scene.broker()
    scene.shrink(partition, len(cluster.isr[partition]) - 1)
    refused = cluster.update_metadata([partition], [broker])
    refused.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    told = cluster.update_metadata([partition], scene.others(broker))
    scene.grow(partition)
    scene.require("KP050", broker)
    scene.allow("KP031", broker=broker)
    yield [told, refused, *_after(30, cluster.update_metadata([partition]))]


@_named("partition-error-not-put-right", is_last=True)
def _partition_error(scene: _Scene, cluster: Cluster) -> _Stages:
    partition = scene.partition()
    leader = cluster.leader[partition]
    broker = next(b for b in cluster.replicas[partition] if b != leader)
    cluster.elect(partition, leader, cluster.isr[partition])
    told = cluster.leader_and_isr([partition], scene.others(broker))
    (failed,) = cluster.leader_and_isr([partition], [broker])
    failed.partition_error = ErrorCode.KAFKA_STORAGE_ERROR
    scene.require("KP051", broker, partition)
    scene.allow("KP030", broker=broker)
    yield [*told, failed, cluster.update_metadata([partition])]


@_named("sent-again")
def _sent_again(scene: _Scene, cluster: Cluster) -> _Stages:
    broker = scene.broker()
    content = cluster.update_metadata([], [broker])
    content.is_sent_again = True
    scene.require("KP052", broker)
    yield [content]
