"""A Spark session with kproto's defaults, without chatter, and with a clear error if Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql import SparkSession

import kproto
from kproto.errors import ConfigurationError
from kproto.extras import install_command
from kproto.pipeline.cluster import SHIPPED, is_cluster, shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""An environment variable that ``spark-submit`` sets for its program."""

_PYTHON_PATH: Final = "spark.executorEnv.PYTHONPATH"

_LOWEST_JAVA: Final = 17
_NO_JVM: Final = "Could not create the Java Virtual Machine"

_CHATTER: Final = re.compile(
    r"^\d\d/\d\d/\d\d [\d:]+ [A-Z]+ \w+: "
    r'|^(?:Exception in thread "[^"]*" )?org[.]apache[\w.$]+: '
)
"""The prefix of the message in a line of Spark's log."""

_MASTERS: Final = "try --master local[*], local[4], spark://HOST:7077, yarn or k8s://https://HOST:6443"
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*\]")
"""A master of Spark's own tests: the number of workers, the cores of each, the MB of each."""

_ADVICE: Final = {
    "Master must": _MASTERS,
    "parse Master URL": _MASTERS,
    "masters are unresponsive": "does a master run there, on this port, of this version of Spark?",
    "maximum heap size": "try e.g. --conf spark.driver.memory=2g",
    "Java heap space": "try more memory, e.g. --conf spark.driver.memory=2g",
}
"""The advice for each word of the reason."""

_HOW_TO_GET_JAVA: Final = (
    "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17; "
    "or https://adoptium.net) and put it on PATH or in JAVA_HOME"
)

_SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Spark's default for timestamps, INT96, has no time zone for other readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Frames are large values: few of them make a batch (Spark also ends one at 64 MiB).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
"""Settings that the tables depend on; they are set on a session of the user's too."""

_FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""Python does the work of these jobs: the JVM's second compiler takes longer than its code saves."""

_FEW_CORES: Final = 4
"""Up to this number of cores the JVM collects garbage with one thread: on two cores that took the least CPU time."""

_COLLECTOR: Final = "-XX:+UseSerialGC" if (os.cpu_count() or 1) <= _FEW_CORES else "-XX:+UseParallelGC"

_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": f"{_FIRST_COMPILER} {_COLLECTOR}",
    "spark.executor.extraJavaOptions": _FIRST_COMPILER,
    "spark.sql.adaptive.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
_SMALL_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""Little data is done before adaptive plans have paid for themselves."""


def check_java() -> None:
    """Check that Spark will find a Java that it can run on.

    Raises:
        ConfigurationError: There is none, or it is too old; the text says how to get one.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ConfigurationError(f"Spark needs Java {_LOWEST_JAVA} or newer, and there is none; {_HOW_TO_GET_JAVA}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603  # the user's own Java
    except (OSError, subprocess.SubprocessError) as e:
        where = f"JAVA_HOME={home}" if home else java
        raise ConfigurationError(
            f"Spark needs Java {_LOWEST_JAVA} or newer; {where} gives none that runs ({e})"
        ) from None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match and int(match[1]) < _LOWEST_JAVA:
        raise ConfigurationError(
            f"Spark needs Java {_LOWEST_JAVA} or newer, and {java} is Java {match[1]}; {_HOW_TO_GET_JAVA}"
        )


@contextmanager
def spark_session(
    master: str | None = None,
    *,
    small: bool = False,
    log: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Start Spark and stop it at the end, or use the existing session and restore its settings.

    Under ``spark-submit`` its master and its settings stay; only what the tables depend on is set.

    Args:
        master: Where to run: ``local[*]``, ``spark://host:7077`` ...; None: where ``spark-submit`` says, else here.
        small: Whether there is little to do (some ten MB); counts on a local master alone.
        log: Keep what Spark itself has to say there; None drops it.
        settings: Spark settings over all others.

    Raises:
        ConfigurationError: No Java, or Spark did not start; says why.
    """
    if master is not None and master.startswith("sc://"):
        raise ConfigurationError(
            f"{master} is a server of Spark Connect, whose sessions are started in Python: "
            "kproto.pipeline.analyze(SparkSession.builder.remote(URL).getOrCreate(), ...)"
        )
    existing = SparkSession.getActiveSession()
    if existing is not None:
        with _sql_settings(existing, _SQL_SETTINGS | dict(settings or {})):
            yield existing
        return
    check_java()
    if find_spec("pandas") is None:  # Spark insists before it runs mapInArrow, though nothing here uses it
        raise ConfigurationError(f"this needs pandas, which is not installed; try: {install_command('pipeline')}")
    submitted = _SUBMITTED in os.environ
    wanted: dict[str, str] = dict(settings or {})
    # Without PYSPARK_PYTHON local workers run the first python3 on PATH, where kproto need not be.
    environment = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if not submitted:
        master = master or "local[*]"
        local = master.startswith("local")
        small &= not is_cluster(master)
        wanted = _SETTINGS | ((_LOCAL_SETTINGS | (_SMALL_SETTINGS if small else {})) if local else {}) | wanted
        if local and (found := _LOCAL_CLUSTER.fullmatch(master)):
            wanted.setdefault("spark.executor.memory", f"{found[1]}m")  # Spark's default is more than such workers have
        if local:
            environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DRIVER_MEMORY": "2g"}
    builder = SparkSession.builder.appName("kproto").config(map=cast("dict[str, Any]", _SQL_SETTINGS | wanted))
    if master is not None:
        builder = builder.master(master)
    local = not submitted and not is_cluster(master)
    if not local:
        python_path = filter(None, (SHIPPED, wanted.get(_PYTHON_PATH)))
        builder = builder.config(_PYTHON_PATH, os.pathsep.join(python_path))
    with (
        _environment(environment, local=local),
        _started(builder, master, log) as spark,
        shipped(spark) if is_cluster(spark.sparkContext.master) else nullcontext(),
    ):
        yield spark


@contextmanager
def _started(builder: SparkSession.Builder, master: str | None, log: Path | None) -> Iterator[SparkSession]:
    with log.open("w+b") if log else tempfile.TemporaryFile() as spark_log:
        try:
            with _stderr_to(spark_log.fileno()):
                spark = builder.getOrCreate()
        except Exception as e:
            where = f" on {master}" if master else ""
            raise ConfigurationError(f"Spark did not start{where}: {why_no_start(_said(spark_log.fileno()), e)}") from e
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _environment(values: Mapping[str, str], *, local: bool) -> Iterator[None]:
    """Set what Spark's processes read from the environment, where the user has set nothing, and take it back."""
    before = dict(os.environ)
    for name, value in values.items():
        os.environ.setdefault(name, value)
    if local:  # local workers import what this process imports, also from a checkout that is not installed
        here = str(Path(kproto.__file__).parent.parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    try:
        yield
    finally:
        for name in (*values, "PYTHONPATH"):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


@contextmanager
def _sql_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set what the tables depend on in a session of the user's, and restore the former settings at the end."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Start the JVM with another standard error, so that its chatter does not mix with kproto's messages."""
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _said(log: int) -> str:
    """Return the end of what the JVM wrote to its standard error."""
    size = os.fstat(log).st_size
    return os.pread(log, 1 << 16, max(0, size - (1 << 16))).decode("utf-8", "replace")


def why_no_start(said: str, error: Exception) -> str:
    """Say in one line why Spark did not start, and what to try.

    Args:
        said: What the JVM wrote to its standard error.
        error: What pyspark raised.
    """
    lines = said.splitlines()
    refused = next((number for number, line in enumerate(lines) if _NO_JVM in line), 0)
    if refused:  # the line before it has the reason
        complaints = [lines[refused - 1]]
    else:
        complaints = [line for line in lines if re.search(r"Exception|Error:|ERROR", line)]
    text = complaints[-1].strip() if complaints else str(error).strip() or type(error).__name__
    reason = _CHATTER.sub("", text.splitlines()[0])[:300].rstrip(".")
    advice = next((advice for word, advice in _ADVICE.items() if word in reason), None)
    return f"{reason}; {advice}" if advice else reason
