"""What do derived tables cost as views, and what would they cost stored? One row for each derived table.

    kproto generate --out fleet --size 512M --batch 1000 --brokers 20 --topics 40 --partitions 4000 --failovers 3 \\
      --zombies 2 --seed 3
    kproto analyze fleet --out tables
    python benches/derived.py tables

CPU-seconds are those of this process with all its threads, the median of three rounds. "view" reads all rows of the
view, "stored" reads the same rows from a Parquet file; "store" computes the table and writes that file.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kproto.query import open_tables
from kproto.verdicts.derived import DERIVED

if TYPE_CHECKING:
    import duckdb

ROUNDS = 3


def cpu_seconds(sql: duckdb.DuckDBPyConnection, query: str) -> float:
    """The CPU time of a query, the median of the rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        sql.execute(query).fetchall()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main(tables: Path) -> None:
    """Print the table."""
    stored_bytes = sum(file.stat().st_size for file in tables.resolve().joinpath("current/").rglob("*.parquet"))
    print(f"stored tables: {stored_bytes / 1e6:.1f} MB")
    print(f"{'table':16} {'rows':>9} {'MB':>7} {'store':>7} {'view':>7} {'stored':>7}   (CPU-s)")
    total = 0.0
    with open_tables(tables) as sql, tempfile.TemporaryDirectory() as directory:
        for name in DERIVED:
            file = Path(directory) / f"{name}.parquet"
            store = cpu_seconds(sql, f"COPY (FROM {name}) TO '{file}' (COMPRESSION zstd)")
            view = cpu_seconds(sql, f"SELECT count(COLUMNS(*)) FROM {name}")
            stored = cpu_seconds(sql, f"SELECT count(COLUMNS(*)) FROM '{file}'")
            rows = sql.table(name).count("*").fetchall()[0][0]
            total += store
            size = file.stat().st_size / 1e6
            print(f"{name:16} {rows:9,} {size:7.2f} {store:7.2f} {view:7.2f} {stored:7.2f}", flush=True)
    print(f"{'all':16} {'':9} {'':7} {total:7.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
