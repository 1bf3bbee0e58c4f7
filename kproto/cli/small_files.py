"""Reads the files beside captures that a command is given: small ones, as data, whatever they hold."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_MOST: Final = 64 << 20


def text_of(path: Path) -> str:
    """Return the text of a file of at most 64 MiB.

    Raises:
        OSError: It cannot be read, is larger, or is no file: a pipe or a device may never end.
        UnicodeDecodeError: It is no UTF-8.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        kind = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "a pipe or device, where a file is wanted", str(path))
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise OSError(errno.EFBIG, "larger than 64 MiB", str(path))
    return content.decode()
