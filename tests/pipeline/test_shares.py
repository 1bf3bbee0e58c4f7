"""Captures are dealt to tasks by their size."""

from pathlib import Path

import pytest

from kproto.capture import CapturePoint
from kproto.pipeline.captures import dealt, shares_of


@pytest.mark.parametrize("sizes", [[7] * 9, [0] * 9, [100, 50, 50, 1, 1, 1]])
def test_every_capture_is_in_one_share_and_shares_are_level(tmp_path: Path, sizes: list[int]) -> None:
    points = []
    for number, size in enumerate(sizes):
        path = tmp_path / f"{number}.pcap"
        path.write_bytes(bytes(size))
        points.append(CapturePoint(path.name, (str(path),)))
    shares = shares_of(points, 2)
    assert sorted(point.name for share in shares for point in share) == [point.name for point in points]
    totals = [sum(sizes[int(point.name.removesuffix(".pcap"))] for point in share) for share in shares]
    assert len(shares) == 2
    assert totals == sorted(totals, reverse=True)
    assert totals[0] - totals[1] <= max(sizes)


def test_many_large_captures_make_no_more_tasks_than_wanted(tmp_path: Path) -> None:
    points = []
    for number in range(10):
        path = tmp_path / f"{number}.pcap"
        with path.open("wb") as file:
            file.truncate(100 << 20)
        points.append(CapturePoint(path.name, (str(path),)))
    assert [len(share) for share in shares_of(points, 2)] == [1] * 10
    assert [len(share) for share in dealt(dict.fromkeys(points, 100 << 20), 2, 5)] == [2] * 5
