"""The programs below examples are short, run as they are, and complain of nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_failover_rehearsal_is_short_and_runs() -> None:
    path = ROOT / "examples" / "rehearse_failover.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 15
    done = subprocess.run(
        [sys.executable, "-W", "error", path], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"the other brokers know the new leaders after [0-9.]+ s\n", done.stdout)
    assert done.stderr == "", "300 brokers have nothing to complain of"


def test_a_caller_awaits_a_topic_and_learns_of_its_next_leader() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "await_topic.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "orders has 2 partitions, broker 0 leads the first",
        "broker 1 leads it since leader epoch 1",
        "broker 0 leads it again",
    ]
