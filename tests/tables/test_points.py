"""Which files of a directory make the capture points of tables."""

import gzip
from pathlib import Path

import packets as make
import pytest
from table_truth import CAPTURES, name_of

from kproto.capture.capture_points import capture_files
from kproto.tables import read
from kproto.tables.points import points_of


def test_a_file_that_a_tap_still_writes_is_read_unless_it_is_left_to_a_later_run(tmp_path: Path) -> None:
    for wanted, name in (("ibp-2.8-a", "a.pcap"), ("ibp-3.9-a", "b.part")):
        capture = next(path for path in CAPTURES if name_of(path) == wanted)
        (tmp_path / name).write_bytes(gzip.decompress(capture.read_bytes()))

    def names(points: list[object]) -> set[str]:
        return {file.rpartition("/")[2] for point in points for file in point.files}  # type: ignore[attr-defined]

    assert names([*points_of([str(tmp_path)])]) == {"a.pcap", "b.part"}
    assert [file.rpartition("/")[2] for file in capture_files([str(tmp_path)], unfinished=False)] == ["a.pcap"]


@pytest.mark.parametrize("names", [("tap-1-00001.pcapng", "tap-1-00002.pcapng"), ("here.pcapng", "there.pcapng")])
@pytest.mark.parametrize(("server", "judged"), [("10.0.0.2", 0), ("10.0.0.3", 1)], ids=["same server", "another"])
@pytest.mark.parametrize("kept", ["a request", "a few bytes", "its end alone"])
def test_a_file_in_which_no_controller_spoke_is_bad_only_if_no_file_with_its_servers_has_one(
    names: tuple[str, str], server: str, judged: int, kept: str, tmp_path: Path
) -> None:
    control = make.Talk(client=("10.0.0.1", 50_000), server=("10.0.0.2", 9092)).open()
    control.ask(make.request(6, 8, 1, make.UPDATE_METADATA_8)).close()
    (tmp_path / names[0]).write_bytes(make.pcapng(control.packets))
    other = make.Talk(client=("10.0.0.1", 50_001), server=(server, 9092)).open()
    asked = make.request(3, 2, 1, b"\0\0\0\1\0\6orders", "app")
    if kept == "a request":
        other.ask(asked).answer(make.response(3, 2, 1, bytes(14)))
    elif kept == "a few bytes":
        other.ask(asked[:6])
    else:
        other.packets.clear()
    (tmp_path / names[1]).write_bytes(make.pcapng(other.close().packets))
    assert read(tmp_path)["bad_inputs"].num_rows == judged
