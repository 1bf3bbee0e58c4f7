"""Hides pandas from pyarrow in commands that a person waits for."""

from __future__ import annotations

import sys


class _NoPandas:
    """An import hook that hides pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not wanted here", name=name)


def keep_pandas_out() -> None:
    """Hide pandas from pyarrow, which would import it with the first array: half a second for no use here."""
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
