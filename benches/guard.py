"""Guards the speed of the codec and of captures: this tree beside an earlier commit, in the same run: ``make guard``.

The earlier commit is that of the newest release (a tag ``v*``), else the one 30 before this one; it is built once,
below ``out/guard``. Two processes, one for each tree, measure the same work by turns on Kafka's own bytes. The figure
of a door is the median of the rounds' ratios, so what the machine does meanwhile meets both. The run fails when a door
takes over 1.25 times as long as before: a loss of a fifth.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
LIMIT: Final = 1.25
ROUNDS: Final = 15
_SECONDS: Final = 0.01
"""For how long a door is measured in a round."""


def doors() -> dict[str, Callable[[], object]]:
    """The work that is measured, by name: each door of the codec on requests of some thousand partitions; a capture."""
    from codec_bodies import reader, stored

    from kproto.capture import frames
    from kproto.codec import get_codec

    codec: Any = get_codec("cython")
    found: dict[str, Callable[[], object]] = {}
    for body in stored():
        if body.name not in ("updatemetadata-8-500x20", "leaderandisr-7-500x20"):
            continue
        key, version, data = body.api_key, body.version, body.data
        message, rows = codec.decode_request(key, version, data), codec.decode_columns(key, version, data)
        built = type(message).from_json(message.to_json(version), version)
        decode = partial(codec.decode_request, key, version, data)
        work: dict[str, Callable[[], object]] = {
            "decode": decode,
            "read every field": partial(_read, reader(key, version), decode),
            "encode what was built": partial(codec.encode, built, version),
            "decode to columns": partial(codec.decode_columns, key, version, data),
            "encode from columns": partial(codec.encode_columns, rows.message, version, rows),
        }
        found |= {f"{body.name}: {name}": each for name, each in work.items()}
    packets = gzip.decompress((ROOT / "tests/data/captures/ibp-3.9-a.pcap.gz").read_bytes())
    found["frames of a control capture"] = lambda: deque(frames(packets), 0)
    return found


def _read(look: Callable[[Any], object], decode: Callable[[], Any]) -> None:
    look(decode())


def serve() -> None:
    """Say whose codec this is; then measure each door once for each line of standard input, and print the seconds."""
    import kproto

    measured = doors()
    print(json.dumps(str(Path(kproto.__file__).parent)), flush=True)
    for _ in sys.stdin:
        print(json.dumps({name: _seconds(work) for name, work in measured.items()}), flush=True)


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of the runs of a hundredth of a second."""
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while True:
        began = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - began)
        if now > end:
            return best


def compared(base: Sequence[Mapping[str, float]], present: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of the rounds' ratios of each door: present to base."""
    return {name: median(new[name] / old[name] for old, new in zip(base, present, strict=True)) for name in present[0]}


def measure(base: Path, present: Path, rounds: int) -> dict[str, float]:
    """Let both trees measure by turns, and compare."""
    workers = [_worker(tree) for tree in (base, present)]
    try:
        found: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                found[which].append(_asked(workers[which]))
        return compared(*found)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _worker(tree: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{ROOT / 'benches'}"}
    command = [sys.executable, str(Path(__file__)), "--serve"]
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tempfile.gettempdir()
    )
    assert worker.stdout is not None
    told = worker.stdout.readline()
    if not told or Path(json.loads(told)) != tree / "kproto":
        raise RuntimeError(f"{tree} could not be measured: {told or 'it ended'}")
    return worker


def _asked(worker: subprocess.Popen[str]) -> dict[str, float]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    answer: dict[str, float] = json.loads(worker.stdout.readline())
    return answer


def built(commit: str) -> Path:
    """The tree of a commit with its extensions, without the channel's, below out/guard."""
    tree = ROOT / "out" / "guard" / commit
    if not list((tree / "kproto/capture").glob("link.*.so")):
        tree.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["git", "archive", commit, "kproto", "channel", "setup.py", "pyproject.toml", "README.md", "LICENSE"],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(["tar", "x"], cwd=tree, input=packed.stdout, check=True)
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=tree, env={**os.environ, "KPROTO_CHANNEL": "python"}, check=True, stdout=sys.stderr)
    return tree


def former() -> str:
    """The commit to compare with: the newest release, else the commit 30 before this one, or the first that is here."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").splitlines()
    return git("rev-parse", tags[0]) if tags else git("rev-list", "-n", "31", "HEAD").splitlines()[-1]


def main() -> int:
    """Measure, print a table, and return 1 if a door has become slower by a fifth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of measurements (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return 0
    base = args.base or former()
    found = measure(built(base), ROOT, args.rounds)
    for name, ratio in found.items():
        print(f"{ratio:6.2f}  {name}{'  SLOWER' if ratio > LIMIT else ''}")
    print(f"time of this tree / time of {base[:10]}; at most {LIMIT}")
    return int(any(ratio > LIMIT for ratio in found.values()))


if __name__ == "__main__":
    sys.exit(main())
