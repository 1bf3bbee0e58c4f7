"""Opens the tables that ``kproto query`` and ``kproto report`` read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

    from kproto.tables.places import Place

__all__ = ["tables_of"]


def tables_of(source: Place) -> Place | dict[str, pa.Table]:
    """Return the directory of tables, or a capture's tables in memory.

    Raises:
        ConfigurationError: It is a pipe or device, which cannot be read twice.
    """
    from kproto.tables import read
    from kproto.tables.places import explained_at

    with explained_at(source):
        is_capture = source.is_file()
    if str(source) == "-" or (not is_capture and source.exists() and not source.is_dir()):
        raise ConfigurationError(
            f"{source}: tables are made from files alone; save the capture to a file, and name that"
        )
    return read(str(source)) if is_capture else source
