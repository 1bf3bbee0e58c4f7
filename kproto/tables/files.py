"""Opens captures by path or URI: local files directly, others through pyarrow's file systems."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from kproto.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["expand", "file_size", "file_state", "is_uri", "open_file"]

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")


def is_uri(path: str) -> bool:
    """Whether a path names its file system: ``file://``, ``s3://``, ``hdfs://`` ..."""
    return _URI.match(path) is not None


def open_file(path: str) -> IO[bytes]:
    """Open a file by its path or URI, for reading and seeking.

    Raises:
        OSError: It cannot be opened.
    """
    if not is_uri(path):
        return Path(path).open("rb", buffering=0)
    files, inside = _file_system(path)
    return cast("IO[bytes]", files.open_input_file(inside))


def file_size(path: str) -> int:
    """Return the bytes of a file.

    Raises:
        CaptureError: There is no such file.
    """
    return file_state(path)[0]


def file_state(path: str) -> tuple[int, int]:
    """Return a file's bytes and its last change in ns since 1970 (0 where the file system has no such time).

    Raises:
        CaptureError: There is no such file.
    """
    try:
        if not is_uri(path):
            state = Path(path).stat()
            return state.st_size, state.st_mtime_ns
        files, inside = _file_system(path)
        info = files.get_file_info(inside)
        return int(info.size or 0), int(info.mtime_ns or 0)
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror or e}") from None


def expand(paths: Iterable[str]) -> list[str]:
    """List the files of paths and URIs, which may be directories or patterns such as ``s3://captures/2026-11/*.pcap.gz``.

    Raises:
        CaptureError: A pattern matches no file, or a URI cannot be listed.
    """
    return [file for path in paths for file in _expanded(path)]


def _expanded(path: str) -> Iterator[str]:
    if not is_uri(path):
        if _GLOB.search(path) and not Path(path).exists():
            parent = Path(path)
            while _GLOB.search(str(parent)):
                parent = parent.parent
            found = sorted(str(p) for p in parent.glob(str(Path(path).relative_to(parent))))
            if not found:
                raise CaptureError(f"{path}: no file matches this pattern")
            yield from found
        else:
            yield path
        return
    from pyarrow.fs import FileSelector, FileType

    pattern = path if _GLOB.search(path) else None
    place = path[: _GLOB.search(path).start()].rpartition("/")[0] if pattern else path  # type: ignore[union-attr]  # it was found
    files, inside = _file_system(place)
    try:
        info = files.get_file_info(inside)
        if info.type == FileType.File:
            yield path
            return
        listed = files.get_file_info(FileSelector(inside, recursive=pattern is not None))
    except OSError as e:
        raise CaptureError(f"{path}: {e}") from None
    base = place.rstrip("/")
    root = inside.rstrip("/")
    found = sorted(
        base + entry.path.removeprefix(root)
        for entry in listed
        if entry.type == FileType.File and not entry.base_name.startswith(".")
    )
    if pattern:
        found = [file for file in found if file.count("/") == pattern.count("/") and fnmatchcase(file, pattern)]
    if not found:
        raise CaptureError(f"{path}: no file there")
    yield from found


def _file_system(path: str):  # type: ignore[no-untyped-def]  # pyarrow has no types
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(path.replace(" ", "%20"))
    except (OSError, ValueError) as e:
        raise CaptureError(f"{path}: {e}") from None
