"""The fleet of simulated brokers that controllers are measured with, in a process of its own.

Run as a program it registers its brokers, then takes commands from standard input, one a line, and answers each with a
line of JSON: ``know N`` waits until every broker knows N partitions, ``forget N`` until none knows more than N,
``settle 0`` waits for no number, ``fail BROKER,...`` closes brokers' ports and deletes their id znodes. An answer comes
once no control request arrived for three seconds, and tells of the requests since the last.
All times are of the system's monotonic clock, which every process of the machine shares.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channel.broker.fleet import Fleet
from channel.zookeeper.session import ZooKeeperSession
from channel.zookeeper.znodes import broker_path
from kproto.api import CONTROL_APIS, api_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from channel.broker.hooks import RequestContext

QUIET_S = 3.0
PATIENCE_S = 600.0
LAG_MS = 3_600_000
"""Followers that are down stay in the ISR until the controller takes them out."""


class Answers:
    """The control requests that the brokers have answered."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._latest = time.monotonic()
        self._last: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def take(self, _: int, context: RequestContext) -> None:
        if context.api_key in CONTROL_APIS:
            name, self._latest = api_name(context.api_key), time.monotonic()
            self._last[name] = self._latest
            self._counts[name] += 1
            self._bytes[name] += context.size

    def settled(self) -> dict[str, Any]:
        """Wait until no request comes any more; gives the requests and the times of the last answers."""
        self.wait(lambda: bool(self._counts) and time.monotonic() - self._latest >= QUIET_S)
        return {"last": self._last, "requests": self._counts, "bytes": self._bytes}

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: It does not.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the brokers are not done: {dict(self._counts)}")
            time.sleep(0.01)


def serve(zookeeper: str, broker_ids: Sequence[int]) -> None:
    """Run the brokers, and take commands until standard input ends."""
    answers = Answers()
    with (
        Fleet(zookeeper, broker_ids, replica_lag_time_max_ms=LAG_MS) as fleet,
        ZooKeeperSession(zookeeper) as session,
    ):
        fleet.on_answered = answers.take
        print("{}", flush=True)
        for line in sys.stdin:
            word, number = line.split()
            began = time.monotonic()
            if word == "fail":
                answers.clear()
                failed = [int(broker_id) for broker_id in number.split(",")]
                for broker_id in failed:
                    fleet.kill(broker_id)
                began = time.monotonic()
                for broker_id in failed:  # as sessions expire: one after the other
                    session.delete(broker_path(broker_id))
                found = answers.settled()
            else:
                if word != "settle":
                    answers.wait(functools.partial(_all_know, fleet, int(number), most=word == "forget"))
                found = answers.settled()
            print(json.dumps({"began": began, **found}), flush=True)
            answers.clear()


def _all_know(fleet: Fleet, partitions: int, *, most: bool = False) -> bool:
    """Whether the metadata cache of every broker holds at least, or at most, this many partitions."""
    snapshots = [member.broker.metadata.snapshot for member in fleet if member.is_up]
    counts = [snapshot.partition_count for snapshot in {id(each): each for each in snapshots}.values()]
    return max(counts) <= partitions if most else min(counts) >= partitions


class FleetProcess:
    """The fleet as its user sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, command: str) -> dict[str, Any]:
        """Give a command and wait for its answer.

        Raises:
            OSError: The fleet has ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """Read an answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError(f"the fleet ended with {self._process.wait(10)}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextlib.contextmanager
def fleet_process(zookeeper: str, brokers: range) -> Iterator[FleetProcess]:
    """Brokers that have registered, in a process of their own."""
    command = [sys.executable, str(Path(__file__)), zookeeper, str(brokers.start), str(len(brokers))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        fleet = FleetProcess(process)
        try:
            fleet.read()
            yield fleet
            process.communicate(timeout=60)
        finally:
            process.kill()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("zookeeper")
    arguments.add_argument("first_id", type=int)
    arguments.add_argument("count", type=int)
    options = arguments.parse_args()
    serve(options.zookeeper, range(options.first_id, options.first_id + options.count))


if __name__ == "__main__":
    main()
