"""Runs on other machines: kproto is sent to the workers, and their faults are reported before any capture is read."""

from __future__ import annotations

import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import cloudpickle
from pyspark.errors import PySparkException

import kproto
from kproto.errors import ConfigurationError
from kproto.pipeline import probe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from kproto.tables.places import Place

SHIPPED: Final = "kproto-shipped"
"""Where workers unpack kproto, below their working directories; stands in their ``PYTHONPATH``."""

_PROBES: Final = 200
_PATHS: Final = 50
"""The most workers that are asked, and the most files that they are asked about."""


def is_cluster(master: str | None) -> bool:
    """Whether a master, if one is named, has the tasks done by other processes than Spark's driver."""
    return master is not None and master != "local" and not master.startswith("local[")


_FAULTS: Final = {
    "kproto": ("cannot load kproto:", "give all workers the driver's Python by PYSPARK_PYTHON, and its platform"),
    "pyarrow": (
        "lacks pyarrow:",
        "install it there, or ship an environment: --conf spark.archives=env.tar.gz#env, PYSPARK_PYTHON=env/bin/python",
    ),
    "version": ("has", "uninstall one"),
    "path": (
        "cannot open",
        "put captures where all workers see them under one path, or name them by URI (s3://, hdfs://)",
    ),
    "directory": (
        "cannot write to",
        "choose an --out that all workers see under one path, or a URI for which they have credentials",
    ),
}
"""What may be wrong with a worker, the worst first: what is said of it, and the advice."""


@contextmanager
def shipped(spark: SparkSession) -> Iterator[None]:
    """Send this process's kproto, the compiled codec with it, to the workers, which must have the same Python."""
    with tempfile.TemporaryDirectory(prefix="kproto-") as directory:
        archive = Path(directory) / "kproto.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            root = Path(kproto.__file__).parent
            for file in sorted(root.rglob("*")):
                if file.suffix in (".py", ".so"):
                    packed.write(file, file.relative_to(root.parent))
        spark.sparkContext.addArchive(f"{archive}#{SHIPPED}")
        yield


def check_workers(spark: SparkSession, captures: Sequence[str], out: Place) -> None:
    """Make sure that workers can do their part.

    Args:
        spark: The session.
        captures: Files that the workers open.
        out: The directory that they write to; is made where its file system has directories.

    Raises:
        ConfigurationError: They cannot; names a worker, what is wrong there, and what to try.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths, directory = list(captures[:_PATHS]), str(out.absolute())
    context = spark.sparkContext
    cloudpickle.register_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    ask = probe.probe
    count = min(_PROBES, 2 * context.defaultParallelism)
    try:
        found = context.parallelize(range(count), count).map(lambda _: ask(paths, directory)).collect()
    except Exception as e:
        if not isinstance(e, PySparkException) and type(e).__module__.partition(".")[0] != "py4j":
            raise
        raise ConfigurationError(f"the workers cannot run this Python's tasks: {_reason(str(e))}") from e
    finally:
        cloudpickle.unregister_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    for host, faults in found:
        _check(host, faults)


def _check(host: str, faults: dict[str, str]) -> None:
    version = faults.pop("version", None)
    if version not in (None, kproto.__version__):
        faults["version"] = f"kproto {version}, the driver {kproto.__version__}"
    for kind, (what, advice) in _FAULTS.items():
        if kind in faults:
            raise ConfigurationError(f"worker {host} {what} {faults[kind]}; {advice}")


def _reason(text: str) -> str:
    """The line of a worker's stack trace that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    known = ("VERSION_MISMATCH", "No module named", "No such file")
    telling = [line for line in lines if any(words in line for words in known)]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (telling or errors or lines or ["no reason given"])[0][:300]
