"""Holds an installed kproto against Kafka's golden messages; run in the environment of a wheel: check_wheel.py DATA.

Decoding the bytes gives Kafka's JSON, and encoding the message gives the bytes again.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import kproto
from kproto.capture import exchanges
from kproto.codec import get_codec


def main(data: Path) -> None:
    """Check every golden message of the three control requests, and read a capture."""
    codec, checked = get_codec("cython"), 0
    for path in sorted((data / "vectors" / "valid").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            if row["api"] not in (4, 5, 6):
                continue
            decode = codec.decode_request if row["kind"] == "request" else codec.decode_response
            message = decode(row["api"], row["version"], bytes.fromhex(row["hex"]))
            if message.to_json(row["version"]) != row["json"]:
                sys.exit(f"{row['id']}: decoded otherwise than by Kafka")
            if codec.encode(message, row["version"]).hex() != row["hex"]:
                sys.exit(f"{row['id']}: encoded otherwise than by Kafka")
            checked += 1
    read = sum(1 for _ in exchanges(data / "captures" / "ibp-3.9-a.pcap.gz"))
    if not checked or not read:
        sys.exit(f"{data}: no golden messages or no capture")
    print(f"kproto {kproto.__version__}, CPython {sys.version.split()[0]}: {checked} golden messages, {read} exchanges")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
