"""Every command's help fits a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from commands import run_kproto

from kproto.cli import COMMANDS, main

if TYPE_CHECKING:
    from collections.abc import Iterator


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from paths(child, (*path, name))


@pytest.mark.parametrize("path", sorted(paths(main)), ids=" ".join)
def test_help_fits_80_columns(path: tuple[str, ...]) -> None:
    result = run_kproto(*path, "--help", terminal_width=80)
    assert result.exit_code == 0
    assert not [line for line in result.output.splitlines() if len(line) > 80]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples(name: str) -> None:
    output = run_kproto(name, "--help", terminal_width=80).output
    assert f"kproto {name}" in output.partition("Options:")[2], "the examples stand at its end"
