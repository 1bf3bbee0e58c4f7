"""kio 0.6.2, the newest release with the three APIs: ``kio_peer.py FOLDER SECONDS``, one JSON object a line.

Run by ``ratios.py`` in a process that loads nothing of kproto.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from codec_bodies import of_folder, reader
from codec_goals import key, measured
from kio.serial import entity_reader
from measure import best_ns

MODULES = {4: "leader_and_isr", 5: "stop_replica", 6: "update_metadata"}
NAMES = {4: "LeaderAndIsrRequest", 5: "StopReplicaRequest", 6: "UpdateMetadataRequest"}


def decoded_and_read(decode: Any, read: Callable[[Any], int], data: bytes) -> int:
    return read(decode(data, 0)[0])


def main(folder: Path, seconds: float) -> None:
    wanted = {body for _, body in measured("kio")}
    for body in of_folder(folder):
        if body.name not in wanted:
            continue
        module = importlib.import_module(f"kio.schema.{MODULES[body.api_key]}.v{body.version}.request")
        decode, read = entity_reader(getattr(module, NAMES[body.api_key])), reader(body.api_key, body.version)
        assert decode(body.data, 0)[1] == len(body.data)
        message = decode(body.data, 0)[0]
        works = {
            "decode+read": partial(decoded_and_read, decode, read, body.data),
            "read": partial(read, message),
        }
        for op, work in works.items():
            value = best_ns(work, seconds) / body.partitions
            print(json.dumps({"key": key("kio", op, body.name), "value": value}), flush=True)
    assert "kproto" not in sys.modules


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
