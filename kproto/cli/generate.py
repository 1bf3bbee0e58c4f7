"""``kproto generate``: makes captures of a synthetic fleet, of any size."""

from __future__ import annotations

import json
import re
import shutil
import sys
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import click
from click.core import ParameterSource

from kproto.cli.options import format_option
from kproto.cli.progress import reading
from kproto.errors import ConfigurationError
from kproto.generate import (
    KRaftFleet,
    PlannedFleet,
    findings_truth,
    metadata_truth,
    sized,
    write_captures,
    write_metadata_logs,
    write_stream,
)
from kproto.generate.fleet import Bodies, Protocol, random_of
from kproto.generate.kraft import KRAFT_PLANTS
from kproto.generate.plants import PLANTS, chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_STANDARD_OUTPUT: Final = "-"
_KRAFT_FIELDS: Final = {field.name for field in fields(KRaftFleet)}
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


class _Size(click.ParamType[int]):
    """``250M``, ``8G``, ``1000000`` -> bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,12})([KMG]?)B?", str(value).strip().upper())
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is no size; try e.g. 250M or 8G", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


_Command = TypeVar("_Command", bound="Callable[..., Any]")


def _field(
    name: str, help_text: str, least: int = 0, *, of: type = PlannedFleet, kind: click.ParamType[Any] | None = None
) -> Callable[[_Command], _Command]:
    """Make an option for a field of the fleet: a number, or what another type tells."""
    option, metavar = f"--{name.replace('_', '-')}", "N" if kind is None else None
    return click.option(
        option, metavar=metavar, type=kind or click.IntRange(min=least), default=getattr(of, name),
        help=help_text,
    )  # fmt: skip


@click.command(
    epilog="""\b
Examples:
  kproto generate --out fleet
      10 brokers, 1000 partitions, an hour of changes
  kproto generate --out fleet --seed 7 --loss 0.01 --restarts 5
      connections break, brokers come and go
  kproto generate --out holes --capture-loss 0.02
      the capture misses packets that were delivered
  kproto generate --out big --size 256M --batch 1000 --bodies distinct
      256 MB in which no request body is there twice
  kproto generate --out big --size 1G --batch 1000 \\
      --brokers 100
      each change goes to 100 brokers
  kproto generate --out hosts --per-host --rotate 1M
      one capture for each broker, in files of 1 MB
  kproto generate --out large --brokers 1000 --partitions 100000 \\
      --rotate 4G --zstd
      packed: copies of a body cost little
  kproto generate --out sick --plant missed-update,two-leaders
      with faults; truth.json has what the doctor must find
  kproto generate --out sick --plants 5 --seed 8
      with five faults that the seed chooses
  kproto generate --out - --brokers 100 | kproto summary -
      through a pipe
  kproto generate --out kraft --kraft --plants 3
      the metadata logs of a KRaft cluster's controllers
  kproto summary fleet/control.pcap

\b
The same options give the same bytes, on any machine. """,
)
@click.option(
    "--out",
    "out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="The directory for the files; - for standard output.",
)
@_field("seed", "The seed of every random choice.")
@_field("brokers", "Brokers.", 1)
@_field("topics", "Topics.", 1)
@_field("partitions", "Partitions of all topics together.", 1)
@_field("replication", "Replicas of each partition.", 1)
@_field("hours", "From the first event to the last.", kind=click.FLOAT)
@_field("failovers", "How often another broker becomes the controller.")
@_field("restarts", "How often a broker stops and comes back.")
@_field("elections", "How often the leaders of a batch of partitions move.")
@_field("isr_changes", "How often the in-sync replicas of a batch of partitions change.")
@_field("batch", "Partitions in an election or ISR change.", 1)
@click.option(
    "--zombies",
    metavar="N",
    type=click.IntRange(min=0),
    help="Updates of a former controller. [default: one, after a failover]",
)
@_field("deletions", "Topics that are deleted.")
@_field("loss", "Share of requests whose connection breaks before the response.", kind=click.FLOAT)
@_field("capture_loss", "Share of requests, and of responses, whose packets the capture misses.", kind=click.FLOAT)
@_field(
    "bodies",
    "fleet: a change goes to all brokers; distinct: to one in turn, so that no request body is there twice.",
    kind=click.Choice(get_args(Bodies)),
)
@_field(
    "protocol",
    "Inter-broker protocol: decides the versions of the requests.",
    kind=click.Choice(get_args(Protocol)),
)
@click.option("--migration", is_flag=True, help="A KRaft controller takes over in the middle.")
@click.option("--kraft", is_flag=True, help="A KRaft cluster: write each controller's metadata log, and truth.json.")
@_field("controllers", "Controllers in KRaft.", 1, of=KRaftFleet)
@_field("eligible_elections", "How often an eligible leader replica becomes leader, in KRaft.", of=KRaftFleet)
@click.option(
    "--plant",
    "plants",
    metavar="NAME,...",
    help="Plant faults, named as the rules of kproto doctor; all for each of them. Writes truth.json.",
)
@click.option(
    "--plants",
    "number_of_plants",
    metavar="N",
    type=click.IntRange(min=1),
    help="Plant N faults that the seed chooses.",
)
@click.option("--size", type=_Size(), help="About how large the capture becomes, e.g. 250M or 8G: sets --isr-changes.")
@click.option("--per-host", is_flag=True, help="Write a capture for each broker, as recorded on its host.")
@click.option("--rotate", type=_Size(), metavar="SIZE", help="Begin another file where a file would become larger.")
@click.option("--zstd", is_flag=True, help="Pack each file with zstd; copies of a body cost little.")
@click.option(
    "--mss",
    type=click.IntRange(64, 65_000),
    default=1460,
    help="Bytes of data in a TCP segment at most.",
)
@format_option("json", description="Print text, or one JSON object.")
def command(
    out: Path,
    *,
    size: int | None,
    per_host: bool,
    rotate: int | None,
    zstd: bool,
    mss: int,
    form: str,
    zombies: int | None,
    plants: str | None,
    number_of_plants: int | None,
    **numbers: Any,
) -> None:
    """Make captures of a synthetic fleet.

    A controller leads brokers for some hours: it takes over, moves leaders, follows changes of in-sync replicas, stops
    brokers and takes them back, deletes topics; former controllers and lost connections disturb it. The requests are
    those that Kafka 3.9 sends, in real TCP packets, in pcap files.

    With --kraft a KRaft cluster has the same kind of history, with a planned time of its own: DIR gets the metadata log
    of each controller, and truth.json who led, restarted and ruled when, and what the doctor must find.
    """
    if numbers.pop("kraft"):
        _refuse_what_captures_have()
        numbers["plants"] = _plants(plants, number_of_plants, numbers, kraft=True)
        quorum = KRaftFleet(**{name: value for name, value in numbers.items() if name in _KRAFT_FIELDS})
        with _filled(out):
            files = write_metadata_logs(quorum, out)
            _write_truth(out, metadata_truth(quorum).to_json())
        _print_files(files, as_json=form == "json")
        return
    del numbers["controllers"], numbers["eligible_elections"]
    numbers["zombies"] = min(1, numbers["failovers"]) if zombies is None else zombies
    numbers["plants"] = _plants(plants, number_of_plants, numbers)
    fleet = PlannedFleet(**numbers)
    if size is not None:
        fleet = sized(fleet, size)
    piped = str(out) == _STANDARD_OUTPUT
    if piped and (per_host or rotate or zstd):
        raise ConfigurationError("standard output holds one capture: without --per-host, --rotate, --zstd")
    if piped and sys.stdout.isatty():
        raise ConfigurationError("a capture is no text for a terminal; try: kproto generate --out - | kproto summary -")
    with reading() as progress:
        count = _counter(progress.of(str(out)), size)
        if piped:
            write_stream(fleet, sys.stdout.buffer, mss=mss, progress=count)
            return
        with _filled(out):
            written = write_captures(
                fleet, out, per_host=per_host, rotate_bytes=rotate, zstd=zstd, mss=mss, progress=count
            )
            if fleet.plants:
                _write_truth(out, findings_truth(fleet).to_json())
    _print_files(written.files, as_json=form == "json", packets=written.packets)


def _refuse_what_captures_have() -> None:
    """Refuse the options that a metadata log has no use for."""
    context = click.get_current_context()
    if str(context.params["out"]) == _STANDARD_OUTPUT:
        raise ConfigurationError("the logs of several controllers need a directory; name one with --out")
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in {*_KRAFT_FIELDS, "out", "kraft", "number_of_plants", "form"}:
            raise ConfigurationError(f"{parameter.opts[0]} is about captures; leave it out with --kraft")


def _plants(names: str | None, count: int | None, numbers: dict[str, Any], *, kraft: bool = False) -> tuple[str, ...]:
    """Return the names of the faults to plant."""
    if names and count:
        raise ConfigurationError("--plant names the faults and --plants N chooses them; give one of the two")
    known = sorted(KRAFT_PLANTS if kraft else PLANTS)
    found = tuple(name.strip() for name in (names or "").split(",") if name.strip())
    if count or found == ("all",):
        count = min(count or len(known), len(known))
        if kraft:
            return tuple(random_of("plants", numbers["seed"]).sample(known, count))
        return chosen(count, numbers["seed"], numbers["protocol"])
    unknown = [name for name in found if name not in known]
    if unknown:
        raise ConfigurationError(f"{unknown[0]}: no fault that can be planted; there are {', '.join(known)}")
    return found


@contextmanager
def _filled(out: Path) -> Iterator[None]:
    """Make the directory for the files; where they cannot be completed, leave nothing of them, nor of what was made.

    Raises:
        ConfigurationError: It holds others.
        OSError: As the block raised it, with the directory's name.
    """
    if out.is_file():
        raise ConfigurationError(f"{out}: a file; name a directory with --out")
    if out.is_dir() and any(out.iterdir()):
        raise ConfigurationError(f"{out}: not empty; choose another directory for --out, or empty it")
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException as e:
        for path in out.iterdir() if out.is_dir() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in made:
            with suppress(OSError):
                path.rmdir()
        if isinstance(e, OSError) and e.filename is None and e.strerror:
            raise OSError(e.errno, e.strerror, str(out)) from e
        raise


def _counter(update: Callable[[int, int | None], None] | None, total: int | None) -> Callable[[int], None] | None:
    """Counts the bytes that are written, and shows their sum."""
    if update is None:
        return None
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        update(done, total)

    return add


def _write_truth(out: Path, truth: dict[str, Any]) -> None:
    (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


def _print_files(files: dict[Path, int], *, as_json: bool, **more: int) -> None:
    total = sum(files.values())
    if as_json:
        print(json.dumps({"files": {str(path): size for path, size in files.items()}, "bytes": total, **more}))
        return
    for path, size in files.items():
        print(f"{path}  {size:,} bytes")
    if len(files) > 1:
        print(f"{len(files)} files  {total:,} bytes")
