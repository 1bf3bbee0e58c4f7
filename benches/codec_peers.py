"""How each codec is built and run for one round; each gives its figures by key, in ns a partition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from codec_bodies import body
from codec_goals import KEPT, key
from measure import CACHE, KAFKA_JVM

if TYPE_CHECKING:
    from collections.abc import Callable

    from figures import Round

HERE = Path(__file__).parent


def kproto(folder: Path, seconds: float) -> Round:
    return _lines([sys.executable, str(HERE / "codec_product.py"), str(folder), str(seconds)])


def kio(folder: Path, seconds: float) -> Round:
    return _lines([sys.executable, str(HERE / "peers" / "kio_peer.py"), str(folder), str(seconds)])


def go(folder: Path, seconds: float) -> Round:
    place = CACHE / "go"
    shutil.copytree(HERE / "peers" / "go", place, dirs_exist_ok=True)
    subprocess.run(["go", "build", "-o", "peer", "."], cwd=place, check=True)
    return _lines([str(place / "peer"), str(folder), str(seconds)])


def java(folder: Path, seconds: float) -> Round:
    """Kafka's own classes, in a JVM as Kafka starts it, which runs every operation before it measures the first."""
    out = folder / "java.json"
    oracle = HERE.parent / "tools" / "oracle" / "oracle"
    command = [str(oracle), "bench", "--payloads", str(folder), "--seconds", str(2 * seconds), "--out", str(out)]
    options = f"-Xmx2g -Xshare:auto {KAFKA_JVM}"
    done = subprocess.run(
        command, env={**os.environ, "ORACLE_JAVA_OPTS": options}, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()
    figures = {}
    for row in json.loads(out.read_text(encoding="utf-8")):
        if row["op"] == "kept":
            figures[key("java", "kept", str(KEPT))] = row["bytes_per_partition"]
        else:
            partitions = body(row["payload"], b"").partitions
            figures[key("java", row["op"], row["payload"])] = row["thread_cpu_us_min"] * 1000 / partitions
    return figures


def _lines(command: list[str]) -> Round:
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return {row["key"]: row["value"] for row in rows}


PEERS: dict[str, Callable[[Path, float], Round]] = {"kproto": kproto, "java": java, "go": go, "kio": kio}
"""Every program of a round, in its order."""
