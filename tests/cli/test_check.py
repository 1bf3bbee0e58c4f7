"""``kproto check``: which recordings are whole, where others are damaged, and the exit code that a script reads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import run_kproto
from conftest import DATA

from channel.network.recorder import PcapngRecorder
from kproto.capture import CaptureSummary, frames

CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 9092)
NOW = 1_700_000_000_000_000_000
MARK = b"the payload "


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Ten packets with a payload, three that open the connection and two that close it."""
    path = tmp_path / "whole.pcapng"
    with PcapngRecorder(path) as recorder:
        recorder.opened(CLIENT, SERVER, NOW)
        for number in range(10):
            recorder.record("sent", CLIENT, SERVER, NOW + number, [MARK + b"%04d" % number])
        recorder.closed(CLIENT, SERVER, NOW + 10)
    return path


def beside(recording: Path, name: str, data: bytes) -> str:
    path = recording.with_name(name)
    path.write_bytes(data)
    return str(path)


def flipped(recording: Path, *numbers: int) -> str:
    """The recording with one bit turned over in the payloads of these records."""
    data = bytearray(recording.read_bytes())
    for number in numbers:
        data[data.index(MARK + b"%04d" % number)] ^= 1
    return beside(recording, "flipped.pcapng", bytes(data))


def check(*arguments: str) -> tuple[int, str]:
    result = run_kproto("check", *arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert (result.stderr == "") == (result.exit_code != 2)
    return result.exit_code, result.stdout


def unreadable(*arguments: str, data: bytes | None = None) -> str:
    """What is said on standard error, and nowhere else, of a file that cannot be read."""
    result = run_kproto("check", *arguments, input=data)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def objects(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, text = check(*arguments, "--format", "json")
    return code, [json.loads(line) for line in text.splitlines()]


def test_a_whole_recording_is_told_so(recording: Path) -> None:
    code, (row,) = objects(str(recording))
    assert code == 0
    assert row["packets"] >= 10
    assert row == {
        "file": str(recording),
        "whole": True,
        "error": None,
        "format": "pcapng",
        "packets": row["packets"],
        "bad_checksums": 0,
        "not_read": {},
        "untimed_packets": 0,
        "damages": [],
    }
    assert check(str(recording)) == (0, f"{recording}: whole, {row['packets']} packets\n")


def test_a_capture_without_checksums_is_whole_too() -> None:
    code, (row,) = objects(str(DATA / "captures/ibp-3.9-a.pcap.gz"))
    assert (code, row["whole"], row["format"]) == (0, True, "pcap")
    assert row["packets"] > 0


def test_a_flipped_bit_costs_its_packet_and_tells_where(recording: Path) -> None:
    _, (whole,) = objects(str(recording))
    file = flipped(recording, 3)
    code, (row,) = objects(file)
    (damage,) = row["damages"]
    assert (code, row["whole"], row["error"], row["bad_checksums"]) == (1, False, None, 1)
    assert row["packets"] == whole["packets"] - 1
    at = recording.read_bytes().index(MARK + b"0003")
    assert damage["offset"] < at < damage["offset"] + damage["bytes"]
    assert check(file) == (
        1,
        f"{file}: damaged in 1 place, {row['packets']} packets\n"
        f"  byte {damage['offset']}: {damage['reason']} ({damage['bytes']} bytes lost)\n",
    )


def test_a_recording_cut_short_within_a_packet_loses_what_was_cut_alone(recording: Path) -> None:
    data = recording.read_bytes()
    file = beside(recording, "cut.pcapng", data[: data.index(MARK + b"0009") + 5])
    code, (row,) = objects(file)
    (damage,) = row["damages"]
    assert (code, row["whole"], row["error"], row["bad_checksums"]) == (1, False, None, 0)
    assert data.index(MARK + b"0008") < damage["offset"] < data.index(MARK + b"0009")
    assert damage["bytes"] == 0  # what there is of the last packet was read
    _, text = check(file)
    assert text.splitlines()[1:] == [f"  byte {damage['offset']}: the file ends within a block"]


def test_a_cut_that_leaves_nothing_of_a_packet_tells_the_bytes_lost(recording: Path) -> None:
    code, text = check(beside(recording, "stub.pcapng", recording.read_bytes() + b"\6\0\0"))
    assert code == 1
    assert text.splitlines()[1:] == [f"  byte {recording.stat().st_size}: the file ends within a block (3 bytes lost)"]


def test_of_many_damages_the_text_lists_twenty_and_json_all(recording: Path) -> None:
    recording.unlink()  # a recorder leaves what is there alone
    with PcapngRecorder(recording) as recorder:
        recorder.opened(CLIENT, SERVER, NOW)
        for number in range(23):
            recorder.record("sent", CLIENT, SERVER, NOW + number, [MARK + b"%04d" % number])
    for count, last in ((20, None), (21, "  and 1 more"), (23, "  and 3 more")):
        file = flipped(recording, *range(count))
        _, (row,) = objects(file)
        assert len(row["damages"]) == count
        _, text = check(file)
        head, *damages = text.splitlines()
        assert f"damaged in {count} places" in head
        assert damages[20:] == ([] if last is None else [last])


@pytest.mark.parametrize("name", ["no capture", "empty", "absent"])
def test_a_file_that_is_no_capture_is_one_line_with_its_path(recording: Path, name: str) -> None:
    path = recording.with_name("other.pcapng")
    if name != "absent":
        path.write_bytes(b"" if name == "empty" else b"a shopping list\n" * 9)
    result = run_kproto("check", path, "--format", "json")
    row = json.loads(result.stdout)
    assert (result.exit_code, row["file"], row["whole"], row["packets"], row["damages"]) == (2, str(path), False, 0, [])
    assert {"no capture": "not a capture", "empty": "empty", "absent": "no such file"}[name] in row["error"]
    (line,) = unreadable(str(path)).splitlines()
    assert line.startswith(f"{path}: ")
    assert line.count("other.pcapng") == 1


def test_each_file_gets_its_verdict_and_one_damaged_file_decides_the_exit_code(recording: Path) -> None:
    bad = flipped(recording, 0)
    code, rows = objects(str(recording), bad, str(recording))
    assert (code, [row["whole"] for row in rows]) == (1, [True, False, True])
    code, rows = objects(str(recording), str(recording))
    assert (code, [row["whole"] for row in rows]) == (0, [True, True])


def test_standard_input_is_verified_like_a_file(recording: Path) -> None:
    whole = run_kproto("check", "-", input=recording.read_bytes())
    assert (whole.exit_code, whole.output) == (0, check(str(recording))[1].replace(str(recording), "-"))
    torn = run_kproto("check", "-", input=recording.read_bytes()[:-9])
    assert torn.exit_code == 1
    assert torn.output.startswith("-: damaged in 1 place, ")
    assert unreadable("-", data=b"") == "-: an empty file; nothing was recorded in it\n"


def test_a_log_is_counted_in_requests_and_other_text_is_no_log(tmp_path: Path) -> None:
    log = str(DATA / "request_log" / "broker-0-kafka-request.log.gz")
    code, text = check(log)
    assert code == 0
    assert re.fullmatch(rf"{re.escape(log)}: whole, [1-9][0-9]* requests\n", text)
    (tmp_path / "server.log").write_text("[2026-11-20 19:35:04,696] INFO [KafkaServer id=1] started\n" * 3)
    told = unreadable(str(tmp_path / "server.log"))
    assert "no line of this text is a request that kafka.request.logger wrote" in told


def test_a_name_with_a_line_break_stays_on_its_line(recording: Path) -> None:
    odd = recording.rename(recording.with_name("a\nb.pcapng"))
    assert check(str(odd))[1].splitlines() == [
        f"{odd.parent}/a\\nb.pcapng: whole, {objects(str(odd))[1][0]['packets']} packets"
    ]


def test_a_uri_is_told_which_commands_read_it() -> None:
    assert unreadable("s3://bucket/a.pcap") == (
        "s3://bucket/a.pcap: no such file here; summary, query, report and analyze read URIs: "
        "try these, or copy the file\n"
    )


def test_each_file_of_a_directory_is_named_with_what_is_wrong_with_it(recording: Path) -> None:
    beside(recording, "cut.pcapng", recording.read_bytes()[:-7])
    beside(recording, "empty.pcap", b"")
    beside(recording, "header.pcap", b"\xd4\xc3\xb2\xa1\x02")
    found = {}
    for row in map(json.loads, run_kproto("check", recording.parent, "--format", "json").stdout.splitlines()):
        found[Path(row["file"]).name] = row["whole"], row["error"], len(row["damages"])
    assert found == {
        "whole.pcapng": (True, None, 0),
        "cut.pcapng": (False, None, 1),
        "empty.pcap": (False, "empty.pcap: an empty file; nothing was recorded in it", 0),
        "header.pcap": (False, "header.pcap: a pcap file cut off within its header", 0),
    }
    summary = CaptureSummary()
    assert list(frames(recording.parent, apis=None, summary=summary)) == list(frames(recording, apis=None))
    assert {bad.file for bad in summary.bad_inputs} == set(found) - {"whole.pcapng"}
