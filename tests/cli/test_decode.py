"""``kproto decode`` and ``kproto encode``: any message, header or frame, in any dress, there and back."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from commands import run_kproto as run
from conftest import DATA, few, path, read_jsonl

from kproto.api import request_header_version
from kproto.cli.byte_text import hexdump, parse_bytes
from kproto.codec import get_codec
from kproto.errors import DecodeError
from kproto.reference.trace import FieldSpan, trace

VECTORS = DATA / "vectors"
GROUPS = ["leaderandisr", "stopreplica", "updatemetadata", "headers", "others"]

UPDATE_METADATA = {
    "controllerId": 1,
    "isKRaftController": False,
    "type": 2,
    "controllerEpoch": 2,
    "brokerEpoch": -1,
    "topicStates": [],
    "liveBrokers": [],
}
BODY = bytes.fromhex("000000010000000002ffffffffffffffff010101000102")
HEADER = bytes.fromhex("000600080000001100013100")
FRAME = struct.pack(">i", len(HEADER + BODY)) + HEADER + BODY
FRAME_JSON = {
    "kind": "request-frame",
    "api": 6,
    "version": 8,
    "header": {"requestApiKey": 6, "requestApiVersion": 8, "correlationId": 17, "clientId": "1"},
    "body": UPDATE_METADATA,
}


def output(*arguments: str, **more: Any) -> str:
    result = run(*arguments, **more)
    assert result.exit_code == 0, result.output
    return result.stdout


def decoded(*arguments: str, **more: Any) -> Any:
    return json.loads(output("decode", *arguments, "--format", "json", **more))


# ---- where fields lie ------------------------------------------------------------------------------------------------


def children(fields: list[FieldSpan], parent: FieldSpan | None) -> list[FieldSpan]:
    """The fields directly in another one (None: in the message)."""
    depth = parent.path.count(".") + parent.path.count("[") + 1 if parent else 0
    return [
        f
        for f in fields
        if f.path.count(".") + f.path.count("[") == depth
        and (parent is None or f.path.startswith((f"{parent.path}.", f"{parent.path}[")))
    ]


def check_spans(fields: list[FieldSpan], parent: FieldSpan | None, start: int, end: int) -> None:
    """Fields lie one behind the other in what holds them; an array's or tagged section's own bytes stand in front."""
    inner = children(fields, parent)
    if not inner:
        return
    gaps_allowed = parent is not None and not parent.path.endswith("]")  # lengths, counts, tags, sizes
    at = start
    for field in inner:
        assert field.start == at or (gaps_allowed and field.start > at), field.path
        assert field.end >= field.start
        check_spans(fields, field, field.start, field.end)
        at = field.end
    assert at == end or (gaps_allowed and at <= end)


@pytest.mark.parametrize("group", few(GROUPS, 2))
def test_every_byte_of_a_valid_message_belongs_to_a_field(group: str) -> None:
    for line in read_jsonl(VECTORS / f"valid/{group}.jsonl.gz"):
        data = bytes.fromhex(line["hex"])
        if len(data) > 2_000:
            continue  # the long ones say nothing more, and children() looks through all fields for each
        fields, message, used, error = trace(line["kind"], line["api"], line["version"], data)
        assert error is None
        assert used == len(data)
        assert message.to_json(line["version"]) == line["json"]
        check_spans(fields, None, 0, len(data))
        assert all(field.whole for field in fields)


@pytest.mark.parametrize("group", few(GROUPS, 2))
def test_what_cannot_be_read_is_traced_up_to_where_it_goes_wrong(group: str) -> None:
    reference: Any = get_codec("construct")
    for line in read_jsonl(VECTORS / f"malformed/{group}.jsonl.gz"):
        kind, api, version, data = line["kind"], line["api"], line["version"], bytes.fromhex(line["hex"])
        fields, message, used, error = trace(kind, api, version, data)
        if line["accept"]:
            assert error is None
            assert (used, message.to_json(version)) == (line["consumed"], line["json"])
            continue
        read, where = getattr(reference, f"decode_{kind}"), (version,) if kind.endswith("header") else ()
        with pytest.raises(DecodeError) as raised:
            read(*((data, *where) if where else (api, version, data)))
        assert message is None
        assert error is not None
        assert (str(error), error.path, error.offset) == (str(raised.value), raised.value.path, raised.value.offset)
        assert all(field.start <= len(data) for field in fields)


# ---- decode ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        FRAME,
        FRAME.hex().encode(),
        FRAME.hex(" ").upper().encode(),
        hexdump(FRAME).encode(),
        base64.b64encode(FRAME),
        FRAME[4:],
        FRAME[4:].hex().encode(),
    ],
    ids=["raw", "hex", "spaced hex", "dump", "base64", "raw without size", "hex without size"],
)
def test_a_request_frame_tells_what_it_is_in_any_dress(text: bytes, tmp_path: Path) -> None:
    assert decoded(input=text) == FRAME_JSON
    file = tmp_path / "frame"
    file.write_bytes(text)
    assert decoded(str(file)) == FRAME_JSON


@pytest.mark.parametrize("implied", [["--kind", "request"], []], ids=["--kind request", "no --kind"])
@pytest.mark.parametrize("api", ["6", "UpdateMetadata", "update-metadata"])
def test_a_body_needs_api_and_version(api: str, implied: list[str]) -> None:
    assert decoded("--api", api, "--version", "8", *implied, "--data", BODY.hex()) == UPDATE_METADATA


def test_headers_are_read_alone() -> None:
    header = FRAME_JSON["header"]
    assert decoded("--kind", "request-header", "--data", HEADER.hex()) == header
    assert decoded("--kind", "request-header", "--version", "2", "--data", HEADER.hex()) == header
    assert decoded("--kind", "request-header", "--api", "6", "--version", "8", "--data", HEADER.hex()) == header
    own = decoded("--kind", "response-header", "--version", "1", "--data", "0000001100")
    derived = decoded("--kind", "response-header", "--api", "6", "--version", "8", "--data", "0000001100")
    assert own == derived == {"correlationId": 17}


def test_a_response_frame_needs_what_it_answers() -> None:
    answer = "0000000700000011" + "00" + "0000" + "00"
    expected = {"kind": "response-frame", "api": 6, "version": 8, "header": {"correlationId": 17}}
    arguments = ["--kind", "response-frame", "--api", "6", "--version", "8", "--data"]
    assert decoded(*arguments, answer.replace("00000007", "00000008")) == expected | {"body": {"errorCode": 0}}
    assert decoded(*arguments, answer[8:]) == expected | {"body": {"errorCode": 0}}
    result = run("decode", "--kind", "response-frame", "--data", answer)
    assert result.exit_code == 2
    assert "a response-frame does not name its API and version; add --api and --version" in result.stderr


def test_the_table_has_every_field_with_its_offset() -> None:
    assert output("decode", "--data", FRAME.hex()).splitlines() == [
        "offset  bytes                      field                value",
        "     0  00 00 00 23                size                 35",
        "        request header v2, 12 bytes",
        "     4  00 06                      request_api_key      6 (UpdateMetadata)",
        "     6  00 08                      request_api_version  8",
        "     8  00 00 00 11                correlation_id       17",
        '    12  00 01 31                   client_id            "1"',
        "    15  00                         tagged fields        none",
        "        UpdateMetadata request v8, 23 bytes",
        "    16  00 00 00 01                controller_id        1",
        "    20  00                         is_kraft_controller  false",
        "    21  00 00 00 02                controller_epoch     2",
        "    25  ff ff ff ff ff ff ff ff    broker_epoch         -1",
        "    33  01                         topic_states         empty",
        "    34  01                         live_brokers         empty",
        "    35  01 00 01                   tagged fields        1 known field",
        "    38  02                           type               2 (full)",
    ]


def test_the_table_tells_what_numbers_mean() -> None:
    answer = {
        "errorCode": 11,
        "topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitionErrors": [{"partitionIndex": 3, "errorCode": 77}]}],
    }
    of = ["--api", "4", "--version", "7", "--kind", "response"]
    table = output("decode", *of, "--data", output("encode", *of, "--data", json.dumps(answer)))
    assert "error_code           11" not in table
    assert "STALE_CONTROLLER_EPOCH (11)" in table
    assert "STALE_BROKER_EPOCH (77)" in table
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in table


def test_a_damaged_message_is_shown_up_to_where_it_goes_wrong() -> None:
    result = run("decode", "--data", FRAME[4:-6].hex())
    assert result.exit_code == 2
    assert "broker_epoch         -1" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("    29  ")
    assert result.stderr.startswith("kproto: ")
    assert "topic_states, offset 29" in result.stderr
    assert result.stderr.count("\n") == 1
    result = run("decode", "--format", "json", "--data", FRAME[4:-6].hex())
    assert (result.exit_code, result.stdout) == (2, "")


def test_what_is_left_over_is_told_and_refused_when_strict() -> None:
    result = run("decode", "--api", "6", "--version", "8", "--data", BODY.hex() + "beef")
    assert result.exit_code == 0
    assert "    23  be ef                      left over" in result.stdout
    assert "2 bytes after the message" in result.stderr
    result = run("decode", "--api", "6", "--version", "8", "--strict", "--data", BODY.hex() + "beef")
    assert result.exit_code == 2
    assert "2 bytes" in result.stderr


def test_strict_refuses_what_kafka_lets_pass() -> None:
    body = BODY[:4] + b"\x02" + BODY[5:]
    assert decoded("--api", "6", "--version", "8", "--data", body.hex())["isKRaftController"] is True
    result = run("decode", "--api", "6", "--version", "8", "--strict", "--data", body.hex())
    assert result.exit_code == 2
    assert "is_kraft_controller, offset 4" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data", ""], "and a request header at least 8"),
        (["--data", "0006"], "and a request header at least 8"),
        (["--data", "no bytes!"], "neither hex, a hex dump nor base64"),
        (["--data", "7fff0000000000000000"], "api key 32767 is not one of Kafka 3.9.1's"),
        ([path("ibp-2.8-a")], "a capture: kproto inspect"),
        (["--data", "0006000900000011000131000000"], "UpdateMetadata (6) has no version 9; it has 0 to 8"),
        (["--data", "0008000000000011000131"], "OffsetCommit"),
        (["--api", "6", "--data", "00"], "add --api and --version"),
        (["--api", "6", "--version", "9", "--data", "00"], "has no version 9"),
        (["--kind", "response-header", "--data", "00"], "a response header does not name its version"),
        (["--kind", "request-header", "--version", "3", "--data", "00"], "version 3"),
        (["--api", "nonsense", "--data", "00"], "no api 'nonsense'"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(arguments: list[str], told: str) -> None:
    result = run("decode", *arguments, "--format", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("kproto: ")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


# ---- encode ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["hex", "hexdump", "base64", "raw"])
def test_bytes_come_out_in_the_form_asked_for(to: str) -> None:
    result = run("encode", "--api", "6", "--version", "8", "--to", to, input=json.dumps(UPDATE_METADATA))
    assert result.exit_code == 0
    assert parse_bytes(result.stdout_bytes) == BODY


def test_a_frame_goes_there_and_back_through_json() -> None:
    assert parse_bytes(output("encode", input=json.dumps(FRAME_JSON)).encode()) == FRAME
    again = {**FRAME_JSON, "header": {"correlationId": 17, "clientId": "1"}}  # the rest follows from api and version
    assert output("encode", input=json.dumps(again)).strip() == FRAME.hex()


def test_options_make_a_frame_of_a_body_and_go_before_what_the_json_says() -> None:
    options = ["--kind", "request-frame", "--api", "6", "--version", "8", "--correlation-id", "17", "--client-id", "1"]
    assert output("encode", *options, input=json.dumps(UPDATE_METADATA)).strip() == FRAME.hex()
    other = output("encode", "--correlation-id", "99", input=json.dumps(FRAME_JSON)).strip()
    assert decoded("--data", other)["header"]["correlationId"] == 99


def test_headers_and_response_frames_are_written_too() -> None:
    header = json.dumps(FRAME_JSON["header"])
    assert output("encode", "--kind", "request-header", "--data", header).strip() == HEADER.hex()
    assert output("encode", "--kind", "request-header", "--version", "1", "--data", header).strip() == HEADER[:-1].hex()
    response = ["--kind", "response-header", "--version", "1", "--data", '{"correlationId":17}']
    assert output("encode", *response).strip() == "0000001100"
    framed = ["--kind", "response-frame", "--api", "6", "--version", "8", "--correlation-id", "17"]
    assert output("encode", *framed, "--data", '{"errorCode":0}').strip() == "000000080000001100000000"


def test_a_null_client_id_stays_null() -> None:
    form = {**FRAME_JSON, "header": {"correlationId": 1, "clientId": None}}
    assert decoded("--data", output("encode", input=json.dumps(form)))["header"]["clientId"] is None


def test_a_line_of_inspect_is_written_again_as_it_was_on_the_wire() -> None:
    capture = str(DATA / "captures/ibp-3.9-a.pcap.gz")
    lines = output("inspect", capture, "--format", "json").splitlines()
    for line in lines[:20]:
        row = json.loads(line)
        request = output("encode", "--kind", "request-frame", input=line)
        form = decoded("--data", request)
        assert form["body"] == row["request"]
        assert (form["header"]["correlationId"], form["header"]["clientId"]) == (
            row["correlation_id"],
            row["client_id"],
        )
        response = output("encode", "--kind", "response-frame", input=line)
        options = ["--kind", "response-frame", "--api", str(row["api_key"]), "--version", str(row["api_version"])]
        assert decoded(*options, "--data", response)["body"] == row["response"]


@pytest.mark.parametrize("group", GROUPS)
def test_decode_and_encode_are_inverse_on_golden_messages(group: str) -> None:
    """One short message of each version and kind, through both commands."""
    seen = set()
    for line in read_jsonl(VECTORS / f"valid/{group}.jsonl.gz"):
        key = line["api"], line["version"], line["kind"]
        if key in seen or line["unknown_tags"] or not 8 <= len(line["hex"]) < 2_000:
            continue
        seen.add(key)
        of = ["--kind", line["kind"].replace("_", "-"), "--version", str(line["version"])]
        of += [] if line["api"] < 0 else ["--api", str(line["api"])]
        assert decoded(*of, "--data", line["hex"]) == line["json"]
        assert output("encode", *of, "--data", json.dumps(line["json"])).strip() == line["hex"]
        table = output("decode", *of, "--data", line["hex"]).splitlines()
        assert len(table) > 2
    assert len(seen) >= 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data", "{"], "the input is not JSON: Expecting property name"),
        (["--data", "[" * 100_000], "nested too deep"),
        (["--data", "[]"], "a message is a JSON object"),
        (["--data", "{}"], "add --api and --version"),
        (["--api", "6", "--version", "8", "--data", "{}"], "controller_id: 'controllerId' is missing, in"),
        (["--api", "5", "--version", "4", "--kind", "response", "--data", '{"errorCode":70000}'], "70000"),
        (["--data", '{"header":{},"body":7,"api":6,"version":8}'], "body is 7, where a JSON object is needed"),
        (["--data", '{"header":{},"body":{},"kind":"x","api":6,"version":8}'], "there is no kind 'x'"),
        (["--data", '{"header":{},"body":{},"api":6,"version":"8"}'], "version '8' is not a number"),
        (["--data", '{"api_key":6,"api_version":8,"request":null}'], "request is null, where a JSON object"),
    ],
)
def test_what_cannot_be_encoded_is_one_line(arguments: list[str], told: str) -> None:
    result = run("encode", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("kproto: ")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_request_header_that_names_no_known_api_can_be_read_when_its_version_is_told() -> None:
    data = "7fff0000000000010000"
    assert decoded("--kind", "request-header", "--version", "1", "--data", data)["requestApiKey"] == 0x7FFF
    assert request_header_version(6, 8) == 2


def test_a_frame_that_is_cut_off_has_its_length_before_its_header() -> None:
    table = run("decode", "--data", FRAME[:-6].hex()).stdout.splitlines()
    assert "     4  00 06                      request_api_key      6 (UpdateMetadata)" in table
    assert '    12  00 01 31                   client_id            "1"' in table


def test_fields_after_an_array_of_numbers_are_in_the_table() -> None:
    state = {
        "partitionIndex": 0, "controllerEpoch": 1, "leader": 1, "leaderEpoch": 4, "isr": [1, 2], "partitionEpoch": 5,
        "replicas": [1, 2, 3], "isNew": True,
    }  # fmt: skip
    form = {
        "controllerId": 1, "controllerEpoch": 2, "brokerEpoch": 3, "topicStates": [{"topicName": "t", "partitionStates":
        [state]}], "liveLeaders": [],
    }  # fmt: skip
    of = ["--api", "4", "--version", "2", "--kind", "request"]
    table = output("decode", *of, "--data", output("encode", *of, "--data", json.dumps(form)))
    lines = [line.split() for line in table.splitlines()]
    assert [line[-1] for line in lines if "partition_epoch" in line] == ["5"]
    assert [line[-3:] for line in lines if "replicas" in line] == [["1,", "2,", "3"]]
    assert [line[-1] for line in lines if "is_new" in line] == ["true"]
    assert any("live_leaders" in line for line in lines)


def test_a_guess_of_base64_is_said() -> None:
    message = ["decode", "--kind", "response", "--api", "5", "--version", "4", "--format", "json", "--data"]
    hexed, guessed, named = (
        run(*message, *words) for words in (["000b0100"], ["AAsBAA=="], ["AAsBAA==", "--input", "base64"])
    )
    assert hexed.stdout == guessed.stdout == named.stdout
    assert (hexed.stderr, named.stderr) == ("", "")
    assert guessed.stderr == "note: the input was read as base64; --input hex, hexdump or raw reads it otherwise\n"
