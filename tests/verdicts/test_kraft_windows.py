"""What is said of KRaft does not depend on which captures and log files of which nodes are there, and from when on.

A mixture is some nodes' files (each from a segment on to some record, perhaps without one amid them, with or without
snapshots and the last bytes) and a window on the captures, of all or of some hosts, by another clock, in any order. It
says nothing that all files and the whole capture do not say; and where it has each record from the first on, all that
the log up to there says, at the same times.
"""

from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from fixed_draws import drawn
from hypothesis import example, given
from hypothesis import strategies as st
from kraft_runs import HEALTHY, MADE, NODES, RUNS, capture, metadata
from window_answers import ABOUT, Fact, flat, rows_of
from windows import Window

from kproto.errors import CaptureError
from kproto.generate import KRaftFleet, write_metadata_logs
from kproto.generate.kraft import KRAFT_PLANTS
from kproto.metadata_log.files import MetadataLog
from kproto.metadata_log.files import read as read_log
from kproto.metadata_log.finding import find
from kproto.query import open_tables
from kproto.tables import read
from tests.hosts import by_host, recorded

OF_LOG = {name: ABOUT[name] for name in ("leader", "offline", "under-replicated", "off-preferred", "isr", "restarts")}
OF_LOG |= {"reassignments": ABOUT["reassignments"], "brokers": ("broker", "state", "broker_epoch")}
ASKED = OF_LOG | {
    "controllers": ABOUT["controllers"],
    "elections": ("controller_epoch", "controller_id"),
    "quorum-members": ("node_id", "role"),
    "quorum-outages": (),
    "asked": ("client_id", "client_address", "principal", "topic", "partition", "what", "error_code"),
    "events": ABOUT["events"],
    "findings": ("rule", "broker", "topic", "partition"),
    "behind": ABOUT["behind"],
    "missed": ABOUT["missed"],
    "stale": ABOUT["stale"],
}
"""What a row of each question is about; the first are told by the log alone."""
TIMES = ("valid_from", "valid_to", "ts", "left_ts")
UNKNOWN_LISTS = {"registered again", "gap"}
"""Events of a window alone: a broker that is back where nothing tells who lived before, and what is missing."""
Said = dict[str, dict[Fact, list[tuple[str, ...]]]]


def said_of(*paths: Path, about: dict[str, tuple[str, ...]] = ASKED) -> Said:
    """The facts of each question with their times."""
    made: Said = {name: {} for name in about}
    with open_tables(read(*paths)) as sql:
        for question, names in about.items():
            for row in rows_of(sql, question):
                if row.get("severity") != "note":
                    times = tuple(str(row[name]) for name in TIMES if name in row)
                    made[question].setdefault(tuple(flat(row[name]) for name in names), []).append(times)
    return made


@cache
def log_of(run: str, node: int) -> MetadataLog:
    return read_log(find([metadata(run, node)])[0])


@cache
def whole(run: str) -> Said:
    return said_of(metadata(run), *([capture(run)] if capture(run).exists() else []))


def some_files(log: MetadataLog, place: Path, random: Random, *, is_whole: bool = False) -> Path:
    """Write a part of a node's files."""
    place.mkdir(parents=True)
    batches = log.batches
    begin = 0 if is_whole else random.choice([0, 0, random.randrange(len(batches))])
    end = random.choice([len(batches), random.randrange(begin, len(batches)) + 1])
    cuts = sorted({begin, *(random.randrange(begin, end) for _ in range(random.choice([0, 1, 3])))})
    hole = random.randrange(len(cuts)) if len(cuts) > 2 and not is_whole and random.random() < 0.25 else None
    for number, (since, until) in enumerate(zip(cuts, [*cuts[1:], end], strict=True)):
        data = b"".join(batch.data for batch in batches[since:until])
        torn = random.randrange(1, 60) if until == end and random.random() < 0.3 else 0
        if number != hole:
            (place / f"{batches[since].base_offset:020}.log").write_bytes(data[: len(data) - torn])
    for snapshot in log.snapshots:
        if random.random() < 0.5 and (not is_whole or snapshot.end_offset <= batches[end - 1].base_offset):
            (place / f"{snapshot.name}.checkpoint").write_bytes(b"".join(batch.data for batch in snapshot.batches))
    return place


def some_captures(run: str, place: Path, random: Random) -> list[Path]:
    """Write a window on a run's capture, or on those of some hosts."""
    seen = recorded(capture(run))
    first, last = seen.packets[0].time_ns, seen.packets[-1].time_ns
    since = random.choice([0, random.random() * 0.9])
    until = random.choice([1, since + (1 - since) * random.random()])
    begin, end = (first + (last - first) * part for part in (since, until))
    seen = seen._replace(packets=[packet for packet in seen.packets if begin <= packet.time_ns <= end])
    if random.random() < 0.6:
        return [seen.write(place / "all.pcap")]
    hosts = by_host(seen, [("127.0.0.1", port) for port in (19291, 19292, 19293)])
    return [
        host.write(place / name, ahead_ns=random.choice((0, 3, -12)) * 1_000_000_000)
        for name, host in hosts.items()
        if host.packets and random.random() < 0.8
    ]


def hold_nothing_new(part: Said, every: Said) -> None:
    """Hold what a mixture says against what all says, as far as both know it."""
    for question, facts in part.items():
        for fact, times in facts.items():
            if question == "isr" or (question == "events" and fact[0] in UNKNOWN_LISTS):
                continue  # behind a hole, what changed in it is one change
            known = (zip(fact, other, strict=True) for other in every[question])
            assert any(all(None in (a, b) or a == b for a, b in pairs) for pairs in known), (question, fact, times)


@pytest.mark.slow
@drawn(8, 60)
@given(st.sampled_from([*RUNS, HEALTHY, *MADE]), st.integers(0, 1 << 20))
@example("kraft-3.9-m", 3)  # partitions of ZooKeeper's, which the log alone does not call KRaft's decisions
@example("kraft-3.9-m", 203044)  # brokers were told a leader before KRaft's controller, of an epoch like its own
@example("kraft-4.1-a", 27)  # two holes: leaders of before them, in what changed after them
@example("kraft-3.9-h", 21)  # the host of a leader lacks: its answers are no outage of the quorum
@example("kraft-4.1-c", 8)  # a removed voter fetches again for less than a second
def test_a_mixture_says_nothing_new(run: str, seed: int) -> None:
    random = Random(seed)
    with TemporaryDirectory() as directory:
        place = Path(directory)
        nodes = random.sample(NODES[run], random.randint(1, min(3, len(NODES[run]))))
        paths = [some_files(log_of(run, node), place / f"{node}/__cluster_metadata-0", random) for node in nodes]
        if capture(run).exists() and random.random() < 0.7:
            paths = paths * random.randint(0, 1) + some_captures(run, place, random)
        random.shuffle(paths)
        try:
            part = said_of(*paths)
        except (CaptureError, ValueError):  # nothing is left in it
            return
    hold_nothing_new(part, whole(run))


def test_who_tells_zookeepers_brokers_has_one_epoch_wherever_the_capture_begins(tmp_path: Path) -> None:
    window = Window.of(capture("kraft-3.9-m"))
    path = window.since(window.at(0.75)).write(tmp_path / "window.pcap")
    told = said_of(path, about={"controllers": ABOUT["controllers"]})["controllers"]
    assert told.keys() == {(3000, 1, "KRaft"), (3000, 2, "KRaft")}


@pytest.mark.slow
@drawn(6, 40)
@given(st.sampled_from([*RUNS, HEALTHY, *MADE]), st.integers(0, 1 << 20))
def test_a_log_in_pieces_is_as_one(run: str, seed: int) -> None:
    random = Random(seed)
    with TemporaryDirectory() as directory:
        place = Path(directory)
        nodes = random.sample(NODES[run], 2)
        paths = [
            some_files(log_of(run, node), place / f"{node}/__cluster_metadata-0", random, is_whole=not number)
            for number, node in enumerate(nodes)
        ]
        log = read_log(find(paths)[0])
        if (
            log.batches[0].base_offset
            or log.gaps
            or any(snapshot.end_offset > log.batches[-1].end_offset for snapshot in log.snapshots)
        ):
            return
        (place / "one").mkdir()
        (place / f"one/{0:020}.log").write_bytes(b"".join(batch.data for batch in log.batches))
        random.shuffle(paths)
        assert said_of(*paths, about=OF_LOG) == said_of(place / "one", about=OF_LOG)


@pytest.mark.slow
@drawn(3, 20)
@given(st.integers(0, 1 << 20))
def test_files_of_a_generated_fleet_say_nothing_new(seed: int) -> None:
    random = Random(seed)
    fleet = KRaftFleet(seed=seed, brokers=5, plants=tuple(random.sample(sorted(KRAFT_PLANTS), 3)), partitions=30)
    with TemporaryDirectory() as directory:
        place = Path(directory)
        write_metadata_logs(fleet, place / "all")
        every = said_of(place / "all")
        nodes = sorted({Path(path).parent for path in find([place / "all"])[0].segments})
        some = random.sample(nodes, min(2, len(nodes)))
        paths = [
            some_files(read_log(find([node])[0]), place / f"{number}/__cluster_metadata-0", random)
            for number, node in enumerate(some)
        ]
        part = said_of(*paths)
    hold_nothing_new(part, every)
