"""What the workflows of continuous integration run is fixed: an action's tag can be moved, a commit cannot."""

import os
import re
import subprocess
import sys
from pathlib import Path

WORKFLOWS = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}  # v[0-9]+\.[0-9]+\.[0-9]+")


def test_actions_are_pinned_by_commit_and_say_their_version() -> None:
    used = [
        line.partition("uses: ")[2]
        for path in WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses: " in line
    ]
    assert len(used) > 10
    assert [each for each in used if not PINNED.fullmatch(each)] == []
    versions = [each.split("@", 1) for each in set(used)]
    assert len({name for name, _ in versions}) == len(versions), "one version of each action"


def test_seeds_are_heard_in_continuous_integration_too() -> None:
    """Hypothesis by itself draws the same examples each time where CI is set."""
    code = "import conftest, hypothesis; print(hypothesis.settings.default.derandomize)"
    environment = {**os.environ, "CI": "true", "HYPOTHESIS_PROFILE": "dev"}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, capture_output=True, check=True
    )
    assert told.stdout == b"False\n"
