"""The pages and the examples are true: every Python example is run, and gives what it shows."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
PYCON = re.compile(r"^```pycon\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if PYCON.search(page.read_text("utf-8"))], ids=lambda p: p.stem
)
def test_the_python_examples_of_a_page_hold(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(PYCON.findall(page.read_text("utf-8")))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    failures = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)
    assert results.attempted >= 3
    assert not results.failed, "".join(failures)


def test_the_failover_rehearsal_is_short_and_runs():
    path = ROOT / "examples" / "rehearse_failover.py"
    assert len(path.read_text("utf-8").splitlines()) <= 15
    done = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"the other brokers know the new leaders after [0-9.]+ s\n", done.stdout)
    assert done.stderr == "", "300 brokers have nothing to complain of"
