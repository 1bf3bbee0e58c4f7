"""Options that the command line leaves out come from the environment, then from the file of settings."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kproto.cli import main

UNREACHABLE = "127.0.0.1:1"


class Shell:
    """Runs commands with a settings file of the test's own."""

    def __init__(self, home: Path) -> None:
        self.file = home / "kproto" / "config.toml"
        self.file.parent.mkdir()
        self._home = home

    def __call__(self, *arguments: str, **variables: str) -> str:
        environment = {"XDG_CONFIG_HOME": str(self._home), "KPROTO_CONFIG": None, **variables}
        return CliRunner(env=environment).invoke(main, arguments).output


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_an_option_that_many_commands_have_is_set_once(shell: Shell) -> None:
    shell.file.write_text(f'bootstrap = "{UNREACHABLE}"\ntimeout = 3\n')
    assert f"no node answers: {UNREACHABLE}" in shell("metadata")


def test_a_list_stands_for_an_option_that_may_be_repeated(shell: Shell) -> None:
    shell.file.write_text(f'[metadata]\nbootstrap = ["{UNREACHABLE}", "127.0.0.1:2"]\n')
    assert f"{UNREACHABLE} could not be reached: the connection is refused" in shell("metadata")


def test_a_commands_own_table_comes_before_the_files_top(shell: Shell) -> None:
    shell.file.write_text(f'bootstrap = "127.0.0.1:2"\n[metadata]\nbootstrap = "{UNREACHABLE}"\n')
    assert f"no node answers: {UNREACHABLE}" in shell("metadata")


def test_the_environment_comes_before_the_file_and_the_command_line_before_both(shell: Shell) -> None:
    shell.file.write_text('bootstrap = "127.0.0.1:2"\n')
    assert f"no node answers: {UNREACHABLE}" in shell("metadata", KPROTO_BOOTSTRAP=UNREACHABLE)
    both = {"KPROTO_BOOTSTRAP": "127.0.0.1:3", "KPROTO_METADATA_BOOTSTRAP": "127.0.0.1:4"}
    assert "no node answers: 127.0.0.1:4" in shell("metadata", **both)
    assert f"no node answers: {UNREACHABLE}" in shell("metadata", "--bootstrap", UNREACHABLE, **both)


def test_a_flag_and_a_choice_are_set_by_name(shell: Shell) -> None:
    assert shell("decode", "--data", "000b0100", KPROTO_DECODE_KIND="nonsense").count("nonsense") == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[metdata]\n", "there is no command 'metdata'"),
        ("[metadata]\nbootstrp = 'a:1'\n", "'kproto metadata' has no option --bootstrp"),
        ("format = 'json'\n", "'format' belongs in a command's table; at the top stand bootstrap,"),
        ("bootstrap = \n", "cannot be read: Invalid value"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_with_its_path(shell: Shell, text: str, error: str) -> None:
    shell.file.write_text(text)
    output = shell("metadata", "--bootstrap", UNREACHABLE)
    assert error in output
    assert str(shell.file) in output
    assert output.count("\n") == 1


def test_a_file_that_is_named_must_exist(shell: Shell, tmp_path: Path) -> None:
    output = shell("metadata", KPROTO_CONFIG=str(tmp_path / "none.toml"))
    assert "none.toml cannot be read: No such file or directory" in output
