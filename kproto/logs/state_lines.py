"""What the lines of ``state-change.log`` and ``controller.log`` say -> the control requests that they tell of.

Lines at TRACE hold each partition's state as it was sent. Lines at INFO, the default of newer releases, hold what a
broker did with it, and what a controller decided: leaders and leader epochs always, ISRs where they are printed, no
replicas. What a line does not say is ``UNKNOWN``.

A broker handles one control request after another, so that the lines of one request stand together, and a line of the
next one shows that it was answered.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from kproto import messages
from kproto.api import ApiKey
from kproto.json_form import uuid_from_json

from .reading import UNKNOWN, UNKNOWN_IDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kproto.codec import Message

BROKER_MARK: Final = b"[Broker id="
CONTROLLER_MARK: Final = b"[Controller id="
DELETION_MARK: Final = b"[Topic Deletion Manager "
WRITER_MARKS: Final = (BROKER_MARK, CONTROLLER_MARK, DELETION_MARK)
"""What begins the lines that are read: who writes them."""

_BROKER: Final = re.compile(rb"\[Broker id=(\d{1,10})\]")

_FORMER_MARK: Final = re.compile(
    rb"(?<![\w\[])(Broker|Controller) (\d{1,10})(?: epoch (\d{1,10}))?(?: (?=[a-z])|(?='s connection ))"
    rb"|\[(?:[\w -]{1,60} on )?(Controller) (\d{1,10})\]: "
)
"""How releases before 1.0 name who writes."""

_MOST_STATES: Final = 300_000
"""The most partitions of one request; further ones become another request."""

_MOST_TOPICS: Final = 20_000
"""The most topics whose partitions are remembered."""

_MOST_REMEMBERED: Final = 200_000
"""The most partitions whose replicas are remembered."""

_MOST_EVENTS: Final = 1000
_ONE_EVENT_NS: Final = 60 * 1_000_000_000
"""Lines of one kind within this time are one event."""

_DISORDER_NS: Final = 1_000_000_000
"""Lines near each other may be out of order by so much."""

_STALE_CONTROLLER_EPOCH: Final = 11
_UNKNOWN_TOPIC: Final = 3
_FENCED_LEADER_EPOCH: Final = 74

_DURING_DELETE: Final = -2

_IDS: Final = rb"\[?([-\d]*+(?:, ?[-\d]++)*+)\]?"
_STATE: Final = (
    rb"controllerEpoch=(-?\d+), leader=(-?\d+), leaderEpoch=(-?\d+), isr=" + _IDS
    + rb", (?:zkVersion|partitionEpoch)=(-?\d+), replicas=" + _IDS
    + rb"(?:, addingReplicas=" + _IDS + rb", removingReplicas=" + _IDS + rb")?(?:, offlineReplicas=" + _IDS + rb")?"
    rb"(?:, isNew=(\w+))?(?:, leaderRecoveryState=(\d+))?\)"
)  # fmt: skip
_UNTOLD: Final = b",".join(b"%d" % mark for mark in UNKNOWN_IDS)
_NAMED: Final = rb"\w*\((?:topicName='[\w.-]*', partitionIndex=-?\d+, )?"
_CACHED: Final = re.compile(
    rb".ached leader info " + _NAMED + _STATE + rb" for partition (\S+) in response to UpdateMetadata request sent by "
    rb"controller (-?\d+) epoch (\d+) with correlation id (-?\d+)"
)
_FORMERLY_CACHED: Final = re.compile(
    rb".ached leader info \(LeaderAndIsrInfo:\(Leader:(-?\d+),ISR:([\d,]*),LeaderEpoch:(\d+),ControllerEpoch:(\d+)\),"
    rb"ReplicationFactor:\d+\),AllReplicas:([\d,]*)\) for partition (\S+) in response to UpdateMetadata request "
    rb"sent by controller (-?\d+) epoch (\d+) with correlation id (-?\d+)"
)
_DELETED: Final = re.compile(
    rb".eleted partition (\S+) from metadata cache in response to UpdateMetadata request sent by controller (-?\d+) "
    rb"epoch (\d+) with correlation id (-?\d+)"
)
_ADDED: Final = re.compile(
    rb"Add (\d+) partitions and deleted (\d+) partitions from metadata cache in response to UpdateMetadata request "
    rb"sent by controller (-?\d+) epoch (\d+) with correlation id (-?\d+)"
)
_RECEIVED: Final = re.compile(
    rb".eceived LeaderAndIsr request \w*\((?:topicName='([\w.-]*)', partitionIndex=(-?\d+), )?" + _STATE
    + rb" correlation id (-?\d+) from controller (-?\d+) epoch (\d+)(?: for partition (\S+))?"
)  # fmt: skip
_STOPPED: Final = re.compile(
    rb".eceived StopReplica request (?:\w*\(partitionIndex=-?\d+, leaderEpoch=(-?\d+), deletePartition=(\w+)\)"
    rb"|\(delete=(\w+)\)) correlation id (-?\d+) from controller (-?\d+) epoch (\d+) for partition (\S+)"
)
_OF_LEADER_AND_ISR: Final = re.compile(
    rb"(?:Handling|Stopped fetchers as part of) LeaderAndIsr request correlationId (-?\d+) from controller (-?\d+)"
    rb"(?: for \d+ | epoch (\d+)(?! starting ))"
    rb"|(?:Stopped fetchers as part of become-follower|While handling full LeaderAndIsr) request from "
    rb"(KRaft )?controller (-?\d+)(?: epoch (\d+))? with correlation id (-?\d+)"
)
_FINISHED: Final = re.compile(rb"Finished LeaderAndIsr request in \d{1,10} ?ms correlationId (-?\d{1,10}) ")
_IGNORING: Final = re.compile(
    rb".gnoring (\w+) request (?:\(\S*\) )?from controller (-?\d+) with correlation id (-?\d+)"
    rb"(?: epoch (\d+) for partition (\S+) (since|as) (?:its associated leader epoch (-?\d+)\b|(?!its|$))"
    rb"| since its controller epoch (\d+) is old)"
)
_STARTS: Final = re.compile(
    rb"(?:(Leader)|Follower) (\S+)(?: with topic id \S+)? starts at leader epoch (\d+) from offset -?\d+"
    rb"(?: with partition epoch (-?\d+)|(?= with high watermark ))"
)
_LEADS: Final = re.compile(
    rb"ISR \[([\d,]*)\],? adding ?[rR]eplicas \[([\d,]*)\],? ?(?:and )?removing ?[rR]eplicas \[([\d,]*)\]"
)
_TELLS_NO_LEADER: Final = re.compile(rb" with high watermark -?\d{1,19}\. Previous leader epoch was -?\d")
_FOLLOWS: Final = re.compile(rb"Current leader is (-?\d+)")
_TRANSITIONING: Final = re.compile(rb"Transitioning \d{1,10} partition\(s\) to local (?:leader|follower)s")
_OF_TOPIC: Final = re.compile(rb"\S{1,300} with topic id (?:Some\()?([\w-]{22})\b")
_CREATING: Final = re.compile(rb"Creating new partition (\S{1,300})-\d{1,10} with topic id ([\w-]{22})\b")
_SKIPPED: Final = re.compile(
    rb"Skipped the become-(?:leader|follower) state change for \S{1,300} with topic id (?:Some\()?([\w-]{22})\)? and "
    rb"partition state \w*\(topicName='([\w.-]*)', partitionIndex=(-?\d+), " + _STATE
)
_CHANGED: Final = re.compile(
    rb"Partition (\S+) state changed to \(Leader:(-?\d+),ISR:([\d,]*),(?:LeaderRecoveryState:(\w+),)?"
    rb"LeaderEpoch:(\d+),(?:ZkVersion|PartitionEpoch):(-?\d+),ControllerEpoch:(\d+)\)"
)
_REASSIGNED: Final = re.compile(
    rb"Sent LeaderAndIsr request \(Leader:(-?\d+),ISR:([\d,]*),(?:LeaderRecoveryState:(\w+),)?LeaderEpoch:(\d+),"
    rb"(?:ZkVersion|PartitionEpoch):(-?\d+),ControllerEpoch:(\d+)\) with new (?:replica )?assign\w+ "
    rb"ReplicaAssignment\(replicas=([\d,]*), addingReplicas=[\d,]*, removingReplicas=[\d,]*\) to leader \S+ for "
    rb"partition being reassigned (\S+)"
)
_ELECTED: Final = re.compile(
    rb"(?:Changed partition (\S+) (?:state )?from \w+ to OnlinePartition with state|ISR for partition (\S+) updated to)"
    rb" LeaderAndIsr\(leader=(-?\d+), leaderEpoch=(\d+), isr\w*=\w*\(([^()]*+(?:\([^()]*+\)[^()]*+)*+)\), "
    rb"(?:leaderRecoveryState=(\w+), )?(?:zkVersion|partitionEpoch)=(-?\d+)\)"
)
_IN_DETAIL: Final = re.compile(
    rb"ISR for partition |Updating (?:ISRs|leader epoch|assignment) |Changed state of replica |Received response "
    rb"|Changed partition \S{1,300} (?:state from O|from \w+ to \w+ with leader)|Live brokers: |All leaders = "
    rb"|Sending (?:become-|(?:LeaderAndIsr|StopReplica|UpdateMetadata) request (?!for |to ))|Delete topic callback "
    rb"|(?:Register|Unregister) BrokerModifications |Deletion (?:successfully completed|failed) for replicas "
)
"""What a controller says at DEBUG or TRACE alone: it shows the level where a layout of lines has none."""

_DETAILED: Final = re.compile(rb"(?i)\b(?:debug|trace)\b(?!\")")

_ASSIGNED: Final = re.compile(
    rb"Changed partition (\S+) state from \w+ to NewPartition with assigned replicas ([\d,]+)(?![\d,]| \d)"
)
_BROKER_ID: Final = re.compile(rb"brokerId=(\d+), ")
_NUMBER: Final = re.compile(rb"-?\d+")
_BECAME: Final = re.compile(
    rb"(?:\d{1,10} successfully elected as the controller. |Controller \d{1,10} )?"
    rb"(?:Epoch incremented|[Ii]ncremented epoch) to (\d{1,10})"
)
_SERVES: Final = re.compile(rb"(?:Broker \d{1,10} is )?[Rr]eady to serve as the new controller with epoch (\d{1,10})")
_STOPPING: Final = re.compile(rb".andling stop replica \(delete=(\w+)\) for partition (\S+)")
_HANDLING: Final = re.compile(rb".andling (?:LeaderAndIsr|StopReplica) request correlationId ")
_LIVE: Final = re.compile(
    rb"(?:Newly added brokers: [\d,]*, deleted brokers: ([\d,]*), .{0,9000}?all live brokers: ([\d,]+)"
    rb"|Currently active brokers in the cluster: \w*\(([\d, ]+)\))"
)
_BROKER_EPOCHS: Final = re.compile(
    rb"(?:Initialized|Updated) broker epochs cache: \w*\(((?:\d{1,10} -> -?\d{1,18}(?:, |(?=\))))*)\)"
)
_PAIR: Final = re.compile(rb"(\d{1,10}) -> (-?\d{1,18})")
_TO_BROKER: Final = re.compile(rb" to broker \S{1,300} \(id: (\d{1,10}) ")
_RESIGNED: Final = re.compile(rb"Resigned\b|Broker \d{1,10} resigned as the controller")
_HALTED: Final = re.compile(rb"Halted deletion of topics ([\w.,-]{1,9000})")
_TAKEN_UP: Final = re.compile(rb"Handling reassignment of partition (\S{1,300}) to new replicas ")
_DELETION: Final = re.compile(rb"Deletion of topic (\S+) (\(re\)started|successfully completed)")
_NEW_PARTITION: Final = re.compile(
    rb"\[?([\w.-]{1,255})[-,](\d{1,10})\]? -> (?:\w{1,30}\()?(?:replicas=)?((?:\d{1,10}, ?)*\d{1,10})"
)


@dataclass(slots=True)
class LoggedEvent:
    """What a controller's log tells beside requests; several of one kind within a minute are one.

    Attributes:
        kind: ``connection failed``: the controller could not connect to a broker, or got no answer; ``resigned``;
            ``deletion waits``: for replicas that are offline or could not be deleted; ``topic deleted``, where its
            partitions are not told; ``reassignment taken up``.
        controller_id: The controller.
        broker_id: The broker that could not be reached.
        topic, partition: The topic that is, or was, being deleted, the partition that is being reassigned.
        first_ns, last_ns: When the log says so first and last.
        count: How often.
    """

    kind: str
    controller_id: int
    broker_id: int | None
    topic: str | None
    partition: int | None
    first_ns: int
    last_ns: int
    count: int = 1


class LoggedRequest:
    """A control request as far as a log tells of it.

    Attributes:
        api_key: The API.
        broker_id: The broker that received it.
        controller_id, controller_epoch: The sender.
        correlation_id: Its correlation id; None of a decision that only the controller's log shows.
        time_ns, last_ns: When it was received, and when its last line was written.
        topics: Topic -> the states of its partitions.
        errors: (topic, partition, error code) of the answer.
        error_code: Error of the whole request.
        answered: Whether the lines show that it was answered.
        live_brokers: The brokers that are alive, if the lines tell.
        broker_epoch: The epoch of the broker's registration; -1 where the lines do not tell it.
        of_kraft: Whether a line tells that a KRaft controller sent it, in a migration; no line tells the contrary.
        is_short: Whether a line of it could not be read.
        topic_ids: In KRaft, where a broker takes its part of a change of the metadata: the ids of topics; None where a
            controller sent a request.
    """

    def __init__(
        self,
        api_key: int,
        broker_id: int,
        controller_id: int,
        controller_epoch: int,
        correlation_id: int | None,
        time_ns: int,
    ) -> None:
        self.api_key: int = api_key
        self.broker_id: int = broker_id
        self.controller_id: int = controller_id
        self.controller_epoch: int = controller_epoch
        self.correlation_id: int | None = correlation_id
        self.time_ns: int = time_ns
        self.last_ns: int = time_ns
        self.topics: dict[bytes, list[Any]] = {}
        self.errors: list[tuple[bytes, int, int]] = []
        self.error_code: int = 0
        self.answered: bool = correlation_id is None and api_key != ApiKey.LEADER_AND_ISR  # what a controller decided
        self.live_brokers: list[int] = []
        self.broker_epoch: int = -1
        self.detailed: bool = False  # whether lines at TRACE tell its states
        self.deletes: bool | None = None  # of a StopReplica that tells it of all its partitions together
        self.count: int = 0
        self.of_kraft: bool = False
        self.is_short: bool = False
        self.topic_ids: dict[bytes, str] | None = None

    def is_one(self, api_key: int, controller_id: int, correlation_id: int) -> bool:
        """Whether a line that names these tells of this request."""
        return (
            self.correlation_id == correlation_id
            and self.api_key == api_key
            and self.controller_id == controller_id
            and self.count < _MOST_STATES
        )

    def is_before(self, other: LoggedRequest) -> bool:
        """Whether the controller sent this one first, of two with lines of one time."""
        return (
            self.last_ns == other.last_ns
            and self.controller_id == other.controller_id
            and self.correlation_id is not None
            and other.correlation_id is not None
            and self.correlation_id < other.correlation_id
        )

    def add(self, topic: bytes, state: Any) -> None:
        """Add a partition's state."""
        states = self.topics.get(topic)
        if states is None:
            states = self.topics[topic] = []
        states.append(state)
        self.count += 1

    def mark(self) -> int:
        """A negative number that stands for the correlation id of a request that has none.

        It depends on what a line itself tells: a log may begin behind the lines that told the replicas.
        """
        number = self.api_key
        for topic, states in self.topics.items():
            state = states[0]
            place = state.partition_index, state.leader_epoch
            for value in (*place, getattr(state, "leader", 0), getattr(state, "zk_version", 0)):
                number = (number * 1000003 + value) & 0xFFFFFFFF
            number = crc32(topic, number)
            break
        if self.live_brokers:
            number = crc32(repr(self.live_brokers).encode(), number)
        return -1 - number // 4

    @property
    def version(self) -> int:
        """The version of the request that can hold what is known."""
        if self.api_key == ApiKey.UPDATE_METADATA:
            return 6
        if self.api_key == ApiKey.STOP_REPLICA:
            return 3 if self.deletes is None else 0
        if self.of_kraft or self.topic_ids is not None:
            return 7
        return 6 if any(state.leader_recovery_state for states in self.topics.values() for state in states) else 4

    def message(self) -> Message:
        """The request with what is known."""
        topic_state = _TOPIC_STATES[self.api_key]
        head: dict[str, Any] = {
            "controller_id": self.controller_id,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.broker_epoch,
            "topic_states": [
                topic_state(topic_name=_name(topic), partition_states=states) for topic, states in self.topics.items()
            ],
        }
        if self.api_key == ApiKey.UPDATE_METADATA:
            head["live_brokers"] = [
                messages.UpdateMetadataBroker(
                    id=broker, endpoints=[messages.UpdateMetadataEndpoint(host=f"broker-{broker}")], rack=None
                )
                for broker in self.live_brokers
            ]
            return messages.UpdateMetadataRequest(**head)
        if self.api_key == ApiKey.LEADER_AND_ISR:
            for topic, state in zip(self.topics, head["topic_states"], strict=True):
                if self.topic_ids and topic in self.topic_ids:
                    state.topic_id = uuid_from_json(self.topic_ids[topic])
            return messages.LeaderAndIsrRequest(**head, is_kraft_controller=self.version == 7)
        if self.deletes is None:
            return messages.StopReplicaRequest(**head)
        del head["topic_states"]
        parts = [
            messages.StopReplicaPartitionV0(topic_name=_name(topic), partition_index=state.partition_index)
            for topic, states in self.topics.items()
            for state in states
        ]
        return messages.StopReplicaRequest(**head, delete_partitions=self.deletes, ungrouped_partitions=parts)

    def answer(self) -> Message:
        """The answer."""
        code = self.error_code
        if self.api_key == ApiKey.UPDATE_METADATA:
            return messages.UpdateMetadataResponse(error_code=code)
        errors = {(topic, state.partition_index): 0 for topic, states in self.topics.items() for state in states}
        errors.update(((topic, partition), each) for topic, partition, each in self.errors)
        error = _ERRORS[self.api_key]
        rows = [
            error(topic_name=_name(topic), partition_index=partition, error_code=code)
            for (topic, partition), code in errors.items()
        ]
        if self.api_key == ApiKey.STOP_REPLICA:
            return messages.StopReplicaResponse(error_code=code, partition_errors=rows)
        if self.version < 5:
            return messages.LeaderAndIsrResponse(error_code=code, partition_errors=rows)
        topics = [messages.LeaderAndIsrTopicError(partition_errors=rows)]
        return messages.LeaderAndIsrResponse(error_code=code, topics=topics)


_TOPIC_STATES: Final[dict[int, Any]] = {
    ApiKey.LEADER_AND_ISR: messages.LeaderAndIsrTopicState,
    ApiKey.STOP_REPLICA: messages.StopReplicaTopicState,
    ApiKey.UPDATE_METADATA: messages.UpdateMetadataTopicState,
}
_ERRORS: Final[dict[int, Any]] = {
    ApiKey.LEADER_AND_ISR: messages.LeaderAndIsrPartitionError,
    ApiKey.STOP_REPLICA: messages.StopReplicaPartitionError,
}


def _name(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")


def with_writer(text: bytes) -> tuple[bytes, int]:
    """Return a line, and where it names its writer; releases before 1.0 name it in a way that is changed to today's.

    The place is -1 in a line that names no writer.
    """
    at = next((at for mark in WRITER_MARKS if (at := text.find(mark)) >= 0), -1)
    if at >= 0:
        return text, at
    found = _FORMER_MARK.search(text, 0, _LONGEST_START) if b"Broker " in text or b"Controller " in text else None
    if found is None:
        return text, -1
    kind, number, epoch = found[1] or found[4], found[2] or found[5], found[3]
    named = b"[" + kind + b" id=" + number + (b"" if epoch is None else b" epoch=" + epoch) + b"] "
    return text[: found.start()] + named + text[found.end() :], found.start()


_LONGEST_MARK: Final = 120
"""The bytes between a leader epoch and the ISR or leader behind it."""

_LONGEST_START: Final = 400
"""The bytes of a line among which its writer is named."""


class StateLog:
    """Puts the lines of one log together to requests.

    Args:
        emit: Is given each request when it is whole.
        tell: Is given each event when it begins; it may go on.

    Attributes:
        is_shuffled: Whether lines of one time stand in another order than they were written in.
        goes_back: Whether requests or decisions stand behind later ones of the same broker or controller.
    """

    def __init__(
        self, emit: Callable[[LoggedRequest], object], tell: Callable[[LoggedEvent], object] | None = None
    ) -> None:
        self._emit = emit
        self._tell = tell
        self._events: dict[tuple[object, ...], LoggedEvent] = {}
        self._leading: set[int] = set()  # controllers that this log saw become one
        self._writers: dict[bytes, tuple[int, int | None]] = {}
        self._open: dict[int, LoggedRequest] = {}
        self._epochs: dict[int, int] = {}  # of controllers, as the lines so far tell
        self._senders: dict[int, tuple[int, int]] = {}  # the controller whose request a broker took last, its epoch
        self._newest: dict[tuple[int, bool], int] = {}  # of brokers' and controllers' lines, when the newest began
        self._replicas: OrderedDict[bytes, list[int]] = OrderedDict()  # as a controller assigned them
        self._told: OrderedDict[bytes, tuple[list[int], list[int]]] = (
            OrderedDict()
        )  # ISR and replicas, as brokers learnt
        self._led: OrderedDict[bytes, tuple[bytes, bytes, bytes]] = OrderedDict()
        self._partitions: OrderedDict[bytes, dict[int, list[int]]] = OrderedDict()  # topic -> partition -> replicas
        self._topic_ids: OrderedDict[bytes, str] = OrderedDict()
        self._listing: set[int] = set()  # controllers that this log saw list live brokers
        self._tells_broker_epochs = False
        self._broker_epochs: dict[int, dict[int, int]] = {}  # as each controller listed them last
        self._torn: set[int] = set()  # brokers of which a line could not be read since the last one that could
        self._says_finished = False
        self._detailed = False
        self._latest_ns = 0
        self._closed: list[LoggedRequest] = []  # with a last line of that time: others of theirs may stand behind it
        self._stray = -1, -1  # the last broker that told of a partition outside a request, and when
        self.is_shuffled: bool = False
        self.goes_back: bool = False
        self._of_brokers: dict[bytes, Callable[[int, bytes, int], bool]] = {
            b"Cac": self._cached, b"cac": self._cached, b"Del": self._deleted, b"del": self._deleted,
            b"Add": self._added, b"Rec": self._received, b"rec": self._received, b"Han": self._handling,
            b"han": self._handling, b"Com": self._touched, b"com": self._touched, b"Fin": self._finished,
            b"Sto": self._of_leader_and_isr, b"Lea": self._starts, b"Fol": self._starts, b"Ign": self._ignoring,
            b"ign": self._ignoring, b"Tra": self._transitioning, b"Cre": self._creating, b"Ski": self._skipped,
            b"Whi": self._of_leader_and_isr,
        }  # fmt: skip

    def line(self, text: bytes, at: int, time_ns: int) -> bool:
        """Take a line.

        Args:
            text: The line.
            at: Where it names its writer.
            time_ns: When it was written.

        Returns:
            Whether it is a line that is known; one that is cut is not.
        """
        kind = text[at + 1]
        begin = at + len(BROKER_MARK if kind == 66 else CONTROLLER_MARK if kind == 67 else DELETION_MARK)  # B, C
        end = text.find(b"]", begin)
        if time_ns != self._latest_ns:
            self._latest_ns = time_ns
            if self._closed:
                self._give_closed()
        if kind == 66:
            number = text[begin:end]
            handler = self._of_brokers.get(text[end + 2 : end + 5])
            if handler is None or not number.isdigit() or len(number) > 10:
                return False
            broker = int(number)
            is_known = handler(broker, text[end + 2 :], time_ns)
            if is_known and self._torn:
                self._torn.discard(broker)
            return is_known
        if kind == 67 and text[at - 6 : at] == b"TRACE ":
            self._detailed = True
            return True  # what is decided stands at INFO and DEBUG
        if text[at - 5 : at] != b"INFO " and not self._detailed:
            rest = text[end + 1 : end + 400].lstrip(b", :")
            self._detailed = bool(_DETAILED.search(text, max(at - 24, 0), at) or _IN_DETAIL.match(rest))
        name = text[begin : min(end, begin + 40)]
        writer = self._writers.get(name)
        if writer is None:
            found = _NUMBER.findall(name)
            if not found or len(found[0]) > 10:
                return False
            writer = int(found[0]), int(found[1]) if len(found) > 1 else None
            if len(self._writers) > 1000:
                self._writers.clear()
            self._writers[name] = writer
        return self._decided(writer[0], writer[1], text[end + 1 :].lstrip(b", :"), time_ns)

    def lost(self, text: bytes, at: int) -> None:
        """Take a line that cannot be read: the request of its broker that is open lacks it, or one that begins next.

        Args:
            text: The line.
            at: Where it names its writer.
        """
        self._detailed |= _DETAILED.search(text, max(at - 24, 0), at) is not None
        found = _BROKER.match(text, at)
        if found is not None:
            broker = int(found[1])
            self._torn.add(broker)
            if broker in self._open:
                self._open[broker].is_short = True

    def end(self) -> None:
        """End the log: give what is open."""
        self._give_closed()
        self._stray = -1, -1
        while self._open:
            _, request = self._open.popitem()
            # Where a release says that LeaderAndIsr is finished, the last one of a log may not be.
            request.answered |= not (self._says_finished and request.api_key == ApiKey.LEADER_AND_ISR)
            self._emit(request)

    def _request(
        self, api_key: int, broker: int, controller: bytes, epoch: bytes | None, correlation: bytes, time_ns: int
    ) -> LoggedRequest:
        """The request that a line belongs to."""
        request = self._open.get(broker)
        correlation_id = int(correlation)
        controller_id = int(controller)
        if request is None or not request.is_one(api_key, controller_id, correlation_id):
            if request is not None:
                if request.last_ns == time_ns and self._says_finished and api_key == request.api_key:
                    self.is_shuffled |= not request.detailed
                self._close(broker)
            if api_key == ApiKey.LEADER_AND_ISR and broker in self._senders:
                self.is_shuffled |= self._stray == (broker, time_ns)
            request = self._reopened(broker, api_key, controller_id, correlation_id)
        if request is not None:
            request.last_ns = time_ns
            if epoch is not None:
                request.controller_epoch = self._epochs[controller_id] = int(epoch)
            return request
        number = self._epochs.get(controller_id, -1) if epoch is None else int(epoch)
        if len(self._epochs) > 1000:
            self._epochs.clear()
        if len(self._senders) > 1000:
            self._senders.clear()
        self._epochs[controller_id] = number
        self._dated(broker, time_ns, is_broker=True)
        self._senders[broker] = controller_id, number
        return self._begin(LoggedRequest(api_key, broker, controller_id, number, correlation_id, time_ns))

    def _begin(self, request: LoggedRequest) -> LoggedRequest:
        request.is_short = request.broker_id in self._torn
        self._open[request.broker_id] = request
        if len(self._open) > 1000:
            self._close(next(iter(self._open)))
        return request

    def _dated(self, writer: int, time_ns: int, *, is_broker: bool) -> None:
        """Note when a line was written; lines that are far older than others before them were moved there."""
        newest = self._newest.get((writer, is_broker), 0)
        self.goes_back |= time_ns < newest - _DISORDER_NS
        if len(self._newest) > 1000:
            self._newest.clear()
        self._newest[writer, is_broker] = max(time_ns, newest)

    def _close(self, broker: int) -> None:
        """End a request: the next one has come, or it was answered; it is given when no line of it can follow."""
        request = self._open.pop(broker)
        request.answered = True
        self._closed.append(request)

    def _reopened(self, broker: int, api_key: int, controller_id: int, correlation_id: int) -> LoggedRequest | None:
        """Take up a request that has just ended: an export may have another order of lines of one time."""
        for request in self._closed:
            if request.broker_id == broker and request.is_one(api_key, controller_id, correlation_id):
                self._closed.remove(request)
                self._open[broker] = request
                return request
        return None

    def _give(self, request: LoggedRequest) -> None:
        """Give a request, in the order in which they ended."""
        if self._closed:
            self._closed.append(request)
        else:
            self._emit(request)

    def _give_closed(self) -> None:
        closed, self._closed = self._closed, []
        for request in closed:
            last = self._open.get(request.broker_id)
            if last is not None and last.is_before(request):  # a line of the one before came late: this one goes on
                self._open[request.broker_id], request = request, last
                request.answered = True
            self._emit(request)

    # ---- brokers -----------------------------------------------------------------------------------------------------

    def _cached(self, broker: int, rest: bytes, time_ns: int) -> bool:
        found = _CACHED.match(rest)
        if found is not None:
            (
                controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, _, _, offline, _, _,
                partition, controller, epoch, correlation,
            ) = found.groups()  # fmt: skip
        else:
            found = _FORMERLY_CACHED.match(rest)
            if found is None:
                return False
            (
                leader, isr, leader_epoch, controller_epoch, replicas, partition, controller, epoch, correlation,
            ) = found.groups()  # fmt: skip
            offline = None
            led_epoch, led_isr, partition_epoch = self._led.get(partition, (None, None, None))
            if (led_epoch, led_isr) != (leader_epoch, isr):  # without its partition epoch, an ISR has no order
                isr, replicas, partition_epoch = _UNTOLD, _UNTOLD, b"%d" % UNKNOWN
        request = self._request(6, broker, controller, epoch, correlation, time_ns)
        topic, number = _topic_partition(partition)
        told = _ids(isr), _ids(replicas)
        _keep(self._told, partition, told)
        state = _published(
            number,
            int(controller_epoch),
            int(leader),
            int(leader_epoch),
            told[0],
            int(partition_epoch),
            told[1],
            _ids(offline),
        )
        request.add(topic, state)
        request.detailed = self._detailed = True
        return True

    def _deleted(self, broker: int, rest: bytes, time_ns: int) -> bool:
        found = _DELETED.match(rest)
        if found is None:
            return False
        request = self._request(6, broker, found[2], found[3], found[4], time_ns)
        topic, number = _topic_partition(found[1])
        request.detailed = True
        isr, replicas = self._told.get(found[1], (UNKNOWN_IDS, UNKNOWN_IDS))
        request.add(topic, _published(number, request.controller_epoch, _DURING_DELETE, 0, isr, 0, replicas))
        return True

    def _added(self, broker: int, rest: bytes, time_ns: int) -> bool:
        found = _ADDED.match(rest)
        if found is None:
            return False
        request = self._request(6, broker, found[3], found[4], found[5], time_ns)
        told = int(found[1]) + int(found[2])
        if request.count or not told:
            request.detailed = True
            if request.count >= told and not self._closed:
                del self._open[broker]
                request.answered = True
                self._emit(request)
        else:
            del self._open[broker]  # at INFO the partitions are not told, and the request would seem to have none
        return True

    def _received(self, broker: int, rest: bytes, time_ns: int) -> bool:
        found = _RECEIVED.match(rest)
        if found is None:
            return self._stopped(broker, rest, time_ns)
        topic, index, *state, correlation, controller, epoch, partition = found.groups()
        _, _, leader_epoch, isr, partition_epoch, _, adding, *_ = state
        if topic is None:
            if partition is None:
                return False
            topic, number = _topic_partition(partition)
        else:
            number = int(index)
        if adding is None:  # releases before 1.0 print no partition epoch in an update
            _keep(self._led, b"%b-%d" % (topic, number), (leader_epoch, isr.replace(b" ", b""), partition_epoch))
        request = self._request(4, broker, controller, epoch, correlation, time_ns)
        if not request.detailed:  # what lines at INFO told of it stands in these as well
            request.topics, request.count = {}, 0
        request.detailed = self._detailed = True
        request.add(topic, _led(number, state))
        return True

    def _stopped(self, broker: int, rest: bytes, time_ns: int) -> bool:
        found = _STOPPED.match(rest)
        if found is None:
            return False
        leader_epoch, deletes, former_deletes, correlation, controller, epoch, partition = found.groups()
        request = self._request(5, broker, controller, epoch, correlation, time_ns)
        topic, number = _topic_partition(partition)
        delete = (deletes or former_deletes) == b"true"
        request.detailed = True
        if former_deletes is not None:
            request.deletes = delete
        request.add(topic, _stop(number, int(leader_epoch or -1), delete=delete))
        return True

    def _handling(self, broker: int, rest: bytes, time_ns: int) -> bool:
        if self._of_leader_and_isr(broker, rest, time_ns):
            return True
        found = _STOPPING.match(rest)
        if found is not None:
            self._stopping(broker, found[2], time_ns, delete=found[1] == b"true")
            return True
        return _HANDLING.match(rest) is not None and self._touched(broker, rest, time_ns)

    def _stopping(self, broker: int, partition: bytes, time_ns: int, *, delete: bool) -> None:
        """A line before 2.6: it does not name the request, so partitions that follow one another are taken as one."""
        controller, epoch = self._senders.get(broker, (-1, -1))
        request = self._open.get(broker)
        if request is None or request.correlation_id is not None or request.deletes is not delete:
            if request is not None:
                self._close(broker)
            request = self._begin(LoggedRequest(5, broker, controller, epoch, None, time_ns))
            request.detailed, request.deletes = True, delete
        topic, number = _topic_partition(partition)
        request.last_ns = time_ns
        request.add(topic, _stop(number, -1, delete=delete))

    def _touched(self, broker: int, _rest: bytes, time_ns: int) -> bool:
        request = self._open.get(broker)
        if request is not None:
            request.last_ns = time_ns
        return request is not None

    def _finished(self, broker: int, rest: bytes, time_ns: int) -> bool:
        request, found = self._open.get(broker), _FINISHED.match(rest)
        self._stray = -1, -1
        if request is None or request.api_key != ApiKey.LEADER_AND_ISR:
            return False
        if found is not None and int(found[1]) != request.correlation_id:
            self.is_shuffled |= request.time_ns == time_ns and not request.detailed
            return True
        request.last_ns = time_ns
        self._says_finished = True
        self._close(broker)
        return True

    def _of_leader_and_isr(self, broker: int, rest: bytes, time_ns: int) -> bool:
        """A line that names the LeaderAndIsr to which others belong."""
        found = _OF_LEADER_AND_ISR.match(rest)
        if found is None:
            return False
        number, sender, epoch, is_kraft, other, other_epoch, other_number = found.groups()
        sender, epoch, number = sender or other, epoch or other_epoch, number or other_number
        request = self._request(ApiKey.LEADER_AND_ISR, broker, sender, epoch, number, time_ns)
        request.of_kraft |= is_kraft is not None
        return True

    def _starts(self, broker: int, rest: bytes, time_ns: int) -> bool:
        """A line at INFO: what a broker leads or follows from now on."""
        request = self._open.get(broker)
        if request is None or request.detailed or request.api_key != ApiKey.LEADER_AND_ISR:
            if not self._detailed:
                self._stray = broker, time_ns
            return (request is not None and request.detailed) or _STARTS.match(rest) is not None
        found = _STARTS.match(rest)
        if found is None:
            return False
        is_leader, partition, leader_epoch, partition_epoch = found.groups()
        end = found.end()
        tail = rest.find(b"ISR [" if is_leader else b"Current leader is ", end, end + _LONGEST_MARK)
        role = (_LEADS if is_leader else _FOLLOWS).match(rest, tail) if tail >= 0 else None
        if role is None:
            return _TELLS_NO_LEADER.match(rest, end) is not None
        isr, adding, removing = role.groups() if is_leader else (b"", b"", b"")
        topic, number = _topic_partition(partition)
        request.last_ns = time_ns
        if request.topic_ids is not None:
            told = _OF_TOPIC.search(rest, 0, 600)
            topic_id = told[1].decode() if told else self._topic_ids.get(topic)
            if topic_id is not None:
                request.topic_ids.setdefault(topic, topic_id)
        state = messages.LeaderAndIsrPartitionState(
            partition_index=number,
            controller_epoch=request.controller_epoch,
            leader=broker if is_leader else int(role[1]),
            leader_epoch=int(leader_epoch),
            isr=_ids(isr) if is_leader else UNKNOWN_IDS,
            partition_epoch=UNKNOWN if partition_epoch is None else int(partition_epoch),
            replicas=UNKNOWN_IDS,
            adding_replicas=_ids(adding),
            removing_replicas=_ids(removing),
            is_new=leader_epoch == b"0" == partition_epoch,
        )
        request.add(topic, state)
        return True

    # ---- brokers in KRaft, which take changes of the metadata log

    def _transitioning(self, broker: int, rest: bytes, time_ns: int) -> bool:
        """A line before those of the partitions that a broker leads, or follows, from now on."""
        if _TRANSITIONING.match(rest) is None:
            return False
        if broker in self._open:
            self._close(broker)
        self._of_metadata(broker, time_ns)
        return True

    def _of_metadata(self, broker: int, time_ns: int) -> LoggedRequest:
        request = LoggedRequest(ApiKey.LEADER_AND_ISR, broker, -1, -1, None, time_ns)
        request.topic_ids = {}
        return self._begin(request)

    def _creating(self, broker: int, rest: bytes, time_ns: int) -> bool:
        request, found = self._open.get(broker), _CREATING.match(rest)
        if found is None:
            return False
        if request is not None and request.topic_ids is not None:
            if request.time_ns == time_ns or found[1] not in request.topic_ids:
                request.topic_ids[found[1]] = found[2].decode()
            request.last_ns = time_ns
        _keep(self._topic_ids, found[1], found[2].decode(), _MOST_TOPICS)
        return True

    def _skipped(self, broker: int, rest: bytes, time_ns: int) -> bool:
        """A line of a partition whose leader stays, with its whole state."""
        found = _SKIPPED.match(rest)
        if found is None:
            return False
        topic_id, topic, number, *state = found.groups()
        request = self._open.get(broker)
        if request is None or request.api_key != ApiKey.LEADER_AND_ISR:
            if request is not None:
                self._close(broker)
            request = self._of_metadata(broker, time_ns)
        request.last_ns = time_ns
        if request.detailed:
            return True
        if request.topic_ids is not None:
            request.topic_ids[topic] = topic_id.decode()
        request.add(topic, _led(int(number), state))
        return True

    def _ignoring(self, broker: int, rest: bytes, time_ns: int) -> bool:
        found = _IGNORING.match(rest)
        if found is None:
            return False
        name, controller, correlation, epoch, partition, why, leader_epoch, old_epoch = found.groups()
        api_key = {b"LeaderAndIsr": 4, b"StopReplica": 5, b"UpdateMetadata": 6}.get(name)
        if api_key is None:
            return False
        request = self._request(api_key, broker, controller, epoch or old_epoch, correlation, time_ns)
        if old_epoch is not None:
            request.error_code = _STALE_CONTROLLER_EPOCH
            self._close(broker)
            return True
        topic, number = _topic_partition(partition)
        code = _STALE_CONTROLLER_EPOCH if leader_epoch and api_key == ApiKey.LEADER_AND_ISR else _FENCED_LEADER_EPOCH
        if why == b"as":
            code = _UNKNOWN_TOPIC
        request.errors.append((topic, number, code))
        return True

    # ---- controllers -------------------------------------------------------------------------------------------------

    def _decided(self, controller: int, epoch: int | None, rest: bytes, time_ns: int) -> bool:
        """A line of a controller: what it decided."""
        begin = rest[:8]
        if epoch is not None:
            self._epochs[controller] = epoch
        if begin == b"Partitio" and (found := _CHANGED.match(rest)):
            partition, leader, isr, _, leader_epoch, partition_epoch, controller_epoch = found.groups()
        elif begin in (b"Changed ", b"ISR for ") and (found := _ELECTED.match(rest)):
            changed, grown, leader, leader_epoch, isr, _, partition_epoch = found.groups()
            partition, controller_epoch = changed or grown, None
            if told := isr.count(b"("):
                brokers = _BROKER_ID.findall(isr)
                if len(brokers) != told:
                    return False
                isr = b",".join(brokers)
        elif begin == b"Changed " and (found := _ASSIGNED.match(rest)):
            self._replicas.pop(found[1], None)
            _keep(self._replicas, found[1], _ids(found[2]))
            return True
        elif begin == b"Sent Lea" and (found := _REASSIGNED.match(rest)):
            leader, isr, _, leader_epoch, partition_epoch, controller_epoch, replicas, partition = found.groups()
            self._replicas[partition] = _ids(replicas)
        elif begin == b"Sending ":
            return True  # what it sends brokers tell
        elif found := _BECAME.match(rest):
            self._epochs[controller] = int(found[1])
            self._leading = {controller}
            self._decision(controller, int(found[1]), time_ns, [])
            return True
        elif begin[:1] in b"BRr" and (found := _SERVES.match(rest)):
            self._epochs[controller] = int(found[1])
            return True
        elif begin in (b"Newly ad", b"Currentl") and (found := _LIVE.match(rest)):
            known = self._epochs.get(controller)
            if known is not None and not self._tells_broker_epochs:
                gone, live = _ids(found[1]), _ids(found[2] or found[3])
                if gone and controller not in self._listing:  # they were alive until now
                    self._decision(controller, known, time_ns - 1_000_000, sorted([*live, *gone]))
                self._listing.add(controller)
                self._decision(controller, known, time_ns, live)
            return True
        elif begin in (b"Initiali", b"Updated ") and (found := _BROKER_EPOCHS.match(rest)):
            self._tells_broker_epochs = True
            self._registered(controller, found[1], time_ns, is_first=begin == b"Initiali")
            return True
        elif begin == b"Deletion" and (found := _DELETION.match(rest)):
            self._deletes(controller, found[1], time_ns, is_done=found[2][:1] == b"s")
            return True
        elif begin in (b"New topi", b"New part"):
            found_new = _NEW_PARTITION.findall(rest)
            if not found_new or rest.count(b"(") != rest.count(b")"):
                return False  # perhaps the line was cut
            for topic, number, replicas in found_new:
                self._partitions.setdefault(topic, {})[int(number)] = _ids(replicas)
            while len(self._partitions) > _MOST_TOPICS:
                self._partitions.popitem(last=False)
            return True
        else:
            return self._happened(controller, begin, rest, time_ns)
        known = self._epochs.get(controller)
        if self._detailed or known is None:
            return True  # lines at TRACE tell the same, as it was sent
        topic, number = _topic_partition(partition)
        state = _published(
            number,
            known if controller_epoch is None else int(controller_epoch),
            int(leader),
            int(leader_epoch),
            _ids(isr),
            int(partition_epoch),
            self._replicas.get(partition, UNKNOWN_IDS),
        )
        self._decision(controller, known, time_ns, [], topic, state)
        return True

    def _happened(self, controller: int, begin: bytes, rest: bytes, time_ns: int) -> bool:
        """A line that tells of no request: a failed connection, a resignation, a deletion or reassignment."""
        if begin in (b"fails to", b"'s conne"):
            found = _TO_BROKER.search(rest, max(rest.rfind(b" to broker "), 0))
            if found is not None:
                self._event("connection failed", controller, time_ns, broker=int(found[1]))
        elif begin in (b"Resigned", b"Broker %d" % controller) and _RESIGNED.match(rest):
            if controller in self._leading:  # each broker that ends says so
                self._leading.clear()
                self._event("resigned", controller, time_ns)
        elif begin == b"Halted d" and (found := _HALTED.match(rest)):
            for topic in found[1].split(b","):
                self._event("deletion waits", controller, time_ns, topic=topic)
        elif begin == b"Handling" and (found := _TAKEN_UP.match(rest)):
            topic, number = _topic_partition(found[1])
            self._event("reassignment taken up", controller, time_ns, topic=topic, partition=number)
        else:
            return begin == b"Controll"  # what it failed to do, and in old releases whom it elected
        return True

    def _event(
        self,
        kind: str,
        controller: int,
        time_ns: int,
        broker: int | None = None,
        topic: bytes | None = None,
        partition: int | None = None,
    ) -> None:
        key = kind, controller, broker, topic, partition
        event = self._events.get(key)
        if event is not None and abs(time_ns - event.last_ns) <= _ONE_EVENT_NS:
            event.last_ns = max(time_ns, event.last_ns)
            event.count += 1
        elif self._tell is not None:
            if len(self._events) >= _MOST_EVENTS:
                self._events.clear()
            name = None if topic is None else topic.decode("utf-8", "replace")
            self._events[key] = LoggedEvent(kind, controller, broker, name, partition, time_ns, time_ns)
            self._tell(self._events[key])

    def _registered(self, controller: int, pairs: bytes, time_ns: int, *, is_first: bool) -> None:
        """Give the updates with which a controller tells all live brokers which are alive."""
        known = self._epochs.get(controller)
        if known is None:
            return
        epochs = {int(broker): int(epoch) for broker, epoch in _PAIR.findall(pairs)}
        before = self._broker_epochs.get(controller, {} if is_first else epochs)  # a log may begin in the middle
        for broker, epoch in epochs.items():
            # A broker that has registered is told everything first, and then with the others who is alive.
            for step in range(1 if before.get(broker) == epoch else 2):
                later_ns = time_ns + step * 1_000_000
                request = LoggedRequest(ApiKey.UPDATE_METADATA, broker, controller, known, None, later_ns)
                request.live_brokers = sorted(epochs)
                request.broker_epoch = epoch
                self._give(request)
        self._broker_epochs[controller] = epochs

    def _deletes(self, controller: int, topic: bytes, time_ns: int, *, is_done: bool) -> None:
        """Give the deletion of a topic: it is completed when all holders have answered that they deleted theirs."""
        known = self._epochs.get(controller)
        partitions = self._partitions.get(topic)
        if known is None or self._detailed or not partitions:
            if is_done and not self._detailed:
                self._event("topic deleted", controller, time_ns, topic=topic)
            return
        update = LoggedRequest(ApiKey.UPDATE_METADATA, controller, controller, known, None, time_ns)
        for number, replicas in partitions.items():
            update.add(topic, _published(number, known, _DURING_DELETE, 0, UNKNOWN_IDS, 0, replicas))
        self._give(update)
        if not is_done:
            return
        del self._partitions[topic]
        for broker in sorted({broker for replicas in partitions.values() for broker in replicas}):
            stop = LoggedRequest(ApiKey.STOP_REPLICA, broker, controller, known, None, time_ns)
            for number, replicas in partitions.items():
                if broker in replicas:
                    stop.add(topic, _stop(number, _DURING_DELETE, delete=True))
            self._give(stop)

    def _decision(
        self, controller: int, epoch: int, time_ns: int, live: list[int], topic: bytes = b"", state: Any = None
    ) -> None:
        """Give a decision, as an update that the controller's own broker knows from now on."""
        self._dated(controller, time_ns, is_broker=False)
        request = LoggedRequest(ApiKey.UPDATE_METADATA, controller, controller, epoch, None, time_ns)
        if state is not None:
            request.add(topic, state)
        request.live_brokers = live
        self._give(request)


def _keep(kept: OrderedDict[bytes, Any], name: bytes, value: Any, most: int = _MOST_REMEMBERED) -> None:
    """Remember a value; what was remembered first goes where there are too many."""
    kept[name] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _published(
    number: int,
    controller_epoch: int,
    leader: int,
    leader_epoch: int,
    isr: list[int],
    partition_epoch: int,
    replicas: list[int],
    offline: Sequence[int] = (),
) -> messages.UpdateMetadataPartitionState:
    return messages.UpdateMetadataPartitionState(
        partition_index=number,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=isr,
        zk_version=partition_epoch,
        replicas=replicas,
        offline_replicas=offline,
    )


def _led(number: int, state: Sequence[Any]) -> messages.LeaderAndIsrPartitionState:
    """A partition's state out of the parts of ``_STATE``."""
    controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, adding, removing, _, *told = state
    return messages.LeaderAndIsrPartitionState(
        partition_index=number,
        controller_epoch=int(controller_epoch),
        leader=int(leader),
        leader_epoch=int(leader_epoch),
        isr=_ids(isr),
        partition_epoch=int(partition_epoch),
        replicas=_ids(replicas),
        adding_replicas=_ids(adding),
        removing_replicas=_ids(removing),
        is_new=told[0] == b"true",
        leader_recovery_state=int(told[1] == b"1"),
    )


def _stop(number: int, epoch: int, *, delete: bool) -> messages.StopReplicaPartitionState:
    return messages.StopReplicaPartitionState(partition_index=number, leader_epoch=epoch, delete_partition=delete)


_KNOWN_IDS: dict[bytes | None, list[int]] = {}


def _ids(text: bytes | None) -> list[int]:
    """The ids in a text, or in a part of a line that it may lack."""
    found = _KNOWN_IDS.get(text)
    if found is None:
        found = [int(part) for part in (text or b"").replace(b" ", b"").split(b",") if part not in (b"", b"-")]
        if len(_KNOWN_IDS) > 10_000:
            _KNOWN_IDS.clear()
        _KNOWN_IDS[text] = found
    return found


def _topic_partition(text: bytes) -> tuple[bytes, int]:
    if text[:1] == b"[":
        topic, _, number = text[1:].partition(b"]")[0].rpartition(b",")
    else:
        topic, _, number = text.rpartition(b"-")
    return topic, int(number)
