"""Writes a file that is there whole or not at all."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def whole_file(path: Path, *, follows_links: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing; it takes its place, or that of a former file, when the block ends without an error.

    Several may write the same path, or others in its directory, at once; the last to end stays.

    Of a symbolic link the file that it names is replaced. A pipe or device is written as it is. Where links are not
    followed, a link, pipe or device is replaced itself.

    Raises:
        OSError: It cannot be written; the error names ``path``.
    """
    try:
        if follows_links and path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        path = path.resolve() if follows_links else path
        part = path.with_name(f".kproto-{uuid.uuid4().hex}.part")
        try:
            with part.open("xb") as file:
                yield file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as e:
        if e.errno is None:
            raise
        raise OSError(e.errno, e.strerror, str(path)) from e
