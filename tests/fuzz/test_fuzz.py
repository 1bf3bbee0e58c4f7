"""A bounded part of the fuzzing, the same in every run; ``python -m fuzz.run`` is the unbounded one."""

import random
import re

import pytest
from answers import difference
from conftest import few
from fuzz.run import bend, plain
from fuzz.targets import TARGETS, corpus, known_divergences, seeds, told

RUNS = {
    "decode": 8000,
    "cold": 4000,
    "columns": 10000,
    "framing": 10000,
    "capture": 500,
    "log": 800,
    "states": 400,
    "packet": 1500,
    "pasted": 3000,
    "effort": 120,
    "metadata": 300,
}


@pytest.mark.parametrize("target", few(TARGETS, 2))
def test_nothing_is_found(target: str) -> None:
    assert plain(target, RUNS[target], 120.0, seed=20_26) >= RUNS[target]


@pytest.mark.parametrize("target", TARGETS)
def test_what_earlier_runs_kept(target: str) -> None:
    for data in corpus(target):
        TARGETS[target](data)


def test_known_divergences_still_differ() -> None:
    """When this fails the two agree again: take the line out of ``known_divergences.jsonl``."""
    for each in known_divergences():
        question = (each["api"], each["version"], each["kind"], bytes.fromhex(each["hex"]), each["strict"])
        found = difference(told("cython", *question), told("construct", *question))
        assert re.search(each["difference"], found), each["why"]


def test_a_target_finds_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec that answers wrongly is caught: here one that takes what the other refuses."""
    import fuzz.targets as targets

    wrong = targets.told

    def bribed(name: str, *question: object) -> dict[str, object]:
        return {"accept": True} if name == "construct" else wrong(name, *question)

    monkeypatch.setattr(targets, "told", bribed)
    with pytest.raises(targets.Finding):
        targets.decode(b"\0\0")


def test_bending_is_repeatable() -> None:
    begin = seeds("framing")

    def bent() -> list[bytes]:
        rng = random.Random(7)
        return [bend(begin[1], rng, begin) for _ in range(50)]

    assert bent() == bent()
    assert len(set(bent())) > 40
