"""Kafka's own answers to 6,000 messages, good and bent, hold for both codecs.

Each line was answered by the message classes of kafka-clients 3.9.1. A test is one file, version and kind; what fails
is named by the line's id with both values.
"""

from functools import cache
from typing import Any

import pytest
from answers import answer, decode, difference, encode, from_json, recorded
from conftest import DATA, few, read_jsonl

from kproto.api import ApiKey
from kproto.codec import Codec, Implementation, get_codec
from kproto.errors import DecodeError

FILES = {"leaderandisr": ApiKey(4), "stopreplica": ApiKey(5), "updatemetadata": ApiKey(6)}
OTHERS = (ApiKey.METADATA, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.API_VERSIONS)

CASES = [
    (name, int(key), version, kind)
    for name, key in FILES.items()
    for kind in ("request", "response")
    for version in range(key.info.max_version + 1)
]
CASES += [("headers", -1, version, "request_header") for version in range(3)]
CASES += [("headers", -1, version, "response_header") for version in range(2)]
OTHER_CASES = [
    ("others", int(key), version, kind)
    for key in OTHERS
    for kind in ("request", "response")
    for version in range(key.info.max_version + 1)
]
BY_EXTENSION = [("cython", *case) for case in CASES]
BY_REFERENCE = [("construct", *case) for case in [*CASES, *OTHER_CASES]]


@cache
def grouped(folder: str, name: str) -> dict[tuple[int, int, str], list[dict[str, Any]]]:
    groups: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for line in read_jsonl(DATA / "vectors" / folder / f"{name}.jsonl.gz"):
        groups.setdefault((line["api"], line["version"], line["kind"]), []).append(line)
    return groups


@pytest.mark.parametrize(("tag", "name", "api", "version", "kind"), [*BY_EXTENSION, *few(BY_REFERENCE, 31)])
def test_valid_bytes_and_their_json_form_are_read_and_written_as_kafka_does(
    tag: Implementation, name: str, api: int, version: int, kind: str
) -> None:
    """Strict reading takes all of it, and a message from bytes equals the one from JSON."""
    codec = get_codec(tag)
    lines = grouped("valid", name)[api, version, kind]
    assert lines
    for line in lines:
        data = bytes.fromhex(line["hex"])
        for strict in (False, True):
            found = difference(answer(codec, api, version, kind, data, strict=strict), recorded(line))
            assert not found, f"{line['id']} {line['case']}, strict {strict}: {found}"
        if line["unknown_tags"]:
            continue  # the JSON form has no place for them
        message = from_json(codec, api, kind, line["json"], version)
        assert encode(codec, kind, message, version) == data, line["id"]
        same = decode(codec, api, version, kind, data)[0] == message
        assert same, line["id"]  # no more is said: some hold thousands of partitions


@pytest.mark.parametrize(("tag", "name", "api", "version", "kind"), BY_EXTENSION + BY_REFERENCE)
def test_bent_bytes_get_kafkas_verdict(tag: Implementation, name: str, api: int, version: int, kind: str) -> None:
    for line in grouped("malformed", name)[api, version, kind]:
        got = answer(get_codec(tag), api, version, kind, bytes.fromhex(line["hex"]))
        assert not (found := difference(got, recorded(line))), f"{line['id']} {line['mutation']}: {found}"


@pytest.mark.parametrize(("name", "api", "version", "kind"), few(CASES, 12))
def test_every_proper_prefix_of_a_message_is_refused(
    codec: Codec, name: str, api: int, version: int, kind: str
) -> None:
    short_ones = [line for line in grouped("valid", name)[api, version, kind] if 0 < len(line["hex"]) <= 2 * 400]
    assert short_ones
    for line in sorted(short_ones, key=lambda each: len(each["hex"]))[-4:]:
        data = bytes.fromhex(line["hex"])
        for end in range(len(data)):
            with pytest.raises(DecodeError) as caught:
                decode(codec, api, version, kind, data[:end])
            error = caught.value
            assert error.offset is not None, (line["id"], end)
            assert 0 <= error.offset <= end, (line["id"], end)
            if kind in ("request", "response"):
                assert (error.api_key, error.version) == (api, version), (line["id"], end)


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


def test_the_golden_data_is_all_asked_for() -> None:
    held = {
        (name, *group)
        for name in (*FILES, "headers", "others")
        for folder in ("valid", "malformed")
        for group in grouped(folder, name)
    }
    assert held == {*CASES, *OTHER_CASES}
