"""Large requests that several brokers get at once: what is the same is held once, and nothing else changes."""

import random
import struct
from collections.abc import Iterable, Iterator

import packets as make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_truth import body_id

from kproto.capture import GAP, WHOLE, CaptureSummary, Connection, Endpoint, Exchange, Frame
from kproto.capture.collector import Collector
from kproto.capture.cutter import RequestCutter, RequestInStream
from kproto.capture.payloads import PayloadStore, SharedPayload
from kproto.capture.wanted import WantedApis
from kproto.tables.ids import frame_body_id

CONTROL = WantedApis((4, 5, 6))
LIMIT = 1 << 20
EPOCH_AT = 9  # of UpdateMetadata 8
BODY = random.Random(7).randbytes(130_000)


def body_with(epoch: int, changed_at: int | None, length: int) -> bytes:
    body = bytearray(BODY[:length])
    body[EPOCH_AT : EPOCH_AT + 8] = struct.pack(">q", epoch)
    if changed_at is not None and changed_at < length:
        body[changed_at] ^= 0xFF
    return bytes(body)


BODIES = st.builds(
    body_with,
    st.integers(0, 3),
    st.none() | st.sampled_from([0, 600, 33_000, 65_000, 70_000, 129_999]),
    st.sampled_from([60_000, 65_000, 66_048, 98_304, 130_000]),
)
STREAMS = st.lists(st.lists(BODIES, min_size=1, max_size=3), min_size=1, max_size=5)


def cut_up(rng: random.Random, data: bytes) -> list[bytes]:
    sizes = (1, 3, 500, 1460, 32_768, 65_000, 200_000)
    size, at, pieces = rng.choice(sizes), 0, []
    while at < len(data):
        step = size if size > 400 else rng.choice((size, 40_000))
        pieces.append(data[at : at + step])
        at += step
    return pieces


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STREAMS, st.integers(0, 1 << 32))
def test_sharing_changes_nothing(streams: list[list[bytes]], seed: int) -> None:
    """Several streams in any order and any pieces: each frame is as it was sent, as are the ids of bodies."""
    rng = random.Random(seed)
    store = PayloadStore()
    requests = [[make.request(6, 8, n, body) for n, body in enumerate(bodies)] for bodies in streams]
    cutters = [RequestCutter(CONTROL, LIMIT, aligned=True, payloads=store) for _ in streams]
    todo = [cut_up(rng, b"".join(each)) for each in requests]
    at = [0] * len(todo)
    found: list[list[RequestInStream]] = [[] for _ in todo]
    while any(todo):
        n = rng.choice([n for n, pieces in enumerate(todo) if pieces])
        piece = todo[n].pop(0)
        for cut in make.cuts(cutters[n], at[n], piece, 0, len(piece), at[n]):
            assert isinstance(cut, RequestInStream)
            if isinstance(cut.payload, SharedPayload) and rng.random() < 0.7:
                cut.payload.release()
            found[n].append(cut)
        at[n] += len(piece)
    for sent, got, bodies in zip(requests, found, streams, strict=True):
        assert [bytes(cut.payload or b"") for cut in got] == [request[4:] for request in sent]
        assert [cut.status for cut in got] == [WHOLE] * len(sent)
        assert [cut.offset for cut in got] == [sum(map(len, sent[:n])) for n in range(len(sent))]
        for cut, body in zip(got, bodies, strict=True):
            assert id_of(cut) == body_id(6, 8, "request", body)
            if isinstance(cut.payload, SharedPayload):
                cut.payload.release()
    store.forget()
    assert store.held_bytes == 0


def id_of(cut: RequestInStream) -> bytes:
    assert cut.payload is not None
    connection = Connection(Endpoint("10.0.0.1", 5000), Endpoint("10.0.0.2", 9092), 0)
    frame = Frame(connection, "request", 0, 0, 0, WHOLE, 0, cut.payload, 6, 8, 0, "1", cut.header.body_at, "")
    return frame_body_id(frame, 6, 8)


def side_by_side(talks: Iterable[make.Talk]) -> Iterator[make.Packet]:
    """The first packets of all connections, then the second ones, and so on."""
    rows = [talk.packets for talk in talks]
    for n in range(max(map(len, rows))):
        yield from (row[n] for row in rows if n < len(row))


def collect(talks: Iterable[make.Talk], most_held: int = 256 << 20, *, keeps: bool = True) -> list[Frame]:
    """The requests of connections that are read side by side."""
    collector = Collector(
        CaptureSummary(), capture="", ports=None, apis=[6], limit=8 << 20, most_held=most_held, keeps_payloads=keeps
    )
    found: list[Frame | Exchange] = []
    for time_ns, data, on_wire in side_by_side(talks):
        found += collector.packets([(time_ns, make.ETHERNET, data, 0, len(data), on_wire)])
        assert collector._held + collector._payloads.held_bytes <= most_held
    found += collector.end()
    assert collector._held == 0
    return [event for event in found if isinstance(event, Frame)]


def talks_with(bodies: Iterable[bytes]) -> list[make.Talk]:
    return [
        make.Talk(client=("10.0.0.1", 1000 + n), now_ns=make.START_NS + n).open().ask(make.request(6, 8, n, body), 9000)
        for n, body in enumerate(bodies)
    ]


def test_an_update_to_many_brokers_at_once_is_held_once() -> None:
    large = make.UPDATE_METADATA_8 + random.Random(1).randbytes(1 << 20)
    bodies = [large[:EPOCH_AT] + struct.pack(">q", n) + large[EPOCH_AT + 8 :] for n in range(60)]
    for keeps in (True, False):
        found = collect(talks_with(bodies), 8 << 20, keeps=keeps)
        assert [frame.status for frame in found] == [WHOLE] * 60
        assert [bytes(frame.body) for frame in found] == bodies


def test_different_updates_at_once_are_given_up_beyond_the_limit() -> None:
    bodies = [make.UPDATE_METADATA_8 + random.Random(n).randbytes(1 << 20) for n in range(40)]
    found = collect(talks_with(bodies), 16 << 20, keeps=False)
    whole = [frame for frame in found if frame.status == WHOLE]
    broken = [frame for frame in found if frame.status == GAP]
    assert len(found) == 40
    assert whole
    assert broken
    assert all(bytes(frame.body) == bodies[frame.correlation_id] for frame in whole)
    assert all(bodies[frame.correlation_id].startswith(frame.body) for frame in broken)


def test_a_large_update_whose_end_is_lost_keeps_what_came() -> None:
    store = PayloadStore()
    stream = make.request(6, 8, 1, BODY)
    whole, broken = (RequestCutter(CONTROL, LIMIT, aligned=True, payloads=store) for _ in range(2))
    assert not list(make.cuts(broken, 0, stream, 0, 100_000, 0))
    (sent,) = make.cuts(whole, 0, stream, 0, len(stream), 0)
    assert isinstance(sent, RequestInStream)
    cut, _gap = broken.lost(100_000, len(stream) - 100_000)
    assert isinstance(cut, RequestInStream)
    assert (cut.status, cut.payload) == (GAP, stream[4:100_000])
    after = make.request(6, 8, 2, make.UPDATE_METADATA_8)
    (cut,) = make.cuts(broken, len(stream), after, 0, len(after), 0)
    assert isinstance(cut, RequestInStream)
    assert cut.payload == after[4:]
    store.forget()
    assert store.held_bytes == 0
