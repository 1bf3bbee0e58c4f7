"""Compares both codecs with Kafka's own classes, which make questions and answer them.

``tools/oracle`` writes random and bent messages of an API with Java's verdicts to a file; ``compare`` holds each codec
to every line. ``REPORT`` counts the questions.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from answers import answer, difference, encode, from_json, recorded, short

from kproto.api import CONTROL_APIS, api_name
from kproto.codec import Implementation, get_codec
from kproto.errors import EncodeError, KprotoError

__all__ = ["REPORT", "SEED", "compare", "implementations", "questions"]

SEED = int(os.environ.get("KPROTO_ORACLE_SEED", str(time.time_ns() % 10**9)))
"""New in every run; the summary names it, and the variable brings a run back."""


def questions() -> int:
    """How many questions a whole run asks, at least."""
    return int(os.environ.get("KPROTO_ORACLE_QUESTIONS", "20000"))


def implementations(api: int) -> tuple[Implementation, ...]:
    """The codecs that speak an API; -1 stands for the headers."""
    return ("cython", "construct") if api in CONTROL_APIS or api == -1 else ("construct",)


@dataclass
class Report:
    """Counts over the whole run."""

    asked: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    mutants: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    different: int = 0

    def add(self, tally: Report) -> None:
        for name in ("asked", "mutants", "accepted", "other", "answered"):
            getattr(self, name).update(getattr(tally, name))
        self.different += tally.different

    def lines(self) -> list[str]:
        total, bent, taken = self.asked.total(), self.mutants.total(), self.accepted.total()
        out = [
            f"{total:,} questions, {self.answered['cython']:,} answered by the extension and "
            f"{self.answered['construct']:,} by the reference: {self.different} differences (seed {SEED})",
            f"{bent:,} mutants, {taken / max(bent, 1):.1%} of which Java accepts; "
            + ", ".join(f"{count:,} {name}" for name, count in self.other.most_common()),
        ]
        for api in sorted({api for api, _, _ in self.asked}):
            name = api_name(api) if api >= 0 else "headers"
            for kind in sorted({k for a, _, k in self.asked if a == api}):
                counts = {v: n for (a, v, k), n in self.asked.items() if (a, k) == (api, kind)}
                out.append(f"{name} {kind}: " + ", ".join(f"v{v} {n:,}" for v, n in sorted(counts.items())))
        out.append("by mutation (asked, accepted by Java):")
        cells = [f"{name} {n:,}/{self.accepted[name]:,}" for name, n in sorted(self.mutants.items())]
        return out + ["  " + ", ".join(cells[i : i + 5]) for i in range(0, len(cells), 5)]


REPORT = Report()


def compare(lines: list[str]) -> tuple[Report, list[str]]:
    """Compare every codec that has the line's API with the line; return the counts, and the differences in words."""
    tally, wrong = Report(), []
    for text in lines:
        line = json.loads(text)
        api, version, kind = line["api"], line["version"], line["kind"]
        tally.asked[api, version, kind] += 1
        if "mutation" in line:
            tally.mutants[line["mutation"]] += 1
            tally.accepted[line["mutation"]] += line["accept"]
        else:
            tally.other["whole messages"] += 1
        data, expected = bytes.fromhex(line["hex"]), recorded(line)
        for name in implementations(api):
            codec = get_codec(name)
            tally.answered[name] += 1
            try:
                found = difference(answer(codec, api, version, kind, data), expected)
                if not found and line.get("unknown_tags") == 0:
                    written = encode(codec, kind, from_json(codec, api, kind, line["json"], version), version).hex()
                    found = "" if written == line["hex"] else f"from JSON: got {short(written)}"
            except Exception as e:
                found = f"{type(e).__name__}: {e}"
            if found:
                tally.different += 1
                wrong.append(
                    f"{name} {line['id']} {line.get('mutation', line.get('case'))} {short(line['hex'])}: {found}"
                )
    return tally, wrong


def written_as(api: int, kind: str, form: Any, json_version: int, version: int) -> list[tuple[str, str | None]]:
    """What each codec writes of a JSON form of another version: hex, or None where it refuses."""
    out: list[tuple[str, str | None]] = []
    for name in implementations(api):
        codec = get_codec(name)
        try:
            out.append((name, encode(codec, kind, from_json(codec, api, kind, form, json_version), version).hex()))
        except EncodeError:
            out.append((name, None))
        except KprotoError as e:
            out.append((name, f"{type(e).__name__}: {e}"))
    return out
