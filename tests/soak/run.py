"""Soaks the real thing: ``make soak MINUTES=60``, or with ``SEED=n`` the faults of an earlier run again.

A real ZooKeeper, two candidates of ``kproto controller``, fifty simulated brokers over TLS and SASL behind taps, and
``kproto analyze --follow`` on the recordings; an administrator changes topics throughout, while faults come that the
seed decides. At the end all faults are over, the cluster comes to rest, and everything is compared.
"""

import argparse
import contextlib
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    for _folder in ("tests", "benches"):
        sys.path.insert(0, str(Path(__file__).parents[2] / _folder))

from network_namespace import NetworkNamespace

import kproto.tables
from kproto.tables.filters import Filters
from soak import checks, faults, real
from soak.packets import Packets
from soak.processes import CONTROLLERS, Soak
from soak.work import Administrator

REST_S: Final = 60
"""How long the cluster may take to come to rest when the faults are over."""

ALLOWED: Final = {"note", "KP014", "KP016", "KP020", "KP022", "KP023", "KP032", "KP034"}
"""Findings that the faults may lead to, beside those that :func:`required` names."""

EXPLAINED: Final[list[re.Pattern[str]]] = [
    re.compile(text)
    for text in (
        r"preferred replicas that do not lead",  # they lead already, are away, or their topic is deleted
        r"refusing \w+ of controller \d+ .*: controller epoch \d+ has ended",
        r"ZooKeeper refused a request: SessionExpiredError",
        r"^(relaying|recording to|relayed|\d+ brokers? listening|shutting down)",
        r"could not be established; the node may be down",
        r"broker \d+(:| cannot read) settings",  # it is asked for them while ZooKeeper is silent
        r"has no connection to .* failed\.$",
        r"ended during authentication: a firewall may block it",
        r"could not send .*(RequestTimeout|Disconnected)",
        r"no ZooKeeper answers at \S+ yet; still trying, for \d+ s$",
        r"the connection to ZooKeeper at \S+ is lost; trying to reach it again",
        r"ZooKeeper session 0x\w+ has expired",
        r"not sending \w+ from controller .* is offline",
        r"cannot become Online: no replica may lead it",
        r"refused( \w+)?: STALE_(BROKER|CONTROLLER)_EPOCH",
        r"the ISR of \S+ is not changed: its state has changed since",
        r"cannot become New: it is (New|Online|Offline)",  # a reassignment goes on, as in Kafka
        r"cannot become DeletionIneligible: it is (New|Online|DeletionSuccessful)",  # its broker went, as in Kafka
        r"cannot become Online: it is DeletionSuccessful",  # its broker is back too early, as in Kafka
        r"cannot become DeletionSuccessful: it is NonExistent",  # a reassignment has removed it before, as in Kafka
        r"cannot become DeletionSuccessful: it is DeletionIneligible",  # its broker went as it answered, as in Kafka
        r"have a leader that is not among the live brokers and stay without a fetcher",  # which comes up later
        r"no reassignment of \S+ to .*: UNKNOWN_TOPIC_OR_PARTITION$",  # its topic is being deleted
        r"while processing .*: the ZooKeeper session has expired",
        r"is ended: (the TLS handshake was cut off|the peer closed the connection during the TLS handshake)",
        r"broker \d+ is removed: \d+ requests? will not be answered",
        r"^the connection of \S+ to \S+ is ended: \[Errno (104|111|110|32)\]",
        r"^\d+ connections?, [\d,]+ bytes: \d+ files?$",
        r"^(WARNING )?\d+ lines like the next were left out$",  # a flood of lines is judged by those that are there
        r"left though (the controller did not answer|there is no controller)",  # which ends before them
    )
]
"""What logs may say, as the faults lead to it."""

OFTEN: Final = 4
"""So often controllers end in a soak whose doctor may say that they were replaced, and registered again, often."""

MANY: Final = 100
"""So many pieces that a connection that goes on behind them lacks some."""

STRAY: Final = "KP041"
"""A controller that ends amid a reassignment, after the new replicas are in ZooKeeper, never deletes the old ones."""

SABOTAGED: Final[list[re.Pattern[str]]] = [
    re.compile(text)
    for text in (
        r"ended by an error",
        r"has died\b",
        r"takes no tasks any more",
        r"no broker can ask its controller any more",
        r"has ended by itself: .*; start it again",
        r"can't start new thread",
        r"the handler of \S+ failed; closing",  # its worker has died, or gets no thread
        r"no thread for the pause",
        r"while processing SendThreadFailed",
        r"error while processing",
        r"could not clean up at its end",
    )
]
"""What controllers may say one of whose threads has died, or whom the system gave none."""

FULL_DISK: Final[list[re.Pattern[str]]] = [
    re.compile(text)
    for text in (
        r"^recording to \S+ has ended: \[Errno 28\] No space left on device$",
        r"^the recording goes on in \S+; so far \d+ frames are missing$",
        r"the recording is incomplete, [\d,]+ pieces? could not be written; make room and start again$",
    )
]
"""What taps may say whose disks were full."""


def parsed() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long there are faults (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="that of an earlier run; fresh by default")
    parser.add_argument("--brokers", type=int, default=50, help="how many (default: %(default)s)")
    parser.add_argument("--faults", help="only these kinds, with commas between them")
    parser.add_argument("--real", action="store_true", help="three brokers of Kafka 3.9.1, without taps and tables")
    parser.add_argument("--control", action="store_true", help="the same, led by Kafka's own controller")
    parser.add_argument("--out", type=Path, default=Path("out/soak"), help="where everything goes")
    return parser.parse_args()


class Run:
    """One soak.

    Args:
        soak: The processes.
        administrator: Who changes topics.
    """

    def __init__(self, soak: Soak, administrator: Administrator) -> None:
        self.soak, self.administrator = soak, administrator
        self.began = time.monotonic()
        self.made: list[tuple[faults.Fault, str]] = []
        # A controller that comes to lead has two connections to each broker.
        self.resources = checks.Resources(soak.programs, connections=2 * len(soak.ids))
        self.wrong: list[str] = []

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"{time.monotonic() - self.began:8.1f} s  {text}", flush=True)

    def through(self, drawn: list[faults.Fault], packets: Packets, seconds: float) -> None:
        """Make the faults, and look at each process once it is warm."""
        for fault in drawn:
            time.sleep(fault.pause_s)
            if time.monotonic() - self.began > seconds:
                break
            self.resources.look()
            victim = faults.make(self.soak, packets, fault)
            self.made.append((fault, victim))
            self.say(f"{fault.name} {victim}")
        time.sleep(max(0.0, seconds - (time.monotonic() - self.began)))
        self.resources.look()

    def check(self, name: str, wrong: Any) -> None:
        """Note what a check found."""
        found = list(wrong)
        self.wrong += found
        self.say(f"{name}: {'as it must be' if not found else f'{len(found)} WRONG'}")
        for line in found[:10]:
            print(f"            {line}", flush=True)

    def check_resources(self) -> None:
        """Tell what each process takes, and whether it has grown."""
        self.resources.look()
        grown = []
        for told, found in self.resources.compared():
            self.say(told)
            grown += found
        self.check("memory, threads, descriptors", grown)

    def end(self) -> None:
        """Wait until the cluster is at rest, end the processes in order, and compare."""
        soak = self.soak
        self.administrator.end()
        self.check("administrator", [f"it failed: {self.administrator.error!r}"] if self.administrator.error else [])
        self.check("answers while ZooKeeper is silent, and of the controller to changes", soak.wrong)
        try:
            soak.wait_for(lambda: not list(checks.unsettled(soak)), "the cluster comes to rest", REST_S)
        except TimeoutError:
            self.check("rest", checks.unsettled(soak))
            raise
        self.say("the cluster is at rest")
        with contextlib.suppress(TimeoutError):  # the check tells who does not
            soak.wait_for(lambda: not list(checks.differing_brokers(soak)), "every broker knows what ZooKeeper has", 60)
        self.check("brokers against ZooKeeper", checks.differing_brokers(soak))
        self.check_resources()
        with contextlib.suppress(TimeoutError):  # the check at the end tells who was told something else
            soak.wait_for(lambda: not list(checks.Journal(soak).sequences_differ()), "every update is answered", 60)
        codes = {}
        # The candidate that does not lead ends first: it would be elected, and end in the midst of its first updates.
        leader = faults.leader(soak)
        others = (program for program in soak.controllers if program is not leader)
        for program in filter(None, (*others, leader, *soak.taps, *soak.groups)):
            codes[program.name] = program.end()
        soak.disks.end()
        taps = {tap.name for tap in soak.taps}
        self.check(
            "exit codes", [f"{name} ended with {code}" for name, code in codes.items() if code and name not in taps]
        )
        self.check("what full disks could not hold", checks.miscounted(soak, codes))
        journal = checks.Journal(soak)
        recorded = kproto.tables.read(soak.recordings, filters=Filters(broker_ids=soak.addresses))
        self.check("once and in order", journal.out_of_order())
        self.check("the same to every broker", journal.sequences_differ())
        self.check("recordings against the brokers' journal", checks.missing_frames(soak, journal, recorded))
        self._wait_for_tables(recorded)
        soak.analyze.end(signal.SIGINT)
        self.check("tables against the recordings", checks.tables_differ(soak, recorded))
        self.check_findings()
        for program in soak.programs:
            explained = list(EXPLAINED)
            if program.name in {hole.tap for hole in soak.disks.holes}:
                explained += FULL_DISK
            if any(fault.name in faults.SABOTAGE and victim.endswith(program.name) for fault, victim in self.made):
                explained += SABOTAGED
            self.check(f"log of {program.name}", checks.log_lines(program, explained))
        self.say(
            f"{len(journal):,} control requests, {len(journal.controller_epochs)} controller epochs, "
            f"{sum(self.administrator.done.values())} changes ({_shown(self.administrator.done)}; "
            f"refused: {_shown(self.administrator.refused) or 'none'})"
        )

    def _wait_for_tables(self, recorded: dict[str, Any]) -> None:
        with contextlib.suppress(TimeoutError):  # the check tells what is missing
            self.soak.wait_for(lambda: not list(self._tables_differ(recorded)), "the tables are complete", 90)

    def _tables_differ(self, recorded: dict[str, Any]) -> list[str]:
        try:
            return list(checks.tables_differ(self.soak, recorded))
        except Exception as e:
            return [repr(e)]

    def check_findings(self) -> None:
        """Compare the doctor's findings with the faults."""
        found = checks.findings(self.soak)
        rules = Counter(finding["rule"] for finding in found)
        self.say(f"the doctor: {_shown(rules)}")
        ends = sum(fault.name in faults.CONTROLLER_ENDS for fault, _victim in self.made)
        wrong = [
            f"{finding['rule']} {finding['severity']}: {finding['text']}"
            for finding in found
            if not ALLOWED & {finding["severity"], finding["rule"]}
            and not (finding["rule"] == STRAY and finding["partition"] is not None and ends)
            and not (finding["rule"] == "KP008" and ends >= OFTEN)
            and not (finding["rule"] == "KP038" and finding["broker_id"] in CONTROLLERS and ends >= OFTEN)
            and not (finding["rule"] == "KP061" and self.soak.disks.holes)
        ]
        registered = {finding["broker_id"] for finding in found if finding["rule"] == "KP035"}
        for fault, victim in self.made:
            if fault.name == "kill-brokers":
                ids = set(self.soak.ids_of(next(g for g in self.soak.groups if g.name == victim)))
                if missing := ids - registered:
                    wrong.append(f"{victim} was killed, and KP035 is missing for brokers {sorted(missing)}")
        for tap in self.soak.taps:
            lost = checks.lost_pieces(tap)
            if lost > MANY and checks.has_gap(self.soak, tap) and not rules["KP061"]:
                wrong.append(f"{tap.name} could not hold {lost} pieces, and KP061 is missing")
        self.check("findings", wrong)


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def main() -> int:
    """Run a soak; 1 if anything is wrong."""
    options = parsed()
    seed = options.seed if options.seed is not None else time.time_ns() // 1_000_000 % 10**9
    form = " CONTROL=1" if options.control else " REAL=1" if options.real else ""
    again = f"make soak{form} MINUTES={options.minutes:g} SEED={seed}"
    print(f"soak: repeat with {again}", flush=True)
    if form:
        folder = (options.out / f"real-{seed}").absolute()
        return finished(*real_brokers(options, seed, folder), folder, again)
    if missing := NetworkNamespace.missing():
        print(f"soak: {missing}", file=sys.stderr)
        return 2
    folder = (options.out / str(seed)).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    drawn = faults.draw(seed, options.minutes * 60)
    if options.faults is not None:
        drawn = [fault for fault in drawn if fault.name in options.faults.split(",")]
    with NetworkNamespace():
        packets = Packets(seed)
        with Soak(folder, options.brokers) as soak:
            for name, missing in ("reorder-packets", packets.missing), ("fill-disk", soak.disks.missing):
                if missing is not None:
                    print(f"soak: no {name}: {missing}", flush=True)
                    drawn = [fault for fault in drawn if fault.name != name]
            administrator = Administrator(soak, seed)
            run = Run(soak, administrator)
            administrator.start()
            try:
                run.through(drawn, packets, options.minutes * 60)
                run.check("packets", packets.wrong())
                run.end()
            except Exception as e:
                traceback.print_exc()
                run.wrong.append(repr(e))
    return finished(len(run.made), run.wrong, folder, again)


def real_brokers(options: argparse.Namespace, seed: int, folder: Path) -> tuple[int, list[str]]:
    """Soak real brokers; gives the number of faults, and what is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return real.run(folder, seed, options.minutes * 60, led=not options.control, explained=EXPLAINED)
    except Exception as e:
        traceback.print_exc()
        return 0, [repr(e)]


def finished(made: int, wrong: list[str], folder: Path, again: str) -> int:
    """Tell the result, and give the exit code; the files of a run in which something is wrong are kept."""
    if wrong:
        print(f"soak: {len(wrong)} WRONG; see {folder}; repeat with {again}")
        return 1
    shutil.rmtree(folder)
    print(f"soak: {made} faults, nothing wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
