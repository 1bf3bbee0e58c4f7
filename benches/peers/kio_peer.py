"""kio 0.6.2, the newest release with the three APIs, on the benches' bodies: one JSON object a line.

Run by ``ratios.py`` in an environment that holds kio alone.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from kio.serial import entity_reader, entity_writer
from measure import best_ns, bodies, reader

MODULES = {4: "leader_and_isr", 5: "stop_replica", 6: "update_metadata"}
NAMES = {4: "LeaderAndIsrRequest", 5: "StopReplicaRequest", 6: "UpdateMetadataRequest"}


def main(seconds: float) -> None:
    for body in bodies():
        module = importlib.import_module(f"kio.schema.{MODULES[body.api_key]}.v{body.version}.request")
        entity = getattr(module, NAMES[body.api_key])
        read, write, look = entity_reader(entity), entity_writer(entity), reader(body.api_key)

        def encode(message: Any, write: Any = write) -> bytes:
            out = io.BytesIO()
            write(out, message)
            return out.getvalue()

        message = read(body.data, 0)[0]
        assert encode(message) == body.data
        works: dict[str, Any] = {
            "decode": lambda read=read, data=body.data: read(data, 0),
            "decode+read": lambda read=read, look=look, data=body.data: look(read(data, 0)[0]),
            "encode": lambda encode=encode, message=message: encode(message),
        }
        for op, work in works.items():
            print(json.dumps({"body": body.name, "op": op, "ns": best_ns(work, seconds)}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
