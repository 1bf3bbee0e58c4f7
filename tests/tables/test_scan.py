"""Captures become frames: each once, each distinct body once, whatever the batches; damage is told, not raised."""

import gzip
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import packets as make
import pyarrow as pa
import pytest
from conftest import DATA
from table_truth import CAPTURES, body_id, expected_states, name_of

from kproto import capture
from kproto.tables import BODIES, SCAN, decode, scan
from kproto.tables.scanning import ScanRows

Row = dict[str, Any]
BY_NAME = {name_of(path): str(path) for path in CAPTURES}
LOGS = sorted((DATA / "request_log").glob("*.log.gz"))
SOME = ["external-controller-a", "ibp-0.8.2-a", "ibp-2.8-a", "ibp-3.9-a-cut", "ibp-3.9-a-lossy"]


def scanned(*names: str, **options: Any) -> list[Row]:
    return pa.Table.from_batches(scan([BY_NAME[n] for n in names], **options), schema=SCAN).to_pylist()


def frames_of(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["frame_id"] is not None]


@pytest.mark.parametrize("name", SOME)
def test_frames_are_those_of_the_capture(name: str) -> None:
    rows = frames_of(scanned(name))
    expected = [f for f in capture.frames(BY_NAME[name]) if f.api_key is not None]
    assert [
        (
            r["ts_ns"],
            r["direction"],
            r["api_key"],
            r["api_version"],
            r["correlation_id"],
            r["client_id"],
            r["frame_len"],
        )
        for r in rows
    ] == [(f.time_ns, f.direction, f.api_key, f.api_version, f.correlation_id, f.client_id, f.length) for f in expected]
    assert len({r["frame_id"] for r in rows}) == len(rows)
    for row, frame in zip(rows, expected, strict=True):
        ends = [frame.connection.client, frame.connection.server]
        source, target = ends if frame.direction == "request" else ends[::-1]
        flow = row["flow"]
        assert (flow["src_ip"], flow["src_port"], flow["dst_ip"], flow["dst_port"]) == (*source, *target)
        assert row["ts"] <= row["ts_last"]
        assert row["date"] == row["ts"].date()


@pytest.mark.parametrize("name", SOME)
def test_each_distinct_body_is_given_once_and_decoding_it_once_says_all(name: str) -> None:
    """The deduplicated states, joined back to their frames, are those of every frame decoded by itself."""
    rows = frames_of(scanned(name))
    given = [row["body_id"] for row in rows if row["payload"] is not None]
    assert Counter(given).most_common(1)[0][1] == 1
    assert set(given) == {row["body_id"] for row in rows if row["body_id"] is not None}
    bodies = [{column: row[column] for column in BODIES.names} for row in rows if row["payload"] is not None]
    by_body = _states(bodies)
    several = 0
    whole = [f for f in capture.frames(BY_NAME[name]) if f.api_key is not None and f.status == capture.WHOLE]
    own = []
    for number, frame in enumerate(whole):
        key = body_id(frame.api_key, frame.api_version, frame.direction, bytes(frame.body))
        body = {"api_key": frame.api_key, "api_version": frame.api_version, "direction": frame.direction}
        own.append({"body_id": number.to_bytes(4, "big"), **body, "payload": bytes(frame.body)})
        several += key in given
    by_frame = _states(own)
    for number, frame in enumerate(whole):
        key = body_id(frame.api_key, frame.api_version, frame.direction, bytes(frame.body))
        assert by_frame.get(number.to_bytes(4, "big")) == by_body.get(key)
    assert several > len(given)


def _states(bodies: list[Row]) -> dict[bytes, list[Row]]:
    found: dict[bytes, list[Row]] = {}
    for kind, batch in decode([pa.RecordBatch.from_pylist(bodies, schema=BODIES)]):
        for row in batch.to_pylist() if kind == "state" else ():
            found.setdefault(row.pop("body_id"), []).append(row)
    return found


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_a_brokers_own_request_log_makes_the_same_tables(path: Path) -> None:
    rows = frames_of(pa.Table.from_batches(scan([str(path)])).to_pylist())
    assert len({row["frame_id"] for row in rows}) == len(rows)
    asked = [row for row in rows if row["direction"] == "request"]
    assert {row["request_frame_id"] for row in rows} - {None} == {row["frame_id"] for row in asked}
    logged = list(capture.exchanges(path))
    states = _states([{name: row[name] for name in BODIES.names} for row in rows if row["payload"] is not None])
    assert len(asked) == len(logged) > 5
    by_id = {row["correlation_id"]: row for row in asked}
    for exchange in logged:
        row = by_id[exchange.correlation_id]
        expected = expected_states({"api_key": exchange.api_key, "request": exchange.to_json()["request"]})
        assert states.get(row["body_id"], []) == expected


def test_responses_name_the_request_that_they_answer() -> None:
    rows = frames_of(scanned("ibp-3.9-a"))
    by_id = {row["frame_id"]: row for row in rows}
    answers = [row for row in rows if row["direction"] == "response"]
    assert len(answers) > 300
    for row in answers:
        asked = by_id[row["request_frame_id"]]
        assert (asked["conn_id"], asked["correlation_id"]) == (row["conn_id"], row["correlation_id"])
        assert asked["api_key"] == row["api_key"]
        assert asked["ts_last"] <= row["ts"]


def test_unanswered_requests_have_a_note_with_the_reason() -> None:
    rows = scanned("external-controller-a")
    answered = {row["request_frame_id"] for row in rows if row["direction"] == "response"}
    notes = {row["request_frame_id"]: row["unmatched_reason"] for row in rows if row["unmatched_reason"]}
    asked = {row["frame_id"] for row in rows if row["direction"] == "request"}
    assert asked - answered == set(notes)
    assert len(notes) == 8  # five unsupported versions and three broken bodies: the broker closed the connection


def test_a_frame_with_a_gap_has_no_body_and_says_what_it_lacks() -> None:
    rows = frames_of(scanned("ibp-3.9-a-lossy"))
    for row in rows:
        assert (row["status"] == capture.GAP) == (row["body_id"] is None) == (row["error"] is not None)


def test_a_batch_that_is_gone_holds_nothing_of_its_frames() -> None:
    frame = next(each for each in capture.frames(BY_NAME["ibp-2.8-a"]) if each.api_key is not None)
    held, rows = frame.payload, ScanRows()
    before = sys.getrefcount(held)
    rows.add_frame(frame)
    assert [batch["payload"].to_pylist() for batch in rows.take()] == [[bytes(frame.body)]]
    assert sys.getrefcount(held) == before


@pytest.mark.parametrize("batch_bytes", [1, 20_000])
def test_the_size_of_batches_changes_no_row(batch_bytes: int) -> None:
    assert scanned("ibp-3.9-big-a", batch_bytes=batch_bytes) == scanned("ibp-3.9-big-a")


def test_batches_end_by_bytes() -> None:
    path = BY_NAME["ibp-3.9-big-a"]
    sizes = [batch.nbytes for batch in scan([path], batch_bytes=50_000)]
    assert len(sizes) > 4
    assert max(sizes) < 100_000


def test_files_read_one_after_the_other_give_the_same_ids_as_alone() -> None:
    together = {row["frame_id"] for row in frames_of(scanned("ibp-3.9-a", "ibp-2.8-a"))}
    assert together == {row["frame_id"] for name in ("ibp-2.8-a", "ibp-3.9-a") for row in frames_of(scanned(name))}


@pytest.mark.parametrize(("first_ns", "second_ns", "given"), [(0, 10**6, 1), (10**6, 0, 2), (0, 0, 2)])
def test_a_body_is_given_again_only_by_a_capture_that_has_it_as_early(
    tmp_path: Path, first_ns: int, second_ns: int, given: int
) -> None:
    """Captures of many hosts hold the same bodies; the first copy of all does not depend on their order."""
    for name, after_ns in (("first", first_ns), ("second", second_ns)):
        talk = make.Talk(now_ns=make.START_NS + after_ns).open()
        talk.ask(make.request(6, 8, 1, make.UPDATE_METADATA_8)).answer(make.response(6, 8, 1, b"\0\0\0"))
        (tmp_path / f"{name}.pcap").write_bytes(make.pcap(talk.packets))
    paths = [str(tmp_path / f"{name}.pcap") for name in ("first", "second")]
    rows = pa.Table.from_batches(scan(paths), schema=SCAN).to_pylist()
    payloads = [row["payload"] for row in rows if row["direction"] == "request"]
    assert len(payloads) == 2
    assert [payload for payload in payloads if payload is not None] == [make.UPDATE_METADATA_8] * given
    assert payloads[0] == make.UPDATE_METADATA_8


def test_filters_choose_requests_and_answers_follow_them() -> None:
    every = frames_of(scanned("ibp-3.9-a"))
    times = sorted(row["ts_ns"] for row in every if row["direction"] == "request")
    since, until = times[50], times[150]
    kept = frames_of(scanned("ibp-3.9-a", apis=[6], since_ns=since, until_ns=until))
    asked = {
        r["frame_id"]
        for r in every
        if r["direction"] == "request" and r["api_key"] == 6 and since <= r["ts_ns"] < until
    }
    answers = {r["frame_id"] for r in every if r["request_frame_id"] in asked}
    assert {row["frame_id"] for row in kept} == asked | answers
    assert asked
    assert answers


def test_requests_that_name_the_brokers_can_be_had_whatever_the_filters() -> None:
    rows = frames_of(scanned("ibp-3.9-a", apis=[5], until_ns=0, always=[6]))
    assert {row["api_key"] for row in rows} == {6}
    assert len(rows) == 2 * 226


def test_a_capture_point_can_be_named() -> None:
    point = capture.CapturePoint("broker-7:eth0", (BY_NAME["ibp-2.8-a"],))
    (named,) = {row["capture"] for row in frames_of(pa.Table.from_batches(scan([point])).to_pylist())}
    assert named == "broker-7:eth0"
    (unnamed,) = {row["capture"] for row in frames_of(scanned("ibp-2.8-a"))}
    assert unnamed == "ibp-2.8-a.pcap"


def test_a_file_that_is_no_capture_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no capture")
    rows = pa.Table.from_batches(scan([str(text), BY_NAME["ibp-2.8-a"]])).to_pylist()
    (bad,) = [row for row in rows if row["bad_input"]]
    assert bad["file"] == "notes.txt"
    assert "not a capture" in bad["bad_input"]["reason"]
    assert bad["bad_input"]["offset"] is None
    assert len(frames_of(rows)) == len(frames_of(scanned("ibp-2.8-a")))


def test_a_truncated_capture_gives_what_it_holds_and_says_so(tmp_path: Path) -> None:
    whole = gzip.decompress(CAPTURES[-1].read_bytes())
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(whole[: len(whole) // 2 + 5])
    rows = pa.Table.from_batches(scan([str(cut)])).to_pylist()
    assert len(frames_of(rows)) > 50
    (bad,) = [row["bad_input"] for row in rows if row["bad_input"]]
    assert bad["offset"] is not None


def test_a_capture_without_control_requests_says_what_to_try(tmp_path: Path) -> None:
    head = gzip.decompress(CAPTURES[-1].read_bytes())[:24]
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(head)
    facts, row = pa.Table.from_batches(scan([str(empty)])).to_pylist()
    assert facts["facts"]["packets"] == 0
    assert facts["facts"]["first_ts"] is None
    assert row["bad_input"]["reason"] == f"{empty}: a capture without packets; was the capture filter right?"
