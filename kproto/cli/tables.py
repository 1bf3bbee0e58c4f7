"""``kproto tables``: describes every table and column."""

from __future__ import annotations

import json

import click

from kproto.cli.output_format import format_option

__all__ = ["command"]


@click.command(
    epilog="""\b
Examples:
  kproto tables                       all tables
  kproto tables requests              one of them
  kproto tables --format markdown     as docs/tables.md has them """
)
@click.argument("names", nargs=-1, metavar="[TABLE]...")
@format_option("markdown", "json")
def command(names: tuple[str, ...], *, form: str) -> None:
    """Describe the tables that kproto analyze writes and kproto.tables.read gives: columns, types, units, joins.

    After them come the derived tables, which kproto query and kproto.pipeline.derived_table compute from the stored
    ones. The same words are in the metadata of the tables' Arrow schemas.
    """
    from kproto.cli.sections import Section, print_sections
    from kproto.errors import ConfigurationError
    from kproto.tables.schemas import TABLES, description
    from kproto.verdicts.derived import VIEWS

    every = TABLES | {name: derived.schema for name, derived in VIEWS.items()}
    for name in names:
        if name not in every:
            raise ConfigurationError(f"there is no table {name!r}; try {', '.join(every)}")
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
