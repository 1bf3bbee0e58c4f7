"""Spark Connect: a notebook's session on a server reads captures, makes tables and asks them."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from commands import run_kproto
from free_ports import free_ports
from table_truth import CAPTURES, name_of

from kproto.query import open_tables
from kproto.tables import read

CAPTURE = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
NOTEBOOK = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from kproto.pipeline import (
    OutputDirectory, analyze, derived_table, read_frames, read_table, requests_of, states_of, verdicts_of
)
remote, capture, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
spark = SparkSession.builder.remote(remote).getOrCreate()
run = analyze(spark, [capture], OutputDirectory(out))
frames = read_frames(spark, [capture])
requests = requests_of(frames)
print(json.dumps({
    "format": spark.read.format("kafka_control").load(capture).count(),
    "frames": read_frames(spark, [capture], columns="api_key").count(),
    "tables": run.rows,
    "requests": read_table(spark, out, "requests").count(),
    "leadership": derived_table(spark, out, "leadership").count(),
    "joined": requests.count(),
    "judged": verdicts_of("leadership", requests, states_of(frames)).count(),
}))
spark.stop()
"""
ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_a_session_of_spark_connect_reads_captures_makes_tables_and_asks_them(tmp_path: Path) -> None:
    out = tmp_path / "tables"
    with server(tmp_path / "server.log") as remote:
        done = subprocess.run(
            [sys.executable, "-c", NOTEBOOK, remote, str(CAPTURE), str(out)],
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    expected = {name: table.num_rows for name, table in read(CAPTURE).items()}
    assert said["tables"] == expected
    assert said["format"] == said["frames"] == expected["frames"]
    assert said["requests"] == said["joined"] == expected["requests"]
    assert said["leadership"] == said["judged"]
    with open_tables(out) as sql:
        assert sql.execute("SELECT count(*) FROM leadership").fetchone() == (said["leadership"],)


@contextmanager
def server(log: Path) -> Iterator[str]:
    """A server on loopback, whose tasks are its own."""
    home = Path(pyspark.__file__).parent
    port = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": 1,
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", *options, *program]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
    try:
        for _ in range(1200):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()[-2000:]
                time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=120)


def test_the_command_says_how_to_use_a_server(tmp_path: Path) -> None:
    arguments = ["analyze", str(CAPTURE), "--out", str(tmp_path / "tables"), "--master", "sc://127.0.0.1:15002"]
    result = run_kproto(*arguments)
    assert result.exit_code == 2
    assert "Spark Connect" in result.output
    assert "kproto.pipeline.analyze" in result.output
    assert not (tmp_path / "tables").exists()
