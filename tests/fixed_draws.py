"""Draws that are the same in every run of ``make test``; ``make explore``, each night, draws afresh."""

import os

from hypothesis import settings

__all__ = ["IS_EXPLORED", "drawn"]

IS_EXPLORED = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


def drawn(few: int, many: int) -> settings:
    """The settings of a property about windows of real captures.

    Args:
        few: Examples where they are fixed.
        many: Examples where they are drawn afresh.
    """
    return settings(max_examples=many if IS_EXPLORED else few, derandomize=not IS_EXPLORED)
