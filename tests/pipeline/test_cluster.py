"""The same tables from other processes, to which kproto is sent: Spark's local cluster, and two standalone workers."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from standalone_spark import standalone
from table_truth import CAPTURES, name_of

from kproto.tables import TABLES, read

pytestmark = pytest.mark.spark

PARTED = next(path for path in CAPTURES if name_of(path) == "ibp-3.9-a")
SHIPPED = "kproto-shipped/kproto/__init__.py"
LOCAL_CLUSTER = "local-cluster[2,1,700]"
SMALL = next(path for path in CAPTURES if name_of(path) == "ibp-2.8-a")
PLACES = """
def places(spark):
    def where(_numbers):
        import kproto
        yield kproto.__file__
    return set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect())
"""
ANALYZE = (
    PLACES
    + """
import sys
from pathlib import Path
from kproto.pipeline import OutputDirectory, analyze, check_workers, spark_session
from kproto.errors import KprotoError
master, out, *captures = sys.argv[1:]
out = Path(out)
settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.cores.max": "2", "spark.executor.cores": "1",
            # Two small captures need neither Spark's 200 shuffle partitions nor the JVM's second compiler.
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
with spark_session(master, settings=settings) as spark:
    try:
        check_workers(spark, [captures[0] + ".missing"], out)
    except KprotoError as e:
        print(e)
    check_workers(spark, captures, out)
    print(places(spark))
    analyze(spark, captures, OutputDirectory(out))
"""
)
SUBMITTED = (
    PLACES
    + """
import os, signal, sys
from pathlib import Path
from kproto.cli import main
from kproto.pipeline import OutputDirectory, analyze, spark_session

def executors():
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split(chr(0))
        except OSError:
            continue
        if any("CoarseGrainedExecutorBackend" in word for word in words) and spark.sparkContext.applicationId in words:
            yield int(process.name)

def kill_an_executor(step):
    for executor in executors():
        os.kill(executor, signal.SIGKILL)
        print("killed an executor before:", step)
        return

stopped = []
def stop_or_continue_an_executor(step):
    if stopped:
        os.kill(stopped.pop(), signal.SIGCONT)
    else:
        stopped.append(min(executors()))
        os.kill(stopped[0], signal.SIGSTOP)
        print("stopped an executor before:", step)

command, slow, killed, *captures = sys.argv[1:]
main(["analyze", *captures, "--out", command, "--format", "json"], standalone_mode=False)
with spark_session() as spark:
    print(spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"))
    print(places(spark))
    try:
        analyze(spark, captures, OutputDirectory(Path(slow)), on_step=stop_or_continue_an_executor)
    finally:
        for executor in stopped:
            os.kill(executor, signal.SIGCONT)
    analyze(spark, captures, OutputDirectory(Path(killed)), on_step=kill_an_executor)
"""
)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("captures")
    for path in (PARTED, SMALL):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The master's URL, and the directory in which its workers work."""
    directory = tmp_path_factory.mktemp("cluster")
    with standalone(directory) as master:
        yield master, directory / "work"


def assert_same_as_here(captures: list[str], out: Path) -> None:
    rows = json.loads((out / "_kproto.json").read_text())["tables"]
    expected = {name: table.num_rows for name, table in read(*captures).items()}
    assert rows == expected
    assert rows["requests"] > 500
    assert rows.keys() == TABLES.keys()


def test_a_local_cluster_makes_the_same_tables(captures: list[str], tmp_path: Path) -> None:
    """The driver is a process of its own; the workers find kproto only if it is sent to them."""
    done = subprocess.run(
        [sys.executable, "-c", ANALYZE, LOCAL_CLUSTER, str(tmp_path / "tables"), *captures],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    missing, found = done.stdout.splitlines()
    assert re.search(r"worker \S+ cannot open \S+\.missing: .*No such file", missing)
    assert SHIPPED in found
    assert_same_as_here(captures, tmp_path / "tables")


def test_spark_submit_makes_the_same_tables_by_the_command_and_though_executors_stop_or_are_killed_at_each_step(
    cluster: tuple[str, Path], captures: list[str], tmp_path: Path
) -> None:
    """The master is that of two standalone workers.

    Of an executor that stops, Spark gives the tasks to the other one too, and takes the first that is done: when the
    executor goes on, what its tasks write counts for nothing. Without those copies the stopped tasks had no end.
    """
    master, work = cluster
    (tmp_path / "job.py").write_text(SUBMITTED)
    command, slow, killed = tmp_path / "command", tmp_path / "slow", tmp_path / "killed"
    said = submitted(master, tmp_path / "job.py", str(command), str(slow), str(killed), *captures).splitlines()
    place = said.index(f"{master} 3")
    assert json.loads(said[place - 1])["tables"]["requests"] > 500
    assert SHIPPED in said[place + 1]
    assert len({path.parent.name for path in work.glob("*/*/kproto-shipped")}) >= 2
    assert "stopped an executor before: reading captures" in said
    assert "\n".join(said[place:]).count("killed an executor before") >= 2
    for tables in (command, slow, killed):
        assert_same_as_here(captures, tables)


def submitted(master: str, program: Path, *arguments: str) -> str:
    """What a program of ``spark-submit`` prints; the master and the settings are those of ``spark-submit`` alone."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
        # A task that takes longer than the others, or alone a second, is run on the other worker too. That alone helps
        # against an executor that stopped: it is not taken for lost.
        "spark.network.timeout": "800s",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.speculation.task.duration.threshold": "1s",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    spark_submit = str(Path(sys.executable).parent / "spark-submit")
    done = subprocess.run(
        [spark_submit, "--master", master, *options, str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
