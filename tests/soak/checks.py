"""What must hold at the end of a soak; each check gives the lines of what does not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from channel.zookeeper import znodes
from kproto.api import CONTROL_APIS, ApiKey
from kproto.capture import frames
from kproto.messages import MetadataRequest
from kproto.tables.stored import current_tables, table_dataset
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .processes import Program, Soak

__all__ = [
    "Journal", "Resources", "differing_brokers", "findings", "log_lines", "lost_pieces", "miscounted",
    "missing_frames", "tables_differ", "unsettled",
]  # fmt: skip

_DELETED: Final = -2
"""The leader of a partition whose topic is being deleted."""


class Journal:
    """The control requests that the brokers answered, in their order at each broker, as ``--requests`` tells.

    Args:
        soak: Whose brokers.
    """

    def __init__(self, soak: Soak) -> None:
        self.of_broker: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for group in soak.groups:
            for line in group.lines():
                if line.get("api_key") in CONTROL_APIS and line.get("request") is not None:
                    self.of_broker[line["broker_id"]].append(line)

    def __len__(self) -> int:
        return sum(map(len, self.of_broker.values()))

    @property
    def controller_epochs(self) -> set[int]:
        """Of every request that a broker accepted."""
        return {line["request"]["controllerEpoch"] for lines in self.of_broker.values() for line in accepted(lines)}

    def out_of_order(self) -> Iterator[str]:
        """What a broker accepted in another order than it was decided, or twice with different contents."""
        for broker_id, lines in sorted(self.of_broker.items()):
            newest, told = -1, _Told()
            registration = None
            for line in _in_order(lines):
                request = line["request"]
                if request["brokerEpoch"] != registration:
                    registration, told = request["brokerEpoch"], _Told()
                epoch = request["controllerEpoch"]
                if epoch < newest:
                    yield f"broker {broker_id} accepted controller epoch {epoch} after {newest}"
                if epoch > newest:
                    newest, told = epoch, _Told()
                for wrong in told.add(line["api_key"], request):
                    yield f"broker {broker_id}: {wrong}"

    def sequences_differ(self) -> Iterator[str]:
        """Where brokers that one controller led were told metadata in different orders, or not all.

        Those that it led throughout were told the same from the beginning, and as long as it led; those that came
        later under the last controller, the same but for the updates of their start.
        """
        last = max(self.controller_epochs)
        in_order = {broker_id: _in_order(lines) for broker_id, lines in self.of_broker.items()}
        for epoch in sorted(self.controller_epochs):
            told: dict[int, list[str]] = {}
            steady: dict[int, list[str]] = {}
            for broker_id, lines in in_order.items():
                own = [line["request"] for line in lines if line["request"]["controllerEpoch"] == epoch]
                if own:
                    latest = own[-1]["brokerEpoch"]
                    told[broker_id] = _distinct(
                        _canonical(r) for r in own if "liveBrokers" in r and r["brokerEpoch"] == latest
                    )
                    if latest == own[0]["brokerEpoch"] and _was_led_before(lines, latest, epoch):
                        steady[broker_id] = told[broker_id]
            longest = max((steady or (told if epoch == last else {})).values(), key=len, default=[])
            for broker_id, sequence in sorted(steady.items()):
                if sequence != longest[: len(sequence)]:
                    at = next(i for i, (a, b) in enumerate(zip(sequence, longest, strict=False)) if a != b)
                    yield f"broker {broker_id}, controller epoch {epoch}: update {at} of {len(sequence)} differs"
            if epoch != last:
                continue
            for broker_id, sequence in sorted(told.items()):
                pairs = zip(reversed(sequence), reversed(longest), strict=False)
                same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(sequence), len(longest)))
                if same < len(sequence) - (0 if broker_id in steady else _AT_START):
                    yield (
                        f"broker {broker_id}: of its last {len(sequence)} updates of controller epoch {epoch} only the "
                        f"last {same} are those of others, who have {len(longest)}"
                    )


_AT_START: Final = 4
"""How many updates a broker gets at its start, which others get in another form."""


class _Told:
    """What a registration of a broker was told by one controller."""

    def __init__(self) -> None:
        self.newest: dict[tuple[int, str, int], tuple[tuple[int, int], str]] = {}

    def add(self, api_key: int, request: dict[str, Any]) -> Iterator[str]:
        if api_key == ApiKey.STOP_REPLICA:
            return
        for topic in request["topicStates"]:
            for state in topic["partitionStates"]:
                if state["leader"] == _DELETED:
                    continue
                key = (api_key, topic["topicName"], state["partitionIndex"])
                now = state["leaderEpoch"], state.get("zkVersion", state.get("partitionEpoch", 0))
                told = json.dumps([state["leader"], state["isr"], state["replicas"]])
                before, told_before = self.newest.get(key, (now, told))
                name = f"{topic['topicName']}-{state['partitionIndex']}"
                if now < before:
                    yield f"epochs of {name} went from {before} to {now} in api {api_key}"
                if now == before and told != told_before:
                    yield f"{name} came with epochs {now} and {told_before}, then {told}, in api {api_key}"
                self.newest[key] = now, told


def accepted(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The requests that a broker accepted."""
    return (line for line in lines if line["response"] is not None and line["response"]["errorCode"] == 0)


def _in_order(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The accepted requests without late copies.

    A request whose answer does not come in time is sent again on another connection. What is still on the way on the
    former one may reach the broker after it, and after newer requests; brokers of Kafka take it, too.
    """
    found: list[dict[str, Any]] = []
    taken: dict[tuple[int, ...], list[dict[str, Any]]] = defaultdict(list)
    for line in accepted(lines):
        request = line["request"]
        of_sender = taken[request["controllerId"], request["controllerEpoch"], request["brokerEpoch"]]
        if of_sender and line["correlation_id"] < of_sender[-1]["correlation_id"]:
            body = _canonical(request)
            if any(body == _canonical(each["request"]) for each in of_sender if each["api_key"] == line["api_key"]):
                continue
        of_sender.append(line)
        found.append(line)
    return found


def _was_led_before(lines: list[dict[str, Any]], registration: int, epoch: int) -> bool:
    """Whether a registration had accepted requests of an earlier controller."""
    earlier = [
        line for line in accepted(lines)
        if line["request"]["brokerEpoch"] == registration and line["request"]["controllerEpoch"] < epoch
    ]  # fmt: skip
    return bool(earlier)


def _canonical(request: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in request.items() if name != "brokerEpoch"}, sort_keys=True)


def _distinct(texts: Iterator[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        if not found or found[-1] != text:
            found.append(text)
    return found


# ---- the cluster at the end ------------------------------------------------------------------------------------------


States = dict[TopicPartition, tuple[int, int, tuple[int, ...]]]
"""Leader, leader epoch and ISR of each partition."""


def cluster_states(soak: Soak) -> States:
    """The states in ZooKeeper."""
    names = soak.session.children("/brokers/topics")
    topics = {name: znodes.decode_topic(name, soak.session.get(znodes.topic_path(name))[0]) for name in names}
    tps = [TopicPartition(name, p) for name, topic in topics.items() for p in topic.partitions]
    found: States = {}
    for tp, node in zip(tps, soak.session.get_many([znodes.partition_state_path(tp) for tp in tps]), strict=True):
        if node is None:
            found[tp] = (-1, -1, ())
        else:
            state = znodes.decode_partition_state(tp, node[0], node[1].version).leader_and_isr
            found[tp] = state.leader, state.leader_epoch, tuple(state.isr)
    return found


def unsettled(soak: Soak) -> Iterator[str]:
    """What keeps the cluster from rest: partitions without a leader or a whole ISR, work, brokers that are away."""
    for name in soak.session.children("/brokers/topics"):
        topic = znodes.decode_topic(name, soak.session.get(znodes.topic_path(name))[0])
        tps = [TopicPartition(name, p) for p in topic.partitions]
        nodes = soak.session.get_many([znodes.partition_state_path(tp) for tp in tps])
        for tp, node in zip(tps, nodes, strict=True):
            replicas = topic.partitions[tp.partition].replicas
            if node is None:
                yield f"{tp} has no state"
            else:
                state = znodes.decode_partition_state(tp, node[0], node[1].version).leader_and_isr
                if state.leader < 0 or set(state.isr) != set(replicas):
                    yield f"{tp} has leader {state.leader} and ISR {state.isr} of {replicas}"
    for name in soak.session.children(znodes.ADMIN_DELETE_TOPICS):
        yield f"{name} is being deleted"
    for path in znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_ELECTION:
        if soak.session.exists(path) is not None:
            yield f"{path} is there: {soak.session.get(path)[0]!r}"
    if away := {*soak.ids} - soak.registered():
        yield f"brokers {sorted(away)} are not registered"


def registered_again(soak: Soak) -> set[int]:
    """The brokers whose process has had several registrations.

    While it had none, it was not told of deletions, and what it is told later does not name the topics that are gone:
    such a broker keeps them in its metadata, as Kafka's own does, until its process ends.
    """
    journal = Journal(soak)
    return {i for i, lines in journal.of_broker.items() if len({r["request"].get("brokerEpoch") for r in lines}) > 1}


def differing_brokers(soak: Soak) -> Iterator[str]:
    """The brokers whose metadata are not those of ZooKeeper."""
    expected = cluster_states(soak)
    topics = {tp.topic for tp in expected}
    excused: set[int] | None = None
    for broker_id in soak.ids:
        answer = soak.ask(broker_id, MetadataRequest(topics=None), 9)
        found = {
            TopicPartition(topic.name, p.partition_index): (p.leader_id, p.leader_epoch, tuple(p.isr_nodes))
            for topic in answer.topics
            for p in topic.partitions
        }
        wrong = [tp for tp in expected.keys() | found.keys() if expected.get(tp) != found.get(tp)]
        if wrong and not any(tp.topic in topics for tp in wrong):
            excused = registered_again(soak) if excused is None else excused
            if broker_id in excused:
                continue
        if wrong:
            tp = min(wrong)
            yield (
                f"broker {broker_id} differs from ZooKeeper in {len(wrong)} partitions; {tp} is {found.get(tp)} "
                f"there and {expected.get(tp)} in ZooKeeper"
            )


# ---- recordings and tables -------------------------------------------------------------------------------------------

_COLUMNS: Final = ("broker_id", "api_key", "correlation_id", "controller_id", "controller_epoch", "broker_epoch",
                   "error_code")  # fmt: skip


def requests_of(tables: Any) -> Counter[tuple[Any, ...]]:
    """The answered requests of the table."""
    columns = [tables.column(name).to_pylist() for name in _COLUMNS]
    return Counter(row for row in zip(*columns, strict=True) if row[-1] is not None)


def missing_frames(soak: Soak, journal: Journal, recorded: dict[str, Any]) -> Iterator[str]:
    """What brokers answered and no recording has, and the other way round."""
    answered: Counter[tuple[Any, ...]] = Counter()
    in_hole: Counter[tuple[Any, ...]] = Counter()
    for line in (line for lines in journal.of_broker.values() for line in lines if line["response"] is not None):
        key = (
            line["broker_id"], line["api_key"], line["correlation_id"], line["request"]["controllerId"],
            line["request"]["controllerEpoch"], line["request"].get("brokerEpoch", -1), line["response"]["errorCode"],
        )  # fmt: skip
        answered[key] += 1
        in_hole[key] += soak.is_in_hole(line["broker_id"], line["time"])
    found = requests_of(recorded["requests"])
    # A kill or a reset may come between a broker's answer and the tap, or between the answer and the journal's line.
    lost, unknown = answered - found, found - answered
    unanswered = Counter(_unanswered(recorded["requests"]))
    truly = [key for key in lost.elements() if not _take(unanswered, key[:-1]) and not _take(in_hole, key)]
    if truly:
        yield f"{len(truly)} requests that brokers answered are in no recording, as {truly[0]}"
    kills = sum(group.kills for group in soak.groups)
    if unknown.total() > 10 * kills:
        yield f"{unknown.total()} recorded answers are in no journal, as {next(iter(unknown))}; {kills} kills"
    bad = recorded["bad_inputs"].to_pylist()
    if bad:
        yield f"{len(bad)} bad inputs, as {bad[0]}"


def _unanswered(requests: Any) -> Iterator[tuple[Any, ...]]:
    columns = [requests.column(name).to_pylist() for name in _COLUMNS]
    return (row[:-1] for row in zip(*columns, strict=True) if row[-1] is None)


def _take(counter: Counter[tuple[Any, ...]], key: tuple[Any, ...]) -> bool:
    if counter[key] <= 0:
        return False
    counter[key] -= 1
    return True


def _listeners(brokers: Any) -> set[tuple[Any, ...]]:
    return set(zip(*(brokers.column(name).to_pylist() for name in ("broker_id", "host", "port")), strict=True))


def tables_differ(soak: Soak, recorded: dict[str, Any]) -> Iterator[str]:
    """Where the tables of ``analyze --follow`` are not those of the recordings."""
    run = current_tables(soak.tables)
    stored = {name: table_dataset(run, name).to_table() for name in recorded}
    for name, table in recorded.items():
        if name == "brokers":  # on disk each recording tells its own
            listeners = [_listeners(each) for each in (stored[name], table)]
            if listeners[0] != listeners[1]:
                yield f"brokers has {len(listeners[0])} listeners on disk and {len(listeners[1])} of the recordings"
        elif name != "captures" and stored[name].num_rows != table.num_rows:  # on disk each file has a row there
            yield f"{name} has {stored[name].num_rows} rows on disk and {table.num_rows} of the recordings"
    if requests_of(stored["requests"]) != requests_of(recorded["requests"]):
        yield "the requests on disk are others than those of the recordings"


def lost_pieces(tap: Program) -> int:
    """How many pieces a tap tells at its end that its recording does not hold."""
    found = re.findall(r"the recording is incomplete, ([\d,]+) pieces? could not be written", tap.log.read_text())
    return int(found[-1].replace(",", "")) if found else 0


def has_gap(soak: Soak, tap: Program) -> bool:
    """Whether a connection goes on behind a hole in a tap's recording: others leave no gap."""
    holes = re.findall(
        r"^recording to \S+/(\S+)\.part has ended.*\n(?:.*\n)*?the recording goes on in \S+/(\S+)\.part;",
        tap.log.read_text(encoding="utf-8"), re.MULTILINE,
    )  # fmt: skip
    return any(
        _connections(soak.recordings / before) & _connections(soak.recordings / after) for before, after in holes
    )


def _connections(file: Path) -> set[tuple[Any, Any]]:
    if not file.exists():
        return set()
    return {(each.connection.client, each.connection.server) for each in frames(file, apis=None)}


def miscounted(soak: Soak, codes: dict[str, int | None]) -> Iterator[str]:
    """Where a tap does not tell of what its full disk could not hold, or tells of more than that."""
    full = {hole.tap for hole in soak.disks.holes}
    for tap in soak.taps:
        lost = lost_pieces(tap)
        if codes[tap.name] != (2 if lost else 0):
            yield f"{tap.name} ended with {codes[tap.name]} and told of {lost} missing pieces"
        if lost and tap.name not in full:
            yield f"{tap.name} told of {lost} missing pieces, and its disk was never full"


# ---- findings and logs -----------------------------------------------------------------------------------------------


def findings(soak: Soak) -> list[dict[str, Any]]:
    """What the doctor finds in the tables."""
    done = subprocess.run(
        [sys.executable, "-m", "kproto", "doctor", str(soak.tables), "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def log_lines(program: Program, explained: list[re.Pattern[str]]) -> Iterator[str]:
    """The lines of a log that no pattern explains."""
    for line in program.log.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            if entry["level"] in ("INFO", "DEBUG"):
                continue
            line = f"{entry['level']} {entry['message']}"
        if line and not any(pattern.search(line) for pattern in explained):
            yield f"{program.name}: {line[:300]}"


def resources(program: Program) -> dict[str, int]:
    """Memory in KiB, threads and descriptors of a process."""
    status = Path(f"/proc/{program.pid}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "memory": int(fields["VmRSS"].split()[0]),
        "threads": int(fields["Threads"]),
        "files": len(list(Path(f"/proc/{program.pid}/fd").iterdir())),
    }


class Resources:
    """Whether processes take more and more; one that a fault ends is followed by another, which is looked at anew.

    Args:
        programs: Whose processes.
        connections: How many connections a controller may get when it begins to lead.
        warm_s: How long after its start the first look at a process is taken.
    """

    def __init__(self, programs: Iterable[Program], connections: int, warm_s: float = 15) -> None:
        self._programs, self._connections, self._warm_s = list(programs), connections, warm_s
        self._first: dict[int, tuple[float, dict[str, int]]] = {}

    def look(self) -> None:
        """Take the first look at each process that is warm now."""
        now = time.monotonic()
        for program in self._programs:
            if program.is_running and program.pid not in self._first and now - program.started_at > self._warm_s:
                self._first[program.pid] = now, resources(program)

    def compared(self) -> Iterator[tuple[str, list[str]]]:
        """For each program what its process takes now, and what of it has grown beyond a few caches."""
        for program in self._programs:
            if not program.is_running or program.pid not in self._first:
                yield f"{program.name}: its process is too young to be compared", []
                continue
            looked_at, before = self._first[program.pid]
            now = resources(program)
            leads = self._connections if program.name.startswith("controller-") else 0
            limits = {"memory": before["memory"] * 1.5 + 40_000, "threads": before["threads"] + 4,
                      "files": before["files"] + 24 + leads}  # fmt: skip
            took = ", ".join(f"{what} {before[what]:,} to {now[what]:,}" for what in limits)
            grown = [
                f"{program.name}: {what} went from {before[what]} to {now[what]}"
                for what, most in limits.items()
                if now[what] > most
            ]
            yield f"{program.name} in {time.monotonic() - looked_at:.0f} s: {took}", grown
