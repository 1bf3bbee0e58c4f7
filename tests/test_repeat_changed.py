"""Which tests count as changed: those whose code differs, and all of a file whose fixtures or helpers do."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest
from network_peers import until

pytestmark = pytest.mark.slow  # of a tool

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
    done = tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0))
    assert done.failed == {"tests/test_b.py::test_red"}
    assert (done.collected, len(done.ran)) == (2, 2)
    assert "1 failed, 1 passed" in done.told
    assert "assert 0" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_fails(tool, tmp_path):
    (tmp_path / "tests" / "test_b.py").write_text("import no_such_module\n")
    assert tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0)).failed == {"tests/test_b.py"}


def test_a_round_that_is_interrupted_from_outside_fails(tool, tmp_path):
    (tmp_path / "tests" / "test_b.py").write_text("def test_stop(): raise KeyboardInterrupt\n")
    assert tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0)).failed == {"pytest itself, with exit code 2"}


def test_no_test_begins_when_the_time_is_over(tool, tmp_path):
    (tmp_path / "tests" / "test_b.py").write_text("def test_early(): pass\ndef test_late(): assert 0\n")
    done = tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0), 0.0)
    assert (done.ran, done.failed) == ({"tests/test_b.py::test_early"}, set())
    assert done.told.startswith("1 passed in ")
    assert done.told.endswith("; 1 of 2 did not run")


def _state(process: Path) -> str:
    """The state of a process, "" if there is none."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_round_that_does_not_end_names_its_test(tool, tmp_path, monkeypatch, capsys):
    class Impatient(subprocess.Popen):
        def communicate(self, timeout=None):
            if timeout is not None:
                assert timeout > 290
                until(lambda: (tmp_path / "child").exists())
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().communicate()

    monkeypatch.setattr(tool.subprocess, "Popen", Impatient)
    (tmp_path / "tests" / "test_b.py").write_text(
        "import os, subprocess, time\n"
        "def test_deaf():\n    child = subprocess.Popen(['sleep', '600'])\n"
        "    open('told', 'w').write(str(child.pid))\n    os.rename('told', 'child')\n"
        "    while True:\n        try: time.sleep(600)\n        except BaseException: pass\n"
    )
    done = tool.run(["tests/test_b.py"], "", os.sched_getaffinity(0), 0.0)
    assert done.failed == {"tests/test_b.py::test_deaf"}
    assert done.told.startswith("killed, as tests/test_b.py::test_deaf did not end; 0 ended before, 0 of them failed")
    assert "in test_deaf" in capsys.readouterr().out  # the stack
    child = Path("/proc") / (tmp_path / "child").read_text()
    until(lambda: _state(child) in ("", "Z"))  # on busy cores a killed process runs on for a moment


def test_the_whole_suite_leaves_its_result(tool, tmp_path, monkeypatch, capsys):
    options = ["--since", "all", "--under", "tests", "--times", "2", "--budget", "9", "--seed", "7"]
    monkeypatch.setattr("sys.argv", ["repeat", *options])
    (tmp_path / "tests" / "test_a.py").write_text("def test_one(): pass\n")
    (tmp_path / "tests" / "test_b.py").write_text("def test_red(): assert 0\n")
    assert tool.main() == 1
    result = json.loads((tmp_path / "out" / "repeated.json").read_text())
    assert len(result["commit"]) == 10
    assert result["seed"] == 7
    assert [each["way"] for each in result["rounds"]] == ["every core busy"] * 2 + ["one core"] * 2
    assert all((each["tests"], each["ran"]) == (2, 2) for each in result["rounds"])
    assert result["rounds"][3]["told"].startswith("1 failed, 1 passed in ")
    assert result["rounds"][0]["load"] >= 0
    assert list(result["failures"]) == ["tests/test_b.py::test_red"]
    assert "FAILED 4 of 4" in capsys.readouterr().out
