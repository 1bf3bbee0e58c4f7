"""``kproto tables``: describes every table and column, and keeps stored tables for years."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING

import click

from kproto.cli.options import PlaceType, format_option
from kproto.cli.progress import waiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from kproto.tables.places import Place


class _Tables(click.Group):
    """A group whose commands are left out where tables are described: ``kproto tables requests``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["describe", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Tables,
    epilog="""\b
Examples:
  kproto tables
      all tables
  kproto tables requests
      one of them
  kproto tables --format markdown
      as docs/tables.md has them
  kproto tables rollup DIR
  kproto tables expire DIR --before 2026-08-01
  kproto tables compact DIR """,
)
def command() -> None:
    """Describe the tables, or keep stored ones for years: rollup, expire, compact.

    Without a command, kproto tables [TABLE]... describes the tables that kproto analyze writes. The others work on the
    tables of a directory; readers see the former tables, or the new ones whole.
    """


@command.command()
@click.argument("names", nargs=-1, metavar="[TABLE]...")
@format_option("markdown", "json")
def describe(names: tuple[str, ...], *, form: str) -> None:
    """Describe the tables that kproto analyze writes and kproto.tables.read gives: columns, types, units, joins.

    After them come the derived tables, which kproto query and kproto.pipeline.derived_table compute from the stored
    ones, and those of KRaft's metadata log, which are stored where its files are named. The same words are in the
    metadata of the tables' Arrow schemas.
    """
    from kproto.cli.sections import Section, print_sections
    from kproto.errors import ConfigurationError
    from kproto.tables.schemas import BROKER_DAYS, METADATA_TABLES, TABLES, description
    from kproto.text import meant
    from kproto.verdicts.derived import VIEWS

    derived = {name: view.schema for name, view in VIEWS.items()}
    every = TABLES | derived | {"broker_days": BROKER_DAYS} | METADATA_TABLES
    for name in names:
        if name not in every:
            raise ConfigurationError(f"there is no table {name!r}; {meant(name, every)}")
    chosen = {name: every[name] for name in names or every}
    described = {
        name: [(field.name, _type_name(str(field.type)), description(field)) for field in schema]
        for name, schema in chosen.items()
    }
    match form:
        case "json":
            tables = {
                name: {
                    "description": description(chosen[name]),
                    "columns": [dict(zip(("name", "type", "description"), row, strict=True)) for row in rows],
                }
                for name, rows in described.items()
            }
            print(json.dumps(tables))
        case "markdown":
            for name, rows in described.items():
                print(f"## {name}\n\n{description(chosen[name])}\n\n| column | type | |\n|---|---|---|")
                for row in rows:
                    print("| " + " | ".join(row) + " |")
                print()
        case _:
            print_sections(
                Section(name, ["column", "type", "description"], [list(row) for row in rows], description(chosen[name]))
                for name, rows in described.items()
            )


def _type_name(name: str) -> str:
    """Return an Arrow type's short name: ``timestamp[us, tz=UTC]``, ``list<int32>``, ``struct``."""
    name = name.replace("element: ", "")
    return "list<struct>" if name.startswith("list<struct") else "struct" if name.startswith("struct") else name


@command.command(
    epilog="""\b
Example:
  kproto tables expire tables --before 2026-08-01 """
)
@click.argument("directory", metavar="DIR", type=PlaceType())
@click.option(
    "--before", required=True, type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="The first day (UTC) that stays."
)
def expire(directory: Place, before: datetime) -> None:
    """Remove the rows of the days before a day from the tables in DIR.

    Bodies and their states go with the last request that has them. Captures that were read count as read, so a later
    kproto analyze does not add their rows again.
    """
    from kproto.pipeline import OutputDirectory
    from kproto.pipeline.upkeep import expire as remove

    with _room_in(directory):
        removed = remove(OutputDirectory(directory), before.replace(tzinfo=UTC))
    rows = ", ".join(f"{count} of {name}" for name, count in removed.items() if count)
    print(f"{directory}: removed {rows}" if rows else f"{directory}: no rows before {before:%Y-%m-%d}")


@command.command()
@click.argument("directory", metavar="DIR", type=PlaceType())
def compact(directory: Place) -> None:
    """Join the small files of each table and day in DIR, which many runs that add captures leave."""
    from kproto.pipeline import OutputDirectory
    from kproto.pipeline.upkeep import compact as join

    with _room_in(directory):
        before, after = join(OutputDirectory(directory))
    print(f"{directory}: {before} files before, {after} now")


@command.command()
@click.argument("directory", metavar="DIR", type=PlaceType())
def rollup(directory: Place) -> None:
    """Store figures of each day and broker in DIR/kproto-rollups, of the days that are new or have other rows now.

    Leader changes, minutes out of ISRs and without leader, refusals, lags of updates: they add up over any days, and
    stay when the days expire. kproto query DIR worst answers from them.
    """
    from kproto.query.rollups import roll_up

    with _room_in(directory):
        made, every = roll_up(directory)
    print(f"{directory}: {made} of {every} days rolled up")


@contextmanager
def _room_in(directory: Place) -> Iterator[None]:
    """Say which disk is full, and what to do: pyarrow's words name no file."""
    try:
        with waiting("writing tables"):
            yield
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        what = os.strerror(e.errno).lower()
        raise click.ClickException(f"{directory}: {what}; free some space (df -h shows the disks)") from e
