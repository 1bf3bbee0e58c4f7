"""Which files of a directory make the capture points of tables."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import packets as make
import pytest
from table_truth import CAPTURES, name_of

from kproto.tables import read
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


@pytest.mark.parametrize(
    ("names", "judged"),
    [(("tap-1-00001.pcapng", "tap-1-00002.pcapng"), 0), (("tap-1.pcapng", "tap-2.pcapng"), 1)],
    ids=["of one tap", "of two"],
)
def test_a_file_in_which_no_controller_spoke_is_bad_only_if_its_place_has_no_other(
    names: tuple[str, str], judged: int, tmp_path: Path
) -> None:
    for name, port, asked in (
        (names[0], 50_000, make.request(6, 8, 1, make.UPDATE_METADATA_8)),
        (names[1], 50_001, make.request(3, 2, 1, b"\0\0\0\1\0\6orders", "app")),
    ):
        talk = make.Talk(client=("10.0.0.1", port)).open().ask(asked).answer(make.response(3, 2, 1, bytes(14))).close()
        (tmp_path / name).write_bytes(make.pcapng(talk.packets))
    assert read(tmp_path)["bad_inputs"].num_rows == judged
