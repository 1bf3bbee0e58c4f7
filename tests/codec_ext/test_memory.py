"""What decoding costs in memory: bounded by the input, linear, and all given back."""

import gc
import json
import sys
import tracemalloc
from typing import Any

import pytest
from commands import python_prints
from wire import array, i16, i32, i64, string, tags, varint

from kproto.codec import decode_request, decode_response, encode
from kproto.columns import ColumnsBuilder, decode_columns, encode_batches, encode_columns
from kproto.errors import DecodeError, EncodeError
from kproto.headers import decode_request_header
from kproto.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

CLASSES: dict[int, Any] = {4: LeaderAndIsrRequest, 5: StopReplicaRequest, 6: UpdateMetadataRequest}


def rows(topics: int, partitions: int) -> dict[str, Any]:
    return {
        "topic": [f"topic-{t}" for t in range(topics) for _ in range(partitions)],
        "partition": list(range(partitions)) * topics,
    }


def resident() -> int:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm", encoding="ascii") as f:  # noqa: PTH123
        return int(f.read().split()[1]) * 4096


def growth(work: Any, rounds: int) -> int:
    """How much more memory a number of rounds holds than a tenth of them."""
    for _ in range(rounds // 10):
        work()
    gc.collect()
    before = resident()
    for _ in range(rounds):
        work()
    gc.collect()
    return resident() - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_leaks_from_any_door_on_any_path() -> None:
    bodies = {
        api: encode_columns(cls(), v, rows(3, 4)) for (api, cls), v in zip(CLASSES.items(), (7, 4, 8), strict=True)
    }
    messages = {api: decode_request(api, v, bodies[api]) for api, v in ((4, 7), (5, 4), (6, 8))}
    messages[6].topic_states[0].unknown_tagged_fields = [(5, b"five")]
    messages[6].topic_states[0].partition_states[0].unknown_tagged_fields = [(5, b"row")]
    tagged = encode(messages[6], 8)
    broken = [(api, v, bodies[api][:cut]) for api, v in ((4, 7), (5, 4), (6, 8)) for cut in (0, 9, 30, 60, -1)]
    broken += [(6, 8, tagged[:cut]) for cut in range(30, len(tagged), 23)]
    unwritable = UpdateMetadataRequest(live_brokers=[])
    unwritable.unknown_tagged_fields = [(2, b""), (1, b"")]
    builder = ColumnsBuilder(6)

    def work() -> None:
        for api, v in ((4, 7), (5, 4), (6, 8)):
            message = decode_request(api, v, bodies[api])
            assert encode(message, v) == bodies[api]
            columns = decode_columns(api, v, bodies[api])
            encode_columns(columns.message, v, columns)
            encode_batches(columns.message, v, [columns] * 3)
            CLASSES[api].from_json(message.to_json(v), v)
            assert message.partition_states
        assert decode_request(6, 8, tagged) == messages[6]
        for api, v, data in broken:
            with pytest.raises(DecodeError):
                decode_request(api, v, data)
            with pytest.raises(DecodeError):
                decode_columns(api, v, data)
        with pytest.raises(DecodeError):
            builder.append(8, tagged[:-9])
        builder.append(8, tagged)
        builder.finish()
        for wrong in (unwritable, 7):
            with pytest.raises((EncodeError, TypeError)):
                encode(wrong, 8)
        with pytest.raises(EncodeError):
            UpdateMetadataRequest.from_json({"controllerId": 1}, 8)
        decode_response(6, 8, b"\0\0\0")
        decode_request_header(b"\0\6\0\10\0\0\0\1\0\3abc\0")

    # A leak grows each time; what the system adds to a process at once, such as a huge page, does not.
    assert any(growth(work, 300) < 1 << 20 for _ in range(3))


def test_reference_counts_of_what_is_shared_stay() -> None:
    body = encode_columns(UpdateMetadataRequest(), 8, rows(3, 4))
    shared = [(), "", None, UpdateMetadataRequest, b""]
    for _ in range(3):
        decode_request(6, 8, body)
    before = [sys.getrefcount(x) for x in shared]
    for _ in range(1000):
        message = decode_request(6, 8, body)
        encode(message, 8)
        repr(message.topic_states[0].partition_states[0].isr)
    after = [sys.getrefcount(x) for x in shared]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), (before, after)


PEAK = """
import json, sys
from kproto.codec import get_codec
_codec = get_codec("cython")
kind, n = sys.argv[1], int(sys.argv[2])
rows = {"topic": ["t%d" % (i // 100) for i in range(n)], "partition": [i % 100 for i in range(n)],
        "isr": [[1, 2, 3]] * n, "replicas": [[1, 2, 3]] * n}
body = _codec.encode_columns(_codec.UpdateMetadataRequest(), 8, rows)
del rows
def now():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
def kept():
    import ctypes
    ctypes.CDLL(None).malloc_trim(0)
    return now()
before = kept()
made = _codec.decode_request(6, 8, body) if kind == "objects" else _codec.decode_columns(6, 8, body)
print(json.dumps((kept() - before) / n))
"""


def kept_for_each(kind: str, n: int) -> float:
    return float(json.loads(python_prints(PEAK, kind, str(n))))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("kind", "limit"), [("objects", 120), ("columns", 70)])
def test_a_partition_of_replication_factor_three_takes_so_many_bytes(kind: str, limit: int) -> None:
    assert kept_for_each(kind, 200_000) <= limit


HUGE = 2**31 - 1
HEAD = i32(1) + b"\0" + i32(1) + i64(1)  # of an UpdateMetadata request, version 8
TOPIC = string("t", flexible=True) + bytes(16)
CLAIMS = {
    "topics": HEAD + varint(HUGE),
    "partitions": HEAD + varint(2) + TOPIC + varint(HUGE),
    "isr": HEAD + varint(2) + TOPIC + varint(2) + bytes(16) + varint(HUGE),
    "name": HEAD + varint(2) + varint(HUGE),
    "brokers": HEAD + varint(1) + varint(HUGE),
    "endpoints": HEAD + varint(1) + varint(2) + i32(1) + varint(HUGE),
    "tags": HEAD + varint(1) + varint(1) + varint(HUGE),
    "tag size": HEAD + varint(1) + varint(1) + varint(1) + varint(9) + varint(HUGE),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_length_that_is_not_there_costs_nothing(claim: str) -> None:
    for data in (CLAIMS[claim], CLAIMS[claim] + bytes(64)):
        tracemalloc.start()
        try:
            for read in (decode_request, decode_columns):
                with pytest.raises(DecodeError):
                    read(6, 8, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 100_000


@pytest.mark.parametrize("flood", ["tags", "known tag", "topics", "errors", "smallest topics"])
def test_a_flood_of_small_things_takes_a_bounded_multiple_of_its_bytes(flood: str) -> None:
    """The worst is the smallest struct: 3 bytes of a topic without id and partitions become an object of about 70."""
    count = 50_000
    if flood == "tags":
        body = HEAD + varint(1) + varint(1) + tags(*((t, b"") for t in range(1, count)))
        expected: Any = count - 1
    elif flood == "known tag":
        body = HEAD + varint(1) + varint(1) + varint(2 * count) + b"\0\1\2\5\0" * count
        expected = count
    elif flood == "topics":
        body = (
            HEAD + array([string("", flexible=True) + bytes(16) + varint(1) + b"\0"] * count, flexible=True) + b"\1\0"
        )
        expected = count
    elif flood == "smallest topics":
        body = i32(1) * 2 + i64(1) + array([b"\1\1\0"] * count, flexible=True) + b"\1\0"
        expected = count
    else:
        body = i16(0) + array([string("", flexible=True) + i32(1) + i16(0) + b"\0"] * count, flexible=True) + b"\0"
        expected = count
    tracemalloc.start()
    try:
        version = 6 if flood == "smallest topics" else 8
        message = decode_response(5, 4, body) if flood == "errors" else decode_request(6, version, body)
        decoded = tracemalloc.get_traced_memory()[1]
        assert flood == "errors" or message.topic_states is not None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found = message.partition_errors if flood == "errors" else message.topic_states
    assert len(message.unknown_tagged_fields if "tag" in flood else found) == expected
    assert decoded < (16 if flood == "errors" else 2) * len(body) + 100_000
    assert peak < (25 if flood == "smallest topics" else 16) * len(body) + 100_000


@pytest.mark.parametrize("api", CLASSES)
def test_growth_is_linear(api: int) -> None:
    """Bytes, rows and memory of ten times as many partitions are ten times as many."""
    version = {4: 7, 5: 4, 6: 8}[api]
    sizes, peaks = [], []
    for n in (10_000, 100_000):
        body = encode_columns(CLASSES[api](), version, rows(n // 100, 100))
        tracemalloc.start()
        message = decode_request(api, version, body)
        assert message.topic_states
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(len(body))
        assert len(message.partition_states) == n
    assert 9.5 < sizes[1] / sizes[0] < 10.5
    assert 9 < peaks[1] / peaks[0] < 11


@pytest.mark.parametrize("api", CLASSES)
def test_partitions_stay_bytes_until_they_are_looked_at(api: int) -> None:
    """Of bytes the message holds them themselves, of other buffers one copy."""
    version = {4: 7, 5: 4, 6: 8}[api]
    body = encode_columns(CLASSES[api](), version, rows(100, 100))
    for data, limit in ((body, 2_000), (bytearray(body), len(body) + 2_000)):
        tracemalloc.start()
        message = decode_request(api, version, data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < limit
        assert encode(message, version) == body
        assert len(message.topic_states) == 100
        assert encode(message, version) == body


def test_a_message_does_not_hold_a_buffer_of_which_it_is_a_small_part() -> None:
    body = encode_columns(UpdateMetadataRequest(), 8, rows(10, 10))
    buffer = body + bytes(10 * len(body))
    before = sys.getrefcount(buffer)
    message = decode_request(6, 8, buffer)
    assert sys.getrefcount(buffer) == before
    assert encode(message, 8) == body
