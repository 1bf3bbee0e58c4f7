"""The session of docs/live-cluster.md: its commands are run one after the other and print what it says.

Ports are those that are free; times are as they come.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from free_ports import free_ports

ROOT = Path(__file__).parents[1]
LIVE = re.compile(r"^```console live\n(.*?)^```", re.DOTALL | re.MULTILINE)
TIME = re.compile(r"[0-9-]{10}T[0-9:.]{12}Z| *[0-9.]+ ms")


def steps(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with its output."""
    return [(each.partition("\n")[0], each.partition("\n")[2]) for each in re.split(r"^\$ ", block, flags=re.M)[1:]]


def run(command: str, cwd: Path, env: dict[str, str]) -> str:
    """What a command prints; its exit code may say that brokers disagree."""
    done = subprocess.run(
        command, shell=True, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, timeout=180, check=False
    )
    return done.stdout


def start(command: list[str], cwd: Path, env: dict[str, str], stream: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=cwd, env=env, text=True, **{stream: subprocess.PIPE})


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return out or "", err or ""


@pytest.mark.slow
def test_the_session_prints_what_the_page_shows(tmp_path: Path) -> None:
    first = free_ports(11)
    tapped = first + 10
    ports = {"29094": tapped} | {f"1909{2 + i}": first + i for i in range(3)}

    def here(text: str) -> str:
        return re.sub("|".join(ports), lambda found: str(ports[found[0]]), text)

    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    request = tmp_path / "examples" / "other-leader.json"
    request.write_text(here(request.read_text(encoding="utf-8")), encoding="utf-8")
    asked, tap, told, read = (
        steps(here(block)) for block in LIVE.findall((ROOT / "docs" / "live-cluster.md").read_text("utf-8"))
    )

    cluster = start([sys.executable, "-W", "error", "examples/live_cluster.py", str(first)], tmp_path, env, "stdout")
    try:
        assert cluster.stdout is not None
        assert cluster.stdout.readline().startswith("three brokers know")
        for command, output in asked:
            assert run(command, tmp_path, env) == output
        ((command, output),) = tap
        before, _, after = output.partition("^C\n")
        tapping = start(command.split(), tmp_path, env, "stderr")
        try:
            assert tapping.stderr is not None
            assert [tapping.stderr.readline() for _ in before.splitlines()] == before.splitlines(keepends=True)
            for command, output in told:
                assert run(command, tmp_path, env) == output
        finally:
            _, err = interrupted(tapping)
        assert (err, tapping.returncode) == (after, 0)
        for command, output in read:
            assert TIME.sub("", run(command, tmp_path, env)) == TIME.sub("", output)
    finally:
        interrupted(cluster)
