"""The audit: real captures are read alike, what differs is named with every decoder's value."""

import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import packets as make
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audit import AGREEMENTS, AUDIT, AuditedBody, CodecDecoder, KafkaDecoder, _sampled, audit, command, compare, main
from conftest import DATA, read_jsonl
from table_truth import CAPTURES, WITH_TRUTH, name_of, truth_rows

from kproto.capture import frames
from kproto.codec import Codec, encode, get_codec
from kproto.errors import ConfigurationError
from kproto.messages import UpdateMetadataBroker, UpdateMetadataRequest

pytestmark = pytest.mark.slow
CYTHON, CONSTRUCT = get_codec("cython"), get_codec("construct")
REAL = str(next(path for path in CAPTURES if name_of(path).startswith("ibp-2.6")))


def rows(captures: list[str], *decoders: CodecDecoder, **options: Any) -> list[dict[str, Any]]:
    batches = audit(captures, decoders or None, **options)
    return pa.Table.from_batches(batches, AUDIT).to_pylist()


def counts(found: list[dict[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in found:
        total[row["outcome"]] += row["frames"]
    return total


def stub(codec: Codec, change: Callable[[Any], object], *, written: Callable[[bytes], bytes] = bytes) -> CodecDecoder:
    """A codec that reads every message wrongly, or writes it so."""

    def read(inner: Any) -> Any:
        def decode(*arguments: Any) -> Any:
            message, used = inner(*arguments)
            change(message)
            return message, used

        return decode

    fake: Any = SimpleNamespace(
        decode_request_from=read(codec.decode_request_from),
        decode_response_from=read(codec.decode_response_from),
        encode=lambda message, version: written(codec.encode(message, version)),
    )
    return CodecDecoder("construct", fake)


@pytest.mark.parametrize("path", WITH_TRUTH, ids=name_of)
def test_both_codecs_read_real_captures_alike(path: Path) -> None:
    found = rows([str(path)])
    total = counts(found)
    assert {row["outcome"] for row in found} <= AGREEMENTS
    logged = sum(1 for _ in truth_rows(name_of(path)))
    assert total["equal"] >= 2 * logged - total["both_reject"] * 2 > 0


def test_a_wrong_field_is_named_with_both_values() -> None:
    def raise_epoch(message: Any) -> None:
        if message.kind == "request":
            message.controller_epoch += 1
            if message.api_key == 6:
                for broker in message.live_brokers[:1]:
                    broker.rack = "elsewhere"

    found = [
        row
        for row in rows([REAL], CodecDecoder("cython", CYTHON), stub(CONSTRUCT, raise_epoch))
        if row["outcome"] not in AGREEMENTS
    ]
    assert {row["direction"] for row in found} == {"request"}
    assert {row["outcome"] for row in found} == {"values_differ"}
    assert {row["field_path"] for row in found} == {"controller_epoch"}
    assert all(int(row["construct"]) == int(row["cython"]) + 1 for row in found)
    assert {row["differences"] for row in found if row["api_key"] == 6} == {2}
    assert all(row["kafka"] is None and row["error_construct"] is None for row in found)


def test_a_wrong_field_in_an_array_has_its_place_in_the_path() -> None:
    def spoil(message: Any) -> None:
        if message.kind == "request" and message.api_key == 6 and message.topic_states:
            message.topic_states[-1].partition_states[-1].isr = (77,)

    found = rows([REAL], CodecDecoder("cython", CYTHON), stub(CONSTRUCT, spoil))
    paths = [row["field_path"] for row in found if row["outcome"] == "values_differ"]
    assert paths
    assert all((path.startswith("topic_states[") and path.endswith("].isr")) or ".isr[" in path for path in paths)


def test_a_body_that_is_written_otherwise_is_named_with_the_byte() -> None:
    def last_byte(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1])

    found = rows([REAL], CodecDecoder("cython", CYTHON), stub(CONSTRUCT, lambda _: None, written=last_byte))
    wrong = [row for row in found if row["outcome"] not in AGREEMENTS]
    assert {row["outcome"] for row in wrong} == {"reencode_differs"}
    for row in wrong:
        assert int(row["construct"], 16) == int(row["cython"], 16) ^ 1
        assert row["field_path"].startswith("byte ")


@pytest.mark.parametrize("name", ["leaderandisr", "stopreplica", "updatemetadata"])
def test_codecs_agree_on_bent_messages(name: str) -> None:
    decoders = [CodecDecoder("cython", CYTHON), CodecDecoder("construct", CONSTRUCT)]
    outcomes: Counter[str] = Counter()
    for line in read_jsonl(DATA / "vectors" / "malformed" / f"{name}.jsonl.gz"):
        body = AuditedBody(line["api"], line["version"], line["kind"], bytes.fromhex(line["hex"]))
        readings = {decoder.name: decoder.read([body])[0] for decoder in decoders}
        outcomes[compare(body.data, readings).outcome] += 1
        assert readings["cython"][:3] == readings["construct"][:3], line["id"]
    assert outcomes["both_reject"] > 100
    assert not outcomes["values_differ"] + outcomes["one_rejects"]


def test_one_that_refuses_is_told_from_two() -> None:
    body = make.UPDATE_METADATA_8
    strict = CodecDecoder("cython", CYTHON).read(
        [AuditedBody(6, 8, "request", body), AuditedBody(6, 8, "request", body[:-1])]
    )
    good, bad = strict
    assert compare(body, {"cython": good, "construct": bad}).outcome == "one_rejects"
    assert compare(body, {"cython": bad, "construct": bad}).outcome == "both_reject"
    assert compare(body, {"cython": good, "construct": good}).outcome == "equal"
    assert "end" in (bad.error or "")


def test_a_sample_is_the_same_part_each_time() -> None:
    def raise_epoch(message: Any) -> None:
        if message.kind == "request":
            message.controller_epoch += 1

    def ids(sample: float) -> set[bytes]:
        found = rows([REAL], CodecDecoder("cython", CYTHON), stub(CONSTRUCT, raise_epoch), sample=sample)
        return {row["frame_id"] for row in found if row["frame_id"]}

    whole, half = ids(1.0), ids(0.5)
    assert half < whole
    assert 0.3 < len(half) / len(whole) < 0.7
    assert ids(0.5) == half
    assert ids(0.1) < half


def test_lost_bytes_and_bad_files_have_rows(tmp_path: Path) -> None:
    whole = make.request(6, 8, 0, make.UPDATE_METADATA_8)
    talk = make.Talk().open().ask(whole).answer(make.response(6, 8, 0, bytes(3)))
    body = encode(UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=n) for n in range(300)]), 8)
    talk.ask(make.request(6, 8, 1, body), 1000)
    del talk.packets[-2]
    talk.answer(make.response(6, 8, 1, bytes(3))).close()
    (tmp_path / "lossy.pcap").write_bytes(make.pcap(talk.packets))
    assert counts(rows([str(tmp_path / "lossy.pcap")])) == {"equal": 3, "incomplete": 1}
    (tmp_path / "notes.pcap").write_bytes(b"no capture at all" * 10)
    (row,) = rows([str(tmp_path / "notes.pcap")])
    assert row["outcome"] == "bad_input"
    assert "notes.pcap" in row["reason"]


ANSWERS = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({{"ok": False, "error": question["kind"] + " refused"}} if {refuses} else "no answer"), flush=True)
"""


def test_another_program_is_asked_in_lines(tmp_path: Path) -> None:
    program = tmp_path / "oracle.py"
    program.write_text(ANSWERS.format(refuses=True))
    with KafkaDecoder(f"{sys.executable} {program}") as kafka:
        found = rows([REAL], CodecDecoder("cython", CYTHON), kafka)  # type: ignore[arg-type]
    wrong = [row for row in found if row["outcome"] not in AGREEMENTS]
    assert {row["outcome"] for row in wrong} == {"one_rejects"}
    assert {row["error_kafka"] for row in wrong} == {"request refused", "response refused"}


def test_a_first_answer_that_takes_long_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit._PATIENCE_SECONDS", 0.01)
    program, told = tmp_path / "oracle.py", tmp_path / "told"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(told)!r}).exists(): time.sleep(0.01)\n"
    program.write_text(wait + ANSWERS.format(refuses=True))  # it answers nothing before the user was told
    texts = []

    def tell(text: str) -> None:
        texts.append(text)
        told.touch()

    with KafkaDecoder(f"{sys.executable} {program}", tell) as kafka:
        for _ in range(2):
            rows([REAL], CodecDecoder("cython", CYTHON), kafka)  # type: ignore[arg-type]
    (text,) = texts
    assert text.startswith("waiting for the first answer of --oracle ")


@pytest.mark.parametrize("refuses", [False, None], ids=["no object", "ends"])
def test_a_program_that_does_not_answer_is_named(tmp_path: Path, refuses: bool | None) -> None:
    program = tmp_path / "oracle.py"
    program.write_text("" if refuses is None else ANSWERS.format(refuses=False))
    with (
        KafkaDecoder(f"{sys.executable} {program}") as kafka,
        pytest.raises(ConfigurationError, match=r"oracle\.py.* instead of an answer"),
    ):
        rows([REAL], CodecDecoder("cython", CYTHON), kafka)  # type: ignore[arg-type]


def test_a_program_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be started"):
        KafkaDecoder("/nowhere/oracle serve")


def test_frames_after_one_that_is_passed_over_are_compared() -> None:
    """A response without its request, and a frame outside the sample, cost themselves alone."""
    found = list(frames(REAL))
    lone = next(frame for frame in found if frame.direction == "response")
    whole = [frame for frame in found if frame is not lone]
    lone.api_key = None
    assert [frame for _, frame in _sampled([lone, *whole], 1.0, Counter())] == whole
    half = [frame for _, frame in _sampled(whole, 0.5, Counter())]
    assert half == [frame for frame in whole if frame.frame_id[0] < 0x80]
    assert 0.3 < len(half) / len(whole) < 0.7


REFUSES = 'import sys; [print(\'{"ok": false, "error": "bad"}\', flush=True) for _ in sys.stdin]'


class Run(NamedTuple):
    exit_code: int
    output: str
    stderr: str


def run(*arguments: str) -> Run:
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors), pytest.raises(SystemExit) as ended:
        main(arguments)
    return Run(int(ended.value.code or 0), output.getvalue(), errors.getvalue())


def test_agreement_is_said_and_ends_with_zero(tmp_path: Path) -> None:
    found = run(REAL, "--write", str(tmp_path / "audit.parquet"))
    assert found.exit_code == 0
    assert "561 frames, no frame read in two ways (cython, construct)" in found.output
    written = pq.read_table(tmp_path / "audit.parquet")
    assert written.schema.equals(AUDIT)
    assert sum(written["frames"].to_pylist()) == 561


def test_mismatches_are_listed_and_end_with_one(tmp_path: Path) -> None:
    program = tmp_path / "oracle.py"
    program.write_text(REFUSES)
    oracle = f"{sys.executable} {program}"
    found = run(REAL, "--oracle", oracle)
    assert found.exit_code == 1
    assert "561 frames read in two ways (cython, construct, kafka)" in found.output
    assert "the first 20 of 561" in found.output
    told = run(REAL, "--oracle", oracle, "--sample", "0.1", "--format", "json")
    assert told.exit_code == 1
    answer = json.loads(told.output)
    assert answer["frames"] == len(answer["mismatches"]) == sum(row["frames"] for row in answer["counts"]) < 200
    assert {row["error_kafka"] for row in answer["mismatches"]} == {"bad"}


@pytest.mark.parametrize("looking", [True, False], ids=["terminal", "pipe"])
def test_a_program_that_is_slow_to_answer_is_named_on_a_terminal(
    looking: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("audit._PATIENCE_SECONDS", 0.0)
    shown = io.StringIO()
    shown.isatty = lambda: looking  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", shown)
    program = tmp_path / "oracle.py"
    program.write_text("import sys, time\nsys.stdin.readline()\ntime.sleep(0.5)\n")
    with pytest.raises(ConfigurationError, match="instead of an answer"):
        command.main([REAL, "--oracle", f"{sys.executable} {program}"], standalone_mode=False)
    assert ("waiting for the first answer of --oracle" in shown.getvalue()) == looking


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.pcap").write_text("no capture")
    astray = run(REAL, "--write", str(tmp_path / "nowhere" / "audit.parquet"))
    assert astray.exit_code == 2
    assert astray.stderr.startswith("audit: there is no directory ")
    assert astray.stderr.endswith("nowhere for audit.parquet; make it, or name another file\n")
    alone = run(str(tmp_path / "notes.pcap"))
    assert alone.exit_code == 2
    assert "notes.pcap" in alone.stderr
    beside = run(REAL, str(tmp_path / "notes.pcap"))
    assert beside.exit_code == 0
    assert "warning: " in beside.stderr


def test_pieces_of_a_capture_that_were_not_read_are_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap.gz"
    cut.write_bytes((DATA / "captures" / "ibp-2.6-a.pcap.gz").read_bytes()[:20_000])
    found = run(str(cut))
    assert found.exit_code == 0
    assert found.stderr.startswith("warning: cut.pcap.gz: the compressed file is cut off, at byte ")
    assert len(found.stderr.splitlines()) == 1
    (reason,) = json.loads(run(str(cut), "--format", "json").output)["bad_inputs"]
    assert "cut.pcap.gz: the compressed file is cut off, at byte " in reason


def test_a_disk_that_is_full_is_named_and_nothing_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "full.parquet").symlink_to("/dev/full")
    found = run(REAL, "--write", str(tmp_path / "full.parquet"))
    assert found.exit_code == 2
    assert found.stderr == f"audit: {tmp_path}/full.parquet: no space left on device\n"
    assert (tmp_path / "full.parquet").is_char_device()
