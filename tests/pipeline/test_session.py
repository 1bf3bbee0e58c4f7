"""What stands in Spark's way is one clear line before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproto.errors import ConfigurationError
from kproto.pipeline import check_java, spark_session
from kproto.pipeline.session import why_no_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java_that_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A JAVA_HOME whose java prints the file ``version``."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\ncat '{tmp_path}/version' >&2\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path / "version"


@pytest.mark.parametrize("version", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "25" 2025-09-16'])
def test_a_new_enough_java_is_taken(java_that_says: Path, version: str) -> None:
    java_that_says.write_text(version)
    check_java()


@pytest.mark.parametrize(
    ("version", "told"), [('java version "1.8.0_401"', "Java 8"), ('openjdk version "11.0.2"', "Java 11")]
)
def test_an_old_java_is_refused_with_the_way_to_a_new_one(java_that_says: Path, version: str, told: str) -> None:
    java_that_says.write_text(version)
    with pytest.raises(ConfigurationError, match=rf"Java 17 or newer.*is {told}; install it \(Debian"):
        check_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="there is none; install it"):
        check_java()


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ConfigurationError, match=r"JAVA_HOME=.*gives none that runs"):
        check_java()


@pytest.mark.spark
def test_a_session_of_the_users_own_is_left_as_it_was(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    with spark_session(settings={"spark.sql.shuffle.partitions": "7"}) as ours:
        assert ours is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    assert spark.conf.get("spark.sql.shuffle.partitions") != "7"
    spark.conf.set("spark.sql.session.timeZone", "UTC")


SUBMITTED = """
import os
from kproto.pipeline import spark_session
before = dict(os.environ)
with spark_session() as spark:
    print(spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"),
          spark.conf.get("spark.sql.session.timeZone"))
print(os.environ == before)
"""


@pytest.mark.spark
def test_the_master_and_the_settings_of_spark_submit_stay(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SUBMITTED)
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    settings = ["--conf", "spark.sql.shuffle.partitions=3", "--conf", "spark.ui.enabled=false"]
    settings += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]  # quicker to start
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [*submit, *settings, str(tmp_path / "job.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, check=False)
    assert done.stdout.splitlines() == ["local[2] 3 UTC", "True"], done.stderr[-2000:]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Invalid maximum heap size: -Xmx1x\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Invalid maximum heap size: -Xmx1x; try e.g. --conf spark.driver.memory=2g",
        ),
        (
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n\tat java.base/java.util',
            'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space; try more memory, '
            "e.g. --conf spark.driver.memory=2g",
        ),
        (
            "org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'",
            "Could not parse Master URL: 'local[x]'; try --master local[*], local[4], spark://HOST:7077, yarn or "
            "k8s://https://HOST:6443",
        ),
        (
            "26/11/22 14:50:35 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are "
            "unresponsive! Giving up.",
            "Application has been killed. Reason: All masters are unresponsive! Giving up; does a master run there, on "
            "this port, of this version of Spark?",
        ),
        ("", "no gateway"),
    ],
)
def test_why_spark_did_not_start_is_told_with_what_to_try(said: str, told: str) -> None:
    assert why_no_start(said, RuntimeError("no gateway")) == told
