"""What is fuzzed: each target takes any bytes, and returns or finds something wrong.

The contract of every target is the same: bytes from anywhere give a value or kproto's own error, never anything else.
``decode`` and ``columns`` go further: the extension, its columns and the reference, which share no code, must give the
same verdict, values and bytes.
"""

import base64
import gzip
import json
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from answers import answer, difference
from conftest import DATA, read_jsonl
from kraft_runs import metadata as kraft_metadata
from plain_sources import from_sources
from strategies import VERSIONS

from kproto.api import ApiKey
from kproto.codec import get_codec
from kproto.errors import CaptureError, DecodeError
from kproto.framing import FrameSplitter, frame
from kproto.metadata_log.batches import RecordBatch, batches_in, encode_batch
from kproto.metadata_log.deliveries import MetadataTraffic
from kproto.metadata_log.files import read
from kproto.metadata_log.finding import LogFiles, find
from kproto.tables.filters import Filters
from kproto.tables.metadata_rows import tables_of_files

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


def capture(data: bytes) -> None:
    """A file from anywhere: frames or CaptureError, the same however it is fed; what comes out holds together."""
    from kproto.capture import CaptureReader, Exchange, exchanges

    try:
        for _ in exchanges(data, apis=None, limit=1 << 20):
            pass
    except CaptureError:
        pass

    def read(step: int) -> list[tuple[int, bytes | None, bytes | None]] | None:
        reader, found = CaptureReader(apis=None, limit=1 << 20), []
        try:
            for at in range(0, len(data), step):
                found += reader.feed(data[at : at + step])
            found += reader.end()
        except CaptureError:
            return None
        out = []
        for event in found:
            if isinstance(event, Exchange):
                event.to_json()
                sides = event.request, event.response
                for side in sides:
                    if side is not None and not 0 <= side.body_at <= len(side.payload):
                        raise Finding(f"{data.hex()}: body at {side.body_at} of {len(side.payload)} bytes")
                out.append((event.time_ns, *(side and side.payload for side in sides)))
        return out

    if read(max(1, len(data))) != read(1 + len(data) // 7):
        raise Finding(f"{data.hex()}: other exchanges when fed in pieces")


def log(data: bytes) -> None:
    """Lines of a request log, timestamps and all: frames or bad inputs with their offsets within the file."""
    from kproto.capture import CaptureSummary
    from kproto.capture.log_reader import LogReader

    line = b"[2026-11-21 06:35:57,700] DEBUG Completed request:{}\n"
    summary = CaptureSummary()
    reader = LogReader(summary, capture="", apis=None)
    found = [*reader.feed(line + data), *reader.end()]
    for bad in summary.bad_inputs:
        if not 0 <= bad.offset < len(line + data):
            raise Finding(f"{data.hex()}: a bad input at {bad.offset} of {len(line + data)} bytes")
    check_types(data, found)


def states(data: bytes) -> None:
    """Lines of a state-change log in any dress: the same requests however they come, each of which can be read."""
    from kproto.capture import CaptureSummary, Exchange
    from kproto.capture.log_reader import LogReader

    line = b"[2026-11-21 06:35:57,700] INFO [Broker id=1] \n"

    def read(step: int) -> list[str]:
        summary = CaptureSummary()
        reader, found = LogReader(summary, capture="", apis=None), []
        whole = line + data
        for at in range(0, len(whole), step):
            found += reader.feed(whole[at : at + step])
        found += reader.end()
        for bad in summary.bad_inputs:
            if not 0 <= bad.offset <= len(whole):
                raise Finding(f"{data.hex()}: a bad input at {bad.offset} of {len(whole)} bytes")
        check_types(data, found)
        return [str(event.to_json()) for event in found if isinstance(event, Exchange)]

    if read(max(1, len(data))) != read(7 + len(data) // 7):
        raise Finding(f"{data.hex()}: other requests when fed in pieces")


def packet(data: bytes) -> None:
    """Packets of any link type at any time; the first bytes say which, the rest are four packets in a row."""
    from kproto.capture import CaptureReader

    link = PACKET_LINKS[data[0] % len(PACKET_LINKS)] if data else 1
    time_ns = int.from_bytes(data[1:9], signed=True)
    reader, found = CaptureReader(apis=None, limit=1 << 20), []
    body = data[9:]
    for at in range(4):
        piece = body[at * len(body) // 4 : (at + 1) * len(body) // 4]
        found += reader.packet(time_ns + at, piece, link, len(piece) + data[0] % 3 if data else None)
    found += reader.packet(time_ns + 5, body, link)
    check_types(data, [*found, *reader.end()])


PACKET_LINKS = (1, 0, 108, 113, 276, 101, 12, 228, 105, 9, 50, 51, 104, 109, 117, 138, 204, 226, 239, 240, 258)


def pasted(data: bytes) -> None:
    """Text that somebody pasted for ``kproto decode``: bytes whose form has a name, or one clear error."""
    from kproto.cli.byte_text import named, parse_bytes, recognised
    from kproto.errors import ConfigurationError

    text = bytes(byte & 0x7F for byte in data)
    try:
        form = recognised(text)
        named(text, form)
        found = parse_bytes(text)
    except ConfigurationError:
        return
    if form not in ("hexdump", "raw") and len(found) > len(text):
        raise Finding(f"{text!r}: {len(found)} bytes of {len(text)} characters")


def check_types(data: bytes, found: list[Any]) -> None:
    """Everything fits the types that the tables give it."""
    from kproto.capture import Frame

    for each in (event for event in found if isinstance(event, Frame)):
        ports = (each.connection.client.port, each.connection.server.port)
        if not (
            0 <= each.time_ns < 1 << 63
            and all(0 <= port < 1 << 16 for port in ports)
            and (each.api_key is None or -1 << 15 <= each.api_key < 1 << 15)
            and -1 << 31 <= each.correlation_id < 1 << 31
        ):
            raise Finding(f"{data.hex()}: {each!r} has a value beyond its type")


WORK_A_BYTE = 400
"""Lines of kproto.capture run for each byte of input, beside what a reader costs in any case."""


@cache
def _traceable_reader() -> ModuleType:
    """``kproto.capture.reader`` as Python: no line of a compiled module can be counted."""
    from kproto.capture import cutter, reader

    return reader if cutter.__file__.endswith(".py") else from_sources("kproto.capture", "reader")[0]


def effort(data: bytes) -> None:
    """A stream of any bytes: the work grows with the bytes alone, whatever they hold."""
    from packets import RAW, Talk, ip_of

    lines = 0

    def trace(frame: Any, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if "/kproto/capture/" in frame.f_code.co_filename else None

    talk = Talk()
    for at in range(0, len(data), 500):
        talk.ask(data[at : at + 500])
    reader = _traceable_reader().CaptureReader(ports=[9092], apis=None, limit=1 << 20)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for time_ns, wire, _ in talk.packets:
            reader.packet(time_ns, ip_of(wire, 1), RAW)
        reader.end()
    finally:
        sys.settrace(before)
    if lines > WORK_A_BYTE * len(data) + 5000:
        raise Finding(f"{data.hex()}: {lines} lines of work for {len(data)} bytes")


def metadata(data: bytes) -> None:
    """A metadata log: a file's bytes, or records in batches whose CRC holds, up to the tables' rows."""
    if data[:1] == b"\0":
        content = data[1:]
    else:
        values, at = [], 1
        while at < len(data):
            size = data[at]
            values.append((None, data[at + 1 : at + 1 + size]))
            at += 1 + size
        content = b"".join(encode_batch([value], base_offset=place) for place, value in enumerate(values))
    traffic = MetadataTraffic()
    covered = 0
    for found in batches_in(content):
        if isinstance(found, RecordBatch):
            covered += len(found.data)
            traffic.batches[found.epoch, found.base_offset] = found, "fuzz"
        else:
            covered += found.size
    if covered > len(content):
        raise Finding(f"{covered} of {len(content)} bytes are told of")
    tables = tables_of_files(LogFiles(), Filters(), traffic, capture="fuzz")
    if tables["requests"].num_rows > len(traffic.batches):
        raise Finding("more rows than batches")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decode": decode,
    "cold": cold,
    "columns": columns,
    "framing": framing,
    "capture": capture,
    "log": log,
    "states": states,
    "packet": packet,
    "pasted": pasted,
    "effort": effort,
    "metadata": metadata,
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
        case "log":
            found = log_lines()
        case "states":
            found = state_lines()
        case "packet":
            found = [
                bytes([n % len(PACKET_LINKS)]) + (1_700_000_000_000_000_000 + n).to_bytes(8) + data
                for n, data in enumerate([*wire(), *tunnelled()])
            ]
            found += [b"\0" + found[-1][1:9] + data for data in tunnelled()]
        case "pasted":
            found = [
                b"b'\\x00\\x12abc'", b"<Buffer 00 12>", b'{"type":"Buffer","data":[0,18]}', b"[]byte{0x0, 0x12}",
                b"[0, -18]", b"<<0,18,\"app\">>", b"> 0000  00 12 00 03", b"|00000000| 00 12     |..|", b"AAsBAA==",
            ]  # fmt: skip
        case "metadata":
            found = metadata_records()
        case "effort":
            found = [b"".join(data[54:] for data in wire()[n : n + 8]) for n in range(0, 40, 8)]
        case _:
            found = captures()
    return found + corpus(target)


def metadata_records() -> list[bytes]:
    """A real log's beginning as bytes, and its records of each type."""
    log = read(find([kraft_metadata("kraft-4.1-a", 1000)])[0])
    values: dict[int, list[bytes]] = {}
    for batch in log.batches:
        if not batch.is_control:
            for entry in batch.entries():
                value = entry.value or b""
                values.setdefault(value[1], []).append(bytes([len(value)]) + value if len(value) < 256 else b"\0")
    whole = b"".join(batch.data for batch in log.batches[:12])
    mixed = [b"\x01" + b"".join(some[:3]) for some in values.values()]
    return [b"\0" + whole, *mixed, b"\x01" + b"".join(each for some in values.values() for each in some[:2])]


def log_lines() -> list[bytes]:
    """Lines that brokers logged, of each API a few."""
    path = DATA / "request_log" / "broker-0-kafka-request.log.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    control = [line for line in lines if re.search(rb'"requestApiKey":[456],', line)]
    return [*control[:12], b"".join(control[:3]), *lines[:4]]


def state_lines() -> list[bytes]:
    """Lines of every kind that brokers and controllers logged, plain and as Docker keeps them."""
    lines: list[bytes] = []
    for run in ("ibp-3.9-a", "kafka-1.0.2", "kafka-0.11.0.3", "kraft-3.9.1"):
        with tarfile.open(DATA / "state_logs" / f"{run}.tar.xz") as tar:
            logs = [tar.extractfile(name) for name in tar.getnames() if name.endswith(("change.log", "controller.log"))]
            lines += [line for log in logs if log is not None for line in log.read().splitlines(keepends=True)]
    kinds = {re.sub(rb"\d+|partition \S+", b"", line)[:90]: line for line in lines}
    found = [line for line in kinds.values() if len(line) < 1500]
    docker = [
        json.dumps({"log": line.decode(), "time": "2026-11-21T06:35:57Z"}).encode() + b"\n" for line in found[:20]
    ]
    cut = [re.sub(rb"(.{1,80})(?: |$)", rb"> \1\n", line.rstrip()) for line in found[:20]]
    return [*found, *docker, *cut, b"".join(lines[:40]), b"".join(lines[-40:])]


def tunnelled() -> list[bytes]:
    """Packets inside others: VXLAN, GRE, IP in IP, MPLS, PPPoE."""
    found = []
    for frame_of in wire()[:8]:
        ip = frame_of[14:]
        vxlan = b"\x12\xb5\x12\xb5\0\0\0\0\x08" + bytes(7) + frame_of
        for protocol, inside in ((17, vxlan), (47, b"\0\0\x65\x58" + frame_of), (4, ip)):
            head = bytes([0x45, 0]) + (20 + len(inside)).to_bytes(2) + bytes(5) + bytes([protocol]) + bytes(10)
            found.append(bytes(12) + b"\x08\0" + head + inside)
        found.append(bytes(12) + b"\x88\x47\0\0\x11\x40" + ip)
        found.append(bytes(12) + b"\x88\x64\x11\0\0\1\0\0\0\x21" + ip)
    return found


def wire() -> list[bytes]:
    """Packets as Ethernet carries them."""
    from packets import read_pcap

    _, found = read_pcap(DATA / "captures" / "ibp-2.8-a.pcap.gz")
    return [each.data for each in found if len(each.data) > 100][:60]


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
