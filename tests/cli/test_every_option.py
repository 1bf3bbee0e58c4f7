"""Every option of every command occurs in a test, by its long name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kproto.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS: Final = Path(__file__).parents[1]

WITHOUT_A_TEST: Final = {
    ("analyze", "--follow"),
    ("controller", "--listener"),
    ("controller", "--verbose"),
}
"""Known gaps. An option that gets a test leaves this set, and nothing enters it."""


def options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the path of each command and the long names of each of its options."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            yield from options(child, click.Context(child, info_name=name, parent=context))
    path = context.command_path.removeprefix("kproto").strip()
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            for name in (*parameter.opts, *parameter.secondary_opts):
                if name.startswith("--"):
                    yield path, name


def test_every_option_occurs_in_a_test() -> None:
    named: set[str] = set()
    for path in TESTS.rglob("*.py"):
        if path != Path(__file__) and path.parent.name != "soak":  # a soak is no test that pytest runs
            named.update(re.findall(r"--[a-z][a-z0-9-]*", path.read_text(encoding="utf-8")))
    found = set(options(main, click.Context(main, info_name="kproto")))
    assert len({command for command, _ in found}) > 20
    assert {each for each in found if each[1] not in named} == WITHOUT_A_TEST
