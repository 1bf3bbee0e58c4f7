"""``kproto codec`` answers as Kafka's own classes were recorded to answer, and no question ends it."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answers import difference, recorded
from commands import run_kproto
from conftest import DATA, few, read_jsonl

IMPLEMENTATIONS = ["cython", "construct"]
STOP_REPLICA_ANSWER = {"op": "encode", "api": 5, "version": 4, "kind": "response"}


def ask(questions: list[Any], *arguments: str) -> list[dict[str, Any]]:
    """The answers of one run of the command to these questions, objects or raw bytes."""
    lines = [q if isinstance(q, bytes) else json.dumps(q).encode() for q in questions]
    result = run_kproto("codec", *arguments, input=b"\n".join(lines) + b"\n")
    assert result.exception is None, result.output
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


SLOWER = [IMPLEMENTATIONS[0], pytest.param(IMPLEMENTATIONS[1], marks=pytest.mark.slow)]
"""tests/contract asks both codecs the same in every run."""


@pytest.mark.parametrize("implementation", SLOWER)
@pytest.mark.parametrize(
    "path",
    few(sorted((DATA / "vectors").glob("*/*.jsonl.gz")), 4),
    ids=lambda p: f"{p.parent.name}-{p.name.partition('.')[0]}",
)
def test_every_golden_line_is_answered_as_recorded(path: Path, implementation: str) -> None:
    lines = list(read_jsonl(path))
    questions = [{"op": "decode"} | {k: line[k] for k in ("id", "api", "version", "kind", "hex")} for line in lines]
    answers = ask(questions, "--implementation", implementation)
    assert [a.pop("id") for a in answers] == [line["id"] for line in lines]
    wrong = []
    for line, got in zip(lines, answers, strict=True):
        accepted = got.pop("ok")
        assert accepted or set(got) == {"error"}, got
        assert ("reencode_error" in got) == (accepted and got["reencoded"] is None)
        facts = (
            {"accept": True} | {k: got[k] for k in ("consumed", "json", "reencoded")} if accepted else {"accept": False}
        )
        if told := difference(facts, recorded(line)):
            wrong.append(f"{line['id']}: {told}")
    assert not wrong, f"{len(wrong)} of {len(lines)}: " + "\n".join(wrong[:5])


@pytest.mark.parametrize("implementation", SLOWER)
@pytest.mark.parametrize("group", ["leaderandisr", "stopreplica", "updatemetadata", "headers", "others"])
def test_the_json_form_is_written_as_recorded(group: str, implementation: str) -> None:
    lines = [line for line in read_jsonl(DATA / f"vectors/valid/{group}.jsonl.gz") if not line["unknown_tags"]]
    questions = [{"op": "encode"} | {k: line[k] for k in ("api", "version", "kind", "json")} for line in lines]
    answers = ask(questions, "--implementation", implementation)
    assert answers == [{"ok": True, "hex": line["hex"]} for line in lines]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_bytes_come_back_in_the_form_asked_for(implementation: str) -> None:
    data = bytes.fromhex("000b0100")
    text = base64.b64encode(data).decode()
    decode = {"op": "decode", "api": 5, "version": 4, "kind": "response"}
    body = {"errorCode": 11, "partitionErrors": []}
    answers = ask(
        [
            decode | {"hex": data.hex()},
            decode | {"base64": text},
            decode | {"base64": text.rstrip("=")},
            decode | {"hex": data.hex().upper(), "as": "base64"},
            STOP_REPLICA_ANSWER | {"json": body},
            STOP_REPLICA_ANSWER | {"json": body, "as": "base64"},
        ],
        "--implementation",
        implementation,
    )
    whole = {"ok": True, "consumed": 4, "json": body}
    assert answers == [
        whole | {"reencoded": data.hex()},
        whole | {"reencoded": text},
        whole | {"reencoded": text},
        whole | {"reencoded": text},
        {"ok": True, "hex": data.hex()},
        {"ok": True, "base64": text},
    ]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_what_is_omitted_is_not_there(implementation: str) -> None:
    question = {"op": "decode", "api": 5, "version": 4, "kind": "response", "hex": "000b0100"}
    omitted = [["json"], ["reencoded"], ["json", "reencoded"], [], "json"]
    answers = ask([question | {"omit": omit} for omit in omitted], "--implementation", implementation)
    assert [sorted(a) for a in answers] == [
        ["consumed", "ok", "reencoded"],
        ["consumed", "json", "ok"],
        ["consumed", "ok"],
        ["consumed", "json", "ok", "reencoded"],
        ["consumed", "json", "ok", "reencoded"],
    ]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_headers_version_follows_from_api_and_version_or_is_its_own(implementation: str) -> None:
    header = {"requestApiKey": 6, "requestApiVersion": 8, "correlationId": 9, "clientId": "1"}
    old = {"requestApiKey": 7, "requestApiVersion": 0, "correlationId": 9}
    questions = [
        {"op": "encode", "kind": "request_header", "api": 6, "version": 8, "json": header},
        {"op": "encode", "kind": "request_header", "api": 6, "version": 5, "json": header},
        {"op": "encode", "kind": "request_header", "api": 7, "version": 0, "json": old},
        {"op": "encode", "kind": "request_header", "version": 2, "json": header},
        {"op": "encode", "kind": "request_header", "api": -1, "version": 1, "json": header},
        {"op": "encode", "kind": "response_header", "api": 18, "version": 3, "json": {"correlationId": 9}},
        {"op": "encode", "kind": "response_header", "api": 6, "version": 6, "json": {"correlationId": 9}},
        {"op": "encode", "kind": "response_header", "version": 0, "json": {"correlationId": 9}},
    ]
    flexible, plain = "00060008000000090001" + "31" + "00", "00060008000000090001" + "31"
    answers = ask(questions, "--implementation", implementation)
    assert [a["hex"] for a in answers] == [
        *(flexible, plain, "0007000000000009", flexible, plain),
        *("00000009", "0000000900", "00000009"),
    ]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_json_of_one_version_can_be_written_as_another(implementation: str) -> None:
    body = {
        "controllerId": 1,
        "isKRaftController": True,
        "controllerEpoch": 2,
        "brokerEpoch": 3,
        "topicStates": [],
        "liveBrokers": [],
    }
    question = {"op": "encode", "api": 6, "kind": "request", "json_version": 8, "json": body}
    refused, allowed = ask(
        [question | {"version": 7}, question | {"version": 7, "json": body | {"isKRaftController": False}}],
        *("--implementation", implementation),
    )
    assert refused["ok"] is False
    assert refused["error"].startswith("FieldNotInVersion: ")
    assert allowed == {"ok": True, "hex": "00000001000000020000000000000003010100"}


BAD_QUESTIONS = [
    b"x",
    b"[]",
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"op":"decode","id":NaN}',
    {"op": "apis"},
    {"op": "decode"},
    {"op": "decode", "kind": "body", "api": 6, "version": 8, "hex": ""},
    {"op": "decode", "kind": "request", "api": "6", "version": 8, "hex": ""},
    {"op": "decode", "kind": "request", "api": 6, "version": 8.0, "hex": ""},
    {"op": "decode", "kind": "request", "api": 6, "version": True, "hex": ""},
    {"op": "decode", "kind": "request", "api": 6, "version": 1 << 31, "hex": ""},
    {"op": "decode", "kind": "request", "api": 6, "version": 1 << 15, "hex": ""},
    {"op": "decode", "kind": "request", "api": 6, "version": 8},
    {"op": "decode", "kind": "request", "api": 6, "version": 8, "hex": "0"},
    {"op": "decode", "kind": "request", "api": 6, "version": 8, "hex": "zz"},
    {"op": "decode", "kind": "request", "api": 6, "version": 8, "hex": 0},
    {"op": "decode", "kind": "request", "api": 6, "version": 8, "base64": "*"},
    {"op": "encode", "kind": "request", "api": 6, "version": 8},
]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_bad_questions_are_answered_and_the_next_one_too(implementation: str) -> None:
    good = STOP_REPLICA_ANSWER | {"id": ["any", {"json": 1}], "json": {"errorCode": 0, "partitionErrors": []}}
    answers = ask([*BAD_QUESTIONS, b"", b"  ", good], "--implementation", implementation)
    assert len(answers) == len(BAD_QUESTIONS) + 1
    assert all(a["ok"] is False and a["error"] for a in answers[:-1])
    assert [a["error"].partition(":")[0] for a in answers[:-1]] == ["BadQuestion"] * 4 + ["RecursionError"] + [
        "BadQuestion"
    ] * 15
    assert answers[-1] == {"ok": True, "hex": "00000100", "id": good["id"]}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"api": 6, "version": 9, "kind": "request"}, "UnsupportedVersion"),
        ({"api": 6, "version": -1, "kind": "response"}, "UnsupportedVersion"),
        ({"api": 3, "version": 14, "kind": "response"}, "UnsupportedVersion"),
        ({"api": 4711, "version": 0, "kind": "request"}, "UnsupportedApi"),
        ({"api": 4711, "version": 0, "kind": "request_header"}, "UnsupportedApi"),
        ({"api": 6, "version": 8, "kind": "request"}, "Truncated"),
    ],
)
def test_what_kproto_does_not_have_is_an_error_of_its_own(
    question: dict[str, Any], error: str, implementation: str
) -> None:
    (answer,) = ask([{"op": "decode", "hex": "00"} | question], "--implementation", implementation)
    assert answer["ok"] is False
    assert answer["error"].partition(":")[0] == error


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("json_form", [None, [], 7, "x", {}, {"errorCode": 70_000, "partitionErrors": []}])
def test_json_that_is_no_message_is_an_encode_error(json_form: Any, implementation: str) -> None:
    (answer,) = ask([STOP_REPLICA_ANSWER | {"json": json_form}], "--implementation", implementation)
    assert answer["ok"] is False
    assert answer["error"].partition(":")[0] in ("EncodeError", "OutOfRange")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_strict_refuses_what_kafka_lets_pass(implementation: str) -> None:
    question = {"op": "decode", "api": 5, "version": 4, "kind": "response", "hex": "000b010000"}
    assert ask([question], "--implementation", implementation)[0]["consumed"] == 4
    (answer,) = ask([question], "--implementation", implementation, "--strict")
    assert answer["error"].startswith("Malformed: ")


def test_any_text_survives_the_pipe() -> None:
    """Answers are ASCII, whatever topic names hold: a narrow terminal or pipe cannot break a line."""
    name = 'ü\u2028\x00"\n\U0001f600'
    body = {"errorCode": 0, "partitionErrors": [{"topicName": name, "partitionIndex": 0, "errorCode": 3}]}
    (written,) = ask([STOP_REPLICA_ANSWER | {"json": body}])
    (read,) = ask([{"op": "decode", "api": 5, "version": 4, "kind": "response", "hex": written["hex"]}])
    assert read["json"] == body
    (lone,) = ask([{"op": "nonsense", "id": "\ud800"}])
    assert lone["id"] == "\ud800"


def test_each_answer_is_there_before_the_next_question() -> None:
    """A program that asks one at a time never waits for a buffer to fill."""
    arguments = [sys.executable, "-m", "kproto", "codec", "--implementation", "construct"]
    question = json.dumps({"op": "decode", "api": 5, "version": 4, "kind": "response", "hex": "000b0100"}) + "\n"
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(3):
            process.stdin.write(question)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["consumed"] == 4
        process.stdin.close()
        assert process.wait(timeout=120) == 0
