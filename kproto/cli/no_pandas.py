"""Hides pandas, and pyarrow's readers of files, from pyarrow in commands that a person waits for."""

from __future__ import annotations

import sys


class _Hidden:
    """An import hook that hides modules that pyarrow does without."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name in ("pandas", "pyarrow.dataset"):
            raise ModuleNotFoundError("not wanted here", name=name)


def keep_pandas_out() -> None:
    """Hide pandas from pyarrow, which would import it with the first array: half a second for no use here.

    With the first group of rows it would import its readers of files too, some 50 ms: groups of tables need none. Who
    reads files imports them then.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        import pyarrow as pa
        import pyarrow.acero

        pa.array([0])
    finally:
        sys.meta_path.remove(_Hidden)
