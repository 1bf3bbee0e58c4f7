"""What the codec must reach, measured beside its peers in one run on the same bytes: ratios, for times mean little.

    python benches/ratios.py [--seconds 0.3] [--rounds 2] [--json FILE] [--without java,go,kio]

Peers: Kafka's own classes (tools/oracle, where Java and Maven are), kio 0.6.2 (an environment of its own), franz-go's
kmsg (where Go is). Each is fetched by its registry's ordinary client into a cache directory. Every figure is the least
CPU time of the calling thread; kproto is measured before and after its peers, the better counts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import CACHE, Body, best_ns, bodies, machine, reader, show

from kproto.codec import get_codec
from kproto.columns import encode_columns
from kproto.fanout import Fanout
from kproto.messages import UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
extension: Any = get_codec("cython")
Figures = dict[tuple[str, str, str], float]
"""(who, op, body) -> ns for one call."""


@dataclass(frozen=True)
class Goal:
    """One row of the table: an op of ours over one of a peer's, at most so much."""

    what: str
    op: str
    body: str
    peer: str
    peer_op: str
    limit: float


def goals() -> Iterator[Goal]:
    for api in ("updatemetadata-8", "leaderandisr-7"):
        for shape, objects, columns in (("1x10000", 0.6, 0.30), ("500x20", 0.8, 0.40), ("2000x5", 0.9, 0.55)):
            body = f"{api}-{shape}"
            yield Goal("decode to objects", "decode", body, "java", "decode", objects)
            yield Goal("decode to columns", "columns", body, "java", "decode", columns)
            yield Goal("decode, read every field", "decode+read", body, "kio", "decode+read", 0.5)
            yield Goal("encode from objects", "encode", body, "go", "encode", 0.8)
            yield Goal("encode from objects", "encode", body, "java", "encode", 0.3)
            yield Goal("encode from columns", "encode-columns", body, "go", "encode", 0.6)
        yield Goal("one partition, ten brokers: decode", "decode", f"{api}-1x1", "java", "decode", 1.0)
        yield Goal("one partition, ten brokers: encode", "encode", f"{api}-1x1", "java", "encode", 1.0)
    for shape in ("1x10000", "500x20"):
        yield Goal("decode to columns", "columns", f"stopreplica-4-{shape}", "java", "decode", 0.5)


# ---- who is measured -------------------------------------------------------------------------------------------------


def works(body: Body) -> dict[str, Callable[[], Any]]:
    """What is done with a body, by its name in the table."""
    api, version, data = body.api_key, body.version, body.data
    message = extension.decode_request(api, version, data)
    columns = extension.decode_columns(api, version, data)
    shared = Fanout(message, version, client_id="1001")
    look = reader(api)
    assert extension.encode(message, version) == extension.encode_columns(columns.message, version, columns) == data
    return {
        "decode": lambda: extension.decode_request(api, version, data),
        "decode+read": lambda: look(extension.decode_request(api, version, data)),
        "encode": lambda: extension.encode(message, version),
        "columns": lambda: extension.decode_columns(api, version, data),
        "encode-columns": lambda: extension.encode_columns(columns.message, version, columns),
        "one more broker": lambda: shared.buffers(7, 123456789),
    }


def ours(seconds: float) -> Figures:
    return {("kproto", op, b.name): best_ns(work, seconds) for b in bodies() for op, work in works(b).items()}


def lines(command: list[str], who: str) -> Figures:
    """A peer's figures: one JSON object a line."""
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {(who, row["op"], row["body"]): row["ns"] for row in rows}


def java(seconds: float, folder: Path) -> Figures:
    out = folder / "java.json"
    oracle = HERE.parent / "tools" / "oracle" / "oracle"
    command = [str(oracle), "bench", "--payloads", str(folder), "--seconds", str(max(seconds, 1.0)), "--out", str(out)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    rows = json.loads(out.read_text(encoding="utf-8"))
    return {("java", r["op"], r["payload"]): r["thread_cpu_us_min"] * 1000 for r in rows}


def go(seconds: float, folder: Path) -> Figures:
    place = CACHE / "go"
    shutil.copytree(HERE / "peers" / "go", place, dirs_exist_ok=True)
    subprocess.run(["go", "mod", "tidy"], cwd=place, check=True, capture_output=True)
    subprocess.run(["go", "build", "-o", "peer", "."], cwd=place, check=True)
    return lines([str(place / "peer"), str(folder), str(seconds)], "go")


def kio(seconds: float, folder: Path) -> Figures:
    place = CACHE / "kio-0.6.2"
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(place / "bin" / "pip"), "install", "-q", "kio==0.6.2"], check=True)
        (place / "ready").touch()
    return lines([str(place / "bin" / "python"), str(HERE / "peers" / "kio_peer.py"), str(seconds)], "kio")


PEERS: dict[str, tuple[tuple[str, ...], Callable[[float, Path], Figures]]] = {
    "java": (("java", "mvn"), java),
    "go": (("go",), go),
    "kio": ((), kio),
}

KEPT = """
import ctypes, json, sys
from kproto.codec import get_codec
def now():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
extension = get_codec("cython")
n, door = int(sys.argv[1]), getattr(extension, sys.argv[2])
ids = [[1, 2, 3]] * n
topics, partitions = ["topic-%d" % (i // 100) for i in range(n)], [i % 100 for i in range(n)]
rows = {"topic": topics, "partition": partitions, "isr": ids, "replicas": ids}
body = extension.encode_columns(extension.UpdateMetadataRequest(), 8, rows)
del topics, partitions
del rows, ids
before = now()
made = door(6, 8, body)
print(json.dumps({"kept": (now() - before) / n, "bytes": len(body) / n}))
"""


def kept(n: int, door: str) -> float:
    """Bytes that one partition of a decoded UpdateMetadata keeps, in a process of its own."""
    run = subprocess.run([sys.executable, "-c", KEPT, str(n), door], capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout)["kept"])


def growth() -> Iterator[tuple[int, float, float]]:
    """ns for each partition, decoded and encoded, from one to a million of them."""
    for n in (1, 100, 10_000, 100_000, 1_000_000):
        ids = [[1, 2, 3]] * n
        rows: dict[str, list[Any]] = {
            "topic": [f"t{i // 100}" for i in range(n)],
            "partition": [i % 100 for i in range(n)],
            "isr": ids,
            "replicas": ids,
        }
        body = encode_columns(UpdateMetadataRequest(), 8, rows)
        message = extension.decode_request(6, 8, body)
        decode = best_ns(partial(extension.decode_request, 6, 8, body), 0.2) / n
        yield n, decode, best_ns(partial(extension.encode, message, 8), 0.2) / n


# ---- the table -------------------------------------------------------------------------------------------------------


def table(figures: Figures) -> Iterator[tuple[str, ...]]:
    for goal in goals():
        mine = figures.get(("kproto", goal.op, goal.body))
        peer = figures.get((goal.peer, goal.peer_op, goal.body))
        if mine is None or peer is None:
            continue
        per = 1 if goal.body.endswith("-1x1") else 10_000
        verdict = "" if mine / peer <= goal.limit else "MISSED"
        ratio, figure = f"{mine / peer:.2f}", f"{mine / per:.1f}"
        yield goal.what, goal.body, figure, goal.peer, f"{peer / per:.1f}", ratio, f"{goal.limit:g}", verdict


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=0.3, help="for each case and round")
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--json", type=Path, help="keep all figures and the machine's facts here")
    arguments.add_argument("--without", default="", help="peers to leave out: java,go,kio")
    options = arguments.parse_args()
    figures: Figures = {}
    at_start = machine()

    def take(new: Figures) -> None:
        for key, ns in new.items():
            figures[key] = min(ns, figures.get(key, ns))

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for body in bodies():
            (folder / f"{body.name}.bin").write_bytes(body.data)
        for round_ in range(options.rounds):
            print(f"round {round_ + 1} of {options.rounds}: kproto", file=sys.stderr)
            take(ours(options.seconds))
            for who, (tools, measure_peer) in PEERS.items():
                missing = [tool for tool in tools if shutil.which(tool) is None]
                if who in options.without.split(",") or missing:
                    print(f"without {who}{f' (no {missing[0]} here)' if missing else ''}", file=sys.stderr)
                    continue
                print(f"round {round_ + 1} of {options.rounds}: {who}", file=sys.stderr)
                take(measure_peer(options.seconds, folder))
        take(ours(options.seconds))
    show([("work", "body", "ns each", "peer", "ns each", "ratio", "at most", ""), *table(figures)])
    broker = figures["kproto", "one more broker", "updatemetadata-8-1x10000"]
    memory = {door: kept(200_000, door) for door in ("decode_request", "decode_columns")}
    grown = list(growth())
    print(f"one more broker for an encoded UpdateMetadata: {broker:.0f} ns (at most 1000)")
    print(
        f"a decoded partition, replication factor 3: {memory['decode_request']:.0f} bytes as objects (at most 120), "
        f"{memory['decode_columns']:.0f} as columns (at most 70)"
    )
    for n, decode, encode in grown:
        print(f"{n:>9,} partitions: decode {decode:7.1f}, encode {encode:7.1f} ns each")
    if options.json:
        result = {
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": at_start,
            "load_after": machine()["load"],
            "ns": {" ".join(key): round(ns, 1) for key, ns in sorted(figures.items())},
            "table": [list(row) for row in table(figures)],
            "bytes_kept_for_each_of_200000": memory,
            "growth_ns_each": [{"partitions": n, "decode": d, "encode": e} for n, d, e in grown],
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
