"""The rows of the codec's tables and their limits. Standard library only: kio's and kproto's programs ask it too."""

from __future__ import annotations

from dataclasses import replace
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

PARSE = "parse and check, rows on demand"
READ_ALL = "decode and read every field"
KEPT_AS = (
    ("parsed bytes, rows on demand", "kept-objects", 120),
    ("objects with every row and list held", "kept-rows", None),
    ("Arrow columns", "kept-columns", 70),
)
"""How an UpdateMetadata is kept, the operation that measures it, and its limit in bytes."""

_READ = {"1x10000": (0.45, 2.0), "500x20": (0.35, 2.2), "2000x5": (0.45, 3.3), "100x100": (0.35, 2.2)}
"""Limits of decoding and reading, beside kio and beside the loop alone: a call for each field, and its value made."""
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
    yield _goal("codec", PARSE, "decode", LARGEST, "java", "decode", 0.6)
    for name in ("updatemetadata-5-100x100", "leaderandisr-3-100x100"):
        yield from _read_all(name)
    for api in NEWEST:
        for op in ("decode", "encode"):
            yield _goal("one partition", op, op, f"{api}-1x1", "java", op, 1.0)
    another = key("kproto", "one more broker", f"{NEWEST[0]}-1x10000")
    yield Goal("one partition", "frame for one more broker", "", "ns", another, limit=1000)
    for name in EVERY_VERSION:
        yield _goal("versions", "encode", "encode", name, "go", "encode", 0.8)
        yield _goal("versions", "encode", "encode", name, "java", "encode", 0.3)
        yield _goal("versions", PARSE, "decode", name, "java", "decode", 0.6)
    yield from _memory()


def _newest(body: str, shape: str) -> Iterator[Goal]:
    yield _goal("codec", PARSE, "decode", body, "java", "decode", _OBJECTS[shape])
    yield _goal("codec", READ_ALL, "decode+read", body, "java", "decode+read", None)
    yield from _read_all(body)
    yield _goal("codec", "decode to Arrow columns", "columns", body, "java", "decode", _COLUMNS[shape])
    yield _goal("codec", "encode", "encode", body, "go", "encode", 0.8)
    yield _goal("codec", "encode", "encode", body, "java", "encode", 0.3)
    yield _goal("codec", "encode from columns", "encode-columns", body, "go", "encode", 0.6)


def _read_all(body: str) -> Iterator[Goal]:
    """Decoding and reading all beside kio, and beside reading alone where the objects are there already."""
    beside_kio, beside_reading = _READ[body.rpartition("-")[2]]
    yield _goal("codec", READ_ALL, "decode+read", body, "kio", "decode+read", beside_kio)
    found = _goal("codec", READ_ALL, "decode+read", body, "kio", "read", beside_reading)
    yield replace(found, peer="reading finished objects")


def _memory() -> Iterator[Goal]:
    case = f"{KEPT:,} partitions"
    java = key("java", "kept", str(KEPT))
    for what, op, limit in KEPT_AS:
        ours = key("kproto", op, str(KEPT))
        yield Goal("memory", f"kept as {what}", case, "bytes", ours, limit=limit)
        yield Goal("memory", f"kept as {what} beside Java", case, "bytes", ours, java, "Java")
    for n in GROWTH:
        yield Goal("growth", PARSE, f"{n:,} partitions", "ns", key("kproto", "growth", str(n)))
    for n in GROWTH[1:]:
        yield Goal(
            "growth", "cost over that at 10,000 partitions", f"{n:,} partitions", "ns", key("kproto", "growth", str(n)),
            key("kproto", "growth", str(GROWTH[0])), "at 10,000", 1.3,
        )  # fmt: skip


def _goal(group: str, what: str, op: str, body: str, peer: str, peer_op: str, limit: float | None) -> Goal:
    return Goal(group, what, body, "ns", key("kproto", op, body), key(peer, peer_op, body), PEERS[peer], limit)


def measured(who: str) -> set[tuple[str, str]]:
    """The (op, body) whose figures some row wants of a program."""
    keys = {each for goal in goals() for each in (goal.ours, goal.theirs) if each}
    parts = (each.split(" ", 1) for each in keys)
    found = {(rest.rpartition(" ")[0], rest.rpartition(" ")[2]) for program, rest in parts if program == who}
    return {(op, body) for op, body in found if "x" in body}
