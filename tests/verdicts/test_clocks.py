"""Capture points whose clocks differ: the difference is told, and makes no update late."""

import shlex
import struct
from pathlib import Path

import pytest
from commands import run_kproto

from kproto.generate import PlannedFleet, write_captures
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.doctor import Finding
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

FLEET = PlannedFleet(
    seed=5, brokers=5, topics=6, partitions=20, isr_changes=12, elections=2, deletions=0, restarts=0, failovers=1,
    plants=("told-late",),
)  # fmt: skip


def shift(path: Path, us: int) -> None:
    """Put the clock of a pcap file forward."""
    data = bytearray(path.read_bytes())
    unit = 10**9 if data[:4] in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 10**6
    at = 24
    while at < len(data):
        seconds, part, size = struct.unpack_from("<III", data, at)
        moved = seconds * unit + part + us * (unit // 10**6)
        struct.pack_into("<II", data, at, *divmod(moved, unit))
        at += 16 + size
    path.write_bytes(data)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A capture of each broker's host."""
    write_captures(FLEET, tmp_path, per_host=True)
    return tmp_path


def found_in(hosts: Path) -> list[Finding]:
    return findings(Facts(resolved_pieces([str(hosts)])))


def certain(found: list[Finding]) -> set[tuple[str, object]]:
    return {(finding.rule, finding.broker) for finding in found if finding.severity != "note"}


@pytest.mark.parametrize("us", [7_000_000, -40_000_000])
def test_a_clock_that_differs_is_told_and_taken_off(hosts: Path, us: int) -> None:
    expected = certain(found_in(hosts))
    assert expected
    shift(hosts / "broker-2.pcap", us)
    found = found_in(hosts)
    (clock,) = (finding for finding in found if finding.rule == "KP063")
    assert f"broker-2.pcap is {abs(us) // 1_000_000}.0 s {'ahead of' if us > 0 else 'behind'}" in clock.text
    assert certain(found) == expected


def test_the_doctors_command_shows_the_capture_whose_clock_differs(hosts: Path) -> None:
    shift(hosts / "broker-2.pcap", 7_000_000)
    told = run_kproto("doctor", hosts, "--rule", "KP063")
    (words,) = (shlex.split(line) for line in told.stdout.splitlines() if line.startswith(" "))
    shown = run_kproto(*words[1:])
    assert (words[0], shown.exit_code) == ("kproto", 0), shown.stderr
    assert shown.stdout


def test_clocks_that_agree_are_not_mentioned(hosts: Path) -> None:
    shift(hosts / "broker-2.pcap", 300_000)
    assert not [finding for finding in found_in(hosts) if finding.rule == "KP063"]


def test_a_single_capture_has_no_other_clock(tmp_path: Path) -> None:
    write_captures(FLEET, tmp_path)
    assert not [finding for finding in found_in(tmp_path) if finding.rule == "KP063"]
