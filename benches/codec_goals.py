"""The rows of the codec's tables and their limits. Standard library only: kio's and kproto's programs ask it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codec_bodies import EVERY_VERSION, LARGEST
from figures import Goal

if TYPE_CHECKING:
    from collections.abc import Iterator

PEERS = {"java": "Java", "go": "Go", "kio": "kio"}
NEWEST = ("updatemetadata-8", "leaderandisr-7")
SHAPES = ("1x10000", "500x20", "2000x5")
GROWTH = (10_000, 100_000, 1_000_000)
KEPT = 200_000
"""Partitions of the request whose memory is measured."""

_OBJECTS = {"1x10000": 0.6, "500x20": 0.8, "2000x5": 0.9}
_COLUMNS = {"1x10000": 0.30, "500x20": 0.40, "2000x5": 0.55}


def key(who: str, op: str, body: str) -> str:
    """The key of a figure in a round."""
    return f"{who} {op} {body}"


def goals() -> Iterator[Goal]:
    """Every row, in the order of the tables."""
    for api in NEWEST:
        for shape in SHAPES:
            yield from _newest(f"{api}-{shape}", shape)
    for shape in ("1x10000", "500x20"):
        yield _goal("codec", "decode to Arrow columns", "columns", f"stopreplica-4-{shape}", "java", "decode", 0.5)
    yield _goal("codec", "decode to objects", "decode", LARGEST, "java", "decode", 0.6)
    for name in ("updatemetadata-5-100x100", "leaderandisr-3-100x100"):
        yield _goal("codec", "decode and read all", "decode+read", name, "kio", "decode+read", 0.45)
    for api in NEWEST:
        for op in ("decode", "encode"):
            yield _goal("one partition", op, op, f"{api}-1x1", "java", op, 1.0)
    another = key("kproto", "one more broker", f"{NEWEST[0]}-1x10000")
    yield Goal("one partition", "frame for one more broker", "", "ns", another, limit=1000)
    for name in EVERY_VERSION:
        yield _goal("versions", "encode", "encode", name, "go", "encode", 0.8)
        yield _goal("versions", "encode", "encode", name, "java", "encode", 0.3)
        yield _goal("versions", "decode to objects", "decode", name, "java", "decode", 0.6)
    yield from _memory()


def _newest(body: str, shape: str) -> Iterator[Goal]:
    yield _goal("codec", "decode to objects", "decode", body, "java", "decode", _OBJECTS[shape])
    yield _goal("codec", "decode to Arrow columns", "columns", body, "java", "decode", _COLUMNS[shape])
    limit = 0.45 if body == "leaderandisr-7-1x10000" else 0.5
    yield _goal("codec", "decode and read all", "decode+read", body, "kio", "decode+read", limit)
    yield _goal("codec", "encode", "encode", body, "go", "encode", 0.8)
    yield _goal("codec", "encode", "encode", body, "java", "encode", 0.3)
    yield _goal("codec", "encode from columns", "encode-columns", body, "go", "encode", 0.6)


def _memory() -> Iterator[Goal]:
    case = f"{KEPT:,} partitions"
    java = key("java", "kept", str(KEPT))
    for what, op, limit in (("objects", "kept-objects", 120), ("Arrow columns", "kept-columns", 70)):
        ours = key("kproto", op, str(KEPT))
        yield Goal("memory", f"kept as {what}", case, "bytes", ours, limit=limit)
        yield Goal("memory", f"kept as {what} beside Java", case, "bytes", ours, java, "Java")
    for n in GROWTH:
        yield Goal("growth", "decode to objects", f"{n:,} partitions", "ns", key("kproto", "growth", str(n)))
    for n in GROWTH[1:]:
        yield Goal(
            "growth", "cost over that at 10,000 partitions", f"{n:,} partitions", "ns", key("kproto", "growth", str(n)),
            key("kproto", "growth", str(GROWTH[0])), "at 10,000", 1.3,
        )  # fmt: skip


def _goal(group: str, what: str, op: str, body: str, peer: str, peer_op: str, limit: float) -> Goal:
    return Goal(group, what, body, "ns", key("kproto", op, body), key(peer, peer_op, body), PEERS[peer], limit)


def measured(who: str) -> set[tuple[str, str]]:
    """The (op, body) whose figures some row wants of a program."""
    keys = {each for goal in goals() for each in (goal.ours, goal.theirs) if each}
    parts = (each.split(" ", 1) for each in keys)
    found = {(rest.rpartition(" ")[0], rest.rpartition(" ")[2]) for program, rest in parts if program == who}
    return {(op, body) for op, body in found if "x" in body}
