"""The uses that the type checkers read are run, too: a type that the code does not keep is found here."""

from __future__ import annotations

import runpy
from pathlib import Path


def test_every_public_use_works_as_it_is_typed() -> None:
    runpy.run_path(str(Path(__file__).parent / "uses.py"), run_name="__main__")
