"""Finds the blocks under a lock of ``channel`` that use nothing that ``channel.locks.guards`` declares as guarded."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_DECLARATIONS = {"guards": "uses", "guards_changes": "changes", "guards_calls": "calls"}
_MAKERS = {"new_lock", "new_reentrant_lock"}
_GOES_THROUGH = {"any", "all", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple"}
_METHODS = {
    "add", "append", "appendleft", "clear", "copy", "discard", "extend", "insert", "items", "keys", "move_to_end",
    "pop", "popitem", "popleft", "remove", "setdefault", "sort", "update", "values", "wait_for", "notify_all", "wait",
}  # fmt: skip

HELD_BY_OTHER_TESTS = {
    ("ChannelReader.read", "channel.lock"),  # test_recorder: a response is recorded behind its request
}
"""Blocks whose lock no guard can see: by their method and their lock, with the test that turns red without it."""


class Guards(NamedTuple):
    """The names that one lock guards."""

    uses: set[str]
    changes: set[str]
    calls: set[str]


def find(root: Path) -> tuple[int, set[tuple[str, str]]]:
    """Return the number of blocks under locks, and those that use nothing guarded, by their method and their lock."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))]
    by_class: defaultdict[tuple[str, str], Guards] = defaultdict(lambda: Guards(set(), set(), set()))
    by_lock: defaultdict[str, Guards] = defaultdict(lambda: Guards(set(), set(), set()))
    locks, methods = set(), dict[tuple[str, str], ast.FunctionDef]()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=kind), ast.Constant(value=path), *rest]):
                if name in _DECLARATIONS:
                    lock = str(path).rpartition(".")[2]
                    names = {each.value for each in rest if isinstance(each, ast.Constant)}
                    for place in (by_class[kind, lock], by_lock[lock]):
                        getattr(place, _DECLARATIONS[name]).update(names)
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value) if _makes_lock(value):
                locks.add(name)
            case ast.ClassDef(name=kind, body=body):
                methods.update({(kind, each.name): each for each in body if isinstance(each, ast.FunctionDef)})
    count, bare = 0, set()
    for (kind, method), function in methods.items():
        for block in ast.walk(function):
            if not isinstance(block, ast.With):
                continue
            for item in block.items:
                held = item.context_expr
                if isinstance(held, ast.Attribute) and held.attr in locks:
                    count += 1
                    is_own = isinstance(held.value, ast.Name) and held.value.id == "self"
                    guards = by_class[kind, held.attr] if is_own else by_lock[held.attr]
                    if not _is_guarded(block.body, kind, guards, methods, set()):
                        bare.add((f"{kind}.{method}", ast.unparse(held)))
    return count, bare


def _makes_lock(value: ast.expr) -> bool:
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id in _MAKERS for call in calls)


def _is_guarded(
    body: Iterable[ast.AST], kind: str, guards: Guards, methods: dict[tuple[str, str], ast.FunctionDef], seen: set[str]
) -> bool:
    """Whether statements, or the methods of the same object that they call, use what the lock guards."""
    for node in (node for each in body for node in ast.walk(each)):
        if any(name in guards.changes for name in _changed(node)):
            return True
        match node:
            case ast.Attribute(attr=name) if name in guards.uses:
                return True
            case ast.Call(func=ast.Attribute(attr=name)) if name in guards.calls or name in ("notify_all", "wait_for"):
                return True  # a condition whose lock is not held raises by itself
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name not in seen:
                called = methods.get((kind, name))
                seen.add(name)
                if called is not None and _is_guarded(called.body, kind, guards, methods, seen):
                    return True
    return False


def _changed(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that a node sets, or whose collection it changes or goes through."""
    found: list[ast.expr] = []
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            found = [node]
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) | ast.For(iter=value):
            found = [value]
        case ast.comprehension(iter=value):
            found = [value]
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _METHODS:
            found = [value]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _GOES_THROUGH:
            found = arguments
    for each in found:
        if isinstance(each, ast.Attribute):
            yield each.attr
