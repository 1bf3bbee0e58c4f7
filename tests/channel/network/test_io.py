"""The thread that moves bytes, under stress and without an interpreter; ``tools/sanitize`` runs it under sanitizers."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import channel.network

HERE = Path(__file__).parent


def test_each_answer_goes_to_its_own_request_and_each_wait_ends(tmp_path: Path) -> None:
    program = tmp_path / "io_stress"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    include = Path(channel.network.__file__).parent
    flags = ["-std=gnu11", "-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    subprocess.run([*compiler, *flags, f"-I{include}", HERE / "io_stress.c", "-o", program], check=True, timeout=120)
    run = subprocess.run([program, "1"], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert all(int(count) for count in re.findall(r"\d+", run.stdout))
