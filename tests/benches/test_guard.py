"""The guard of the speed compares two trees by turns, and tells a loss of a fifth."""

import guard


def test_a_tree_beside_itself_has_lost_nothing_that_matters() -> None:
    """Both are this one: the ratios are those of the machine's noise, whatever they are, for every door."""
    found = guard.measure(guard.ROOT, guard.ROOT, rounds=1)
    assert len(found) == 11
    assert all(ratio > 0 for ratio in found.values())
    assert "frames of a control capture" in found
    assert any("LeaderAndIsr".lower() in name and "built" in name for name in found)


def test_the_median_of_the_rounds_counts_and_not_one_of_them() -> None:
    base = [{"a": 1.0, "b": 2.0}] * 5
    present = [{"a": a, "b": b} for a, b in ((1.0, 3.0), (9.0, 3.0), (1.0, 2.6), (1.0, 3.0), (1.1, 3.0))]
    assert guard.compared(base, present) == {"a": 1.0, "b": 1.5}
