"""Every option of every command is given to that command by a test."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from kproto.cli import main

TESTS: Final = Path(__file__).parents[1]


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
                if name.startswith("--") and name != "--help":  # click's own: test_help.py has it for all commands
                    yield path, name


class Scope:
    """A function, a class's methods or the module level of a test file: its words, and the names that it uses.

    Attributes:
        words: The words of its strings; a command that is imported by its module is the module's word.
        names: Functions that it calls, fixtures that it asks for, constants that it reads, by name.
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self.words: set[str] = set()
        self.names: set[str] = set()
        for root in nodes:
            for node in ast.walk(root):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    # "kproto inspect --api=4" are three words; long texts are no commands
                    self.words.update(word.partition("=")[0] for word in node.value.split()[:40])
                elif isinstance(node, ast.Name):
                    self.names.add(node.id)
                elif isinstance(node, ast.arg):
                    self.names.add(node.arg)
                elif isinstance(node, ast.Attribute):
                    self.names.add(node.attr)


def _scopes(path: Path) -> dict[str, Scope]:
    """The scopes of a file by name: its functions, its classes and the constants of its module level."""
    found: dict[str, Scope] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            arguments = [] if isinstance(node, ast.ClassDef) else [node.args]
            found[node.name] = Scope([*node.decorator_list, *arguments, *body])
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kproto.cli."):
            for alias in node.names:
                found[alias.asname or alias.name] = Scope([ast.Constant((node.module or "").rpartition(".")[2])])
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = Scope([node])
    return found


def given(paths: Iterable[Path]) -> Iterator[set[str]]:
    """Yield what each test's commands may consist of: the words of the test, and of all that it uses.

    Helpers, fixtures and constants are looked up in the test's own file first, and then in all files of tests.
    """
    files = {path: _scopes(path) for path in paths}
    anywhere: dict[str, list[Scope]] = {}
    for path, scopes in files.items():
        if not path.name.startswith("test_"):  # helpers and conftest
            for name, scope in scopes.items():
                anywhere.setdefault(name, []).append(scope)
    known = {name for scopes in files.values() for name in scopes}
    for scopes in files.values():
        for scope in scopes.values():
            scope.names &= known  # of all names that occur, tests define few
    for path, scopes in files.items():
        for name, scope in scopes.items():
            if not (path.name.startswith("test_") and name.startswith(("test_", "Test"))):
                continue
            words, seen, unread = set(scope.words), {name}, set(scope.names)
            while unread:
                used = unread.pop()
                if used in seen:
                    continue
                seen.add(used)
                for each in [scopes[used]] if used in scopes else anywhere.get(used, []):
                    words |= each.words
                    unread |= each.names
            yield words


@pytest.mark.slow
def test_every_option_is_given_to_its_command_by_a_test() -> None:
    missing = set(options(main, click.Context(main, info_name="kproto")))
    assert len({command for command, _ in missing}) > 20
    paths = [path for path in TESTS.rglob("*.py") if path != Path(__file__) and path.parent.name != "soak"]
    for words in given(paths):
        missing -= {(command, option) for command, option in missing if words.issuperset([*command.split(), option])}
    assert sorted(missing) == []


def test_an_option_that_another_command_is_given_is_no_test_of_it(tmp_path: Path) -> None:
    file = tmp_path / "test_a.py"
    file.write_text(
        'BOTH = ["a", "--x"]\ndef run(*words): call("kproto", "a", *words)\n'
        'def test_one(): run("--y=1")\ndef test_two(): call("b --z")\ndef test_three(): call(BOTH)\n'
        "def unused(): return '--unused'\n"
    )
    found = list(given([file]))
    assert [{"a", "--y"} <= words for words in found] == [True, False, False]
    assert [{"b", "--y"} <= words for words in found] == [False, False, False]
    assert [{"a", "--x"} <= words for words in found] == [False, False, True]
    assert not any("--unused" in words for words in found)
