"""What is said of a capture does not depend on its window: its begin and end, the speed of time, lost packets.

``make test`` looks through a fixed selection of windows, ``make explore`` through others by its seed.
"""

import gzip
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fixed_draws import drawn
from fleet_faults import FLEETS, fits, fleet_of
from hypothesis import example, given
from hypothesis import strategies as st
from table_truth import CAPTURES, name_of
from windows import Window

import kproto.tables
from kproto.errors import CaptureError
from kproto.generate import findings_truth, write_captures
from kproto.generate.truth import Truth
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.catalogue import LIMITS
from kproto.verdicts.doctor import Finding
from kproto.verdicts.events import events, reassignments
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings
from tests.hosts import Recorded, by_host

MINUTE_US = 60_000_000
SLOWER = 120
DAMAGE = {"KP061", "KP065"}
SLOW_LIMITS = {name: SLOWER * of.default for name, of in LIMITS.items() if of.unit in ("s", "ms", "minutes")}
PATHS = {name_of(path): path for path in [*CAPTURES, *(CAPTURES[0].parent / "bugs").glob("*.pcap.gz")]}
some_captures = st.sampled_from(CAPTURES)
some_part = st.integers(1, 99).map(lambda percent: percent / 100)
few = drawn(6, 15)


def facts_in(window: Window) -> Facts | None:
    with TemporaryDirectory() as directory:
        path = window.write(Path(directory) / "window.pcap")
        try:
            return Facts([kproto.tables.read(path)])
        except CaptureError:  # the window has no control request
            return None


def found_in(window: Window, limits: Mapping[str, float] | None = None) -> list[Finding]:
    facts = facts_in(window)
    return [] if facts is None else findings(facts, limits)


@cache
def whole(path: Path) -> tuple[Window, list[Finding]]:
    window = Window.of(path)
    return window, found_in(window)


def subject(finding: Finding) -> tuple[Any, ...]:
    return finding.rule, finding.broker, finding.topic, finding.partition


def alarms(found: list[Finding]) -> set[tuple[Any, ...]]:
    return {subject(finding) for finding in found if finding.severity != "note" and finding.rule not in DAMAGE}


@few
@given(some_captures, some_part)
@example(PATHS["ibp-2.8-a"], 0.2341217)  # a slow broker is told late
def test_a_capture_that_begins_later_accuses_nobody_else_and_finds_what_lies_in_it(path: Path, part: float) -> None:
    window, every = whole(path)
    begin = window.at(part)
    found = found_in(window.since(begin))
    assert alarms(found) <= alarms(every)
    # the state before an unclean election may lie before the window, up to the length of a failover
    later = [f for f in every if f.first * 1000 > begin + 30 * 10**9]
    assert alarms(later) <= alarms(found)


@few
@given(some_captures, some_part)
def test_a_capture_that_ends_earlier_accuses_nobody_else(path: Path, part: float) -> None:
    window, every = whole(path)
    assert alarms(found_in(window.until(window.at(part)))) <= alarms(every)


@pytest.mark.parametrize("path", CAPTURES[::3], ids=name_of)
def test_slower_time_with_larger_limits_gives_the_same_findings(path: Path) -> None:
    window, every = whole(path)
    assert alarms(found_in(window.slower(SLOWER), SLOW_LIMITS)) == alarms(every)


@pytest.mark.parametrize("path", [path for path in CAPTURES if name_of(path) in ("ibp-0.9.0-a", "ibp-3.9-a")])
def test_an_outage_that_ended_is_judged_by_its_length(path: Path) -> None:
    window, every = whole(path)
    found = [f for f in found_in(window.slower(SLOWER)) if f.rule == "KP010" and f.severity == "trouble"]
    assert len(found) > 15
    assert all(f.last - f.first > LIMITS["offline"].default * 1_000_000 for f in found)
    assert any("had no leader for" in f.text and "until" in f.text for f in found)
    assert not [f for f in every if f.rule == "KP010" and f.severity == "trouble"]


@few
@given(some_captures, st.integers(0, 1 << 32))
def test_lost_packets_accuse_nobody_and_are_told(path: Path, seed: int) -> None:
    window, every = whole(path)
    found = found_in(window.losing(0.001, Random(seed)))
    assert alarms(found) <= alarms(every)
    uncertain = [f for f in found if f.cannot_tell and f.rule in ("KP041", "KP030", "KP031", "KP014", "KP015")]
    if uncertain and "KP061" in {f.rule for f in found}:
        assert {f.severity for f in found if f.rule == "KP061"} == {"warning"}


def test_an_outage_that_may_have_ended_in_a_stretch_without_packets_is_uncertain() -> None:
    window, _every = whole(PATHS["ibp-2.4-IV0-a"])
    lasting = [f for f in found_in(window.lacking(0.513, 0.663)) if f.rule == "KP010"]
    assert len(lasting) == 17
    assert {f.cannot_tell for f in lasting} == {"requests that may have ended it are not in the capture"}
    # what held for long enough before packets were lost, did so whatever they told
    before = [f for f in found_in(window.lacking(0.513, 0.663), {"offline": 5}) if f.rule == "KP010"]
    assert {f.severity for f in before if f.last == lasting[0].last} == {"trouble"}


@pytest.mark.parametrize("snaplen", [96, 120])
def test_a_snaplen_is_told_as_a_warning(snaplen: int) -> None:
    window, _every = whole(CAPTURES[0])
    found = found_in(window.cut_to(snaplen))
    assert "warning" in {f.severity for f in found if f.rule == "KP061"}
    assert not alarms(found)


@cache
def planted(seed: int) -> tuple[Window, list[Finding], Truth]:
    fleet = fleet_of(seed, FLEETS.get(seed, ()))
    with TemporaryDirectory() as directory:
        (path,) = write_captures(fleet, Path(directory)).files
        data = Path(path).read_bytes()
        packed = Path(directory) / "fleet.pcap.gz"
        packed.write_bytes(gzip.compress(data, 1))
        window = Window.of(packed)
    return window, found_in(window, {"min-isr": 2}), findings_truth(fleet)


def test_a_state_told_before_a_stretch_without_packets_may_have_changed_in_it() -> None:
    window, every, _truth = planted(180584)  # the topic is deleted in it; later a broker of its ISR is away
    found = found_in(window.lacking(0.276, 0.426), {"min-isr": 2})
    assert alarms(found) <= alarms(every)
    unsure = {f.cannot_tell for f in found if f.rule == "KP023"}
    assert "requests that may have ended it are not in the capture" in unsure


@drawn(4, 12)
@given(st.sampled_from(sorted(FLEETS)), some_part, st.booleans())
@example(65707, 0.04, False)  # an ISR shrank 0.1 ms before the end
@example(46932, 0.93, True)  # the window begins as KRaft's controller takes over
@example(175598, 0.29933659, True)  # amid a reassignment
@example(340658, 0.235, True)  # a missed update of a controller that the window knows
@example(15970, 0.078884, True)  # a controller takes over, and tells a broker late what it may have had before
def test_a_window_on_a_fleet_accuses_nobody_else_and_finds_its_faults(seed: int, part: float, later: bool) -> None:
    window, every, truth = planted(seed)
    at = window.at(part)
    found = found_in(window.since(at) if later else window.until(at), {"min-isr": 2})
    expected = truth.required + truth.allowed + truth.under_min_isr
    for finding in found:
        if finding.severity != "note" and finding.rule not in DAMAGE and subject(finding) not in alarms(every):
            assert any(fits(wanted, finding) for wanted in expected), finding
    if later:  # KP015 and KP030 need a state of the partition before the fault
        inside = [p for p in truth.planted if p.time_ns > at + 60 * 10**9]
        wanted = [f for p in inside for f in p.required if f.rule not in ("KP015", "KP030")]
        for one in wanted:
            if any(fits(one, finding) for finding in every):
                assert any(fits(one, finding) for finding in found), one


@pytest.mark.parametrize(
    ("seed", "hosts"),
    [
        (15970, {5}),  # of a broker that was the controller before, then another
        (15970, {1}),
        pytest.param(859947, {2, 3, 7}, marks=pytest.mark.slow),  # KRaft's controller has a host of its own
    ],
)
def test_captures_of_some_hosts_accuse_no_broker_of_another(seed: int, hosts: set[int], tmp_path: Path) -> None:
    window, every, _truth = planted(seed)
    servers = [(f"10.0.0.{broker + 1}", 9092) for broker in range(10)]
    parts = by_host(Recorded(window.link, window.packets), servers)
    some = [str(parts[f"host-10.0.0.{host}.pcap"].write(tmp_path / f"{host}.pcap")) for host in hosts]
    facts = Facts(resolved_pieces(some))
    found = findings(facts, {"min-isr": 2})
    assert alarms(found) <= alarms(every)
    of_all = Facts(resolved_pieces([str(window.write(tmp_path / "all.pcap"))]))
    assert not_accepted(facts) <= not_accepted(of_all)
    assert "the captures lack what a controller sent to that broker" in {f.cannot_tell for f in found}


@pytest.mark.parametrize(
    ("name", "slower"),
    [
        ("ibp-3.9-migration-a", 1),
        ("ibp-3.9-a", SLOWER),  # what ends a state waits for a minute until the host has answered another request
    ],
)
def test_the_capture_of_one_host_accuses_nobody_else(name: str, slower: int, tmp_path: Path) -> None:
    window, _every = whole(PATHS[name])
    window = window.slower(slower)
    limits = {"queued": slower * LIMITS["queued"].default}
    every = found_in(window, limits)
    servers = [("127.0.0.1", port) for port in (19092, 19093, 19094)]
    parts = by_host(Recorded(window.link, window.packets), servers)
    assert len(parts) == len(servers)
    for name, part in parts.items():
        facts = Facts(resolved_pieces([str(part.write(tmp_path / name))]))
        assert alarms(findings(facts, limits)) <= alarms(every)


def not_accepted(facts: Facts) -> set[tuple[str | None, str]]:
    told = [event for event in events(facts) if "have not accepted" in event.text]
    return {(event.topic, broker) for event in told for broker in re.findall(r"\d+", event.text.rpartition("[")[2])}


def reassigned(facts: Facts) -> set[tuple[Any, ...]]:
    return {(*row[:2], row.added, row.removed, frozenset(row.replicas)) for row in reassignments(facts)}


@cache
def turns(path: Path) -> list[float]:
    """The parts of a capture at which controllers, brokers, topics and reassignments come, go or change."""
    window, _every = whole(path)
    facts = facts_in(window)
    assert facts is not None
    begin, length = window.at(0), window.at(1) - window.at(0)
    return [(event.ts * 1000 - begin) / length for event in events(facts) if event.kind != "unclean election"]


@few
@given(some_captures, some_part, st.sampled_from([0.01, 0.05, 0.15, 0.3]), st.none() | st.integers(0, 1 << 16))
@example(PATHS["ibp-2.2-a"], 0.70482, 0.05, None)  # the connection that began before shows no more
@example(PATHS["ibp-2.6-a"], 0.51517, 0.01, None)  # that of a broker that comes back begins in it
@example(PATHS["ibp-1.0-a"], 0.5987, 0.15, None)  # a broker comes back, and another controller is the first to list it
@example(PATHS["ibp-1.0-a"], 0.57294, 0.27678, None)  # the connections of another controller begin in it
@example(PATHS["ibp-2.2-a"], 0.51934, 0.25358, None)  # topics are deleted, of which the next controller knows nothing
@example(PATHS["ibp-2.8-a"], 0.5694, 0.25, None)  # the same, and a broker was not told their last states
@example(PATHS["ibp-2.6-a"], 0.29689, 0.01, None)  # a topic is deleted, and a state of it is told later
@example(PATHS["ibp-2.4-IV0-a"], 0.19259, 0.15, None)  # a replica goes, and is told to stop
@example(PATHS["ibp-3.9-migration-a"], 0.43525, 0.01, None)  # UpdateMetadata alone tells of a reassignment under way
@example(PATHS["KAFKA-9212-2.4.1"], 0.3062, 0.05, None)  # replicas come, and others go
@example(PATHS["KAFKA-13972-3.9.1"], 0.26444, 0.05, None)  # one is cancelled: LeaderAndIsr has the replicas before
def test_a_stretch_without_packets_accuses_nobody_and_shows_no_other_reassignment(
    path: Path, since: float, length: float, turn: int | None
) -> None:
    """A ``turn`` of the capture lies in it, where one is drawn."""
    window, every = whole(path)
    if turn is not None:
        since = max(0, turns(path)[turn % len(turns(path))] - since * length)
    facts, of_all = facts_in(window.lacking(since, since + length)), facts_in(window)
    if facts is not None:
        assert of_all is not None
        assert alarms(findings(facts)) <= alarms(every)
        assert reassigned(facts) <= reassigned(of_all)
        assert since + length >= 1 or not_accepted(facts) <= not_accepted(of_all)  # else the deletion may be under way


@pytest.mark.parametrize(("name", "since", "until"), [("ibp-2.4-IV0-a", 0.423, 0.573), ("ibp-2.8-a", 0.343, 0.493)])
def test_a_deletion_amid_a_stretch_without_packets_accuses_no_broker(name: str, since: float, until: float) -> None:
    """One that came back behind it may have accepted the deletion on a connection that ended in it."""
    window, every = whole(PATHS[name])
    found = found_in(window.lacking(since, until))
    assert alarms(found) <= alarms(every)
    assert "bytes of its connection are missing in the capture" in {f.cannot_tell for f in found if f.rule == "KP041"}


def test_how_a_broker_left_is_unknown_where_what_told_so_may_be_missing(tmp_path: Path) -> None:
    window, _every = whole(PATHS["ibp-2.4-IV1-a"])
    found = []
    for name, part in (("whole", window), ("part", window.lacking(0.574, 0.585))):
        facts = Facts(resolved_pieces([str(part.write(tmp_path / f"{name}.pcap"))]))
        found.append([facts.how_it_left(0, since) for since, _until in facts.absences[0]])
    killed = "killed, hung or cut off (no controlled shutdown)"
    assert found == [[killed, "a controlled shutdown"], [killed, None]]


@pytest.mark.parametrize(
    ("name", "snaplen", "broker"),
    [
        ("ibp-0.10.0-a", 1500, 2),  # the leader is told to stop
        ("ibp-3.9-a", 256, 2),  # the leader was killed, and another holder is told to delete
        ("ibp-2.2-a", 500, 2),  # it left before it answered the deletion
    ],
)
def test_what_is_stopped_by_a_deletion_shows_no_controlled_shutdown(
    name: str, snaplen: int, broker: int, tmp_path: Path
) -> None:
    """The capture lacks the rest of the deletion."""
    window, _every = whole(PATHS[name])
    facts = Facts(resolved_pieces([str(window.cut_to(snaplen).write(tmp_path / "window.pcap"))]))
    assert facts.how_it_left(broker, facts.absences[broker][0].since) is None


def test_an_error_just_before_the_end_may_yet_be_put_right() -> None:
    window, every, _truth = planted(910)
    (refused,) = (finding for finding in every if finding.rule == "KP051")
    found = found_in(window.until((refused.first + 1_000_000) * 1000))
    assert refused.severity == "warning"
    assert [finding.cannot_tell for finding in found if finding.rule == "KP051"] == ["the capture ends soon after"]
