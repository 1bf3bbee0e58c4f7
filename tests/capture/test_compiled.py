"""The compiled modules, and the short ways of segments, give what their Python gives step by step."""

import gzip
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import packets as make
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from plain_sources import from_sources

from kproto.capture import CaptureReader, frames

CAPTURES = Path(__file__).parent.parent / "data" / "captures"
UPDATE = make.UPDATE_METADATA_8
LARGE = Random(1).randbytes(150_000)
"""A body whose beginning connections have in common."""


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    """``kproto.capture.reader`` whose code runs as Python, and takes each segment the long way."""
    reader, collector, reassembly = from_sources("kproto.capture", "reader", "collector", "reassembly")
    collector.Conversation.passes = lambda *_: False
    reassembly.Reassembler.in_order = lambda *_: None
    return reader


def seen(event: Any) -> tuple[object, ...]:
    """All that a frame or an exchange tells."""
    if hasattr(event, "payload"):
        names = {name for name in dir(event) if name[0] != "_"} - {"connection", "content", "request"}
        request = event.request and (event.request.direction, event.request.offset)
        return *((name, getattr(event, name)) for name in sorted(names)), event.connection.conn_id, request
    return tuple(frame and (frame.direction, frame.offset) for frame in (event.request, event.response))


def read(reader: Any, pieces: list[bytes]) -> tuple[list[tuple[object, ...]], dict[str, object]]:
    found = []
    reader.begin_file("a.pcap")
    for piece in pieces:
        found += [seen(event) for event in reader.feed(piece)]
    found += [seen(event) for event in reader.end()]
    counts = {name: dict(v) if isinstance(v, Counter) else v for name, v in asdict(reader.summary).items()}
    losses = [{**asdict(loss), "connection": loss.connection.conn_id} for loss in reader.summary.losses]
    return found, counts | {"losses": losses}


def both(plain: ModuleType, data: bytes, marks: list[int], **options: Any) -> int:
    """Read a file with both; return the number of events."""
    pieces = [data[begin:end] for begin, end in pairwise(sorted({0, *marks, len(data)}))]
    compiled = read(CaptureReader(**options), pieces)
    expected = read(plain.CaptureReader(**options), pieces)
    assert compiled == expected
    return len(compiled[0])


def conversation(rng: Random, number: int, *, foreign: bool) -> list[make.Packet]:
    """A connection with requests of many sizes, some of them unanswered, wanted or not, in segments of many sizes."""
    talk = make.Talk(
        client=(f"10.0.{number}.1", 40_000 + number),
        client_isn=rng.choice([0, 2**31 - 3000, 2**32 - 3000]),
        server_isn=rng.choice([0, 77, 2**32 - 50]),
        now_ns=make.START_NS + rng.randrange(10**6),
        step_ns=rng.choice([1000, 10**6]),
    )
    if rng.random() < 0.8:
        talk.open()
    for correlation_id in range(rng.randrange(1, 12)):
        size = rng.choice([60, 400, 1460])
        body = rng.randbytes(rng.choice([10, 700, 1500, 9000])) if foreign or rng.random() < 0.3 else UPDATE
        if rng.random() < 0.1:
            body = LARGE[: rng.choice([100_000, 100_000, 150_000])]
        api, version = rng.choice([(6, 8), (6, 8), (4, 7), (0, 9), (1, 12)])
        request = make.request(api, version, correlation_id, body)
        talk.ask(rng.randbytes(rng.choice([30, 2000])) if foreign else request, size)
        if rng.random() < 0.8:
            talk.answer(make.response(api, version, correlation_id, rng.randbytes(rng.choice([3, 500, 5000]))), size)
    if rng.random() < 0.5:
        rng.choice([talk.close, talk.reset])()
    return talk.packets


def disturbed(rng: Random, packets: list[make.Packet]) -> list[make.Packet]:
    """The same packets with some of them missing, late, twice or cut short."""
    out: list[make.Packet] = []
    loss = rng.choice([0, 0, 0.02, 0.2])
    for packet in packets:
        if rng.random() < loss:
            continue
        if loss and rng.random() < 0.02:
            packet = packet._replace(data=packet.data[: rng.randrange(14, len(packet.data) + 1)])
        out.append(packet)
        if rng.random() < loss / 2:
            out.append(packet)
    for _ in range(rng.choice([0, 0, 3, len(out)])):
        at = rng.randrange(len(out) + 1)
        out[at : at + 4] = rng.sample(out[at : at + 4], len(out[at : at + 4]))
    return out


@given(seed=st.integers(0, 2**32), many=st.integers(1, 6))
@example(1, 5)  # the server's first bytes are lost: what follows begins inside an answer
def test_the_compiled_modules_give_what_their_python_gives(plain: ModuleType, seed: int, many: int) -> None:
    """Whatever is lost, late, sent again or cut short, in any pieces of the file."""
    rng = Random(seed)
    talks = [conversation(rng, number, foreign=rng.random() < 0.15) for number in range(many)]
    packets = disturbed(rng, sorted(packet for talk in talks for packet in talk))
    data = rng.choice([make.pcap, make.pcapng])(packets)
    if rng.random() < 0.1 and len(data) > 200:
        at = rng.randrange(24, len(data))
        data = data[:at] + rng.randbytes(20) + data[at + 20 :]
    marks = [rng.randrange(len(data)) for _ in range(rng.choice([0, 1, 40]))]
    both(
        plain, data, marks, ports=rng.choice([None, None, [9092]]), apis=rng.choice([None, [4, 5, 6], [6]]),
        limit=rng.choice([1 << 20, 1 << 20, 4000]),
    )  # fmt: skip


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.pcap*.gz"))[::3], ids=lambda path: path.name)
def test_recorded_captures_give_the_same_frames(plain: ModuleType, path: Path) -> None:
    data = gzip.decompress(path.read_bytes())
    assert both(plain, data, list(range(0, len(data), 16 << 10)), capture="c") >= len(list(frames(path)))
