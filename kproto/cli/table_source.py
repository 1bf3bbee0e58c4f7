"""Opens the tables that ``kproto query`` and ``kproto report`` read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["tables_of"]


def tables_of(source: Path) -> Path | dict[str, pa.Table]:
    """Return the directory of tables, or a capture's tables in memory."""
    from kproto.tables import read

    return read(str(source)) if source.is_file() else source
