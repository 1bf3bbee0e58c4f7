"""Which rows of the conformance list are tested: ``python tests/conformance/coverage.py`` prints the table.

``rows.txt`` lists the rows, ``excused.toml`` those that no test holds. A test claims rows by its marker,
``@pytest.mark.conformance("CCM-01")``; the test files are read, not run.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent


@dataclass(frozen=True)
class Coverage:
    """The rows, and what became of each.

    Attributes:
        groups: A group's letters to its name.
        rows: Row id to its title.
        tested: Row id to the test files that claim it, as paths below tests/.
        excused: Row id to the reason why no test holds it.
    """

    groups: dict[str, str]
    rows: dict[str, str]
    tested: dict[str, set[str]]
    excused: dict[str, str]

    def of(self, group: str) -> list[str]:
        """The ids of a group's rows."""
        return [row for row in self.rows if row[:3] == group]

    def problems(self) -> list[str]:
        """What is wrong, a line each; empty if every row is tested or excused, and not more are excused than may be."""
        lines = [
            f"{row} is neither tested nor excused"
            for row in self.rows.keys() - self.tested.keys() - self.excused.keys()
        ]
        lines += [f"{row} is excused though tested" for row in self.excused.keys() & self.tested.keys()]
        lines += [f"{row} is excused but no row of the list" for row in self.excused.keys() - self.rows.keys()]
        lines += [
            f"{row} is claimed in {', '.join(sorted(self.tested[row]))} but no row of the list"
            for row in self.tested.keys() - self.rows.keys()
        ]
        for group in self.groups:
            excused = sum(row[:3] == group for row in self.excused)
            most = max(1, len(self.of(group)) // 20)
            if excused > most:
                lines.append(f"{excused} rows of {group} are excused, at most {most} may be")
        return sorted(lines)

    def table(self) -> str:
        """The Markdown table: a line for each group, and the sum."""
        lines = ["| group | | rows | tested | excused |", "|---|---|---:|---:|---:|"]
        for group, name in self.groups.items():
            rows = self.of(group)
            lines.append(_line(group, name, rows, self.tested, self.excused))
        lines.append(_line("all", "", list(self.rows), self.tested, self.excused))
        lines += [f"\n{row} ({self.rows[row]}): {reason}" for row, reason in self.excused.items() if row in self.rows]
        return "\n".join(lines)


def _line(group: str, name: str, rows: list[str], tested: dict[str, set[str]], excused: dict[str, str]) -> str:
    return f"| {group} | {name} | {len(rows)} | {sum(r in tested for r in rows)} | {sum(r in excused for r in rows)} |"


def read_coverage() -> Coverage:
    """The state of the tree that this file stands in."""
    groups: dict[str, str] = {}
    rows: dict[str, str] = {}
    for line in (HERE / "rows.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        key, _, title = line.partition(" ")
        (rows if "-" in key else groups)[key] = title
    tested: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        for row in claimed_rows(path.read_text(encoding="utf-8")):
            tested[row].add(path.relative_to(TESTS).as_posix())
    excused = tomllib.loads((HERE / "excused.toml").read_text(encoding="utf-8"))
    return Coverage(groups, rows, dict(tested), excused)


def claimed_rows(source: str) -> Iterator[str]:
    """The rows that the markers of a test file name.

    Raises:
        ValueError: A marker is computed, so that reading it is not enough.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name != "conformance":
            continue
        for argument in node.args:
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                raise ValueError(f"line {node.lineno}: a conformance marker takes ids as they stand in rows.txt")  # noqa: TRY004
            yield argument.value


if __name__ == "__main__":
    coverage = read_coverage()
    print(coverage.table())
    problems = coverage.problems()
    if problems:
        print("", *problems, sep="\n")
        sys.exit(1)
