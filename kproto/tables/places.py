"""Where tables lie: paths of this machine, and URIs of object stores and other file systems that pyarrow opens."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from kproto.errors import ConfigurationError
from kproto.tables.files import NO_BUCKET, explained, file_system, is_uri, open_file, split_uri, without_secret
from kproto.tables.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from contextlib import AbstractContextManager
    from os import PathLike

MANIFEST: Final = "_kproto.json"
"""The name of the file in a directory of tables that lists what counts."""

_OBJECT_STORES: Final = {"s3", "gcs", "abfs"}
"""File systems without directories and without rename, on which a file appears whole when its writer closes it."""


_MOST_BYTES: Final = 1 << 29
"""The most bytes of a file that is read as a whole: manifests, facts and edges have some MB."""

_STORE_THREADS: Final = 16
"""The number of requests that a process has in flight to an object store, which answers each of them slowly."""

_STORE_WAITING: Final = 1000
"""The number of further requests that wait in memory."""

T = TypeVar("T")


class RemotePath:
    """A file or directory that is named by a URI; has the methods of ``pathlib.Path`` that tables need.

    Credentials come from the environment, as pyarrow documents for each file system; a query in the URI, such as
    ``?endpoint_override=localhost:9000``, holds for everything below it.

    Args:
        uri: Such as ``s3://bucket/tables`` or ``hdfs://namenode/tables``.
    """

    __slots__ = ("_base", "_query")

    def __init__(self, uri: str) -> None:
        base, self._query = split_uri(uri)
        self._base = base.rstrip("/")

    def __str__(self) -> str:
        return self._base + self._query

    def __format__(self, spec: str) -> str:
        """Return the URI for a message, without a key and secret in it."""
        return format(without_secret(str(self)), spec)

    def __repr__(self) -> str:
        return f"RemotePath({without_secret(str(self))!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str | PurePath) -> RemotePath:
        return RemotePath(f"{self._base}/{name}{self._query}")

    @property
    def name(self) -> str:
        """The last part."""
        return self._base.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """The directory."""
        return RemotePath(self._base.rpartition("/")[0] + self._query)

    @property
    def is_stored_whole(self) -> bool:
        """Whether the file system is an object store, whose files appear whole, and replace others at once."""
        return self.arrow()[0].type_name in _OBJECT_STORES

    def arrow(self) -> tuple[Any, str]:
        """Return pyarrow's file system and the path in it.

        Raises:
            ConfigurationError: There is no such file system.
        """
        return file_system(str(self))

    def relative_to(self, other: RemotePath) -> PurePosixPath:
        """Return the path below another."""
        return PurePosixPath(self._base).relative_to(other._base)

    def absolute(self) -> RemotePath:
        """Return itself: a URI is absolute."""
        return self

    def exists(self) -> bool:
        """Whether there is a file, or a directory with files."""
        return self._kind() != "NotFound"

    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self._kind() == "Directory"

    def is_file(self) -> bool:
        """Whether it is a file."""
        return self._kind() == "File"

    def require_store(self) -> None:
        """Check that the bucket of an object store exists; other file systems tell that by themselves.

        Raises:
            ConfigurationError: There is no such bucket.
        """
        files, path = self.arrow()
        bucket = path.partition("/")[0]
        if self.is_stored_whole and files.get_file_info(bucket).type.name == "NotFound":
            raise ConfigurationError(f"{self}: {NO_BUCKET}")

    def _kind(self) -> str:
        files, path = self.arrow()
        kind: str = files.get_file_info(path).type.name
        return kind

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the entries of a directory; none if it does not exist."""
        for entry in self._listed(recursive=False):
            yield self / entry.base_name

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the files below a directory whose names match a pattern."""
        _files, path = self.arrow()
        for entry in self._listed(recursive=True):
            if entry.is_file and fnmatchcase(entry.base_name, pattern):
                yield self / entry.path.removeprefix(path.rstrip("/") + "/")

    def _listed(self, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        files, path = self.arrow()
        return list(files.get_file_info(FileSelector(path, recursive=recursive, allow_not_found=True)))

    def age_beside(self, other: RemotePath) -> float:
        """Return how many seconds before another file this file was written, by the file system's own clock.

        Raises:
            FileNotFoundError: One of them does not exist.
        """
        times = []
        for each in (self, other):
            files, path = each.arrow()
            info = files.get_file_info(path)
            if not info.is_file:
                raise FileNotFoundError(str(each))
            times.append((info.mtime_ns or 0) / 1e9)
        return times[1] - times[0]

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory and its parents where the file system has directories."""
        del parents, exist_ok
        files, path = self.arrow()
        if not self.is_stored_whole:
            files.create_dir(path, recursive=True)

    def write_bytes(self, content: bytes) -> None:
        """Write a file, in place of an older one."""
        files, path = self.arrow()
        with files.open_output_stream(path) as opened:
            opened.write(content)

    def write_text(self, text: str, encoding: str = "utf-8") -> None:
        """Write a text file, in place of an older one."""
        self.write_bytes(text.encode(encoding))

    def rename(self, target: RemotePath) -> None:
        """Move a file; an object store copies it on its side, and deletes it then."""
        files, path = self.arrow()
        files.move(path, target.arrow()[1])

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        files, path = self.arrow()
        try:
            files.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise


Place = Path | RemotePath
"""A directory or file of this machine, or one that a URI names."""


def place_of(name: str | PathLike[str] | RemotePath) -> Place:
    """Return the place that a path or URI names; ``file:///path`` is a path."""
    if isinstance(name, RemotePath):
        return name
    text = str(name)
    if not is_uri(text):
        return Path(text)
    uri = urlsplit(text)
    if uri.scheme.lower() != "file":
        return RemotePath(text)
    if uri.netloc not in ("", "localhost"):
        raise ConfigurationError(f"{text}: a file URI names no other host; try file:///{uri.netloc}{uri.path}")
    return Path(unquote(uri.path))


def explained_at(place: Place) -> AbstractContextManager[None]:
    """Return ``explained`` for a URI; for a path a context that leaves errors as they are: they name the path."""
    return explained(place) if isinstance(place, RemotePath) else nullcontext()


def arrow_path(place: Place) -> tuple[str, Any]:
    """Return what pyarrow's Parquet functions take: the path, and its file system or None for this machine's."""
    if isinstance(place, Path):
        return str(place), None
    files, path = place.arrow()
    return path, files


def make_new(place: Place) -> None:
    """Make an empty file of this machine where nothing is yet, not even a link; elsewhere do nothing.

    Raises:
        FileExistsError: Something has that name.
    """
    if isinstance(place, Path):
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))


def read_whole(place: Place) -> bytes:
    """Return the content of a file that is read as a whole.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is larger than any that kproto writes: a hole that takes no place on disk would fill the memory.
    """
    with open_file(str(place)) as opened:
        if opened.seek(0, os.SEEK_END) > _MOST_BYTES:
            raise ValueError(f"larger than {_MOST_BYTES} bytes")
        opened.seek(0)
        return opened.read()


def write_whole(place: Place, content: bytes) -> None:
    """Write a file so that readers find the former one, or the new one whole; a link of its name is replaced."""
    if not isinstance(place, Path):
        place.write_bytes(content)
        return
    with whole_file(place, follows_links=False) as file:
        file.write(content)


def require_no_link(place: Place, below: Place) -> None:
    """Check that a place and each directory between it and another one is a file or a directory, and no link.

    Raises:
        ConfigurationError: One of them is a link, and what it names is not below that directory and not kproto's; or a
            pipe or a device, of which a read may never end.
    """
    if not isinstance(place, Path) or not isinstance(below, Path):
        return
    for each in (place, *place.parents):
        if each == below:
            return
        try:
            mode = each.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode):
            raise ConfigurationError(
                f"{each} is a link to {each.readlink()}; kproto follows no links among its tables: remove it, or make "
                "the tables again in another directory"
            )
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ConfigurationError(f"{each} is neither a file nor a directory; remove it: kproto made no such thing")


def require_no_links_in(folder: Place, below: Place, files: Collection[str]) -> None:
    """Check ``require_no_link`` of a directory and of all that is in it, of which ``files`` are files if they exist."""
    require_no_link(folder, below)
    if not isinstance(folder, Path) or not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                continue
            require_no_link(folder / entry.name, below)
            if entry.name in files:
                raise ConfigurationError(f"{folder / entry.name} is a directory, where kproto wrote a file")


def at_store(work: Callable[[T], object], things: Iterable[T]) -> None:
    """Do the work for each of the things, several at once; the first error is raised."""
    left = iter(things)
    with ThreadPoolExecutor(_STORE_THREADS) as threads:
        while some := list(islice(left, _STORE_WAITING)):
            for _done in threads.map(work, some):
                pass


def remove_tree(place: Place) -> None:
    """Remove a directory with all its files, as far as that is possible."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    files, path = place.arrow()
    try:
        files.delete_dir(path)
    except OSError:
        return  # it does not exist, or the next run removes it
