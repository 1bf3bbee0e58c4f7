"""The program of docs/iceberg.md appends each day to Iceberg exactly once, though it is killed while it appends.

Iceberg has no runtime for the Spark of the other tests, so the program runs on a Spark of its own beside this kproto.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kproto.generate import PlannedFleet, write_captures
from kproto.query import ask_sql, open_tables

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(1800)]  # its waits, each with its end, together

PAGE = Path(__file__).parents[2] / "docs" / "iceberg.md"
DAYS = ("2025-10-09", "2025-10-10")
UNFINISHED = "2025-10-11"
READ = """
import json
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
found = {}
for table in ("requests", "isr_events"):
    rows = spark.table(f"lake.kafka.{table}")
    found[table] = rows.count()
    days = spark.table(f"lake.kafka.{table}.snapshots").selectExpr("summary['kproto-day'] AS day").where("day != ''")
    found[table + " days"] = sorted(row.day for row in days.collect())
print("found", json.dumps(found))
"""


class Lake:
    """Runs programs by ``spark-submit`` with the settings that the page gives."""

    def __init__(self, spark: Path, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        (command,) = re.findall(r"^    spark-submit (.*?) append\.py", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self._options = command.replace("\\\n", " ").replace("/srv/lake", str(directory / "lake")).split()
        (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.append = directory / "append.py"
        self.append.write_text(program)

    def start(self, program: Path, *arguments: str) -> subprocess.Popen[str]:
        """Start a program; it leads a group of processes of its own, which can be killed together."""
        environment = os.environ | {
            "PYTHONPATH": f"{self._spark}:{Path(__file__).parents[2]}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(self._spark / "pyspark"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        submit = str(self._spark / "pyspark" / "bin" / "spark-submit")
        return subprocess.Popen(
            [submit, "--master", "local[1]", *self._options, str(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self._directory,
            start_new_session=True,
        )

    def run(self, program: Path, *arguments: str) -> list[str]:
        """Run a program to its end; returns the lines that it printed."""
        process = self.start(program, *arguments)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err[-3000:]
        return out.splitlines()


@pytest.fixture(scope="module")
def spark_of_iceberg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest Spark for which Iceberg has a runtime."""
    (version,) = set(re.findall(r"pyspark==(\d+\.\d+\.\*)", PAGE.read_text()))
    target = tmp_path_factory.mktemp("spark")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), f"pyspark=={version}"]
    subprocess.run([*pip, "py4j==0.10.9.9"], check=True, timeout=600)
    return target


def test_each_day_is_appended_exactly_once_though_the_program_is_killed(spark_of_iceberg: Path, tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    write_captures(PlannedFleet(brokers=3, hours=40, isr_changes=60, elections=20), tmp_path / "captures")
    tables = tmp_path / "tables"
    command = [sys.executable, "-m", "kproto", "analyze", str(tmp_path / "captures"), "--out", str(tables)]
    subprocess.run(command, check=True, timeout=300, cwd=Path(__file__).parents[2], capture_output=True)
    lake = Lake(spark_of_iceberg, tmp_path)
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)

    process = lake.start(lake.append, str(tables), UNFINISHED)
    assert process.stdout is not None
    try:
        next(line for line in process.stdout if line.startswith("appending"))
        time.sleep(rng.uniform(0, 5))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    lake.run(lake.append, str(tables), UNFINISHED)

    (tmp_path / "read.py").write_text(READ)
    (line,) = [line for line in lake.run(tmp_path / "read.py") if line.startswith("found")]
    found = json.loads(line.removeprefix("found"))
    with open_tables(tables) as sql:
        for table in ("requests", "isr_events"):
            ((rows,),) = ask_sql(sql, f"SELECT count(*) FROM {table} WHERE ts < TIMESTAMP '{UNFINISHED}'").rows
            assert found[table] == rows > 0
            assert found[f"{table} days"] == list(DAYS)
