"""``kproto demo``: runs and records a cluster in one process, and compares its tables with the controllers' journal."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, defaultdict
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from kproto.api import api_name
from kproto.errors import ConfigurationError
from kproto.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from channel.rehearsal.journal import Journal, SentRequest
    from channel.rehearsal.scenario import Scenario

_Row: TypeAlias = dict[str, Any]
_Exchange: TypeAlias = tuple[tuple[tuple[Any, ...], ...], ...]
"""Values of the request's columns, then of each partition state, then of each partition error."""

_REQUEST: Final = (
    "broker_id", "api_key", "api_version", "client_id", "controller_id", "controller_epoch", "broker_epoch",
    "is_kraft_controller", "type", "n_topics", "n_partitions", "error_code",
)  # fmt: skip
_STATE: Final = (
    "topic", "partition", "topic_id", "controller_epoch", "leader", "leader_epoch", "partition_epoch", "isr",
    "replicas", "offline_replicas", "adding_replicas", "removing_replicas", "is_new", "leader_recovery_state",
    "delete_partition",
)  # fmt: skip
_ERROR: Final = ("topic", "partition", "topic_id", "error_code")


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


def differences(tables: Path, journal: Journal) -> list[str]:
    """Compare the tables of a recording with the journal; gives one line a difference, none if they agree.

    Compared are, for each answered request, all that the tables say of it: broker, API, version, client id,
    controller, epochs, KRaft flag, request type, error code, every field of every partition and every partition error.
    """
    written = Counter(_from_journal(entry) for entry in journal.entries if entry.answered)
    recorded = Counter(_from_tables(tables))
    lines = [f"only the journal has {_show(exchange)}" for exchange in written - recorded]
    return lines + [f"only the tables have {_show(exchange)}" for exchange in recorded - written]


def _show(exchange: _Exchange) -> str:
    request = dict(zip(_REQUEST, exchange[0][0], strict=True))
    return (
        f"{api_name(request['api_key'])} v{request['api_version']} of controller {request['controller_id']} epoch "
        f"{request['controller_epoch']} to broker {request['broker_id']}, answered {request['error_code']}, "
        f"{len(exchange[1])} partitions: {exchange}"
    )


def _exchange(request: _Row, states: Iterable[_Row], errors: Iterable[_Row]) -> _Exchange:
    place = itemgetter("topic", "partition")
    parts = ([request], _REQUEST), (sorted(states, key=place), _STATE), (sorted(errors, key=place), _ERROR)
    return tuple(tuple(_values(row, columns) for row in rows) for rows, columns in parts)


def _values(row: _Row, columns: tuple[str, ...]) -> tuple[Any, ...]:
    values = (row.get(column) for column in columns)
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _from_journal(entry: SentRequest) -> _Exchange:
    message = entry.message
    states = []
    for topic in message.topic_states:
        for state in topic.partition_states:
            row = {name: getattr(state, name, None) for name in _STATE}
            states.append(row | {
                "topic": topic.topic_name,
                "partition": state.partition_index,
                "topic_id": getattr(topic, "topic_id", None),  # StopReplica has none
                "partition_epoch": getattr(state, "zk_version", row["partition_epoch"]),  # UpdateMetadata's name of it
            })  # fmt: skip
    request = {name: getattr(entry, name, None) for name in _REQUEST} | {
        "api_version": entry.version,
        "client_id": str(entry.controller_id),
        "is_kraft_controller": message.is_kraft_controller,
        "type": getattr(message, "type", 0),  # StopReplica has no type
        "n_topics": len({state["topic"] for state in states}),
        "n_partitions": len(states),
    }
    return _exchange(request, states, entry.partition_errors)


def _from_tables(tables: Path) -> list[_Exchange]:
    states = _grouped(tables / "partition_states", "body_id")
    errors = _grouped(tables / "partition_errors", "frame_id")
    answered = _grouped(tables / "requests", "response_frame_id")
    answered.pop(None, None)
    return [
        _exchange(row, states[row["body_id"]], errors[row["frame_id"]]) for rows in answered.values() for row in rows
    ]


def _grouped(table: Path, column: str) -> dict[bytes | None, list[_Row]]:
    import pyarrow.parquet as pq

    groups: dict[bytes | None, list[_Row]] = defaultdict(list)
    for row in pq.read_table(table).to_pylist():
        groups[row[column]].append(row)
    return groups
