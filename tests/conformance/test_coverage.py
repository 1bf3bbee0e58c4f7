"""Every row of the conformance list is held by a test or excused with a reason, and nothing else is claimed."""

import subprocess
import sys
from pathlib import Path

import pytest
from conformance.coverage import Coverage, claimed_rows, read_coverage

SCRIPT = Path(__file__).with_name("coverage.py")


@pytest.mark.slow
def test_every_row_is_tested_or_excused() -> None:
    assert read_coverage().problems() == []


@pytest.mark.slow
def test_the_table_counts_every_group() -> None:
    coverage = read_coverage()
    printed = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True).stdout
    assert printed.rstrip() == coverage.table()
    assert [line[2:5] for line in printed.splitlines()[2:]][: len(coverage.groups)] == list(coverage.groups)
    assert {row[:3] for row in coverage.rows} == set(coverage.groups)


ROWS = {f"ABC-{n:02}": "a row" for n in range(1, 31)}


@pytest.mark.parametrize(
    ("untested", "excused", "more", "problem"),
    [
        (["ABC-03"], {}, {}, "ABC-03 is neither tested nor excused"),
        ([], {"ABC-03": "why"}, {}, "ABC-03 is excused though tested"),
        ([], {"ABC-77": "why"}, {}, "ABC-77 is excused but no row of the list"),
        ([], {}, {"ABC-77": {"test_x.py"}}, "ABC-77 is claimed in test_x.py but no row of the list"),
        (["ABC-03", "ABC-04"], {"ABC-03": "", "ABC-04": ""}, {}, "2 rows of ABC are excused, at most 1 may be"),
        (["ABC-03"], {"ABC-03": "why"}, {}, None),
    ],
)
def test_what_is_wrong_is_said(untested, excused, more, problem) -> None:
    tested = {row: {"test_y.py"} for row in ROWS if row not in untested} | more
    assert Coverage({"ABC": "Letters"}, ROWS, tested, excused).problems() == ([] if problem is None else [problem])


def test_rows_are_read_from_markers_wherever_they_stand() -> None:
    source = """
conformance = pytest.mark.conformance
@pytest.mark.conformance("A-1", "A-2")
class T:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=conformance("A-3"))])
    def test_it(self, x): ...
"""
    assert sorted(claimed_rows(source)) == ["A-1", "A-2", "A-3"]
    with pytest.raises(ValueError, match="line 1"):
        list(claimed_rows('conformance(f"A-{n}")'))
