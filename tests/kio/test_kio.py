"""Another implementation agrees: kio 0.6.2, the last release that has these APIs, in a process of its own.

The frames that kio makes are read here, those made here are read by kio, and both write the same bytes. Kept out of
the comparison: unknown tagged fields, which kio does not keep, and error codes without a name, which it refuses.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answers import json_equal, short
from conftest import DATA, read_jsonl

from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.codec import Codec, codec_for, get_codec
from kproto.framing import FrameSplitter, frame

KNOWN_ERRORS = range(-1, 114)
FILES = ("leaderandisr", "stopreplica", "updatemetadata", "others")


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    peer = [sys.executable, str(Path(__file__).with_name("peer.py"))]
    done = subprocess.run(peer, input=lines, stdout=subprocess.PIPE, text=True, timeout=240, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_codes(form: Any) -> set[int]:
    if isinstance(form, list):
        return set().union(*map(error_codes, form))
    if not isinstance(form, dict):
        return set()
    return set().union(*({v} if k == "errorCode" else error_codes(v) for k, v in form.items()))


def messages() -> list[dict[str, Any]]:
    """The golden messages that both can hold, each with a header in front."""
    found = []
    for name in FILES:
        for line in read_jsonl(DATA / "vectors" / "valid" / f"{name}.jsonl.gz"):
            if not line["unknown_tags"] and len(line["hex"]) < 6000 and error_codes(line["json"]) <= set(KNOWN_ERRORS):
                header: dict[str, Any] = {"correlationId": len(found) - 100}
                if line["kind"] == "request":
                    header |= {"requestApiKey": line["api"], "requestApiVersion": line["version"]}
                    if request_header_version(line["api"], line["version"]) > 0:
                        header["clientId"] = None if len(found) % 7 == 0 else "kproto-Ω"
                found.append(line | {"header": header})
    return found


def payload(codec: Codec, line: dict[str, Any]) -> bytes:
    """Header and body of one message."""
    api, version, kind = line["api"], line["version"], line["kind"]
    if kind == "request":
        head = codec.encode_request_header(codec.RequestHeader.from_json(line["header"], header_version(line)))
    else:
        header = codec.ResponseHeader.from_json(line["header"], header_version(line))
        head = codec.encode_response_header(header, header_version(line))
    body = codec_for(api) if codec is get_codec("cython") else codec
    return head + body.encode(body.message_class(api, kind).from_json(line["json"], version), version)


def header_version(line: dict[str, Any]) -> int:
    of = request_header_version if line["kind"] == "request" else response_header_version
    return of(line["api"], line["version"])


@pytest.mark.slow
def test_kio_reads_our_frames(codec: Codec) -> None:
    asked = messages()
    assert len(asked) > 1000
    assert {(line["api"], line["version"]) for line in asked} >= {
        (int(key), version) for key in map(ApiKey, (3, 4, 5, 6, 7, 18)) for version in range(key.info.max_version + 1)
    }
    answers = ask([{"op": "decode", **line, "hex": payload(codec, line).hex()} for line in asked])
    wrong = [
        f"{line['id']}: {short(answer)} is not {short(line['header'])} {short(line['json'])}"
        for line, answer in zip(asked, answers, strict=True)
        if answer.get("left") != 0
        or not json_equal(answer["header"], line["header"])
        or not json_equal(answer["body"], line["json"])
    ]
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.slow
def test_we_read_kios_frames(codec: Codec) -> None:
    asked = messages()
    answers = ask([{"op": "encode", **line, "body": line["json"]} for line in asked])
    refused = [f"{line['id']}: {a['error']}" for line, a in zip(asked, answers, strict=True) if "error" in a]
    assert not refused, "\n".join(refused[:10])
    stream = b"".join(frame(bytes.fromhex(answer["hex"])) for answer in answers)
    splitter = FrameSplitter()
    for line, data in zip(asked, splitter.feed(stream), strict=True):
        api, version = line["api"], line["version"]
        if line["kind"] == "request":
            header, at = codec.decode_request_header_from(data)
        else:
            header, at = codec.decode_response_header_from(data, header_version(line))
        assert json_equal(header.to_json(header_version(line)), line["header"]), line["id"]
        bodies = codec_for(api) if codec is get_codec("cython") else codec
        read = bodies.decode_request_from if line["kind"] == "request" else bodies.decode_response_from
        message, used = read(api, version, data[at:])
        assert used == len(data) - at, line["id"]
        assert json_equal(message.to_json(version), line["json"]), line["id"]
        assert data == payload(codec, line), line["id"]
    splitter.close()
