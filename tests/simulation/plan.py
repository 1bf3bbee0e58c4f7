"""What a run does: faults and work with their times, drawn from a seed."""

import random
from dataclasses import dataclass

__all__ = ["Action", "Plan", "Result", "draw_plan"]

FAULTS = (
    "kill", "kill", "crash", "pause", "pause", "pause controller", "reset", "reset", "stall", "cut off", "slow network",
    "early answer",
    "answer before request", "unsolicited answer", "close fails", "intercept", "intercept", "product kill", "jump",
)  # fmt: skip
SECURITY = ("PLAINTEXT", "PLAINTEXT", "PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
CLIENT_FAULTS = ("pause client", "reset client", "stall client", "cut off client", "wrong answer")
ELECTION_FAULTS = (
    "kill candidate", "kill candidate", "close candidate", "close candidate", "pause candidate", "pause candidate",
    "kill broker", "kill broker", "pause broker", "expire", "expire", "lose ZooKeeper", "ZooKeeper away", "reset",
    "stall", "cut off", "slow network", "intercept", "jump",
)  # fmt: skip
WORK = {
    "scripted": ("create", "create", "elect", "elect", "elect", "elect", "reassign", "delete", "announce", "burst"),
    "channels": (
        "send", "send", "send", "send", "burst", "add", "remove", "remove and add", "callback raises",
        "callback adds a broker", "callback sends", "callback blocks", "thread dies",
    ),
    "election": ("create", "create", "elect", "elect", "reassign", "reassign", "add partitions", "delete"),
}  # fmt: skip


@dataclass(frozen=True)
class Action:
    """One fault or piece of work of a plan.

    Attributes:
        at_s: When, in virtual s.
        kind: What is done.
        draws: Numbers from 0 to 1, which decide to whom and for how long.
    """

    at_s: float
    kind: str
    draws: tuple[float, float, float]

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault."""
        return self.kind in FAULTS or self.kind in CLIENT_FAULTS or self.kind in ELECTION_FAULTS


@dataclass(frozen=True)
class Plan:
    """All that a run does.

    Attributes:
        kind: Who sends: ``scripted``, a scripted controller; ``channels``, callers of a channel manager;
            ``election``, the elected one of several candidates; ``clients``, a scripted controller beside clients, over
            TLS and SASL, that may migrate to KRaft.
        seed: The seed that it was drawn from.
        order: Decides the order of tasks, latencies and cuts.
        brokers: How many brokers there are.
        ibp: ``inter.broker.protocol.version``.
        send_threads: The number of send threads, or ``per_broker``.
        preemption: How likely a thread gives way at a lock, and at an access to what one guards.
        checks_locks: Whether the order in which locks are taken is checked, which takes a fifth of the time.
        security: The security protocol of all listeners.
        mechanism: The SASL mechanism.
        is_migration: Whether a KRaft controller takes over in the midst of the work.
        length_s: The virtual time of faults and work.
        actions: The faults and the work, by time.
    """

    kind: str
    seed: int
    order: int
    brokers: int
    ibp: str
    send_threads: str
    preemption: float
    checks_locks: bool
    security: str
    mechanism: str
    is_migration: bool
    length_s: float
    actions: tuple[Action, ...]


@dataclass
class Result:
    """The outcome of a run."""

    plan: Plan
    problems: list[str]
    events: list[tuple[int, str]]
    steps: int
    virtual_s: float
    frames: int
    faults: int


def draw_plan(seed: int, kind: str | None = None) -> Plan:
    """Draw a plan, of this kind, by default of one that the seed decides."""
    chance = random.Random(seed)
    kind = kind or ("election" if seed % 5 == 4 else "channels" if seed % 3 == 2 else "scripted")
    faults = {"election": ELECTION_FAULTS, "clients": FAULTS + CLIENT_FAULTS}.get(kind, FAULTS)
    length = chance.choice((15.0, 30.0, 60.0))
    brokers = chance.choice((3, 3, 4, 5, 6, 9))
    actions = []
    at = 1.0
    while at < length:
        actions.append(
            Action(
                at,
                chance.choice(WORK["scripted" if kind == "clients" else kind]),
                (chance.random(), chance.random(), chance.random()),
            )
        )
        at += chance.expovariate(1 / (0.15 if kind == "channels" else 0.8))
    at = chance.uniform(1.5, 8)
    while at < length:
        actions.append(Action(at, chance.choice(faults), (chance.random(), chance.random(), chance.random())))
        at += chance.expovariate(1 / chance.choice((3.0, 8.0)))
    ibp = chance.choice(("3.9", "3.9", "2.8", "2.4", "1.1", "0.10.0", "0.8.2"))
    send_threads, preemption = chance.choice(("1", "2", "per_broker")), chance.choice((0.0, 0.02, 0.2))
    security, mechanism = chance.choice(SECURITY), chance.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))
    is_migration = kind == "clients" and ibp == "3.9" and chance.random() < 0.5
    if is_migration:
        actions.append(Action(length * chance.uniform(0.2, 0.8), "migrate", (0.0, 0.0, 0.0)))
    return Plan(
        kind,
        seed,
        seed,
        brokers,
        ibp,
        send_threads,
        preemption,
        seed % 4 == 0,
        security if kind == "clients" and ibp != "0.8.2" else "PLAINTEXT",  # older brokers know no other
        mechanism,
        is_migration,
        length,
        tuple(sorted(actions, key=lambda action: action.at_s)),
    )
