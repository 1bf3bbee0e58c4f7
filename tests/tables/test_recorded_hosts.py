"""Captures and logs of one host are found by what they show: whatever the files are called, the clocks are the same."""

import random
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

import kproto.tables
from kproto.tables.clocks import PointClock
from kproto.tables.hosts import HOST_COLUMNS, HostEvidence
from kproto.tables.resolved import resolved_tables
from kproto.tables.schemas import REQUESTS
from tests.hosts import Recorded, by_host, recorded

SECOND = 1_000_000


def link(
    capture: str,
    server: int,
    ids: tuple[int, int],
    ts: tuple[int, int],
    *,
    controller: int = 1,
    epoch: int = 1,
    broker: int | None = None,
    exchanges: Sequence[bytes] = (),
) -> list[dict[str, Any]]:
    """Two requests to a broker, the first and the last of a capture."""
    return [
        {
            "cluster": "default", "capture": capture, "server_ip": f"10.0.0.{server}", "server_port": 9092,
            "broker_id": server if broker is None else broker, "controller_id": controller, "controller_epoch": epoch,
            "api_key": 6, "correlation_id": number, "ts": at * SECOND,
            "exchange_id": exchanges[place] if exchanges else f"{server} {epoch} {number}".encode(),
        }
        for place, (number, at) in enumerate(zip(ids, ts, strict=True))
    ]  # fmt: skip


def hosts_of(
    *links: Iterable[Mapping[str, Any]], names: Mapping[str, str] | None = None, formats: str = "pcap"
) -> set[frozenset[str]]:
    """The capture points that share a host, by their names in the links."""
    rows = [dict(row) for each in links for row in each]
    names = names or {}
    for row in rows:
        row["capture"] = names.get(row["capture"], row["capture"])
    every = sorted({row["capture"] for row in rows})
    evidence = HostEvidence(pa.table({"capture": every, "format": [formats] * len(every)}))
    evidence.add(pa.Table.from_pylist(rows, pa.schema([REQUESTS.field(name) for name in HOST_COLUMNS])))
    back = {new: old for old, new in names.items()}
    found: dict[str, set[str]] = {}
    for name, host in evidence.hosts(every, evidence.sightings()).items():
        found.setdefault(host, set()).add(back.get(name, name))
    return {frozenset(each) for each in found.values()}


def together(*names: str) -> set[frozenset[str]]:
    return {frozenset(names)}


def apart(*names: str) -> set[frozenset[str]]:
    return {frozenset([name]) for name in names}


def test_captures_of_one_brokers_side_are_of_its_host() -> None:
    assert hosts_of(link("a", 1, (1, 9), (0, 10)), link("b", 1, (70, 90), (20, 30))) == together("a", "b")
    assert hosts_of(link("a", 1, (1, 9), (0, 10)), link("b", 2, (10, 90), (20, 30))) == apart("a", "b")


def test_the_host_of_a_controller_that_changed_is_that_of_its_broker() -> None:
    leading = [*link("a", 1, (1, 9), (0, 10)), *link("a", 2, (1, 9), (0, 10)), *link("a", 3, (1, 9), (0, 10))]
    led = link("b", 1, (1, 9), (20, 30), controller=2, epoch=2)
    other = [*link("c", 2, (1, 9), (0, 10)), *link("c", 2, (10, 19), (11, 19), controller=2, epoch=2)]
    for each in other:  # what both ends of the first controller's connections saw
        each["ts"] += 40 * SECOND
    assert hosts_of(leading, led) == together("a", "b")
    assert hosts_of(leading, led, other) == together("a", "b") | apart("c")


def test_a_connection_that_goes_on_joins_captures_of_many_brokers() -> None:
    mirror = [
        *link("a", 1, (1, 9), (0, 10)),
        *link("a", 2, (1, 9), (0, 10)),
        *link("a", 2, (1, 2), (2, 9), controller=3, epoch=2),
    ]
    later = [*link("b", 2, (3, 9), (20, 30), controller=3, epoch=2), *link("b", 1, (3, 9), (20, 30), epoch=3)]
    assert hosts_of(mirror, later) == together("a", "b")
    much_later = [*link("b", 2, (30, 90), (20, 30), controller=3, epoch=2), *link("b", 1, (3, 9), (20, 30), epoch=3)]
    assert hosts_of(mirror, much_later) == apart("a", "b")


def test_captures_that_contradict_each_other_are_of_different_hosts() -> None:
    first = link("a", 1, (1, 9), (0, 10))
    same_time = link("b", 1, (20, 30), (5, 8))
    other_controller = link("b", 1, (20, 30), (20, 30), controller=7)
    seen_again = link("b", 1, (1, 9), (20, 30))
    for second in (same_time, other_controller, seen_again):
        assert hosts_of(first, second) == apart("a", "b")
    assert hosts_of(first, seen_again, link("c", 1, (31, 40), (40, 50))) == apart("a", "b", "c")


def test_logs_of_one_broker_are_of_its_host() -> None:
    received = link("state", 1, (1, 90), (0, 100))
    decided = link("controller", 1, (-1, -9), (0, 90))
    assert hosts_of(received, decided, formats="state-change log") == together("state", "controller")
    strangers = link("controller", 1, (-1, -9), (0, 90), controller=4)
    assert hosts_of(received, strangers, formats="state-change log") == apart("state", "controller")


@given(st.randoms(use_true_random=False))
def test_names_decide_nothing(chosen: random.Random) -> None:
    captures = [
        link(
            f"capture {number}",
            chosen.randint(1, 3),
            (begin := chosen.randint(0, 30), begin + chosen.randint(0, 9)),
            (at := chosen.randint(0, 60), at + chosen.randint(0, 9)),
            controller=chosen.randint(1, 2),
            epoch=chosen.randint(1, 3),
        )
        for number in range(chosen.randint(1, 8))
        for _link in range(chosen.randint(1, 3))
    ]
    names = sorted({row["capture"] for each in captures for row in each})
    others = chosen.sample([*names, *map(str, range(20))], len(names))
    renamed = dict(zip(names, others, strict=True))
    assert hosts_of(*captures, names=renamed) == hosts_of(*captures)


CAPTURES = [DATA / "captures" / f"{name}.pcap.gz" for name in ("ibp-2.8-a", "ibp-3.9-a")]


def clocks_of(paths: Sequence[Path]) -> dict[str, PointClock]:
    rows = resolved_tables(kproto.tables.read(*paths))["clocks"].to_pylist()
    return {row["capture"].rpartition("/")[2]: PointClock(**row) for row in rows}


def pieces_of(part: Recorded, chosen: random.Random) -> list[Recorded]:
    """The packets of a host, as files that follow one another; each shows some control requests."""
    count = len(part.packets)
    ends = [0, *(count * share // 100 for share in (chosen.randint(25, 45), chosen.randint(60, 75))), count]
    return [Recorded(part.link, part.packets[begin:end]) for begin, end in pairwise(ends)]


@pytest.mark.slow
@settings(max_examples=4)
@given(st.integers(0, 2**32), st.sampled_from(CAPTURES))
def test_files_of_one_host_have_one_clock_whatever_they_are_called(
    tmp_path_factory: pytest.TempPathFactory, seed: int, capture: Path
) -> None:
    chosen = random.Random(seed)
    folder = tmp_path_factory.mktemp("files")
    servers = {(row["server_ip"], row["server_port"]) for row in kproto.tables.read(capture)["requests"].to_pylist()}
    files, host_of, ahead_of = [], {}, {}
    for host, part in by_host(recorded(capture), servers).items():
        ahead_of[host] = chosen.choice([0, 3, -12, 120])
        for piece in pieces_of(part, chosen):
            name = f"{''.join(chosen.choices('abcdef', k=12))}.pcap"
            files.append(piece.write(folder / name, ahead_ns=ahead_of[host] * 10**9))
            host_of[name] = host
    found = clocks_of(files)
    by_hosts: dict[str, set[tuple[str, int]]] = {}
    for name, clock in found.items():
        by_hosts.setdefault(host_of[name], set()).add((clock.reference, clock.offset_us))
    assert all(len(each) == 1 for each in by_hosts.values())
    offsets = {host: clock for host, ((_reference, clock),) in by_hosts.items()}
    (least, *_others) = offsets
    for host, offset in offsets.items():
        assert (offset - offsets[least]) / SECOND == pytest.approx(ahead_of[host] - ahead_of[least], abs=0.06)


@pytest.mark.slow
def test_logs_answer_the_same_whatever_they_are_called(tmp_path: Path) -> None:
    with tarfile.open(DATA / "state_logs" / "ibp-3.9-a.tar.xz") as logs:
        logs.extractall(tmp_path, filter="data")
    paths = sorted(path for path in tmp_path.rglob("*.log*") if path.is_file())
    assert len(paths) > 4

    def answers(paths: Sequence[Path]) -> dict[str, Any]:
        tables = resolved_tables(kproto.tables.read(*paths))
        requests = tables["requests"].select(["ts", "cluster", "broker_id", "api_key", "controller_epoch", "body_id"])
        hosts = sorted((row["offset_us"], row["drift_ppm"], row["shared"]) for row in tables["clocks"].to_pylist())
        return {"requests": sorted(map(repr, requests.to_pylist())), "clocks": hosts}

    chosen = random.Random(7)
    renamed = []
    (tmp_path / "flat").mkdir()
    for path in chosen.sample(paths, len(paths)):
        renamed.append(tmp_path / "flat" / f"{chosen.randrange(1 << 40):x}.txt{'.gz' if path.suffix == '.gz' else ''}")
        shutil.copy(path, renamed[-1])
    assert answers(renamed) == answers(paths)
