"""``kproto demo``: a live cluster in one process, recorded, analysed, and held against the controller's own account."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproto.api import CONTROL_APIS, api_name
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from kproto.cli.journal import Journal

__all__ = ["command", "differences"]


@click.command(
    epilog="""\b
Examples:
  kproto demo
  kproto demo --seed 7 --brokers 5 --out rehearsal
  kproto inspect out/demo/recording.pcapng --errors       then look into what was recorded """
)
@click.option("--seed", default=1, show_default=True, help="What chance decides in the scenario.")
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

    Topics are made, leaders moved, a broker is killed and brought back, a stale controller is fenced, a topic deleted.
    Ends with an error if the tables say anything else than the controller's own journal.
    """
    from channel.network.recorder import PcapngRecorder
    from kproto.cli import analyze
    from kproto.cli.rehearsal import Rehearsal

    logging.basicConfig(level=logging.ERROR)  # the scenario's mishaps are on purpose
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigurationError(f"{out} is a file; --out takes a directory") from None
    recording, tables = out / "recording.pcapng", out / "tables"
    began = time.monotonic()
    with (
        PcapngRecorder(recording) as recorder,
        Rehearsal(brokers, seed=seed, recorder=recorder, on_step=_tell) as rehearsal,
    ):
        rehearsal.run()
    journal = rehearsal.journal
    answered = sum(told.answered for told in journal.entries)
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


def differences(tables: Path, journal: Journal) -> list[str]:
    """What the tables say otherwise than the journal, a line each; empty if they agree.

    Compared are, for each answered request: broker, API, version, controller, epochs, error codes and every field of
    every partition.
    """
    said = Counter(_of_journal(told) for told in journal.entries if told.answered)
    recorded = Counter(_of_tables(tables))
    lines = [f"only the journal has {_show(key)}" for key in said - recorded]
    return lines + [f"only the tables have {_show(key)}" for key in recorded - said]


def _show(key: tuple[Any, ...]) -> str:
    broker, api, version, controller, epoch, _, error, _, states = key
    what = f"{api_name(api)} v{version} of controller {controller} epoch {epoch} to broker {broker}"
    return f"{what}, answered {error}, {len(states)} partitions"


def _of_journal(told: Any) -> tuple[Any, ...]:
    rows = sorted(_state_of_message(told.api_key, row) for row in told.message.partition_states)
    return (
        told.broker_id,
        int(told.api_key),
        told.version,
        told.controller_id,
        told.controller_epoch,
        told.broker_epoch,
        told.error_code,
        told.partition_codes,
        tuple(rows),
    )


def _state_of_message(api_key: int, row: Any) -> tuple[Any, ...]:
    leader_and_isr, stop_replica, _ = CONTROL_APIS
    place = (row.topic_name, row.partition_index)
    if api_key == stop_replica:
        return (*place, row.leader_epoch, row.delete_partition)
    lists = (tuple(row.isr), tuple(row.replicas))
    if api_key == leader_and_isr:
        return (*place, row.leader, row.leader_epoch, row.partition_epoch, *lists, row.is_new)
    return (*place, row.leader, row.leader_epoch, row.zk_version, *lists, tuple(row.offline_replicas))


def _of_tables(tables: Path) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    states: dict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
    for row in pq.read_table(tables / "partition_states").to_pylist():
        states[row["body_id"]].append(_state_of_row(row))
    codes: dict[bytes, list[int]] = defaultdict(list)
    for row in pq.read_table(tables / "partition_errors").to_pylist():
        codes[row["frame_id"]].append(row["error_code"])
    return [
        (
            row["target_broker"],
            row["api_key"],
            row["api_version"],
            row["controller_id"],
            row["controller_epoch"],
            row["broker_epoch"],
            row["error_code"],
            tuple(sorted(codes[row["response_frame_id"]])),
            tuple(sorted(states[row["body_id"]])),
        )
        for row in pq.read_table(tables / "requests").to_pylist()
        if row["response_frame_id"] is not None
    ]


def _state_of_row(row: dict[str, Any]) -> tuple[Any, ...]:
    leader_and_isr, stop_replica, _ = CONTROL_APIS
    place = (row["topic"], row["partition"])
    if row["api_key"] == stop_replica:
        return (*place, row["leader_epoch"], row["delete_partition"])
    epochs = (row["leader"], row["leader_epoch"], row["partition_epoch"])
    lists = (tuple(row["isr"]), tuple(row["replicas"]))
    if row["api_key"] == leader_and_isr:
        return (*place, *epochs, *lists, row["is_new"])
    return (*place, *epochs, *lists, tuple(row["offline"]))
