"""The results that are committed are those of the defaults, of unchanged files, at a commit that led to this one."""

import argparse
import json
import subprocess
from pathlib import Path

import figures
import figures_page
import pytest

RESULTS = sorted(figures.RESULTS.glob("*.json"))


def git(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "safe.directory=*", "-C", str(figures.HERE), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_was_measured_with_the_defaults_at_a_commit_that_led_here(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["changed"] == {}, "measured with other options than the defaults"
    assert result["failures"] == []
    commit = result["commit"]
    assert commit, "measured outside a git clone"
    assert not commit.endswith("+"), "measured on changed files"
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no git clone, or a shallow one: it cannot say whether the commit led to the present one")
    assert git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0, f"no commit {commit} in this clone"
    assert git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0, f"{commit} did not lead to HEAD"


def test_every_result_has_its_table() -> None:
    shown = {name for names in figures_page.RESULTS_OF.values() for name in names}
    assert {path.stem for path in RESULTS} <= shown


def test_options_that_change_figures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*words: str) -> object:
        parser = argparse.ArgumentParser()
        parser.add_argument("--pairs", type=int, default=3)
        parser.add_argument("--only", nargs="+", default=["a", "b"])
        parser.add_argument("--json", type=Path)
        monkeypatch.setattr("sys.argv", ["bench.py", *words])
        return figures.options_of(parser).changed

    assert changed() == changed("--pairs", "3") == changed("--only", "a", "--json", "x") == {}
    assert changed("--pairs", "2") == {"pairs": 2}
