"""The simulation of the control plane: seeds hold, and a seed repeats itself, byte by byte."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from simulation import broken

PROGRAM = Path(__file__).parent / "simulation" / "run.py"
ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0"}


def simulate(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), "--jobs", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT, check=False)


def test_known_seeds_break_no_invariant():
    result = simulate("--seeds", "5")
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.match(r"5 seeds, \d+ steps", result.stdout)


def test_every_known_fault_still_has_its_place():
    assert len({each.name for each in broken.breakages()}) > 15  # a LookupError names one that has none


@pytest.mark.slow
def test_a_seed_repeats_itself_and_its_frames_can_be_inspected(tmp_path):
    stories = [simulate("--seed", "12", "--capture", str(tmp_path / f"{n}.pcapng")).stdout for n in range(2)]
    assert "seed 12 holds" in stories[0]
    assert stories[0] == stories[1]
    assert (tmp_path / "0.pcapng").read_bytes() == (tmp_path / "1.pcapng").read_bytes()
    inspect = [sys.executable, "-m", "kproto", "inspect", str(tmp_path / "0.pcapng"), "--format", "json"]
    shown = subprocess.run(inspect, capture_output=True, text=True, timeout=300, check=True).stdout
    assert '"LeaderAndIsr"' in shown


@pytest.mark.slow
def test_elected_controllers_and_their_brokers_agree_in_the_end():
    result = simulate("--seeds", "4", "--first", "42", "--kind", "election")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_clients_learn_what_is_decided_over_tls_and_sasl_and_through_a_migration():
    result = simulate("--seeds", "6", "--first", "6000", "--kind", "clients")
    assert result.returncode == 0, result.stdout + result.stderr
