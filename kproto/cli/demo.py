"""``kproto demo``: a live cluster in one process, recorded, analysed, and held against the controller's own account."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import click

from kproto.errors import ConfigurationError

__all__ = ["command"]


@click.command(
    epilog="""\b
Examples:
  kproto demo
  kproto demo --seed 7 --brokers 5 --out rehearsal
  kproto inspect out/demo/recording.pcapng --errors       then look into what was recorded """
)
@click.option("--seed", default=1, show_default=True, help="Decides topics, replicas and changes.")
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(2, 200), help="Embedded brokers.")
@click.option(
    "--out",
    default=Path("out/demo"),
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Takes recording.pcapng and tables/.",
)
def command(seed: int, brokers: int, out: Path) -> None:
    """Run a controller and embedded brokers over real sockets, record them, and make tables of the recording.

    Topics are created, leaders moved, a broker is killed and restarted, a partition reassigned, a deposed controller
    fenced, a topic deleted. Ends with an error if the tables differ from the controller's own journal.
    """
    from channel.network.recorder import PcapngRecorder
    from channel.scenario import Scenario
    from kproto.cli import analyze
    from kproto.cli.comparison import differences

    logging.basicConfig(level=logging.ERROR)  # the scenario's mishaps are on purpose
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigurationError(f"{out} is a file; --out takes a directory") from None
    recording, tables = out / "recording.pcapng", out / "tables"
    began = time.monotonic()
    with PcapngRecorder(recording) as recorder:
        scenario = Scenario(brokers, seed=seed, recorder=recorder, on_step=_tell)
        scenario.run()
    journal = scenario.journal
    answered = sum(entry.answered for entry in journal.entries)
    _tell(f"{len(journal.entries)} requests, {answered} answered, in {time.monotonic() - began:.1f} s: {recording}")
    arguments = [str(recording), "--out", str(tables), "--overwrite"]
    with analyze.command.make_context("analyze", arguments) as context:  # main() would end the process by itself
        analyze.command.invoke(context)
    found = differences(tables, journal)
    if found:
        raise click.ClickException(f"tables and journal differ in {len(found)} requests, e.g. {found[0]}")
    print(f"The tables hold exactly what the controller's journal says: {answered} answered requests.")


def _tell(step: str) -> None:
    print(step, file=sys.stderr, flush=True)
