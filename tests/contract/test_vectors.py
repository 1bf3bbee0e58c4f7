"""Kafka's own answers to 6,000 messages, good and bent, hold for both codecs.

Each line was answered by the message classes of kafka-clients 3.9.1. A test is one file, version and kind; what fails
is named by the line's id with both values.
"""

from functools import cache
from typing import Any

import pytest
from answers import answer, difference, encode, from_json, message_type, recorded, short
from conftest import DATA, read_jsonl

from kproto.api import ApiKey
from kproto.codec import Codec, get_codec
from kproto.errors import DecodeError

FILES = {"leaderandisr": ApiKey(4), "stopreplica": ApiKey(5), "updatemetadata": ApiKey(6)}
OTHERS = (ApiKey.METADATA, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.API_VERSIONS)

CASES = [
    pytest.param(name, int(key), version, kind, id=f"{name}-v{version}-{kind}")
    for name, key in FILES.items()
    for kind in ("request", "response")
    for version in range(key.info.max_version + 1)
]
CASES += [
    pytest.param("headers", -1, version, kind, id=f"{kind}-v{version}")
    for kind, versions in (("request_header", 3), ("response_header", 2))
    for version in range(versions)
]
OTHER_CASES = [
    pytest.param("others", int(key), version, kind, id=f"{key.info.name.lower()}-v{version}-{kind}")
    for key in OTHERS
    for kind in ("request", "response")
    for version in range(key.info.max_version + 1)
]


@cache
def grouped(folder: str, name: str) -> dict[tuple[int, int, str], list[dict[str, Any]]]:
    groups: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for line in read_jsonl(DATA / "vectors" / folder / f"{name}.jsonl.gz"):
        groups.setdefault((line["api"], line["version"], line["kind"]), []).append(line)
    return groups


def failures(folder: str, name: str, api: int, version: int, kind: str, codec: Codec) -> list[str]:
    lines = grouped(folder, name)[api, version, kind]
    assert lines
    wrong = []
    for line in lines:
        try:
            got = answer(codec, api, version, kind, bytes.fromhex(line["hex"]))
        except Exception as e:
            got = {"accept": f"{type(e).__name__}: {e}"}
        if found := difference(got, recorded(line)):
            wrong.append(f"{line['id']} {line.get('case') or line['mutation']} {short(line['hex'])}: {found}")
    return wrong


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_valid_bytes_are_read_and_written_as_kafka_does(
    codec: Codec, name: str, api: int, version: int, kind: str
) -> None:
    wrong = failures("valid", name, api, version, kind, codec)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_bent_bytes_get_kafkas_verdict(codec: Codec, name: str, api: int, version: int, kind: str) -> None:
    wrong = failures("malformed", name, api, version, kind, codec)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_the_json_form_is_written_as_kafka_does(codec: Codec, name: str, api: int, version: int, kind: str) -> None:
    wrong = []
    for line in grouped("valid", name)[api, version, kind]:
        if line["unknown_tags"]:
            continue  # the JSON form has no place for them
        got = encode(codec, kind, from_json(codec, api, kind, line["json"], version), version).hex()
        if got != line["hex"]:
            wrong.append(f"{line['id']} {line['case']}: got {short(got)}, expected {short(line['hex'])}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_a_message_from_bytes_equals_the_one_from_json(
    codec: Codec, name: str, api: int, version: int, kind: str
) -> None:
    decode = failing_decode(codec, api, version, kind)
    for line in grouped("valid", name)[api, version, kind]:
        if not line["unknown_tags"]:
            same = decode(bytes.fromhex(line["hex"])) == from_json(codec, api, kind, line["json"], version)
            assert same, line["id"]  # no more is said: some hold thousands of partitions


def failing_decode(codec: Codec, api: int, version: int, kind: str) -> Any:
    match kind:
        case "request":
            return lambda data: codec.decode_request(api, version, data)
        case "response":
            return lambda data: codec.decode_response(api, version, data)
        case "request_header":
            return lambda data: codec.decode_request_header(data, version)
        case _:
            return lambda data: codec.decode_response_header(data, version)


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_every_proper_prefix_of_a_message_is_refused(
    codec: Codec, name: str, api: int, version: int, kind: str
) -> None:
    decode = failing_decode(codec, api, version, kind)
    short_ones = [line for line in grouped("valid", name)[api, version, kind] if 0 < len(line["hex"]) <= 2 * 400]
    assert short_ones
    for line in sorted(short_ones, key=lambda each: len(each["hex"]))[-4:]:
        data = bytes.fromhex(line["hex"])
        for end in range(len(data)):
            with pytest.raises(DecodeError) as caught:
                decode(data[:end])
            error = caught.value
            assert error.offset is not None, (line["id"], end)
            assert 0 <= error.offset <= end, (line["id"], end)
            if kind in ("request", "response"):
                assert (error.api_key, error.version) == (api, version), (line["id"], end)


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_strict_takes_everything_that_kafka_writes(codec: Codec, name: str, api: int, version: int, kind: str) -> None:
    for line in grouped("valid", name)[api, version, kind]:
        got = answer(codec, api, version, kind, bytes.fromhex(line["hex"]), strict=True)
        assert not difference(got, recorded(line)), line["id"]


LAX = {  # what Kafka takes of bent bytes and strict does not
    "bool-2", "bool-128", "bool-255", "varint-overlong-2", "varint-overlong-3", "varint-overlong-5",
    "varint-bits-above-32", "utf8-lone-continuation", "utf8-overlong-form", "utf8-surrogate", "utf8-surrogate-pair",
    "utf8-above-10ffff", "utf8-five-bytes", "utf8-cut-sequence", "utf8-ff", "long-string-growing-past-the-limit",
    "tag-duplicate", "tag-out-of-order", "tag-count-negative", "tag-negative",
}  # fmt: skip


@pytest.mark.parametrize(("name", "api", "version", "kind"), CASES)
def test_strict_is_stricter_and_the_same_for_both(
    both: tuple[Codec, Codec], name: str, api: int, version: int, kind: str
) -> None:
    """Never takes what Kafka refuses, refuses what the protocol forbids, and changes nothing of what it takes."""
    for line in grouped("malformed", name)[api, version, kind]:
        one, other = (answer(codec, api, version, kind, bytes.fromhex(line["hex"]), strict=True) for codec in both)
        assert not difference(one, other), line["id"]
        if one["accept"]:
            assert not difference(one, recorded(line)), line["id"]
        if line["accept"] and line["mutation"] in LAX:
            assert not one["accept"], (line["id"], line["mutation"])


@pytest.mark.parametrize(("name", "api", "version", "kind"), OTHER_CASES)
class TestTheColdPath:
    """Metadata, ControlledShutdown and ApiVersions, which the reference alone speaks."""

    def test_valid(self, name: str, api: int, version: int, kind: str) -> None:
        wrong = failures("valid", name, api, version, kind, get_codec("construct"))
        assert not wrong, "\n".join(wrong)

    def test_bent(self, name: str, api: int, version: int, kind: str) -> None:
        wrong = failures("malformed", name, api, version, kind, get_codec("construct"))
        assert not wrong, "\n".join(wrong)

    def test_json(self, name: str, api: int, version: int, kind: str) -> None:
        codec = get_codec("construct")
        for line in grouped("valid", name)[api, version, kind]:
            if not line["unknown_tags"]:
                message = message_type(codec, api, kind).from_json(line["json"], version)
                assert codec.encode(message, version).hex() == line["hex"], line["id"]


def test_the_golden_data_is_all_asked_for() -> None:
    asked = {case.values for case in CASES + OTHER_CASES}
    held = {
        (name, *group)
        for name in (*FILES, "headers", "others")
        for folder in ("valid", "malformed")
        for group in grouped(folder, name)
    }
    assert held == asked
