"""What any surface says of a capture does not depend on its window, on hosts, clocks, names, or on who else is there.

The rules of the doctor are held to the same relations in ``test_windows.py``. A fact is known by what it is about,
without its time; facts that need a state before them are asked for only where the window has one. ``make test`` draws a
few windows, ``make explore`` more, afresh.
"""

import gzip
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fixed_draws import drawn
from fleet_faults import FLEETS, fleet_of
from hypothesis import example, given
from hypothesis import strategies as st
from table_truth import CAPTURES, name_of
from window_answers import ABOUT, SECOND_US, Said, lost_in, new_in, rows_of, said_in, said_of
from windows import Window

import kproto.tables
from kproto.capture import CaptureReader, CaptureSummary
from kproto.errors import CaptureError
from kproto.generate import write_captures
from kproto.query import ask, open_tables
from kproto.tables.filters import Filters
from kproto.verdicts.live import LiveFold
from tests.hosts import Recorded, by_host, recorded, servers_of, without_listings

SLOWER = 120
# An external program's requests contradict each other on purpose.
pytestmark = pytest.mark.slow
REAL = [path for path in CAPTURES if not name_of(path).startswith("external")]
few = drawn(3, 15)
fewer = drawn(2, 10)
some_captures = st.sampled_from(REAL)
some_part = st.integers(1, 99).map(lambda percent: percent / 100)
LIMITED = {"flaps", "behind", "missed", "events", "propagation", "inspect"}
"""What has limits in seconds, or tells of times."""
OF_HOSTS = {"propagation", "events"}
"""What rests on the order of times within some 20 ms, which is as near as clocks are told; and events of clocks."""


def said_of_window(window: Window, diff_us: tuple[int, int] | None = None) -> Said | None:
    with TemporaryDirectory() as directory:
        return said_of(window.write(Path(directory) / "window.pcap"), diff_us=diff_us)


@cache
def whole(path: Path) -> tuple[Window, Said]:
    window = Window.of(path)
    said = said_of_window(window)
    assert said is not None
    return window, said


def with_diff(path: Path, said: Said, diff_us: tuple[int, int]) -> Said:
    """What is said of a whole capture, with what differs at two times."""
    return said._replace(facts=said.facts | {"diff": said_in(kproto.tables.read(path), diff_us=diff_us).facts["diff"]})


def thirds(begin_ns: int, end_ns: int) -> tuple[int, int]:
    """Two times within a window, in us."""
    third = (end_ns - begin_ns) // 3000
    return begin_ns // 1000 + third, begin_ns // 1000 + 2 * third


@few
@given(some_captures, some_part)
@example(next(path for path in REAL if name_of(path) == "ibp-3.9-a-cut"), 0.953)
@example(next(path for path in REAL if name_of(path) == "ibp-2.6-a"), 0.507)
@example(next(path for path in REAL if name_of(path) == "ibp-3.9-migration-a"), 0.48)
@example(next(path for path in REAL if name_of(path) == "ibp-1.0-a"), 0.96)
@example(next(path for path in REAL if name_of(path) == "ibp-0.10.2-a"), 0.14)  # an update is under way
@example(next(path for path in REAL if name_of(path) == "ibp-0.10.0-a"), 0.20388)  # a topic is created at once
@example(next(path for path in REAL if name_of(path) == "ibp-2.6-a"), 0.14158)  # amid a reassignment
def test_a_capture_that_begins_later_says_nothing_new_and_loses_nothing(path: Path, part: float) -> None:
    window, every = whole(path)
    begin = window.at(part)
    diff_us = thirds(begin, window.at(1))
    said = said_of_window(window.since(begin), diff_us)
    if said is not None:
        every = with_diff(path, every, diff_us)
        assert list(new_in(said, every, begin // 1000)) == []
        assert list(lost_in(said, every, begin // 1000 + 2 * SECOND_US, 1 << 62)) == []


@few
@given(some_captures, some_part)
@example(next(path for path in REAL if name_of(path) == "ibp-3.9-a"), 0.15972)  # amid a reassignment
def test_a_capture_that_ends_earlier_says_nothing_new_and_loses_nothing(path: Path, part: float) -> None:
    window, every = whole(path)
    end = window.at(part)
    diff_us = thirds(window.at(0), end)
    said = said_of_window(window.until(end), diff_us)
    if said is not None:
        every = with_diff(path, every, diff_us)
        assert list(new_in(said, every)) == []
        # an answer may take seconds, and without it a request is not known to be accepted
        assert list(lost_in(said, every, 0, end // 1000 - 10 * SECOND_US)) == []


def test_a_deletion_that_began_before_a_capture_accuses_no_broker_of_not_accepting_it() -> None:
    window = Window.of(next(path for path in REAL if name_of(path) == "ibp-1.0-a"))
    with TemporaryDirectory() as directory:
        tables = kproto.tables.read(window.since(window.at(0.62)).write(Path(directory) / "window.pcap"))
    with open_tables(tables) as sql:
        texts = [row["text"] for row in rows_of(sql, "events") if row["event"] == "topic deleted"]
    assert [text for text in texts if "have not accepted" in text] == []
    assert "Topic cZoFukANfTiHOcV27.hyh7U1hHdk38 is deleted, 50 partitions" in texts  # by two requests
    assert len(texts) == 3


def test_a_holder_that_accepts_no_deletion_in_the_capture_is_named() -> None:
    with TemporaryDirectory() as directory:
        (path,) = write_captures(fleet_of(902, ("stray-replica", "deletion-waiting")), Path(directory)).files
        tables = kproto.tables.read(Path(path))
    with open_tables(tables) as sql:
        texts = [row["text"] for row in rows_of(sql, "events") if "have not accepted" in row["text"]]
    assert "Topic orders.v1 is deleted, 2 partitions; brokers [6] have not accepted it" in texts
    assert len(texts) == 4


@cache
def planted(seed: int) -> tuple[Window, Said]:
    """The capture of a fleet with planted faults, and what is said of it."""
    with TemporaryDirectory() as directory:
        (path,) = write_captures(fleet_of(seed, FLEETS.get(seed, ())), Path(directory)).files
        packed = Path(directory) / "fleet.pcap.gz"
        packed.write_bytes(gzip.compress(Path(path).read_bytes(), 1))
        window = Window.of(packed)
    said = said_of_window(window)
    assert said is not None
    return window, said


@fewer
@given(st.sampled_from(sorted(FLEETS)), some_part, st.booleans())
@example(910, 0.82, True)
@example(902, 0.35, False)
@example(6302, 0.18, False)  # the window ends amid a flap
@example(6302, 0.29, False)  # what flaps is deleted later
@example(19673, 0.53, True)  # a controller takes over, and leaves out a broker that was told before
@example(19564, 0.64, True)  # the second controller of an epoch speaks first
@example(537016, 0.521, True)  # a zombie's request is refused before the window shows the newer controller
@example(627342, 0.482438767, True)  # a broker is shut down again and again, and told to stop the same partitions
@example(282555, 0.941, False)  # the broker that missed an update is sent nothing more before the end
@example(6303, 0.47, True)  # the registrations before a migration that went back lie before the window
def test_every_surface_tells_of_planted_faults_in_a_window_as_in_the_whole(seed: int, part: float, later: bool) -> None:
    window, every = planted(seed)
    at = window.at(part)
    diff_us = thirds(at, window.at(1)) if later else thirds(window.at(0), at)
    said = said_of_window(window.since(at) if later else window.until(at), diff_us)
    if said is None:
        return
    with TemporaryDirectory() as directory:
        every = with_diff(window.write(Path(directory) / "fleet.pcap"), every, diff_us)
    since, until = (at // 1000 + 2 * SECOND_US, 1 << 62) if later else (0, at // 1000 - 10 * SECOND_US)
    assert list(new_in(said, every, at // 1000 if later else 0)) == []
    assert list(lost_in(said, every, since, until)) == []


@pytest.mark.parametrize("path", REAL[::5], ids=name_of)
def test_slower_time_changes_no_answer_but_times(path: Path) -> None:
    window, every = whole(path)
    said = said_of_window(window.slower(SLOWER))
    assert said is not None
    for surface in every.facts.keys() - LIMITED:
        assert said.facts[surface].keys() == every.facts[surface].keys(), surface


def test_a_controlled_shutdown_is_one_however_long_it_takes() -> None:
    window, every = whole(next(path for path in REAL if name_of(path) == "ibp-2.8-a"))
    said = said_of_window(window.slower(1200))
    assert said is not None
    assert said.facts["left"].keys() == every.facts["left"].keys()
    assert {fact[2] for fact in every.facts["left"]} >= {"a controlled shutdown"}


@few
@given(some_captures, st.integers(0, 1 << 32))
@example(next(path for path in REAL if path.name == "ibp-2.4-IV0-a.pcap.gz"), 2951442)  # an update is lost
def test_lost_packets_add_no_leader_and_no_restart(path: Path, seed: int) -> None:
    window, every = whole(path)
    said = said_of_window(window.losing(0.001, Random(seed)))
    assert said is not None
    least = {"leader", "restarts", "controllers", "stale", "behind", "missed", "report", "summary zombies"}
    assert [found for found in new_in(said, every) if found[0] in least] == []


def test_a_request_of_which_bytes_are_missing_shows_no_registration_in_another_mode() -> None:
    window = Window.of(next(path for path in REAL if name_of(path) == "ibp-3.9-migration-a"))
    lost = 1042  # the second half of a LeaderAndIsr of KRaft's controller
    with TemporaryDirectory() as directory:
        path = Path(directory) / "window.pcap"
        packets = window.packets[:lost] + window.packets[lost + 1 :]
        tables = kproto.tables.read(replace(window, packets=packets).write(path))
    with open_tables(tables) as sql:
        found = [(row["broker_epoch"], row["mode"]) for row in rows_of(sql, "restarts") if row["broker"] == 2]
    assert found == [(65, "ZooKeeper"), (8, "KRaft")]


@fewer
@given(
    st.sampled_from([path for path in REAL if "lossy" not in path.name]),
    st.lists(st.sampled_from([0, 3, -12, 37.5, 120, 3600]), min_size=3, max_size=3),
)
def test_captures_of_each_host_say_what_one_says_whatever_their_clocks_say(path: Path, seconds: list[float]) -> None:
    _window, every = whole(path)
    parts = by_host(recorded(path), servers_of(path))
    with TemporaryDirectory() as directory:
        said = said_of(
            *(
                part.write(Path(directory) / name, ahead_ns=round(ahead * 10**9))
                for ahead, (name, part) in zip(seconds, parts.items(), strict=False)
            )
        )
    assert said is not None
    for surface in every.facts.keys() - OF_HOSTS:
        assert said.facts[surface].keys() == every.facts[surface].keys(), surface
    assert {fact[:2] for fact in said.facts["propagation"]} == {fact[:2] for fact in every.facts["propagation"]}
    events = {fact for fact in said.facts["events"] if fact[0] != "clock"}
    assert events == every.facts["events"].keys()


@fewer
@given(some_captures)
def test_brokers_that_advertise_names_are_the_same_or_unknown(path: Path) -> None:
    _window, every = whole(path)
    said = said_in(without_listings(kproto.tables.read(path)))
    of_partitions = {"leader", "offline", "under-replicated", "off-preferred", "isr", "controllers", "errors"}
    of_partitions |= {"reassignments", "report"}
    for surface in of_partitions:
        assert said.facts[surface].keys() == every.facts[surface].keys(), surface
    for surface in ("restarts", "stale", "behind", "missed", "left"):
        place = ABOUT[surface].index("broker")
        some = {fact[:place] + fact[place + 1 :] for fact in every.facts[surface]}
        for fact in said.facts[surface]:
            assert fact in every.facts[surface] or (fact[place] is None and fact[:place] + fact[place + 1 :] in some), (
                surface
            )


@fewer
@given(st.sampled_from(["ibp-2.8-a", "ibp-2.4-IV1-a", "ibp-1.0-a"]))
def test_another_clusters_traffic_changes_no_answer(name: str) -> None:
    first = next(path for path in REAL if name_of(path) == "ibp-3.9-a")
    second = next(path for path in REAL if name_of(path) == name)
    parts = [recorded(first), recorded(second)]
    if parts[0].link != parts[1].link or servers_of(first) & servers_of(second):
        return
    ahead = parts[0].packets[0].time_ns - parts[1].packets[0].time_ns
    moved = [packet._replace(time_ns=packet.time_ns + ahead) for packet in parts[1].packets]
    both = Recorded(parts[0].link, sorted([*parts[0].packets, *moved], key=lambda packet: packet.time_ns))
    with TemporaryDirectory() as directory:
        tables = kproto.tables.read(both.write(Path(directory) / "both.pcap"))
    with open_tables(tables) as sql:
        clusters = [cluster for (cluster,) in sql.execute("SELECT DISTINCT cluster FROM requests").fetchall()]
    assert len(clusters) == 2
    said = [said_in(tables, cluster).facts for cluster in clusters]
    for path in (first, second):
        every = said_in(kproto.tables.read(path)).facts
        assert any(all(one[surface].keys() == of.keys() for surface, of in every.items()) for one in said)


@pytest.mark.parametrize("path", REAL[3::6], ids=name_of)
def test_a_filtered_answer_is_a_part_of_the_answer(path: Path) -> None:
    tables = kproto.tables.read(path)
    with open_tables(tables) as sql:
        for question in ABOUT.keys() - {"left"}:
            rows = list(rows_of(sql, question))
            for column, named in (("topic", "topics"), ("broker", "brokers"), ("controller_id", "controllers")):
                values = sorted({row[column] for row in rows if row.get(column) is not None})
                if values:
                    chosen: Any = (values[0],) if named == "topics" else frozenset(values[:1])
                    answer = list(rows_of(sql, question, filters=Filters(**{named: chosen})))
                    assert answer == [row for row in rows if row[column] == values[0]], (question, column)


@few
@given(some_captures, some_part)
@example(next(path for path in CAPTURES if path.name == "ibp-2.4-IV1-a.pcap.gz"), 0.01)
@example(next(path for path in CAPTURES if path.name == "ibp-3.9-a-cut.pcap.gz"), 0.02)
def test_top_finds_what_the_doctor_finds_at_each_time(path: Path, part: float) -> None:
    window, _every = whole(path)
    assert_top_finds_what_the_doctor_finds(window.until(window.at(part)))


def test_top_finds_two_things_of_one_kind_about_one_broker() -> None:
    """What it left unanswered, and answers that the capture lacks."""
    window = Window.of(next(path for path in REAL if name_of(path) == "ibp-0.10.2-a"))
    found = assert_top_finds_what_the_doctor_finds(window.lacking(0.19, 0.24))
    assert len([text for rule, text in found if rule == "KP033" and "roker 0 " in text]) == 2


def assert_top_finds_what_the_doctor_finds(window: Window) -> set[tuple[str, str]]:
    with TemporaryDirectory() as directory:
        written = window.write(Path(directory) / "window.pcap")
        try:
            tables = kproto.tables.read(written)
        except CaptureError:
            return set()
        data = written.read_bytes()
    with open_tables(tables) as sql:
        doctor = {_text_of(row[1], row[3]) for row in ask(sql, "findings").rows}
    summary = CaptureSummary()
    reader = CaptureReader(summary=summary)
    reader.begin_file(written.name)
    fold = LiveFold(3600, {"": summary}, thrifty=False)
    for at in range(0, len(data), len(data) // 3 + 1):
        fold.add(reader.feed(data[at : at + len(data) // 3 + 1]))
        fold.snapshot()
    fold.add(reader.end())
    assert {_text_of(finding.rule, finding.text) for finding in fold.snapshot().findings} == doctor
    return doctor


def _text_of(rule: str, text: str) -> tuple[str, str]:
    """A finding; of one about the capture its rule alone: other APIs tell of more connections that they are Kafka's."""
    return rule, "" if rule.startswith("KP06") else text
