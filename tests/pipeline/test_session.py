"""What stands in Spark's way is one clear line before Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kproto.errors import ConfigurationError
from kproto.pipeline import check_java

if TYPE_CHECKING:
    from pathlib import Path


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
