"""``kproto demo``: runs and records a cluster in one process, and compares its tables with the controllers' journal."""

from __future__ import annotations

import logging
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproto.errors import ConfigurationError
from kproto.extras import install_command

if TYPE_CHECKING:
    from channel.rehearsal.journal import Journal
    from channel.rehearsal.scenario import Scenario


@click.command(
    epilog="""\b
With --zookeeper two elected controllers decide by themselves, as `kproto
controller` does; without it a script does.

\b
Examples:
  kproto demo
  kproto demo --seed 7 --brokers 5 --out rehearsal
  kproto demo --zookeeper 127.0.0.1:2181
      in a chroot of its own, which is deleted at the end
  kproto inspect out/demo/recording.pcapng --errors
      then look into what was recorded """
)
@click.option("--seed", default=1, help="The seed of topics, replicas and changes.")
@click.option("--brokers", default=3, type=click.IntRange(2, 200), help="Embedded brokers.")
@click.option(
    "--out",
    default=Path("out/demo"),
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The directory for recording.pcapng, tables/ and report.html.",
)
@click.option("--zookeeper", metavar="HOST:PORT", help="Let the controllers be elected in this ZooKeeper.")
def command(seed: int, brokers: int, out: Path, zookeeper: str | None) -> None:
    """Run controllers and simulated brokers over real sockets, record them, and make tables and a report.

    Topics are created, leaders moved, a broker is killed and restarted, a partition reassigned, a deposed controller
    fenced, a topic deleted. Ends with an error if the tables differ from the controllers' own journal.
    """
    from channel.network.recorder import PcapngRecorder
    from kproto.cli import analyze
    from kproto.cli.comparison import differences

    if not find_spec("pyspark"):  # the tables need it: better said now than after the rehearsal
        raise ConfigurationError(f"kproto demo makes tables, which needs pyspark: {install_command('pipeline')}")
    logging.basicConfig(level=logging.ERROR)  # the scenario's faults are on purpose
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigurationError(f"{out} is a file; --out takes a directory") from None
    recording, tables = out / "recording.pcapng", out / "tables"
    began = time.monotonic()
    with PcapngRecorder(recording) as recorder:
        recording = recorder.path  # an earlier run's stays
        journal = _run(zookeeper, brokers, seed=seed, recorder=recorder, on_step=_tell)
    answered = sum(entry.answered for entry in journal.entries)
    _tell(f"{len(journal.entries)} requests, {answered} answered, in {time.monotonic() - began:.1f} s: {recording}")
    arguments = [str(recording), "--out", str(tables), "--overwrite"]
    if find_spec("duckdb"):  # DuckDB, which the extra pipeline does not install
        arguments += ["--report", str(out / "report.html")]
    with analyze.command.make_context("analyze", arguments) as context:  # main() would end the process by itself
        analyze.command.invoke(context)
    found = differences(tables, journal)
    if found:
        raise click.ClickException(f"tables and journal differ in {len(found)} requests, e.g. {found[0]}")
    print(f"The tables hold exactly what the controllers' journal says: {answered} answered requests.")


def _run(zookeeper: str | None, brokers: int, **settings: Any) -> Journal:
    """Run the scenario and return its journal."""
    if zookeeper is None:
        from channel.rehearsal.scenario import EmbeddedScenario

        scenario: Scenario = EmbeddedScenario(brokers, **settings)
    else:
        from channel.rehearsal.zookeeper_scenario import ZooKeeperScenario

        scenario = ZooKeeperScenario(zookeeper, brokers, **settings)
    scenario.run()
    return scenario.journal


def _tell(step: str) -> None:
    print(step, file=sys.stderr, flush=True)
