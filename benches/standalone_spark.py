"""A standalone cluster of Spark on loopback: a master and workers of one core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["standalone"]


@contextmanager
def standalone(
    directory: Path, *, workers: int = 2, memory: str = "700m", cores: Sequence[int] | None = None
) -> Iterator[str]:
    """Start a master and workers, and end them.

    Args:
        directory: For logs; the workers work below ``directory / "work"``.
        workers: The number of workers, each of one core.
        memory: Of each worker, for its executors' JVMs.
        cores: A processor for each worker, on which all its processes stay; None leaves that to the system.

    Yields:
        The master's URL.
    """
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they only start others
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(log: Path, *arguments: str, core: int | None = None) -> None:
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        command = [*pinned, str(home / "bin" / "spark-class"), *arguments]
        with log.open("wb") as file:
            started.append(subprocess.Popen(command, stdout=file, stderr=file, env=environment))

    try:
        log = directory / "master.log"
        ports = ["--port", "0", "--webui-port", "0"]
        start(log, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports)
        master = _said(log, r"spark://127\.0\.0\.1:\d+")
        options = [*ports, "--cores", "1", "--memory", memory, "--work-dir", str(directory / "work")]
        logs = [directory / f"worker-{number}.log" for number in range(workers)]
        for number, log in enumerate(logs):
            core = None if cores is None else cores[number]
            # Spark runs no second copy of a task on the host of the first: each worker is a host of its own.
            host = ["--host", f"127.0.0.{1 + number}"]
            start(log, "org.apache.spark.deploy.worker.Worker", *host, *options, master, core=core)
        for log in logs:
            _said(log, "Successfully registered with master")
        yield master
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(timeout=120)


def _said(log: Path, pattern: str) -> str:
    """Wait until a log says something."""
    for _ in range(1200):
        found = re.search(pattern, log.read_text())
        if found:
            return found[0]
        time.sleep(0.1)
    raise RuntimeError(log.read_text()[-2000:])
