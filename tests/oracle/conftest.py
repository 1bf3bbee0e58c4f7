"""Kafka's own classes, started once and asked by pipe."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import live
import pytest

ORACLE = Path(__file__).parents[2] / "tools" / "oracle" / "oracle"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.java)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was asked, by API, version and mutation, under the run's other lines."""
    if live.REPORT.asked:
        terminalreporter.section("questions to Kafka's own classes")
        for line in live.REPORT.lines():
            terminalreporter.write_line(line)


class Oracle:
    """One process of ``tools/oracle``; many questions go out before the first answer is read.

    Args:
        environment: Its environment variables; None: this process's.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [ORACLE, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers, in order."""
        out, answers = self._process.stdin, self._process.stdout
        assert out
        assert answers

        def write() -> None:
            for question in questions:
                out.write(json.dumps(question) + "\n")
            out.flush()

        writer = Thread(target=write, daemon=True)
        writer.start()
        lines = [answers.readline() for _ in questions]
        writer.join()
        return [json.loads(line) for line in lines]

    def ask_one(self, **question: Any) -> dict[str, Any]:
        (answer,) = self.ask([question])
        return answer

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(120)
        assert self._process.stdout
        self._process.stdout.close()


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    process = Oracle()
    yield process
    process.close()


@pytest.fixture(scope="session")
def later_release(oracle_program: Path) -> dict[str, str]:
    """The environment in which the program has the classes of Kafka 4.1; built once here."""
    environment = os.environ | {"ORACLE_KAFKA": "4.1.0"}
    subprocess.run([oracle_program, "serve"], input=b"", check=True, timeout=300, env=environment)
    return environment


@pytest.fixture(scope="session")
def later_oracle(later_release: dict[str, str]) -> Iterator[Oracle]:
    process = Oracle(later_release)
    yield process
    process.close()


@pytest.fixture(scope="session")
def oracle_program() -> Path:
    """Built once here, so that what runs side by side finds it ready."""
    subprocess.run([ORACLE, "serve"], input=b"", check=True, timeout=300)
    return ORACLE
