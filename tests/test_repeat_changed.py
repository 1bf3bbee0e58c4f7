"""Which tests count as changed: those whose code differs, and all of a file whose fixtures or helpers do."""

from __future__ import annotations

import importlib.util
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
    failed, last = tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0))
    assert failed == {"tests/test_b.py::test_red"}
    assert "1 failed, 1 passed" in last
    assert "assert 0" in capsys.readouterr().out
