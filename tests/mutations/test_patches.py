"""The patches of the drawn rows are there, still apply, and are small; ``make mutations`` shows what they break."""

from __future__ import annotations

import subprocess

import pytest
from mutations.prove import GIT, HERE, ROOT, Outcome, drawn_rows, patch_of, verdict

DRAWN = drawn_rows()


@pytest.mark.parametrize("row", DRAWN)
def test_every_drawn_row_has_a_patch_that_applies(row):
    patch = patch_of(row)
    changed = [line for line in patch.read_text().splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert 1 <= len(changed) <= 10
    assert "tests/" not in patch.read_text()  # what is broken is the product, not its tests
    check = subprocess.run([*GIT, "--check", str(patch)], cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_no_patch_is_left_of_rows_that_are_not_drawn():
    assert sorted(path.stem for path in HERE.glob("*.patch")) == DRAWN


@pytest.mark.parametrize(
    ("red", "wrong"),
    [
        ({"a": ["CCM-02"]}, ""),
        ({"a": ["CCM-02", "CCM-03"], "b": ["CCM-05"]}, ""),
        ({"a": ["CCM-03"]}, "the row's test stays green"),
        ({}, "the row's test stays green"),
        ({"a": ["CCM-02"], "b": ["KAP-02"]}, "other groups go red too: b"),
    ],
)
def test_when_a_row_is_proved(red, wrong):
    assert verdict("CCM-02", Outcome(frozenset(), red)) == wrong
