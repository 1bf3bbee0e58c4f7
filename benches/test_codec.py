"""How fast is each door of each codec? One benchmark for each question and body.

    pytest benches/test_codec.py -o addopts= --benchmark-only --benchmark-group-by=param:name

``extra_info`` says codec, partitions, bytes, ns for each partition, and the machine's load. The reference is asked once
for the bodies that it can read in a second or two.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from codec_bodies import Body, body, columns, reader, stored

from kproto import reference
from kproto.codec import get_codec
from kproto.fanout import Fanout

if TYPE_CHECKING:
    from collections.abc import Callable

BODIES = {body.name: body for body in stored()}
extension: Any = get_codec("cython")
CODECS: dict[str, Any] = {"cython": extension, "construct": reference}
SMALL = [name for name, body in BODIES.items() if body.partitions == 1]
CASES = [("cython", name) for name in BODIES] + [("construct", name) for name in [*SMALL, "updatemetadata-8-500x20"]]
BOTH = pytest.mark.parametrize(("codec", "name"), CASES)
EACH = pytest.mark.parametrize("name", BODIES)


def run(benchmark: Any, codec: str, body: Body, work: Callable[[], Any]) -> None:
    if codec == "construct" and body.partitions > 1:
        benchmark.pedantic(work, rounds=2)
    else:
        benchmark(work)
    benchmark.extra_info.update(codec=codec, body=body.name, partitions=body.partitions, bytes=len(body.data))
    benchmark.extra_info["ns_per_partition"] = round(benchmark.stats.stats.min * 1e9 / body.partitions, 1)


@BOTH
def test_decode(benchmark: Any, codec: str, name: str) -> None:
    module, body = CODECS[codec], BODIES[name]
    run(benchmark, codec, body, lambda: module.decode_request(body.api_key, body.version, body.data))


@BOTH
def test_decode_and_read_every_field(benchmark: Any, codec: str, name: str) -> None:
    module, body = CODECS[codec], BODIES[name]
    look = reader(body.api_key, body.version)
    run(benchmark, codec, body, lambda: look(module.decode_request(body.api_key, body.version, body.data)))


@BOTH
def test_encode(benchmark: Any, codec: str, name: str) -> None:
    module, body = CODECS[codec], BODIES[name]
    message = module.decode_request(body.api_key, body.version, body.data)
    assert message.topic_states  # else its partitions are bytes still, and encoding would copy them
    assert module.encode(message, body.version) == body.data
    run(benchmark, codec, body, lambda: module.encode(message, body.version))


@pytest.mark.parametrize("name", ["leaderandisr-3-1x10000", "leaderandisr-7-1x10000", "updatemetadata-8-1x10000"])
def test_encode_rows_that_were_built(benchmark: Any, name: str) -> None:
    """What a controller does: partitions with one to five replicas, of which some are in sync."""
    shape, draw = body(name, b""), random.Random(3)
    rows = columns(shape.api_key, shape.partitions, shape.partitions // shape.topics)
    rows["replicas"] = [draw.sample(range(1, 1000), draw.randint(1, 5)) for _ in range(shape.partitions)]
    rows["isr"] = [replicas[: draw.randint(1, len(replicas))] for replicas in rows["replicas"]]
    cls = extension.message_class(shape.api_key, "request")
    columned = cls.from_columns(rows, shape.version)
    built = cls.from_json(columned.to_json(shape.version), shape.version)
    data = extension.encode(columned, shape.version)
    assert extension.encode(built, shape.version) == data
    made = replace(shape, data=data)
    run(benchmark, "cython", made, lambda: extension.encode(built, shape.version))


@EACH
def test_decode_to_columns(benchmark: Any, name: str) -> None:
    body = BODIES[name]
    run(benchmark, "cython", body, lambda: extension.decode_columns(body.api_key, body.version, body.data))


@EACH
def test_encode_from_columns(benchmark: Any, name: str) -> None:
    body = BODIES[name]
    columns = extension.decode_columns(body.api_key, body.version, body.data)
    assert extension.encode_columns(columns.message, body.version, columns) == body.data
    run(benchmark, "cython", body, lambda: extension.encode_columns(columns.message, body.version, columns))


@EACH
def test_objects_from_columns(benchmark: Any, name: str) -> None:
    body = BODIES[name]
    columns = extension.decode_columns(body.api_key, body.version, body.data)
    cls = extension.message_class(body.api_key, "request")
    run(benchmark, "cython", body, lambda: cls.from_columns(columns, body.version, columns.message))


@EACH
def test_one_more_broker(benchmark: Any, name: str) -> None:
    body = BODIES[name]
    shared = Fanout(extension.decode_request(body.api_key, body.version, body.data), body.version, client_id="1001")
    run(benchmark, "cython", body, lambda: shared.buffers(7, 123456789))
