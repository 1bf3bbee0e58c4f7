"""Draws conclusions from control traffic; ``docs/verdicts.md`` defines every term.

The rules of ``kproto doctor`` are in ``catalogue``.
"""

from __future__ import annotations
