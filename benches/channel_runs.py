"""Runs one program against a sink of brokers: Kafka's own channel, kproto's, and the floor.

``build`` makes Kafka's classes (by Maven), the sink and the floor below the cache directory.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from channel_goals import key
from figures import settled
from measure import CACHE, KAFKA_JVM

if TYPE_CHECKING:
    from channel_goals import Workload

HERE = Path(__file__).parent
PEERS = HERE / "peers" / "channel"
SCRATCH = CACHE / "channel"
PATIENCE_S = 600
Row: TypeAlias = dict[str, Any]


class RunFailed(Exception):
    """A program ended with an error, or without all of its figures."""


def build(*, kafka: bool = True) -> None:
    """Build what has changed since it was built last."""
    (SCRATCH / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("sink", "floor"):
        compiler = [os.environ.get("CC", "cc"), "-O2", "-o", str(SCRATCH / "bin" / name)]
        subprocess.run([*compiler, str(PEERS / name / f"{name}.c"), "-lpthread"], check=True)
    if not kafka:
        return
    place, source = SCRATCH / "scala", PEERS / "scala" / "ChannelBench.scala"
    (place / "out").mkdir(parents=True, exist_ok=True)
    for name in ("pom.xml", "log4j.properties"):
        shutil.copy(PEERS / "scala" / name, place)
    if not list(place.glob("lib/kafka_*.jar")):
        maven = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run(maven, cwd=place, check=True, stdout=sys.stderr)
    stamp = place / "out" / "stamp"
    text = source.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != text:
        scalac = [
            "java",
            "-cp",
            "lib/*",
            "scala.tools.nsc.Main",
            "-usejavacp",
            "-nowarn",
            "-opt:l:default",
            "-d",
            "out",
        ]
        subprocess.run([*scalac, str(source)], cwd=place, check=True, stdout=sys.stderr)
        stamp.write_text(text, encoding="utf-8")


class Sink:
    """Brokers of C in one process; use it in a ``with``.

    Attributes:
        ports: One port a broker.
        control: Port for its commands.
        stats: What it counted, once it is closed.
    """

    def __init__(self, brokers: int) -> None:
        self._process = subprocess.Popen(
            [str(SCRATCH / "bin" / "sink"), str(brokers)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        first = json.loads(self._process.stdout.readline())
        self.ports: list[int] = first["ports"]
        self.control: int = first["control"]
        self.stats: Row = {}

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        out = self._process.communicate(timeout=PATIENCE_S)[0]
        self.stats = json.loads(out.splitlines()[-1])


def run(program: str, load: Workload, total: int) -> list[Row]:
    """Run a program in a process of its own; gives its rows, the sink's counts last.

    Raises:
        RunFailed: It ended with an error, or a row is missing.
    """
    with tempfile.TemporaryDirectory() as scratch:
        with Sink(load.brokers) as sink:
            command = _command(program, load, sink, total, Path(scratch))
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as e:
                raise RunFailed(str(e)) from e
        rows: list[Row] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        raise RunFailed(f"exit {done.returncode}")
    if not rows or set(Counter(row["what"] for row in rows).values()) != {load.rounds}:
        raise RunFailed(f"not {load.rounds} rounds of each measurement")
    named = {"program": program, "brokers": load.brokers}
    return [named | row for row in rows] + [named | {"what": "sink", "of": load.what, **sink.stats}]


def _command(program: str, load: Workload, sink: Sink, total: int, scratch: Path) -> list[str]:
    ports = ",".join(map(str, sink.ports))
    keys = [
        f"what={load.what}", f"ports={ports}", f"control={sink.control}", f"topics={load.topics}",
        f"partitions={load.partitions}", f"rounds={load.rounds}", f"total={total}",
    ]  # fmt: skip
    product = [sys.executable, str(HERE / "channel_product.py")]
    match program:
        case "kafka":
            place = SCRATCH / "scala"
            logging = [f"-Dlog4j.configuration=file:{place}/log4j.properties", f"-Dbench.log={SCRATCH}/bench.log"]
            jvm = ["java", "-Xmx4g", *KAFKA_JVM.split(), *logging, "-cp", f"{place}/out:{place}/lib/*"]
            return [*jvm, "peers.ChannelBench", *keys]
        case "floor":
            body = scratch / "body.bin"
            subprocess.run([*product, *keys, "what=body", f"file={body}"], check=True)
            floor = [str(SCRATCH / "bin" / "floor"), "--ports", ports, "--body", str(body)]
            return [*floor, "--api", "6", "--version", "8", "--rounds", str(load.rounds)]
    who, _, how = program.partition("-")
    options = {"recorder": [f"recorder={scratch / 'recording.pcapng'}"], "per-broker": ["send_threads=per_broker"]}
    return [*product, *keys, *(["bare=1"] if who == "bare" else []), *options.get(how, [])]


FIELDS = ("wall_s", "cpu_s", "cpu_us", "per_s", "p50_us", "p99_us", "ns_partition", "bodies")
"""Of a row, what a table may show."""


def figures(rows: list[Row]) -> dict[str, float]:
    """The figures of a pair by their keys: for each process the medians over its settled rounds."""
    series: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if "cpu_s" in row and "requests" in row:
            row["cpu_us"] = row["cpu_s"] / row["requests"] * 1e6
        for field in FIELDS:
            if field in row:
                series[key(row["program"], row["what"], row["brokers"], field)].append(row[field])
    return {name: settled(values) for name, values in series.items()}
