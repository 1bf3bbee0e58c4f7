"""Every command's help fits a terminal of 80 columns, and its examples can be pasted."""

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest
from commands import run_kproto

from kproto.cli import COMMANDS, main


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from paths(child, (*path, name))


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name) or command
    return command


@pytest.mark.parametrize("path", sorted(paths(main)), ids=" ".join)
def test_help_fits_80_columns(path: tuple[str, ...]) -> None:
    result = run_kproto(*path, "--help", terminal_width=80)
    assert result.exit_code == 0
    assert not [line for line in result.output.splitlines() if len(line) > 80]


@pytest.mark.parametrize("path", sorted(paths(main)), ids=" ".join)
def test_help_says_what_each_option_is_for(path: tuple[str, ...]) -> None:
    command = command_at(path)
    assert not [option.opts for option in command.params if isinstance(option, click.Option) and not option.help]


@pytest.mark.parametrize("text", ["nan", "inf"])
@pytest.mark.parametrize("path", sorted(paths(main)), ids=" ".join)
def test_an_option_of_seconds_takes_no_number_that_is_none(path: tuple[str, ...], text: str) -> None:
    command = command_at(path)
    for option in command.params:
        if isinstance(option.type, click.FloatRange):
            with pytest.raises(click.BadParameter, match=r"number of seconds|not in the range"):
                option.type.convert(text, option, None)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_examples(name: str) -> None:
    output = run_kproto(name, "--help", terminal_width=80).output
    assert f"kproto {name}" in output.partition("Options:")[2], "the examples stand at its end"


def examples(name: str) -> Iterator[list[str]]:
    """The words behind ``kproto`` of each example in a command's help, its lines joined as a shell does."""
    text = re.sub(r"\\\n *", "", run_kproto(name, "--help", terminal_width=80).output)
    for found in re.findall(r"^ +(?:.*\| )?kproto ([^\n']*(?:'[^']*'[^\n']*)*)", text.partition("xample")[2], re.M):
        assert not re.search(r"\\|\S {3,}\S", found), found  # else a shell takes a note for arguments
        words = shlex.shlex(found, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        yield list(takewhile(lambda word: word[0] not in "|<>", words))


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_a_command_are_taken_as_they_stand(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for each in [*command.commands.values()] if isinstance(command, click.Group) else [command]:
        monkeypatch.setattr(each, "callback", lambda **_: None)
    for words in examples(name):
        if words[0] == name:
            for word in words:
                if word.endswith(".properties"):
                    (tmp_path / word).touch()
            result = run_kproto(*words)
            assert (result.exit_code, result.output) == (0, ""), words
