"""The mutants of a Python file: each is one small change of its text, made by one of fifteen operators.

========== =====================================================================================================
comparison ``<`` becomes ``<=``, ``==`` becomes ``!=``, ``is`` becomes ``is not``, ``in`` becomes ``not in``, and back
condition  the test of an ``if``, a ``while``, a conditional expression or a comprehension is negated
boolean    ``and`` becomes ``or``, and back
arithmetic ``+`` becomes ``-``, ``*`` becomes ``//``, ``<<`` becomes ``>>``, ``&`` becomes ``|``, and back
constant   a number grows by one, ``True`` becomes ``False``, and back
default    the same for a parameter's default value
statement  a call, an assignment to an attribute or an item, a ``del`` or a ``raise`` is left out
negation   a ``not`` is left out
returned   a value that is returned becomes ``None``, or the opposite in a function that returns a ``bool``
exception  a handler raises again what it caught, or no longer catches the first of several types
loop       ``break`` becomes ``continue``, and back
lock       a ``with`` without ``as`` guards nothing: a lock is not taken, an error is not suppressed
finally    what a ``finally`` does is left out
arguments  the first two different positional arguments of a call are swapped
call       a call with one argument becomes that argument
========== =====================================================================================================

Left out is what no test should hold a program to: annotations, type-checking blocks, assertions (they speak to the
type checker), the defaults of functions without a body (of protocols, where nobody calls them), decorators,
``__all__`` and ``__slots__``, the text of messages, and log lines below a warning.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from dataclasses import dataclass

__all__ = ["OPERATORS", "Mutant", "mutants_of"]

OPERATORS = (
    "comparison",
    "condition",
    "boolean",
    "arithmetic",
    "constant",
    "default",
    "statement",
    "negation",
    "returned",
    "exception",
    "loop",
    "lock",
    "finally",
    "arguments",
    "call",
)

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_UNMUTATED_NAMES = {"__all__", "__slots__"}
_SILENT_LEVELS = {"debug", "info"}


@dataclass(frozen=True)
class Mutant:
    """One change of one place.

    Attributes:
        path: The file, as a path below the root of the repository.
        function: The qualified name of the function or class around the place, "" at module level.
        operator: One of ``OPERATORS``.
        line: The text of the place's first line, without indentation.
        before: The text that is replaced.
        after: The text that replaces it.
        nth: Counts the places of a function that agree in all of the above, from 0.
        span: The replaced bytes of the file, from and to.
        lineno: The number of the place's first line.
        lines: The lines whose tests notice the change, first and last; none for a place that runs when the module is
            imported.
    """

    path: str
    function: str
    operator: str
    line: str
    before: str
    after: str
    nth: int
    span: tuple[int, int]
    lineno: int
    lines: tuple[int, int] | None

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno} {self.operator}: {_short(self.before)} -> {_short(self.after)}"

    @property
    def key(self) -> tuple[str, str, str, str, str, str, int]:
        """What stays the same when other lines of the file change."""
        return (self.path, self.function, self.operator, self.line, self.before, self.after, self.nth)

    def applied_to(self, source: bytes) -> bytes:
        """The file's text with the change made."""
        return source[: self.span[0]] + self.after.encode() + source[self.span[1] :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file, in the order of its text."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    """Walks a module's syntax tree and notes the mutants."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source
        self._text = source.decode().splitlines()
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self._names: list[str] = []
        self._returns_bool = [False]
        self._lines: tuple[int, int] | None = None
        self._in_function = False
        self._left_out: set[ast.expr] = set()  # calls that `statement` leaves out
        self._seen: Counter[tuple[str, str, str, str, str]] = Counter()

    # -- what is walked and what is not ---------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and self._in_function:
            outer, self._lines = self._lines, _lines_of(node)
            super().visit(node)
            self._lines = outer
        else:
            super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if any(_name(decorator) == "overload" for decorator in node.decorator_list):
            return
        self._names.append(node.name)
        outer = self._lines, self._in_function
        self._lines, self._in_function = (node.body[0].lineno, node.body[-1].end_lineno or 0), True
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if isinstance(default, ast.Constant) and not _is_declared_only(node):
                self._constant(default, "default")
        self._returns_bool.append(_name(node.returns) == "bool")
        for statement in node.body:
            self.visit(statement)
        self._returns_bool.pop()
        self._lines, self._in_function = outer
        self._names.pop()

    def visit_If(self, node: ast.If) -> None:
        if _name(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node.test, ast.Compare) and _name(node.test.left) == "__name__":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and _name(node.target) not in _UNMUTATED_NAMES:
            self._leave_out(node, node.target)
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(_name(target) in _UNMUTATED_NAMES for target in node.targets):
            self._leave_out(node, *node.targets)
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Attribute) and node.value.func.attr in _SILENT_LEVELS:
                return
            self._note("statement", node, "pass")
            self._left_out.add(node.value)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._note("statement", node, "pass")  # what is raised is told from what its message says: not walked

    def visit_Assert(self, node: ast.Assert) -> None:
        """Speaks to the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people; and before Python 3.12 places inside it have no position."""

    # -- operators ------------------------------------------------------------------------------------------------

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
            self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for i, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[i] = _COMPARISONS[type(operator)]()
            self._note("comparison", node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._note("boolean", node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _ARITHMETIC.get(type(node.op))
        formats = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        if other is not None and not formats:
            changed = copy.deepcopy(node)
            changed.op = other()
            self._note("arithmetic", node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note("statement", node, "pass")
        other = _ARITHMETIC.get(type(node.op))
        if other is not None:
            changed = copy.deepcopy(node)
            changed.op = other()
            self._note("arithmetic", node, ast.unparse(changed))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._note("negation", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._constant(node, "constant")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._note("statement", node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        if self._returns_bool[-1]:
            if not isinstance(value, ast.Constant):
                self._note("returned", value, f"(not ({self._segment(value)}))")
        elif not (isinstance(value, ast.Constant) and value.value is None):
            self._note("returned", value, "None")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        first, last = node.body[0], node.body[-1]
        outer = self._lines
        self._lines = first.lineno, last.end_lineno or last.lineno
        if not (isinstance(first, ast.Raise) and first.exc is None):
            self._note_span("exception", first, last, "raise")
        if isinstance(node.type, ast.Tuple):
            fewer = ast.Tuple(node.type.elts[1:], ast.Load())
            self._note("exception", node.type, f"({ast.unparse(fewer)})")
        self._lines = outer
        for statement in node.body:
            self.visit(statement)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is None:
                self._note("lock", item.context_expr, "__import__('contextlib').nullcontext()")
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        if node.finalbody:
            self._note_span("finally", node.finalbody[0], node.finalbody[-1], "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred):
            if not isinstance(node.args[0], ast.GeneratorExp) and node not in self._left_out:
                self._note("call", node, f"({self._segment(node.args[0])})")
        elif len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
            first, second = (self._segment(each) for each in node.args[:2])
            if first != second:
                self._note_span("arguments", node.args[0], node.args[1], f"{second}, {first}")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._note("loop", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note("loop", node, "break")

    def _negate(self, test: ast.expr) -> None:
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):  # `negation` does that
            self._note("condition", test, f"(not ({self._segment(test)}))")

    def _leave_out(self, node: ast.stmt, *targets: ast.expr) -> None:
        """Leave an assignment out, unless it makes a local name that is wanted later."""
        if all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
            self._note("statement", node, "pass")

    def _constant(self, node: ast.Constant, operator: str) -> None:
        if isinstance(node.value, bool):
            self._note(operator, node, str(not node.value))
        elif isinstance(node.value, (int, float)):
            self._note(operator, node, f"({node.value + 1})")

    # -- places ---------------------------------------------------------------------------------------------------

    def _note(self, operator: str, node: ast.AST, after: str) -> None:
        self._note_span(operator, node, node, after)

    def _note_span(self, operator: str, first: ast.AST, last: ast.AST, after: str) -> None:
        begin = self._offsets[first.lineno - 1] + first.col_offset  # type: ignore[attr-defined]
        end = self._offsets[last.end_lineno - 1] + last.end_col_offset  # type: ignore[attr-defined]
        lineno = first.lineno  # type: ignore[attr-defined]
        function, line = ".".join(self._names), self._text[lineno - 1].strip()
        before = self._source[begin:end].decode()
        seen = (function, operator, line, before, after)
        nth = self._seen[seen]
        self.found.append(
            Mutant(self._path, function, operator, line, before, after, nth, (begin, end), lineno, self._lines)
        )
        self._seen[seen] += 1

    def _segment(self, node: ast.expr) -> str:
        begin = self._offsets[node.lineno - 1] + node.col_offset
        end = self._offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return self._source[begin:end].decode()


def _is_declared_only(node: ast.FunctionDef) -> bool:
    """Whether a function has no body but its docstring."""
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body)


def _lines_of(node: ast.stmt) -> tuple[int, int]:
    """A simple statement's lines; of a compound one those of its head."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return node.lineno, max(node.lineno, body[0].lineno - 1)
    return node.lineno, node.end_lineno or node.lineno


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _short(text: str, most: int = 70) -> str:
    """A text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
