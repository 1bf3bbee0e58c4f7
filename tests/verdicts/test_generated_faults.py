"""The doctor finds every planted fault of generated fleets, and nothing but what the truth requires or allows."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from fleet_faults import LOSS, Score, fits, fleet_of, found_in, score

from kproto.generate import PlannedFleet, findings_truth
from kproto.generate.plants import PLANTS

FEW = 3
"""Fleets of fresh seeds; ``tests/fleet_faults.py --seeds 300`` takes more."""


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("protocol", ["3.9", "2.4"])
def test_each_planted_fault_is_found_and_nothing_else(name: str, protocol: str) -> None:
    if protocol not in PLANTS[name].protocols:
        return
    fleet = PlannedFleet(
        seed=2, brokers=6, topics=20, partitions=60, isr_changes=160 if name == "slow-broker" else 15, elections=4,
        batch=5, protocol=protocol, plants=(name,),
    )  # fmt: skip
    result = Score()
    result.add(fleet, "whole", found_in(fleet))
    assert result.required
    assert (result.missing, result.wrong) == ([], [])
    assert result.found == result.required


@pytest.mark.slow
def test_fleets_of_fresh_seeds_are_judged_right_whole_split_rotated_and_with_losses() -> None:
    first = secrets.randbelow(1_000_000)
    print(f"seeds {first} to {first + FEW - 1}: PYTHONPATH=tests python tests/fleet_faults.py --first {first}")
    scores = score(range(first, first + FEW))
    for way in ("whole", "split", "rotated"):
        assert (scores[way].missing, scores[way].wrong) == ([], []), way
        assert scores[way].found == scores[way].required, way
    lossy = scores["lossy"]
    assert lossy.found >= 0.9 * lossy.required


def test_a_healthy_fleet_has_no_findings_but_of_its_own_history() -> None:
    fleet = PlannedFleet(
        seed=8, brokers=6, topics=10, partitions=30, elections=0, isr_changes=4, migration=True, restarts=2
    )
    truth = findings_truth(fleet)
    for finding in found_in(fleet):
        if finding.severity != "note" and finding.rule != "KP034":  # one broker of a fleet without faults is slow
            assert any(fits(wanted, finding) for wanted in truth.required + truth.allowed + truth.under_min_isr)


def test_seeds_choose_all_faults() -> None:
    assert {name for seed in range(200) for name in fleet_of(seed).plants} == set(PLANTS)


@pytest.mark.parametrize(
    ("seed", "plants", "loss"),
    [
        # the connection of a broker that was behind broke afterwards
        (73533, ("isr-or-leader-not-alive", "behind", "no-leader"), 0.0),
        # a connection broke before an update that came late
        (85182, ("sent-again", "told-late", "controller-epoch-went-back", "unanswered"), 0.0),
        # a broker that a migration left behind was told a single partition later
        (
            85089,
            ("two-controllers-in-one-epoch", "migration-broker-left-behind", "partition-error-not-put-right"),
            0.0,
        ),
        # a controller told everybody everything after a broker was behind
        (61164, ("behind", "dual-write-ended"), 0.0),
        # bytes were missing just after the update that a broker seemed to have missed
        (136, ("unanswered", "leader-flapping", "registered-again", "two-leaders"), LOSS),
        # a deletion's answer was the last packet of its connection, and is missing
        (61348, ("behind",), LOSS),
    ],
)
def test_fleets_that_were_judged_wrong_are_judged_right(seed: int, plants: tuple[str, ...], loss: float) -> None:
    fleet = replace(fleet_of(seed, plants), capture_loss=loss)
    result = Score()
    result.add(fleet, "whole", found_in(fleet))
    assert (result.missing, result.wrong) == ([], [])
