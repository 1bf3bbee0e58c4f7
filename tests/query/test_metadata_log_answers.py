"""The questions of kproto query, answered from KRaft's metadata log, equal the fold of Kafka's own dump."""

from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows as lines
from commands import run_kproto as kproto
from kraft_runs import MADE, NODES, RUNS, capture, metadata, truth
from kraft_truth import Truth, folded
from metadata_batches import batch_of

from kproto.metadata_log.batches import encode_batch
from kproto.metadata_log.files import read
from kproto.metadata_log.finding import find
from kproto.metadata_log.records import (
    BrokerRegistrationChangeRecord,
    LeaderChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    SnapshotFooterRecord,
    TopicRecord,
    encode_record,
)

pytestmark = pytest.mark.usefixtures("read_once")

CAPTURE, BOTH = -1, -2
"""In place of a node: the capture alone, and the capture with the files of the node that ended first."""

OF_RUNS = [
    pytest.param(
        run, node, marks=[] if (run, node) in ((RUNS[0], BOTH), (RUNS[1], NODES[RUNS[1]][0])) else pytest.mark.slow
    )
    for run in RUNS
    for node in (None, *NODES[run], CAPTURE, BOTH)
]
OF_MADE = [pytest.param(run, None, marks=[] if run == "kraft-3.9-m" else pytest.mark.slow) for run in MADE]
SOURCES = [*OF_RUNS, *OF_MADE]


def places(run: str, node: int | None) -> tuple[str, ...]:
    """What a source names on the command line."""
    if node == CAPTURE:
        return (str(capture(run)),)
    return (str(capture(run)), str(metadata(run, 0))) if node == BOTH else (str(metadata(run, node)),)


def answer(place: Path | tuple[str, ...], question: str, *more: str) -> list[dict[str, Any]]:
    return lines("query", *(place if isinstance(place, tuple) else [str(place)]), question, *more)


def ms(text: str | None) -> int | None:
    if text is None:
        return None
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def expected(run: str, node: int | None) -> Truth:
    """What the dump says, as far as the node's log goes; nobody fetched the last record of all any more."""
    if node in (CAPTURE, BOTH):
        rows = truth(run)
        return folded(rows[:-1] if rows[-1]["type"] == "LeaderChange" else rows)
    last = read(find([metadata(run, node)])[0]).batches[-1].last_offset
    return folded(row for row in truth(run) if row["offset"] <= last)


@pytest.mark.parametrize(("run", "node"), SOURCES)
def test_leaders(run: str, node: int | None) -> None:
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for row in answer(places(run, node), "leader"):
        reign = [
            row["leader"],
            row["leader_epoch"],
            row["controller_epoch"],
            ms(row["valid_from"]),
            ms(row["valid_to"]),
        ]
        found[row["topic"], row["partition"]].append(reign)
    wanted: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for (topic, _topic_id, partition), reigns in expected(run, node).leaders.items():
        wanted[topic, partition] += reigns
    assert {key: sorted(rows, key=str) for key, rows in found.items()} == {
        key: sorted(rows, key=str) for key, rows in wanted.items()
    }


@pytest.mark.parametrize(("run", "node"), SOURCES)
def test_in_sync_replicas(run: str, node: int | None) -> None:
    found = {
        (row["topic"], row["partition"], ms(row["ts"]), tuple(sorted(row["removed"])), tuple(sorted(row["added"])))
        for row in answer(places(run, node), "isr")
    }
    wanted = {
        (topic, partition, at, tuple(sorted(before - now)), tuple(sorted(now - before)))
        for (topic, _topic_id, partition), isrs in expected(run, node).isrs.items()
        for (before, _at), (now, at) in pairwise(isrs)
    }
    assert found == wanted


@pytest.mark.parametrize(("run", "node"), SOURCES)
def test_starts_of_brokers_and_controllers(run: str, node: int | None) -> None:
    wanted = expected(run, node)
    starts: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for row in answer(places(run, node), "restarts"):
        starts[row["broker_id"]].append((row["broker_epoch"], ms(row["valid_from"])))
        assert row["mode"] == "KRaft"
        assert row["shown_by"] == "registered with a new incarnation id"
    assert starts == wanted.starts
    ruled = [row for row in answer(places(run, node), "controllers") if row["valid_from"] is not None]
    assert [(row["controller_epoch"], ms(row["valid_from"])) for row in ruled] == [
        (epoch, at) for epoch, _node, at in wanted.controllers
    ]
    for row, (_epoch, leader, _at) in zip(ruled, wanted.controllers, strict=True):
        assert leader in (None, row["controller_id"])


@pytest.mark.parametrize(("run", "node"), SOURCES)
def test_unclean_elections_are_all_that_the_doctor_wakes_people_for(run: str, node: int | None) -> None:
    found = lines("doctor", *places(run, node))
    unclean = expected(run, node).unclean
    assert {(row["topic"], row["partition"]) for row in found if row["rule"] == "KP011"} == {
        (topic, partition) for topic, partition, _epoch in unclean
    }
    assert sum(row["rule"] == "KP011" for row in found) == len(unclean)
    assert unclean or run == "kraft-4.1-d"
    assert {row["rule"] for row in found if row["severity"] != "note"} <= {"KP010", "KP011"}  # and what had no leader


@pytest.mark.slow
def test_a_migration_is_one_story() -> None:
    """ZooKeeper's controllers, then KRaft's, which count their epochs anew and tell ZooKeeper's brokers of another."""
    place = (str(capture("kraft-3.9-m")),)
    rows = answer(place, "controllers")
    ruled = [(row["mode"], row["controller_id"], row["controller_epoch"]) for row in rows]
    assert ruled == [("ZooKeeper", 1, 1), ("ZooKeeper", 0, 2), ("KRaft", 3000, 1), ("KRaft", 3000, 2)]
    assert [row["valid_to"] for row in rows[:-1]] == [row["valid_from"] for row in rows[1:]]
    assert rows[2]["why"] == "took over from ZooKeeper; tells its brokers as epoch 3"
    assert rows[3]["why"] == "controller 3000 was started again"
    led = [(row["leader_epoch"], row["controller_id"], row["controller_epoch"]) for row in
           answer(place, "leader", "--partition", "orders-1")]  # fmt: skip
    assert led == [(0, 1, 1), (1, 0, 2), (2, 0, 2), (3, 3000, 1), (4, 3000, 1), (5, 3000, 1), (6, 3000, 2)]
    modes = [(row["broker_id"], row["mode"]) for row in answer(place, "restarts")]
    assert modes == sorted(modes, key=lambda row: (row[0], row[1] == "KRaft"))
    log_alone = answer(metadata("kraft-3.9-m", 3000), "leader")
    both = answer((*place, str(metadata("kraft-3.9-m", 3000))), "leader")
    newest = {(row["topic"], row["partition"]): row["leader_epoch"] for row in log_alone}
    assert {(row["topic"], row["partition"]): row["leader_epoch"] for row in both}.items() >= newest.items()
    assert both == answer(place, "leader")


def test_how_a_broker_left_is_told_by_what_shows_it() -> None:
    """Broker 0 was killed, while it led, and stopped, while it led nothing: only its heartbeats tell of the second."""
    log, traffic = str(metadata("kraft-3.9-m", 3000)), str(capture("kraft-3.9-m"))
    for place, first, second in [
        ((log,), "killed, hung or cut off (no controlled shutdown)", None),
        ((traffic,), "session timed out: no heartbeat for 9.0 s, and none came after", "a controlled shutdown"),
        ((traffic, log), "session timed out: no heartbeat for 9.0 s, and none came after", "a controlled shutdown"),
    ]:
        rows = answer(place, "restarts", "--broker", "0")
        assert [row["left_how"] for row in rows if row["mode"] == "KRaft"] == [first, second, "a controlled shutdown"]


@pytest.mark.slow
def test_a_capture_that_begins_late_says_nothing_that_the_whole_does_not_say() -> None:
    """What comes before a snapshot is counted backwards from it; with a log it is as the whole."""
    place = (str(capture("kraft-4.1-c")),)
    whole = answer(metadata("kraft-4.1-c", 1001), "leader")
    assert answer((*place, str(metadata("kraft-4.1-c", 1001))), "leader") == whole
    epochs = {(row["broker_id"], row["broker_epoch"]) for row in answer(metadata("kraft-4.1-c", 1001), "restarts")}
    assert {(row["broker_id"], row["broker_epoch"]) for row in answer(place, "restarts")} <= epochs


@pytest.mark.slow
def test_summary_report_and_inspect_read_the_log(tmp_path: Path) -> None:
    place = str(metadata("kraft-4.1-a"))
    (summary,) = lines("summary", place)
    ruled = [(row["controller_id"], row["controller_epoch"]) for row in summary["controllers"]]
    assert ruled == [(1000, 1), (1001, 2), (1002, 3)]
    assert summary["migration"] is None
    page = tmp_path / "report.html"
    assert "29 partitions" in kproto("report", place, "--out", str(page)).stdout
    changes = lines("inspect", place)
    assert {row["record"] for row in changes} == {"change"}
    wanted = expected("kraft-4.1-a", None)
    changed = [row for row in changes if row["change"] == "changed"]
    moved = [row for row in changed if row["leader_epoch"] != row["former"]["leader_epoch"]]
    assert len(moved) == sum(len(reigns) - 1 for reigns in wanted.leaders.values())
    assert lines("inspect", place, "--deletes") == [row for row in changes if row["change"] == "deleted"] != []
    text = kproto("inspect", place, "--changes", "--partition", "DD-0").stdout
    assert (
        "offset 216  DD-0  leader none→2, leader epoch 3, isr none→2, eligible leaders 1→none, UNCLEAN ELECTION" in text
    )
    assert "broker 3  fenced: registered with a new" in kproto("inspect", place, "--broker", "3").stdout
    files, packets = lines("inspect", place, "--changes"), lines("inspect", str(capture("kraft-4.1-a")), "--changes")
    assert packets == files[:-1]  # the last change is a leader whose record nobody fetched
    assert lines("inspect", str(capture("kraft-4.1-a")), place) == files
    assert "name a capture, too" in kproto("inspect", place, "--unanswered").output


def test_moments_and_differences() -> None:
    place = metadata("kraft-4.1-a")
    (row,) = answer(place, "leader", "--partition", "DD-0", "--at", "15:18:20")
    assert (row["leader"], row["leader_epoch"]) == (-1, 2)
    changed = answer(place, "diff", "--from", "15:18:00", "--to", "15:18:20", "--topic", "DD")
    assert {(row["partition"], row["former_leader"], row["leader"]) for row in changed} >= {(0, 2, -1)}
    assert answer(place, "offline", "--partition", "DD-0")[0]["valid_to"] == "2026-11-26T15:18:36.389000Z"
    assert answer(place, "under-replicated", "--partition", "DD-0")[0]["missing"] == [2]


def test_a_second_unclean_election_before_the_recovery_counts(tmp_path: Path) -> None:
    """Kafka marks the first alone: the recovery state is 1 already. One from the eligible replicas is clean."""
    topic = bytes(15) + b"\x07"

    def change(**values: Any) -> PartitionChangeRecord:
        return PartitionChangeRecord(partition_id=0, topic_id=topic, **values)

    first = PartitionRecord(
        partition_id=0, topic_id=topic, replicas=(1, 2, 3), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
    )
    records = [
        change(isr=(2,), leader=2, leader_recovery_state=1),
        change(isr=(), leader=-1, eligible_leader_replicas=(2,)),
        change(isr=(2,), leader=2, eligible_leader_replicas=()),
        change(isr=(3,), leader=3),
    ]
    batches = [batch_of(TopicRecord(name="orders", topic_id=topic), first)]
    batches += [batch_of(record, base_offset=2 + at) for at, record in enumerate(records)]
    (tmp_path / "00000000000000000000.log").write_bytes(b"".join(batches))
    texts = [row["text"] for row in lines("doctor", str(tmp_path), "--rule", "KP011")]
    assert [text.partition(")")[0].rpartition(" ")[2] for text in texts] == ["1", "4"]
    assert kproto("inspect", str(tmp_path), "--changes").stdout.count("UNCLEAN ELECTION") == 2


@pytest.mark.parametrize(
    ("states", "found"),
    [([-1, 1], 1), ([-1, 1, 0], 1), ([-1, 0], 0), ([-1], 0), ([1], 1), ([1, 0], 1), ([0], 0)],
)
def test_an_unclean_election_shows_where_only_a_later_snapshot_tells_of_the_state_before(
    states: list[int], found: int, tmp_path: Path
) -> None:
    """A controller writes the recovery state where it changes: it was the other one before."""
    of: dict[str, Any] = {"partition_id": 0, "topic_id": bytes(15) + b"\x07"}
    made: dict[int, dict[str, Any]] = {
        -1: {"isr": (1,), "leader": 1},
        0: {"isr": (2, 1)},
        1: {"isr": (2,), "leader": 2},
    }
    records = [PartitionChangeRecord(leader_recovery_state=state, **made[state], **of) for state in states]
    last = PartitionRecord(
        replicas=(1, 2), isr=records[-1].isr, leader=2 if found else 1, leader_epoch=7, partition_epoch=9,
        leader_recovery_state=int(states[-1] == 1), **of,
    )  # fmt: skip
    footer = encode_batch([(b"\0\0\0\4", SnapshotFooterRecord().encode(0))], base_offset=2, control=True)
    (tmp_path / f"{40:020}.log").write_bytes(
        b"".join(batch_of(record, base_offset=at) for at, record in enumerate(records, start=40))
    )
    (tmp_path / f"{40 + len(records):020}-{1:010}.checkpoint").write_bytes(
        batch_of(TopicRecord(name="orders", topic_id=of["topic_id"]), last) + footer
    )
    assert len(lines("doctor", str(tmp_path), "--rule", "KP011")) == found
    assert kproto("inspect", str(tmp_path), "--changes").stdout.count("UNCLEAN ELECTION") == found


def test_what_no_record_tells_of_a_partition_before_a_reassignment_hides_nothing_else(tmp_path: Path) -> None:
    """The replicas' order is lost, their ISR and leader are not: an ISR of one that no election made has its leader."""
    of: dict[str, Any] = {"partition_id": 0, "topic_id": bytes(15) + b"\x07"}
    records = [
        PartitionChangeRecord(isr=(1,), **of),
        PartitionChangeRecord(isr=(1, 2), **of),
        PartitionChangeRecord(replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(1, 2), **of),
        PartitionChangeRecord(isr=(3,), leader=3, replicas=(3,), adding_replicas=(), removing_replicas=(), **of),
    ]
    last = PartitionRecord(replicas=(3,), isr=(3,), leader=3, leader_epoch=7, partition_epoch=9, **of)
    footer = encode_batch([(b"\0\0\0\4", SnapshotFooterRecord().encode(0))], base_offset=2, control=True)
    (tmp_path / f"{40:020}.log").write_bytes(
        b"".join(
            encode_batch(
                [(None, encode_record(record))], base_offset=40 + at, time_ms=(1_800_000_000 + 400 * at) * 1000
            )
            for at, record in enumerate(records)
        )
    )
    (tmp_path / f"{44:020}-{1:010}.checkpoint").write_bytes(
        batch_of(TopicRecord(name="orders", topic_id=of["topic_id"]), last) + footer
    )
    assert [(row["leader"], row["leader_epoch"]) for row in answer(tmp_path, "leader")] == [(1, 6), (3, 7)]
    assert [(row["removed"], row["added"]) for row in answer(tmp_path, "isr")] == [([], [2]), ([1, 2], [3])]
    assert [row["missing"] for row in answer(tmp_path, "under-replicated")] == [[3]]
    (found,) = lines("doctor", str(tmp_path), "--rule", "KP020")
    assert "lacked replicas in its ISR for 6.7 min" in found["text"]


@pytest.mark.parametrize("run", RUNS)
def test_the_middle_of_a_log_says_nothing_else(run: str, tmp_path: Path) -> None:
    """A log without its first half, with a snapshot behind that: what it tells is what the whole log tells."""
    whole = read(find([metadata(run, 1000)])[0])
    snapshot = whole.snapshots[-1]
    rest = [batch for batch in whole.batches if batch.base_offset >= snapshot.end_offset // 2]
    place = tmp_path / "node"
    place.mkdir()
    (place / f"{rest[0].base_offset:020}.log").write_bytes(b"".join(batch.data for batch in rest))
    name = f"{snapshot.end_offset:020}-{snapshot.epoch:010}.checkpoint"
    (place / name).write_bytes(b"".join(batch.data for batch in snapshot.batches))

    def reigns(where: Path) -> dict[tuple[Any, ...], tuple[int | None, int | None]]:
        found = {}
        for row in answer(where, "leader"):
            key = row["topic"], row["partition"], row["leader"], row["leader_epoch"]
            found[key] = ms(row["valid_from"]), ms(row["valid_to"])
        return found

    middle, every = reigns(place), reigns(metadata(run, 1000))
    for key, (begin, end) in middle.items():
        assert every[key][1] == end
        assert begin is not None
        assert (every[key][0] or 0) <= begin
    named = {key[0] for key in middle}
    began = {key: span for key, span in every.items() if (span[0] or 0) >= rest[0].time_ms and key[0] in named}
    missing = began.keys() - middle.keys()
    assert {key: began[key] for key in began.keys() - missing}.items() <= middle.items()
    # a topic that was deleted before the snapshot has no name there; this name was given again
    assert {key[0] for key in missing} == ({"mgy0ps6fp_rK88iToHp"} if run == "kraft-3.9-a" else set())


def write_log(place: Path, *batches: bytes) -> Path:
    """A log of one segment, named by its first offset."""
    place.mkdir(exist_ok=True)
    (place / f"{int.from_bytes(batches[0][:8]):020}.log").write_bytes(b"".join(batches))
    return place


def registered(broker: int, epoch: int, **more: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker, incarnation_id=bytes([epoch]) * 16, broker_epoch=epoch, **more)


def changed(**values: int) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, **values)


STATES = "SELECT state, broker_epoch, why, valid_to IS NULL AS lasts FROM broker_states ORDER BY valid_from, log_offset"


def test_behind_a_gap_a_broker_is_not_what_it_was(tmp_path: Path) -> None:
    """It may have been restarted there, and shut down: none of what was known before tells of what comes then."""
    before = [batch_of(registered(1, 5), base_offset=5), batch_of(changed(fenced=-1), base_offset=6)]
    place = write_log(tmp_path / "n", *before, batch_of(changed(fenced=1), base_offset=40))
    rows = [tuple(row.values()) for row in lines("query", str(place), "--sql", STATES)]
    first = "registered with a new incarnation id"
    assert rows == [
        ("fenced", 5, first, False), ("unfenced", 5, "caught up and unfenced", False), ("fenced", 1, "fenced", True),
    ]  # fmt: skip
    live = "SELECT DISTINCT live_brokers_id IS NULL AS open FROM requests"
    assert lines("query", str(place), "--sql", live) == [{"open": True}]


def test_a_controller_is_known_to_lead_up_to_a_gap(tmp_path: Path) -> None:
    """Another may have led there; where its own records go on behind the gap, it led until the next one."""

    def leads(node: int, epoch: int, offset: int) -> bytes:
        record = LeaderChangeRecord(leader_id=node, version=0)
        return encode_batch(
            [(b"\0\0\0\2", record.encode(0))], base_offset=offset, epoch=epoch, time_ms=offset * 1000, control=True
        )

    place = write_log(tmp_path / "n", leads(7, 1, 0), leads(8, 2, 1), leads(7, 4, 40), leads(8, 5, 41))
    assert [ms(row["valid_to"]) for row in answer(place, "controllers")] == [1000, 1000, 41000, None]
    whole = write_log(tmp_path / "o", leads(7, 1, 0), batch_of(registered(1, 40), base_offset=40), leads(8, 2, 41))
    assert [ms(row["valid_to"]) for row in answer(whole, "controllers")] == [41000, None]


def test_a_snapshot_names_the_process_whose_states_came_before_it(tmp_path: Path) -> None:
    place = write_log(
        tmp_path / "n",
        batch_of(changed(in_controlled_shutdown=1), base_offset=10),
        batch_of(changed(fenced=1), base_offset=11),
    )
    image = batch_of(registered(1, 1, in_controlled_shutdown=True), registered(2, 8, fenced=False))
    footer = encode_batch([(b"\0\0\0\4", SnapshotFooterRecord().encode(0))], base_offset=2, control=True)
    (place / f"{12:020}-{1:010}.checkpoint").write_bytes(image + footer)
    rows = [tuple(row.values()) for row in lines("query", str(place), "--sql", STATES)]
    assert ("fenced", 1, "fenced after its controlled shutdown", True) in rows
    assert ("unfenced", 8, "in a snapshot", True) in rows
    assert len(rows) == 3
    assert lines("query", str(place), "--sql", "SELECT broker_id FROM live_brokers") == [{"broker_id": 2}]


def test_what_a_gap_may_hide_is_not_told_as_if_it_lasted(tmp_path: Path) -> None:
    """A partition without a leader before it may have one since; a topic that was made anew in it is no older one."""
    old, new = bytes(15) + b"\x07", bytes(15) + b"\x08"

    def topic(topic_id: bytes, offset: int, second: int, **values: Any) -> bytes:
        part = PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=(1, 2), isr=(1, 2), leader_epoch=0, partition_epoch=0, **values
        )
        made = [(None, encode_record(each)) for each in (TopicRecord(name="orders", topic_id=topic_id), part)]
        return encode_batch(made, base_offset=offset, time_ms=(1_800_000_000 + second) * 1000)

    def moved(offset: int, second: int, leader: int) -> bytes:
        record = PartitionChangeRecord(partition_id=0, topic_id=old, leader=leader, isr=(1,))
        return encode_batch(
            [(None, encode_record(record))], base_offset=offset, time_ms=(1_800_000_000 + second) * 1000
        )

    later = encode_batch([(None, encode_record(registered(1, 90)))], base_offset=90, time_ms=1_800_001_000_000)
    place = write_log(tmp_path / "n", topic(old, 0, 0, leader=1), moved(2, 1, -1), later)
    (found,) = lines("doctor", str(place), "--rule", "KP010")
    assert (found["severity"], "cannot tell" in found["text"]) == ("note", True)
    again = write_log(tmp_path / "again", topic(old, 0, 0, leader=1), moved(2, 1, 1), later)
    footer = encode_batch([(b"\0\0\0\4", SnapshotFooterRecord().encode(0))], base_offset=2, control=True)
    (again / f"{91:020}-{1:010}.checkpoint").write_bytes(topic(new, 0, 1001, leader=2) + footer)
    assert {row["severity"] for row in lines("doctor", str(again))} <= {"note"}
    reigns = [(row["leader"], row["leader_epoch"]) for row in answer(again, "leader")]
    assert reigns == [(1, 0), (1, 1), (2, 0)]


def test_a_controller_that_led_before_the_log_begins_is_said_to(tmp_path: Path) -> None:
    place = write_log(tmp_path / "n", batch_of(registered(1, 5), base_offset=5))
    (tmp_path / "n" / "quorum-state").write_text('{"leaderId": 1000, "leaderEpoch": 1}')
    (row,) = answer(place, "controllers")
    assert (row["controller_id"], row["why"]) == (1000, "led before that: the record of its election is not shown")


def test_the_summary_names_each_file_and_its_times(tmp_path: Path) -> None:
    for node in ("a", "b"):
        (tmp_path / node).mkdir()
        for offset in (0, 7):
            batch = encode_batch(
                [(None, encode_record(registered(1, 5)))], base_offset=offset, time_ms=1_800_000_000_000 + offset * 1000
            )
            write_log(tmp_path / node, batch)
    shown = kproto("summary", str(tmp_path)).stdout
    assert all(f"{node}/{offset:020}.log" in shown for node in "ab" for offset in (0, 7))
    (summary,) = lines("summary", str(tmp_path))
    assert {row["last"][11:19] for row in summary["captures"]} == {"08:00:00", "08:00:07"}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_told_committed_and_applied_are_three_times(run: str) -> None:
    sql = "SELECT node_id, log_offset, told_ts, committed_ts, applied_ts FROM metadata_deliveries"
    rows = lines("query", str(capture(run)), "--sql", sql)
    assert {row["node_id"] for row in rows} >= set(NODES[run]) - {1000}
    assert all(row["told_ts"] <= row["applied_ts"] for row in rows if row["applied_ts"])
    assert all(row["committed_ts"] <= row["applied_ts"] for row in rows if row["committed_ts"] and row["applied_ts"])
    if run == "kraft-4.1-a":  # with three voters a follower has records before they are committed
        early = sum(row["told_ts"] < row["committed_ts"] for row in rows if row["committed_ts"])
        assert early > len(rows) / 2


def test_no_users_records_are_kept_from_a_capture() -> None:
    """Fetches are chosen by their client id before a body is kept."""
    from kproto.capture import exchanges
    from kproto.capture.wanted import WantedApis

    wanted = WantedApis({1}, fetch_client="raft-client-1000")
    clients = {each.client_id for each in exchanges(capture("kraft-4.1-a"), apis=wanted)}
    assert clients == {"raft-client-1000"}


def test_a_log_that_names_no_controller_has_no_stale_requests(tmp_path: Path) -> None:
    """As of a segment whose former ones are gone."""
    topic = TopicRecord(name="orders", topic_id=bytes(15) + b"\1")
    (tmp_path / "00000000000000000420.log").write_bytes(batch_of(topic, base_offset=420))
    assert lines("query", str(tmp_path), "--sql", "SELECT controller_id FROM requests") == [{"controller_id": None}]
    assert lines("query", str(tmp_path), "--sql", "SELECT * FROM stale_requests") == []
