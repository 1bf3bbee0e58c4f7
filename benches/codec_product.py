"""kproto's figures of one round, in a process of its own: ``codec_product.py FOLDER SECONDS``, one JSON object a line.

Each is the least CPU time of the thread for one call, in ns a partition; bytes a partition for what is kept.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codec_bodies import Body, of_folder, reader
from codec_goals import GROWTH, KEPT, KEPT_AS, key, measured
from measure import best_ns

from kproto.codec import decode_request, encode
from kproto.columns import decode_columns, encode_columns
from kproto.fanout import Fanout
from kproto.messages import UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable


def works(body: Body) -> dict[str, Callable[[], Any]]:
    """The operations on a body, by their names in the goals."""
    api, version, data = body.api_key, body.version, body.data
    message = decode_request(api, version, data)
    columns = decode_columns(api, version, data)
    shared = Fanout(message, version, client_id="1001")
    read = reader(api, version)
    read(message)  # else its partitions are bytes still, and encoding would copy them
    assert encode(message, version) == data
    assert encode_columns(columns.message, version, columns) == data
    return {
        "decode": lambda: decode_request(api, version, data),
        "decode+read": lambda: read(decode_request(api, version, data)),
        "encode": lambda: encode(message, version),
        "columns": lambda: decode_columns(api, version, data),
        "encode-columns": lambda: encode_columns(columns.message, version, columns),
        "one more broker": lambda: shared.buffers(7, 123456789),
    }


def emit(op: str, body: str, value: float) -> None:
    print(json.dumps({"key": key("kproto", op, body), "value": round(value, 4)}), flush=True)


def codec(folder: Path, seconds: float) -> None:
    wanted = measured("kproto")
    for body in of_folder(folder):
        ops = {op for op, name in wanted if name == body.name}
        for op, work in works(body).items() if ops else ():
            if op in ops:
                emit(op, body.name, best_ns(work, seconds) / (1 if op == "one more broker" else body.partitions))


def update_of(n: int) -> bytes:
    """An UpdateMetadata of ``n`` partitions, a hundred in each topic."""
    ids = [[1, 2, 3]] * n
    rows: dict[str, list[Any]] = {
        "topic": [f"topic-{i // 100}" for i in range(n)],
        "partition": [i % 100 for i in range(n)],
        "isr": ids,
        "replicas": ids,
    }
    return encode_columns(UpdateMetadataRequest(), 8, rows)


def growth(seconds: float) -> None:
    """Decoding from ten thousand partitions to a million, each size in this one process."""
    for n in GROWTH:
        body = update_of(n)
        emit("growth", str(n), best_ns(partial(decode_request, 6, 8, body), seconds) / n)


def resident() -> int:
    ctypes.CDLL(None).malloc_trim(0)
    with Path("/proc/self/statm").open(encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * 4096


def kept(door: str) -> None:
    """Bytes that a partition of a decoded UpdateMetadata keeps in memory; for a process that does nothing else."""
    decode: Any = decode_columns if door == "kept-columns" else decode_request
    body = update_of(KEPT)
    held: list[Any] = [None] * (4 * KEPT)
    gc.collect()
    before = resident()
    message = decode(6, 8, body)
    if door == "kept-objects":
        assert message.topic_states  # made when they are looked at
    elif door == "kept-rows":
        rows = (row for topic in message.topic_states for row in topic.partition_states)
        for at, row in enumerate(rows):
            held[4 * at : 4 * at + 4] = row, row.isr, row.replicas, row.offline_replicas
    emit(door, str(KEPT), (resident() - before) / KEPT)
    del message, held


def main() -> None:
    if sys.argv[1].startswith("kept-"):
        kept(sys.argv[1])
        return
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    codec(folder, seconds)
    growth(seconds)
    for _, door, _ in KEPT_AS:
        sys.stdout.flush()
        subprocess.run([sys.executable, __file__, door], check=True)


if __name__ == "__main__":
    main()
