"""What the channel must reach, measured beside Kafka's own classes in one run against the same brokers: ratios.

    python benches/channel_ratios.py [--rounds 6] [--processes 2] [--quick] [--json FILE] [--without-kafka]

Kafka's classes and the sink that plays the brokers are built from benches/peers/channel, Kafka by Maven's ordinary
client, into a cache directory. Both sides count their best round, as they share two cores with the sink; ``--json``
keeps medians and first rounds too. Without Java and Maven only our own figures are printed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from measure import CACHE, machine, show

HERE = Path(__file__).parent
Row: TypeAlias = dict[str, Any]
SHAPES = ((1000, 20), (5000, 20))
BROKERS = (10, 100)


@dataclass(frozen=True)
class Goal:
    """One line of the table.

    Attributes:
        what: Of what.
        where: Which rows of the peers' program hold the figure: values of their fields.
        figure: Takes the figure from one row.
        limit: Ours over Kafka's, at most, or at least if ``more_is_better``; None if it only informs.
    """

    what: str
    where: Row
    figure: Callable[[Row], float]
    unit: str
    limit: float | None = None
    more_is_better: bool = False


def goals() -> Iterator[Goal]:
    for topics, each in SHAPES:
        for brokers in BROKERS:
            size = topics * each
            where: Row = {"what": "fanout", "partitions": size, "brokers": brokers}
            largest = size == 100_000 and brokers == 100
            name = f"full update, {size:,} to {brokers}"
            yield Goal(f"{name}: wall", where, lambda r: r["wall_with_add_s"], "s", 1 / 12 if largest else None)
            yield Goal(f"{name}: CPU", where, lambda r: r["cpu_s"], "s", 1 / 20 if largest else None)
    for brokers in BROKERS:
        where = {"what": "build-um", "brokers": brokers}
        yield Goal(f"build, a partition, {brokers} brokers", where, building, "ns", 0.5 if brokers == 100 else None)
    small: Row = {"brokers": 10}
    closed, one = {**small, "what": "small-closed"}, {**small, "what": "small-one"}
    yield Goal("small, ten brokers at once", closed, lambda r: r["per_s"], "/s", 0.8, more_is_better=True)
    yield Goal("small, ten brokers at once: p99", closed, lambda r: r["p99_us"], "us", 1.0)
    yield Goal("small, one at a time", one, lambda r: r["per_s"], "/s", 0.6, more_is_better=True)
    yield Goal("small, one at a time: p99", one, lambda r: r["p99_us"], "us")
    burst = {**small, "what": "small-burst"}
    yield Goal("small, all queued at once", burst, lambda r: r["per_s"], "/s", None, more_is_better=True)
    batch = {**small, "what": "small-batch"}
    yield Goal("a batch for one partition, 13 requests", batch, lambda r: r["per_s"], "/s", None, more_is_better=True)


def building(row: Row) -> float:
    """ns of one thread for each partition, from new_batch until the requests are queued; ours are encoded by then."""
    return float(row["add_ns_partition"] + row["send_ns_partition"] + row.get("encode_ns_partition", 0.0))


def measured(options: argparse.Namespace) -> list[Row]:
    """The peers' program's summary of all that is measured."""
    rows: list[Row] = []
    product = shlex.join(["env", f"PYTHONPATH={HERE.parent}", sys.executable, str(HERE / "channel_product.py")])
    shapes = ",".join(f"{topics}x{each}" for topics, each in SHAPES)
    brokers = ",".join(map(str, BROKERS))
    kafka = "floor" if options.without_kafka else "kafka,floor"
    rounds, processes = ("3", "1") if options.quick else (str(options.rounds), str(options.processes))
    for what, sizes in (("small", ()), ("fanout", ("--brokers", brokers)), ("build,memory", ("--brokers", brokers))):
        print(f"channel: {what}", file=sys.stderr)
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            subprocess.run(
                [
                    sys.executable, str(HERE / "peers" / "channel" / "run.py"), str(CACHE / "channel"),
                    "--what", what, "--impls", kafka, "--product", product, "--shapes", shapes, *sizes,
                    "--rounds", rounds, "--processes", processes, "--out", out.name,
                ],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            rows += json.load(out)["summary"]
    return rows


def table(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    for goal in goals():
        found = {
            row["impl"]: goal.figure(row)
            for row in rows
            if row.get("impl") in ("product", "kafka") and all(row.get(k) == v for k, v in goal.where.items())
        }
        ours, theirs = found["product"], found.get("kafka")
        limit = "" if goal.limit is None else f"{'at least' if goal.more_is_better else 'at most'} {goal.limit:.3g}"
        if theirs is None:
            yield goal.what, number(ours), "", goal.unit, "", limit, ""
            continue
        ratio = ours / theirs
        good = goal.limit is None or (ratio >= goal.limit if goal.more_is_better else ratio <= goal.limit)
        yield goal.what, number(ours), number(theirs), goal.unit, f"{ratio:.3f}", limit, "" if good else "MISSED"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def memory(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if row["what"] == "memory" and row["impl"] == "product":
            body = row["payload_bytes_all"] / row["brokers"]
            size, grown = row["topics"] * row["partitions"], row["in_flight_growth"]
            yield (
                f"memory grows by {grown / 1e6:.1f} MB while {row['brokers']} brokers hold their answers to {size:,} "
                f"partitions back: {grown / body:.2f} bodies (at most 2)"
            )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument("--quick", action="store_true", help="three rounds in one process")
    arguments.add_argument("--without-kafka", action="store_true")
    arguments.add_argument("--json", type=Path, help="keep all figures and the machine's facts here")
    options = arguments.parse_args()
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing and not options.without_kafka:
        print(f"without Kafka (no {missing[0]} here)", file=sys.stderr)
        options.without_kafka = True
    at_start = machine()
    rows = measured(options)
    show([("work", "kproto", "Kafka", "", "ratio", "", ""), *table(rows)])
    for line in memory(rows):
        print(line)
    thousand = subprocess.run(
        [sys.executable, str(HERE / "channel_thousand.py")],
        env={**os.environ, "PYTHONPATH": str(HERE.parent)}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    figures = json.loads(thousand)
    print(
        f"{figures['brokers']:,} brokers, {figures['partitions']:,} partitions: {figures['update_s']} s, "
        f"{figures['peak_mib']:,} MiB (at most 2,048), {100 * figures['idle_cpu_share']:.1f} % of a core when idle "
        f"(at most 5), {figures['open_files']:,} open files"
    )
    if options.json:
        result = {
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": at_start,
            "load_after": machine()["load"],
            "table": [list(row) for row in table(rows)],
            "memory": list(memory(rows)),
            "thousand": figures,
            "summary": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
