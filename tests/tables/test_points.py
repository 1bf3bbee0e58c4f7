"""Which files of a directory make the capture points of tables."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from table_truth import CAPTURES, name_of

from kproto.tables.points import points_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_a_tap_still_writes_is_read_unless_it_is_left_to_a_later_run(tmp_path: Path) -> None:
    for wanted, name in (("ibp-2.8-a", "a.pcap"), ("ibp-3.9-a", "b.part")):
        capture = next(path for path in CAPTURES if name_of(path) == wanted)
        (tmp_path / name).write_bytes(gzip.decompress(capture.read_bytes()))

    def names(points: list[object]) -> set[str]:
        return {file.rpartition("/")[2] for point in points for file in point.files}  # type: ignore[attr-defined]

    assert names([*points_of([str(tmp_path)])]) == {"a.pcap", "b.part"}
    assert names([*points_of([str(tmp_path)], unfinished=False)]) == {"a.pcap"}
