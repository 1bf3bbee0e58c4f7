"""Captures of synthetic fleets are read as what was generated, and are the same bytes each time."""

from collections import Counter
from pathlib import Path

import pytest

from kproto import capture
from kproto.api import ApiKey
from kproto.errors import ConfigurationError
from kproto.generate import PlannedFleet, sized, write_captures
from kproto.generate.fleet import Bodies

SMALL = PlannedFleet(
    brokers=5, topics=4, partitions=60, isr_changes=30, elections=10, restarts=2, failovers=2, loss=0.05
)


def written(fleet: PlannedFleet, directory: Path, **options: object) -> list[Path]:
    directory.mkdir()
    return list(write_captures(fleet, directory, **options).files)  # type: ignore[arg-type]


def test_a_capture_is_whole_and_readable(tmp_path: Path) -> None:
    (path,) = written(SMALL, tmp_path / "out")
    summary = capture.CaptureSummary()
    exchanges = list(capture.exchanges(path, summary=summary))
    assert not summary.gaps
    assert not summary.bad_inputs
    assert {exchange.api_key for exchange in exchanges} == {ApiKey(key) for key in (4, 5, 6)}
    assert all(exchange.error is None for exchange in exchanges)
    outcomes = Counter(getattr(exchange.response_message, "error_code", None) for exchange in exchanges)
    assert outcomes[11] > 0  # the zombie
    assert outcomes[None] > 0  # connections broke
    assert outcomes[0] > 200
    assert len({(each.client, each.server, each.correlation_id) for each in exchanges}) == len(exchanges)


def test_equal_fleets_give_equal_bytes_and_other_seeds_others(tmp_path: Path) -> None:
    first, second, third = (
        written(fleet, tmp_path / str(n))[0].read_bytes()
        for n, fleet in enumerate([SMALL, SMALL, PlannedFleet(seed=2)])
    )
    assert first == second
    assert first != third


@pytest.mark.parametrize("protocol", ["3.9", "2.4"])
def test_versions_are_those_of_the_protocol(tmp_path: Path, protocol: str) -> None:
    (path,) = written(PlannedFleet(partitions=50, isr_changes=5, protocol=protocol), tmp_path / "out")  # type: ignore[arg-type]
    found = {(exchange.api_key, exchange.api_version) for exchange in capture.exchanges(path)}
    assert found == ({(4, 7), (5, 4), (6, 8)} if protocol == "3.9" else {(4, 4), (5, 2), (6, 6)})


def test_distinct_bodies_are_never_there_twice(tmp_path: Path) -> None:
    (path,) = written(PlannedFleet(bodies="distinct", zombies=0, isr_changes=200), tmp_path / "out")
    bodies = [
        (exchange.api_key, exchange.request.body.tobytes())
        for exchange in capture.exchanges(path)
        if exchange.request is not None
    ]
    assert len(bodies) > 200
    assert len(set(bodies)) == len(bodies)


def test_rotated_and_per_host_files_hold_the_same_requests(tmp_path: Path) -> None:
    def requests(paths: list[Path]) -> list[tuple[str, int, int, int]]:
        return sorted(
            (str(exchange.server), exchange.time_ns, exchange.correlation_id, len(exchange.frame.payload))
            for point in capture.capture_points(paths)
            for exchange in capture.exchanges(point)
        )

    whole = requests(written(SMALL, tmp_path / "whole"))
    rotated = written(SMALL, tmp_path / "rotated", rotate_bytes=50_000)
    assert len(rotated) > 3
    assert max(path.stat().st_size for path in rotated) <= 50_000
    assert requests(rotated) == whole
    packed = written(SMALL, tmp_path / "packed", rotate_bytes=50_000, zstd=True)
    assert [path.name for path in packed] == [f"{path.name}.zst" for path in rotated]
    assert sum(path.stat().st_size for path in packed) * 5 < sum(path.stat().st_size for path in rotated)
    assert requests(packed) == whole
    hosts = written(SMALL, tmp_path / "hosts", per_host=True, rotate_bytes=40_000)
    assert {path.name.partition(".")[0] for path in hosts} == {f"broker-{broker}" for broker in SMALL.broker_ids}
    assert requests(hosts) == whole


def test_segments_hold_mss_bytes_at_most(tmp_path: Path) -> None:
    (path,) = written(SMALL, tmp_path / "out", mss=200)
    longest = max(exchange.frame.length for exchange in capture.exchanges(path))
    assert longest > 1000
    data, at, sizes = path.read_bytes(), 24, set()
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        sizes.add(size - 54)
        at += 16 + size
    assert max(sizes) == 200


@pytest.mark.parametrize(
    ("bodies", "topics"), [("fleet", 20), ("distinct", 20), ("fleet", 1), ("fleet", 2), ("fleet", 3)]
)
def test_a_wanted_size_is_about_reached(tmp_path: Path, bodies: Bodies, topics: int) -> None:
    """Also where a deletion leaves half of the partitions, or none but one topic is there to delete."""
    fleet = sized(PlannedFleet(bodies=bodies, topics=topics, batch=100), 8_000_000)
    (path,) = written(fleet, tmp_path / "out")
    assert 0.85 < path.stat().st_size / 8_000_000 < 1.15


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"brokers": 2}, "3 replicas need as many brokers"),
        ({"topics": 2000}, "2000 topics need as many partitions"),
        ({"failovers": 0}, "zombies need a failover"),
        ({"loss": 1.0}, "loss"),
        ({"isr_changes": -1}, "must not be negative"),
        ({"batch": 0}, "at least 1"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(wrong: dict[str, int], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        PlannedFleet(**wrong)  # type: ignore[arg-type]


def test_a_size_below_the_takeovers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="larger --size"):
        sized(PlannedFleet(), 1000)


def test_captures_of_hosts_are_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pack them afterwards"):
        written(SMALL, tmp_path / "hosts", per_host=True, zstd=True)
