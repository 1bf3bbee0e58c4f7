"""Compares what the doctor finds in generated fleets with the truth of their planted faults.

    python tests/fleet_faults.py --seeds 300 [--first N]     every fleet whole, split by hosts, rotated and with losses

Each seed decides a fleet: its size, versions, migration, disturbances, and the faults that are planted.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import kproto.tables
from kproto.generate import PlannedFleet, findings_truth, write_captures
from kproto.generate.plants import PLANTS, chosen
from kproto.generate.plants import PlantedFinding as Wanted
from kproto.verdicts.doctor import Finding
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "split": {"per_host": True},
    "rotated": {"rotate_bytes": 200_000, "mss": 500},
}
"""How a fleet's capture is cut into files."""

FLEETS = {
    902: ("meant-for-earlier-registration", "behind", "two-leaders", "two-controllers-in-one-epoch"),
    905: ("no-leader", "leader-epoch-used-twice", "leader-flapping"),
    340658: ("missed-update", "deletion-waiting", "dual-write-ended", "behind"),
    910: ("zombie-controller-refused", "partition-error-not-put-right", "behind", "deletion-waiting"),
}
"""Fleets that are looked at through windows: planted faults by seed."""

LOSS = 0.001
"""Share of frames that the capture misses in the fleets with loss."""


def fleet_of(seed: int, plants: tuple[str, ...] = ()) -> PlannedFleet:
    """Return the fleet of a seed, with up to four planted faults, or with those of an earlier draw."""
    random = Random(seed)
    protocol: Any = random.choice(["3.9", "3.9", "2.4"])
    drawn = random.randint(1, 4)
    plants = plants or chosen(drawn, seed, protocol)
    migration = protocol == "3.9" and random.random() < 0.3
    if migration:
        plants = tuple(name for name in plants if not PLANTS[name].needs_zookeeper or not PLANTS[name].is_last)
    slow = "slow-broker" in plants
    return PlannedFleet(
        seed=seed,
        brokers=random.randint(6, 10),
        topics=24,
        partitions=random.choice([48, 72, 96]),
        failovers=random.randint(0, 2),
        restarts=random.randint(0, 2),
        zombies=0,
        elections=random.randint(0, 8),
        isr_changes=160 if slow else random.randint(5, 25),
        batch=random.randint(1, 8),
        deletions=random.randint(0, 2),
        loss=random.choice([0.0, 0.0, 0.01]),
        protocol=protocol,
        migration=migration,
        plants=plants or ("missed-update",),
    )


def found_in(fleet: PlannedFleet, **options: Any) -> list[Finding]:
    """What the doctor finds in the capture of a fleet."""
    with tempfile.TemporaryDirectory() as directory:
        write_captures(fleet, Path(directory), **options)
        return findings(Facts([kproto.tables.read(directory)]), {"min-isr": 2, "reassigning": 60})


def fits(wanted: Wanted, found: Finding) -> bool:
    """Whether a finding is about what was planted; None in a wanted finding stands for anything."""
    return (
        wanted.rule == found.rule
        and wanted.broker_id in (None, found.broker)
        and wanted.topic in (None, found.topic)
        and (wanted.partition is None or found.partition in (None, wanted.partition))
    )


@dataclass
class Score:
    """How many planted findings came, and what came besides."""

    required: int = 0
    found: int = 0
    uncertain: int = 0
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, fleet: PlannedFleet, way: str, found: list[Finding]) -> None:
        """Compare the findings of a fleet with its truth."""
        truth = findings_truth(fleet)
        required = truth.required + truth.under_min_isr
        for wanted in required:
            fitting = [finding for finding in found if fits(wanted, finding)]
            self.required += 1
            self.found += any(not finding.cannot_tell for finding in fitting)
            self.uncertain += bool(fitting) and all(finding.cannot_tell for finding in fitting)
            if not fitting:
                self.missing.append(f"seed {fleet.seed} {way} {fleet.plants}: {wanted}")
        expected = required + truth.allowed
        for finding in found:
            if finding.severity != "note" and not any(fits(wanted, finding) for wanted in expected):
                self.wrong.append(f"seed {fleet.seed} {way} {fleet.plants}: {finding.rule} {finding.text}")


def score(seeds: range) -> dict[str, Score]:
    """Return the scores of fleets by the way in which their captures are cut."""
    scores = {way: Score() for way in [*WAYS, "lossy"]}
    for seed in seeds:
        fleet = fleet_of(seed)
        for way, options in WAYS.items():
            scores[way].add(fleet, way, found_in(fleet, **options))
        lossy = replace(fleet, capture_loss=LOSS)
        scores["lossy"].add(lossy, "lossy", found_in(lossy))
    return scores


def main() -> None:
    """Print the scores of many seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    scores = score(range(options.first, options.first + options.seeds))
    for way, one in scores.items():
        print(
            f"{way}: {one.found} of {one.required} found, {one.uncertain} more uncertain, {len(one.missing)} missing, "
            f"{len(one.wrong)} wrong"
        )
        for line in [*one.missing, *one.wrong][:40]:
            print("   ", line)
    rules = Counter(
        wanted.rule
        for seed in range(options.first, options.first + options.seeds)
        for planted in findings_truth(fleet_of(seed)).planted
        for wanted in planted.required
    )
    print("planted:", ", ".join(f"{rule} {count}" for rule, count in sorted(rules.items())))
    sys.exit(any(one.wrong or (way != "lossy" and one.missing) for way, one in scores.items()))


if __name__ == "__main__":
    main()
