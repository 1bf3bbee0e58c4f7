"""Fuzz one target: ``PYTHONPATH=tests python -m fuzz.run decode --seconds 60``.

With atheris installed libFuzzer leads the search by the coverage of kproto's Python code (the reference, framing,
capture reading; the extension answers the same inputs beside the reference). ``--engine plain`` needs nothing: it
bends golden messages at random, repeatably by ``--seed``. What is found is written to ``findings/`` and named with the
command that shows it again; ``--keep`` adds what atheris found worth keeping to the corpus.

The extension is not instrumented itself: libFuzzer reads the counters that only clang writes, and kproto is built with
the compiler that Python was. ``make sanitize`` runs the same targets with the extension under gcc's sanitizers.
A million mutants, judged by Kafka itself: ``make oracle QUESTIONS=1000000``.
"""

import argparse
import base64
import gzip
import hashlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from plain_sources import prefer_sources

HERE = Path(__file__).parent
LENGTHS = [
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff",
    b"\xff\xfe",
    b"\x7f\xff",
    b"\0",
    b"\x01",
    b"\x02",
]
LENGTHS += [b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x02", b"\x81\x00"]
ODD = [
    bytes.fromhex(h)
    for h in ("8000", "818000", "8080808010", "ffffffffffff", "eda080", "c080", "e282", "02", "00", "ff")
]


def bend(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to four wounds: cut, flipped, overwritten, doubled, put in, taken out, joined with another."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(out))
        match rng.randrange(9):
            case 0:
                del out[at:]
            case 1 | 2 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 3 if at < len(out):
                out[at] = rng.randrange(256)
            case 4:
                piece = rng.choice(LENGTHS)
                out[at : at + len(piece)] = piece
            case 5:
                out[at:at] = rng.choice(ODD) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 6))
            case 6:
                del out[at : at + rng.randint(1, 8)]
            case 7:
                start = rng.randint(0, len(out))
                out[at:at] = out[start : start + rng.randint(1, 32)]
            case _:
                other = rng.choice(others)
                out[at:] = other[rng.randint(0, len(other)) :]
    return bytes(out)


def plain(target: str, runs: int, seconds: float, seed: int) -> int:
    """Bend seeds until the runs or the time are used up; the number of runs."""
    from .targets import TARGETS, seeds

    check, begin = TARGETS[target], seeds(target)
    for data in begin:
        attempt(target, check, data)
    rng, end = random.Random(seed), time.monotonic() + seconds
    done = 0
    while done < runs and (done % 64 or time.monotonic() < end):
        attempt(target, check, bend(rng.choice(begin), rng, begin))
        done += 1
    return done + len(begin)


def attempt(target: str, check: Callable[[bytes], None], data: bytes) -> None:
    try:
        check(data)
    except BaseException:
        folder = HERE / "findings"
        folder.mkdir(exist_ok=True)
        path = folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"found: {path.name}; again: python -m fuzz.run {target} --input {path}", file=sys.stderr)
        raise


def guided(target: str, runs: int, seconds: float, seed: int, into: Path) -> None:
    """libFuzzer's search, which ends the process; what it finds worth keeping goes to ``into``."""
    import atheris

    prefer_sources(str(Path(__file__).resolve().parents[2] / "kproto" / "capture"))
    with atheris.instrument_imports(include=["kproto", "construct"]):
        for name in ("kproto.reference", "kproto.framing", "kproto.capture"):
            importlib.import_module(name)
    from .targets import TARGETS, seeds

    begin, found = into / "seeds", into / "found"
    begin.mkdir()
    found.mkdir()
    for number, data in enumerate(seeds(target)):
        (begin / str(number)).write_bytes(data)
    check = TARGETS[target]
    options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=4096", "-timeout=30", "-rss_limit_mb=2048"]
    options += [f"-runs={runs}"] if runs < sys.maxsize else []
    atheris.Setup([sys.argv[0], *options, str(found), str(begin)], lambda data: attempt(target, check, data))
    atheris.Fuzz()


def guided_child(chosen: argparse.Namespace) -> int:
    """``guided`` in a process of its own, as libFuzzer leaves by the back door; its exit code."""
    with tempfile.TemporaryDirectory(prefix="kproto-fuzz-") as into:
        command = [sys.executable, "-m", "fuzz.run", chosen.target, "--engine", "atheris", "--into", into]
        command += ["--seconds", str(chosen.seconds), "--runs", str(chosen.runs), "--seed", str(chosen.seed)]
        done = subprocess.run(command, check=False)
        if chosen.keep and not done.returncode:
            keep_found(chosen.target, Path(into) / "found")
    return done.returncode


def keep_found(target: str, found: Path) -> None:
    from .targets import corpus

    held = {*corpus(target), *(path.read_bytes() for path in found.iterdir())}
    lines = sorted(base64.b64encode(data) for data in held)
    (HERE / "corpus").mkdir(exist_ok=True)
    (HERE / "corpus" / f"{target}.txt.gz").write_bytes(gzip.compress(b"\n".join(lines) + b"\n", mtime=0))
    print(f"{target}: {len(held)} inputs kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", help="the name of one of fuzz.targets.TARGETS")
    parser.add_argument("--list", action="store_true", help="print the targets' names and end")
    parser.add_argument("--engine", choices=["atheris", "plain"], help="default: atheris if it is installed")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--keep", action="store_true", help="add atheris's finds to the corpus")
    parser.add_argument("--input", type=Path, help="run this one input and no other")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.into:  # before kproto is imported, which atheris has to instrument
        guided(chosen.target, chosen.runs, chosen.seconds, chosen.seed, chosen.into)
    from .targets import TARGETS

    if chosen.list:
        print(*TARGETS)
        return
    if chosen.target not in TARGETS:
        parser.error(f"name a target, of {', '.join(TARGETS)}")
    if chosen.input:
        TARGETS[chosen.target](chosen.input.read_bytes())
        return
    engine = chosen.engine or ("atheris" if importlib.util.find_spec("atheris") else "plain")
    print(f"{chosen.target}: engine {engine}, seed {chosen.seed}", flush=True)
    if engine == "atheris":
        sys.exit(guided_child(chosen))
    start = time.monotonic()
    done = plain(chosen.target, chosen.runs, chosen.seconds, chosen.seed)
    print(f"{chosen.target}: {done:,} inputs in {time.monotonic() - start:.0f} s, nothing found")


if __name__ == "__main__":
    main()
