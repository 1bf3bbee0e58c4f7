"""Lengths that lie cost nothing: memory stays within a fixed multiple of the input, whatever the input claims.

Each codec runs in a process of its own with a hard limit on its address space, so that even memory that is asked for
and never touched would show.
"""

import textwrap

import pytest
from commands import python_prints
from conftest import IMPLEMENTATIONS, CodecImplementation
from strategies import MESSAGES, VERSIONS, Struct, by_hand, fields_with_paths, plain_json
from wire import i16, i32, varint

PROGRAM = textwrap.dedent(
    """
    import json, resource, sys
    from kproto.codec import get_codec
    from kproto.errors import DecodeError

    codec = get_codec(sys.argv[1])
    for api in (4, 5, 6):  # what a codec builds on first use is none of the input's doing
        for version in range(9):
            for read in (codec.decode_request, codec.decode_response):
                try:
                    read(api, version, bytes(64))
                except Exception:
                    pass
    page = resource.getpagesize()
    used = int(open("/proc/self/statm").read().split()[0]) * page
    resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20), -1))
    def resident(name):
        return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")  # the peak begins here; getrusage's begins with the parent's size
    start = resident("VmRSS")
    for line in sys.stdin:
        api, version, kind, head, filler, size, *tail = json.loads(line)
        data = bytes.fromhex(head) + bytes.fromhex(filler) * size + bytes.fromhex("".join(tail))
        try:
            message = (codec.decode_request if kind == "request" else codec.decode_response)(api, version, data)
            for topic in getattr(message, "topic_states", ()):  # the fast codec makes objects when a field is read
                getattr(topic, "partition_states", None)
        except DecodeError:
            pass
    print(resident("VmHWM") - start)
    """
)


def hostile_lengths() -> list[list[object]]:
    """Every array and string of every version, its length replaced by the largest ones there are."""
    asked: list[list[object]] = []
    for api, version, kind in VERSIONS:
        struct = MESSAGES[api, kind]
        form = plain_json(struct, version)
        for path, field in fields_with_paths(struct):
            text = field.type == "string"
            if not (text or isinstance(field.type, Struct) or str(field.type).startswith("[]")):
                continue
            for wire in ([i16(32767)] if text else [i32(2**31 - 1), i32(1 << 20)]) + [
                varint(2**31 - 1),
                varint(2**31),
                varint((1 << 20) + 1),
            ]:
                data = by_hand(api, version, kind, form, {path: wire})
                asked += [[api, version, kind, data.hex(), "00", n] for n in (0, 4096)]
    return asked


def test_hostile_lengths(request: pytest.FixtureRequest) -> None:
    for implementation in IMPLEMENTATIONS:
        assert grown(implementation, hostile_lengths()) < 24 << 10, implementation


@pytest.mark.slow
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=str)
def test_a_count_that_the_bytes_could_just_hold(implementation: CodecImplementation) -> None:
    """A megabyte that claims as many topics, partitions, ids or tags as it has bytes; zeros and ones behind it."""
    size = 1 << 20
    heads = {
        "topics": i32(0) + b"\0" + i32(0) * 3 + varint(size),
        "partitions": i32(0) + b"\0" + i32(0) * 3 + varint(2) + varint(1) + bytes(16) + varint(size),
        "brokers": i32(0) + b"\0" + i32(0) * 3 + varint(1) + varint(size),
        "tags": i32(0) + b"\0" + i32(0) * 3 + varint(1) + varint(1) + varint(size),
    }
    asked = [[6, 8, "request", head.hex(), filler, size] for head in heads.values() for filler in ("00", "01", "7f")]
    assert grown(implementation, asked) < 80 << 10


COST = {"cython": 50, "construct": 70}
"""Bytes of memory that one byte of input may take once its fields are read, as SECURITY.md promises."""


@pytest.mark.slow
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=str)
def test_the_smallest_structs_cost_what_is_promised(implementation: CodecImplementation) -> None:
    """A topic of three bytes, without name and partitions, grows most."""
    count = 350_000
    head = i32(0) + i32(0) + bytes(8) + varint(count + 1)
    asked = [[6, 6, "request", head.hex(), "010100", count, "0100"]]
    assert 20 < grown(implementation, asked) * 1024 / (3 * count) < COST[implementation.tag]  # less: it was not decoded


def grown(implementation: CodecImplementation, asked: list[list[object]]) -> int:
    """KiB by which the process grew while it was asked."""
    import json

    lines = "\n".join(json.dumps(question) for question in asked)
    return int(python_prints(PROGRAM, implementation.tag, input=lines))
