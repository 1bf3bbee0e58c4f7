"""A failure while the machine stood still is told from any other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PLUGIN = Path(__file__).with_name("standstill.py")


@pytest.mark.parametrize("stops", [pytest.param(True, marks=pytest.mark.slow), False], ids=["still", "busy"])
def test_failures_amid_a_standstill_end_the_run_by_a_status_of_their_own(tmp_path, stops):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    begun = tmp_path / "begun"
    (tmp_path / "test_it.py").write_text(
        f"import pathlib, time\ndef test_it():\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep({2 * stops})\n"
        "    assert False\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "standstill", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(PLUGIN.parent)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if stops:
        while not begun.exists():
            assert run.poll() is None
            time.sleep(0.02)
        time.sleep(0.5)
        run.send_signal(signal.SIGSTOP)
        time.sleep(4)
        run.send_signal(signal.SIGCONT)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == (os.EX_TEMPFAIL if stops else pytest.ExitCode.TESTS_FAILED), output
    assert ("the machine stood still for" in output) == stops
