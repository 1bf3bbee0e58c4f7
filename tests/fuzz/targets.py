"""What is fuzzed: each target takes any bytes, and returns or finds something wrong.

The contract of every target is the same: bytes from anywhere give a value or kproto's own error, never anything else.
``decode`` and ``columns`` go further: the extension, its columns and the reference, which share no code, must give the
same verdict, values and bytes.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from answers import answer, difference
from conftest import DATA, read_jsonl
from strategies import VERSIONS

from kproto.api import ApiKey
from kproto.codec import get_codec
from kproto.errors import CaptureError, DecodeError
from kproto.framing import FrameSplitter, frame

__all__ = ["TARGETS", "Finding", "corpus", "known_divergences", "seeds"]

HERE = Path(__file__).parent
HEADERS = [(-1, v, "request_header") for v in range(3)] + [(-1, v, "response_header") for v in range(2)]
QUESTIONS = [*VERSIONS, *HEADERS]
COLD = [
    (key, version, kind)
    for key in (3, 7, 17, 18, 19, 20, 36, 37, 56, 58, 62, 63, 67)
    for version in range(ApiKey(key).info.max_version + 1)
    for kind in ("request", "response")
]


class Finding(AssertionError):
    """What the fuzzer looks for."""


def chosen(data: bytes, among: list[tuple[int, int, str]]) -> tuple[int, int, str, bool, bytes]:
    """The first byte says which message the rest is taken for, the second whether to be strict."""
    api, version, kind = among[data[0] % len(among)] if data else among[0]
    return api, version, kind, len(data) > 1 and data[1] % 4 == 3, data[2:]


def told(name: Any, api: int, version: int, kind: str, data: bytes, strict: bool) -> dict[str, Any]:
    try:
        return answer(get_codec(name), api, version, kind, data, strict=strict)
    except Exception as e:
        raise Finding(f"{name} {api} {version} {kind} {data.hex()}: {type(e).__name__}: {e}") from e


def decode(data: bytes) -> None:
    """Both codecs: verdict, bytes used, values, bytes written again."""
    api, version, kind, strict, body = chosen(data, QUESTIONS)
    one, other = (told(name, api, version, kind, body, strict) for name in ("cython", "construct"))
    found = difference(one, other)
    if found and not any(re.search(each["difference"], found) for each in known_divergences()):
        raise Finding(f"{api} {version} {kind} strict={strict} {body.hex()}: extension against reference: {found}")


def cold(data: bytes) -> None:
    """The reference alone, on every other API: what it takes it can show, and what it writes it reads as the same."""
    api, version, kind, strict, body = chosen(data, COLD)
    one = told("construct", api, version, kind, body, strict)
    if one["accept"] and one["reencoded"] is not None:
        again = told("construct", api, version, kind, bytes.fromhex(one["reencoded"]), strict=False)
        if found := difference(again, one | {"consumed": len(one["reencoded"]) // 2}):
            raise Finding(f"{api} {version} {kind} {body.hex()}: written and read again: {found}")


def columns(data: bytes) -> None:
    """Rows as Arrow columns: refused where objects are, as many rows as objects have, valid Arrow."""
    import pyarrow as pa

    api, version, kind, strict, body = chosen(data, VERSIONS)
    codec: Any = get_codec("cython")
    try:
        message, used = (codec.decode_request_from if kind == "request" else codec.decode_response_from)(
            api, version, body, strict=strict
        )
        whole = not strict or used == len(body)
    except DecodeError:
        message, whole = None, False
    try:
        held = codec.decode_columns(api, version, body, kind=kind, strict=strict)
    except DecodeError as e:
        if whole:
            raise Finding(f"{api} {version} {kind} {body.hex()}: columns refuse what objects take: {e}") from e
        return
    batch = pa.record_batch(held)
    batch.validate(full=True)
    if not whole:
        raise Finding(f"{api} {version} {kind} {body.hex()}: columns take what objects refuse")
    rows = rows_of(message, kind)
    if len(held) != rows:
        raise Finding(f"{api} {version} {kind} {body.hex()}: {len(held)} rows of columns, {rows} of objects")


def rows_of(message: Any, kind: str) -> int:
    """Partitions as they stand on the wire, those named twice counted twice."""
    groups = [*getattr(message, "topic_states", ()), *getattr(message, "topics", ())]
    flat = sum(
        len(getattr(message, name, ()))
        for name in ("ungrouped_partition_states", "ungrouped_partitions", "partition_errors")
    )
    parts = "partition_errors" if kind == "response" else "partition_states"
    return flat + sum(len(getattr(g, "partition_indexes", None) or getattr(g, parts, ())) for g in groups)


def framing(data: bytes) -> None:
    """The same frames or the same error for every way of cutting the stream up."""
    limit = (data[0] if data else 0) * 7 - 1
    stream, step = data[2:], 1 + (data[1] if len(data) > 1 else 0) % 19

    def outcome(pieces: list[bytes]) -> tuple[list[bytes], str]:
        splitter, got = FrameSplitter(limit), []
        try:
            for piece in pieces:
                got.extend(splitter.feed(piece))
            splitter.close()
        except DecodeError as e:
            return got, str(e)
        return got, ""

    whole, split = outcome([stream]), outcome([stream[i : i + step] for i in range(0, len(stream), step)])
    if whole != split:
        raise Finding(f"limit {limit}, pieces of {step}, {stream.hex()}: {whole} is not {split}")
    if not whole[1] and b"".join(map(frame, whole[0])) != stream:
        raise Finding(f"{stream.hex()} is not its frames")


@cache
def scratch() -> Path:
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"kproto-fuzz-{os.getpid()}.pcap"


def capture(data: bytes) -> None:
    """A file from anywhere: frames or CaptureError; every request and response that comes out holds together."""
    from kproto.capture import exchanges

    path = scratch()
    path.write_bytes(data)
    try:
        for exchange in exchanges(path, apis=None, limit=1 << 20):
            exchange.to_json()
            for side in (exchange.request, exchange.response):
                if side is not None and not 0 <= side.body_at <= len(side.payload):
                    raise Finding(f"{data.hex()}: body at {side.body_at} of {len(side.payload)} bytes")
    except CaptureError:
        pass
    finally:
        path.unlink()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decode": decode,
    "cold": cold,
    "columns": columns,
    "framing": framing,
    "capture": capture,
}


# ---- what to begin with ----------------------------------------------------------------------------------------------


def golden(files: tuple[str, ...], among: list[tuple[int, int, str]], per_group: int) -> Iterator[bytes]:
    """Golden messages, short ones first, in the form that the targets read."""
    for name in files:
        groups: dict[tuple[int, int, str], list[bytes]] = {}
        for folder in ("valid", "malformed"):
            for line in read_jsonl(DATA / "vectors" / folder / f"{name}.jsonl.gz"):
                if 0 < len(line["hex"]) <= 800:
                    groups.setdefault((line["api"], line["version"], line["kind"]), []).append(
                        bytes.fromhex(line["hex"])
                    )
        for group, held in groups.items():
            if group in among:
                for number, data in enumerate(held[:: max(1, len(held) // per_group)]):
                    yield bytes([among.index(group), 3 * (number % 2)]) + data


def seeds(target: str) -> list[bytes]:
    """What a run begins with: golden data, and what earlier runs found worth keeping."""
    control = ("leaderandisr", "stopreplica", "updatemetadata")
    match target:
        case "decode":
            found = list(golden((*control, "headers"), QUESTIONS, 12))
        case "columns":
            found = list(golden(control, VERSIONS, 12))
        case "cold":
            found = list(golden(("others",), COLD, 8)) + [bytes([i, 0]) + bytes(40) for i in range(len(COLD))]
        case "framing":
            stream = b"".join(frame(data[2:]) for data in golden(("headers",), QUESTIONS, 2))
            found = [b"\0\0" + stream, b"\xff\x05" + stream, b"\x10\x03" + stream[:50], b""]
        case _:
            found = captures()
    return found + corpus(target)


def captures() -> list[bytes]:
    """Small captures in every dress: the first packets of recorded ones, as pcap and pcapng."""
    from packets import pcap, pcapng, read_pcap

    found = []
    for path in sorted((DATA / "captures").glob("ibp-*-a.pcap.gz"))[::4]:
        link, packets = read_pcap(path)
        for start in (0, len(packets) // 2):
            some = packets[start : start + 12]
            found += [pcap(some, link), pcap(some, link, order=">", nano=True), pcapng(some, link)]
    return [*found, gzip.compress(found[0], mtime=0)]


def corpus(target: str) -> list[bytes]:
    """Inputs that earlier runs kept: one in base64 a line."""
    path = HERE / "corpus" / f"{target}.txt.gz"
    if not path.exists():
        return []
    return [base64.b64decode(line) for line in gzip.decompress(path.read_bytes()).split()]


@cache
def known_divergences() -> list[dict[str, Any]]:
    """Where the codecs are known to differ: an input, the difference as a pattern, and why it stays.

    A test fails when a listed one no longer differs.
    """
    path = HERE / "known_divergences.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines() if line]
