"""The same tables from other processes, to which kproto is sent: Spark's local cluster, and two standalone workers."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from table_truth import CAPTURES, name_of

from kproto.tables import TABLES, read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

PARTED = next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a")
SMALL = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
ANALYZE = """
import sys
from pathlib import Path
from kproto.pipeline import OutputDirectory, analyze, check_workers, spark_session
from kproto.errors import KprotoError
master, out, missing, *captures = sys.argv[1:]
settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "600m",
            "spark.cores.max": "2", "spark.executor.cores": "1",
            # Two small captures need neither Spark's 200 shuffle partitions nor the JVM's second compiler.
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
with spark_session(master, settings=settings) as spark:
    try:
        check_workers(spark, [missing], Path(out))
    except KprotoError as e:
        print(e)
    check_workers(spark, captures, Path(out))
    def where(_numbers):
        import kproto, os
        yield kproto.__file__, os.environ.get("SPARK_EXECUTOR_DIRS", "")
    print(set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()))
    run = analyze(spark, captures, OutputDirectory(Path(out)), split_bytes=100_000)
"""


SUBMITTED = "from kproto.__main__ import main; main()"
KILLED = """
import os, signal, sys
from pathlib import Path
from kproto.pipeline import OutputDirectory, analyze, spark_session

def kill_an_executor(step):
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split(chr(0))
        except OSError:
            continue
        if any("CoarseGrainedExecutorBackend" in word for word in words) and spark.sparkContext.applicationId in words:
            os.kill(int(process.name), signal.SIGKILL)
            print("killed an executor before:", step)
            return

with spark_session() as spark:
    print(spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"))
    out = OutputDirectory(Path(sys.argv[1]))
    analyze(spark, sys.argv[2:], out, split_bytes=100_000, on_step=kill_an_executor)
"""


@pytest.fixture
def captures(tmp_path: Path) -> list[str]:
    folder = tmp_path / "captures"
    folder.mkdir()
    for path in (PARTED, SMALL):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return [str(path) for path in sorted(folder.iterdir())]


def analyzed(master: str, captures: list[str], out: Path) -> str:
    """What a driver in a process of its own says; its workers find kproto only if it is sent to them."""
    missing = f"{captures[0]}.missing"
    done = subprocess.run(
        [sys.executable, "-c", ANALYZE, master, str(out), missing, *captures],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(out.parent / "work")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"worker \S+ cannot open \S+\.missing: .*No such file", done.stdout)
    assert "kproto-shipped/kproto/__init__.py" in done.stdout
    return done.stdout


def assert_same_as_here(captures: list[str], out: Path) -> None:
    rows = json.loads((out / "_kproto.json").read_text())["tables"]
    expected = {name: table.num_rows for name, table in read(*captures).items()}
    assert rows == expected
    assert rows["requests"] > 500
    assert rows.keys() == TABLES.keys()


def test_a_local_cluster_makes_the_same_tables(captures: list[str], tmp_path: Path) -> None:
    analyzed("local-cluster[2,1,700]", captures, tmp_path / "tables")
    assert_same_as_here(captures, tmp_path / "tables")


def test_two_standalone_workers_make_the_same_tables(
    cluster: tuple[str, Path], captures: list[str], tmp_path: Path
) -> None:
    master, work = cluster
    analyzed(master, captures, tmp_path / "tables")
    assert_same_as_here(captures, tmp_path / "tables")
    assert len({path.parent.name for path in work.glob("*/*/kproto-shipped")}) >= 2


def test_a_job_of_spark_submit_makes_the_same_tables(
    cluster: tuple[str, Path], captures: list[str], tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(SUBMITTED)
    out = tmp_path / "tables"
    said = submitted(cluster[0], tmp_path / "job.py", "analyze", *captures, "--out", str(out), "--format", "json")
    assert json.loads(said.splitlines()[-1])["tables"]["requests"] > 500
    assert_same_as_here(captures, out)


def test_executors_that_are_killed_at_each_step_change_no_table(
    cluster: tuple[str, Path], captures: list[str], tmp_path: Path
) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    said = submitted(cluster[0], tmp_path / "killed.py", str(tmp_path / "tables"), *captures)
    assert said.splitlines()[0] == f"{cluster[0]} 3"
    assert said.count("killed an executor before") >= 2
    assert_same_as_here(captures, tmp_path / "tables")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The master's URL, and the directory in which its workers work."""
    directory = tmp_path_factory.mktemp("cluster")
    with standalone(directory) as master:
        yield master, directory / "work"


def submitted(master: str, program: Path, *arguments: str) -> str:
    """What a program of ``spark-submit`` prints; the master and the settings are those of ``spark-submit`` alone."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    spark_submit = str(Path(sys.executable).parent / "spark-submit")
    done = subprocess.run(
        [spark_submit, "--master", master, *options, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A master and two workers of one core each, on loopback."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen[bytes]] = []

    def start(log: Path, *arguments: str) -> None:
        with log.open("wb") as file:
            started.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *arguments], stdout=file, stderr=file, env=environment
                )
            )

    try:
        log = directory / "master.log"
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        start(log, "org.apache.spark.deploy.master.Master", *ports)
        master = said(log, r"spark://127\.0\.0\.1:\d+")
        for n in range(2):
            options = [*ports, "--cores", "1", "--memory", "700m", "--work-dir", str(directory / "work")]
            start(directory / f"worker-{n}.log", "org.apache.spark.deploy.worker.Worker", *options, master)
            said(directory / f"worker-{n}.log", "Successfully registered with master")
        yield master
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(timeout=30)


def said(log: Path, pattern: str) -> str:
    """Wait until a log says something."""
    for _ in range(600):
        found = re.search(pattern, log.read_text())
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])
