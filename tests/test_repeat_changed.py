"""Which tests count as changed: those whose code differs, and all of a file whose fixtures or helpers do."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

BEFORE = "import os\nLIMIT = 1\ndef test_one(): assert LIMIT\nclass TestMore:\n    def test_two(self): assert os\n"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("repeat", Path(__file__).parents[1] / "tools" / "repeat_changed.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(BEFORE)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "--no-gpg-sign", "-m", "tests"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return made


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("", "# a comment\n", []),
        ("import os", "import os, sys", []),
        ("assert LIMIT", "assert LIMIT == 1", ["::test_one"]),
        ("assert os", "assert os.sep", ["::TestMore::test_two"]),
        ("LIMIT = 1", "LIMIT = 2", [""]),
    ],
)
def test_a_test_has_changed_when_its_code_has(tool, tmp_path, before, after, found):
    (tmp_path / "tests" / "test_a.py").write_text(BEFORE.replace(before, after, 1) if before else BEFORE + after)
    assert tool.changed("HEAD") == [f"tests/test_a.py{name}" for name in found]


def test_a_new_file_counts_before_it_is_committed(tool, tmp_path):
    (tmp_path / "tests" / "test_b.py").write_text(BEFORE)
    assert tool.changed("HEAD") == ["tests/test_b.py"]


def test_a_failure_is_told_with_its_test(tool, tmp_path, capsys):
    (tmp_path / "tests" / "test_b.py").write_text("def test_red(): assert 0\ndef test_green(): pass\n")
    failed, last, is_whole = tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0))
    assert failed == {"tests/test_b.py::test_red"}
    assert is_whole
    assert "1 failed, 1 passed" in last
    assert "assert 0" in capsys.readouterr().out


def test_a_round_that_lasts_too_long_tells_what_it_has_run(tool, tmp_path):
    (tmp_path / "tests" / "test_b.py").write_text(
        "import pathlib, time\ndef test_red(): assert 0\n"
        "def test_slow():\n    pathlib.Path('begun').touch()\n    time.sleep(600)\n"
    )
    failed, last, is_whole = tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0), 10.0)
    assert (tmp_path / "begun").exists()
    assert failed == {"tests/test_b.py::test_red"}
    assert "1 failed" in last
    assert not is_whole


def test_the_whole_suite_leaves_its_result(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["repeat", "--since", "all", "--under", "tests", "--times", "2", "--budget", "9"])
    (tmp_path / "tests" / "test_a.py").write_text("def test_one(): pass\n")
    (tmp_path / "tests" / "test_b.py").write_text("def test_red(): assert 0\n")
    assert tool.main() == 1
    result = json.loads((tmp_path / "tests" / "repeated.json").read_text())
    assert [len(rounds) for rounds in result["rounds"].values()] == [2, 2]
    assert result["rounds"]["one core"][1].startswith("1 failed, 1 passed in ")
    assert list(result["failures"]) == ["tests/test_b.py::test_red"]
    assert "FAILED 4 of 4" in capsys.readouterr().out
