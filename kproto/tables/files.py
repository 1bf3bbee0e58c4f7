"""Opens captures by path or URI: local files directly, others through pyarrow's file systems."""

from __future__ import annotations

import re
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from kproto.errors import CaptureError, ConfigurationError, KprotoError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")
_SECRET: Final = re.compile(r"://[^/@\s]*@")
_QUERY: Final = re.compile(r"\?(?=[a-z_]+=)")

_DELAYED: Final = "allow_delayed_open"
"""Asks pyarrow to write a small object with one request instead of three, and to find its faults at the close."""

_CREDENTIALS: Final = (
    "the store refuses access; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the role, and that "
    "they may list, read, write and delete below this URI"
)
NO_BUCKET: Final = "there is no such bucket; create it, or check the name, the region and AWS_ENDPOINT_URL"
_ADVICE: Final = {
    "NO_SUCH_BUCKET": NO_BUCKET,
    "Bucket '": NO_BUCKET,
    "ACCESS_DENIED": _CREDENTIALS,
    "INVALID_ACCESS_KEY_ID": _CREDENTIALS,
    "SIGNATURE_DOES_NOT_MATCH": _CREDENTIALS,
    "HTTP response code: 403": _CREDENTIALS,
    "NETWORK_CONNECTION": "cannot reach the store; check the network and the endpoint (AWS_ENDPOINT_URL, or "
    "?endpoint_override=HOST:PORT&scheme=http in the URI)",
    "libjvm": "HDFS needs Java and Hadoop's client; set JAVA_HOME, HADOOP_HOME and CLASSPATH (hadoop classpath --glob)",
    "libhdfs": "HDFS needs Hadoop's client; set HADOOP_HOME, ARROW_LIBHDFS_DIR and CLASSPATH (hadoop classpath --glob)",
    "`fsspec` is required": "this URI needs fsspec; try: pip install fsspec, and its package for this store",
    "Unrecognized filesystem type": "pyarrow knows no such scheme; it opens file, s3, gs, abfss, hdfs, and with fsspec "
    "installed fsspec+SCHEME",
    "without S3 support": "this pyarrow was built without S3; install pyarrow's own wheel: pip install pyarrow",
}
"""The advice for each word of pyarrow's messages; the first word that is found counts."""


def is_uri(path: str) -> bool:
    """Whether a path names its file system: ``file://``, ``s3://``, ``hdfs://`` ..."""
    return _URI.match(path) is not None


def is_pattern(path: str) -> bool:
    """Whether a path or URI is a pattern of several."""
    return _GLOB.search(split_uri(path)[0] if is_uri(path) else path) is not None


def open_file(path: str) -> IO[bytes]:
    """Open a file by its path or URI, for reading and seeking.

    Raises:
        OSError: It cannot be opened.
    """
    if not is_uri(path):
        return Path(path).open("rb", buffering=0)
    files, inside = file_system(path)
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
        files, inside = file_system(path)
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

    pattern, query = split_uri(path)
    glob = _GLOB.search(pattern)
    base = pattern[: glob.start()].rpartition("/")[0] if glob else pattern.rstrip("/")
    files, inside = file_system(base + query)
    with explained(path):
        if files.get_file_info(inside).type == FileType.File:
            yield path
            return
        listed = files.get_file_info(FileSelector(inside, recursive=glob is not None, allow_not_found=True))
    root = inside.rstrip("/")
    found = sorted(
        base + entry.path.removeprefix(root)
        for entry in listed
        if entry.type == FileType.File and not entry.base_name.startswith(".")
    )
    if glob:
        found = [file for file in found if file.count("/") == pattern.count("/") and fnmatchcase(file, pattern)]
    if not found:
        raise CaptureError(f"{path}: no file there")
    yield from (file + query for file in found)


def split_uri(uri: str) -> tuple[str, str]:
    """Split the query, such as ``?endpoint_override=localhost:9000``, from a URI; a ``?`` of a pattern stays."""
    found = _QUERY.search(uri)
    return (uri[: found.start()], uri[found.start() :]) if found else (uri, "")


def without_secret(text: str) -> str:
    """Return a text with URIs in it without their ``KEY:SECRET@``."""
    return _SECRET.sub("://", text)


def file_system(uri: str) -> tuple[Any, str]:
    """Return pyarrow's file system for a URI, and the path in it. A process keeps one client for each store.

    Raises:
        ConfigurationError: pyarrow knows no such file system, or cannot open it.
    """
    base, query = split_uri(uri)
    scheme, _colon, rest = base.partition("://")
    host, _slash, path = rest.partition("/")
    store, root = _store(f"{scheme}://{host}/{query}")
    return store, "/".join(part for part in (root.rstrip("/"), unquote(path).rstrip("/")) if part or root == "/")


@lru_cache(maxsize=64)
def _store(uri: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    uri = uri.replace(" ", "%20")
    found: tuple[Any, str]
    with explained(uri):
        if uri.startswith("s3://") and _DELAYED not in uri:
            try:
                found = FileSystem.from_uri(f"{uri}{'&' if '?' in uri else '?'}{_DELAYED}=true")
            except ValueError:  # a pyarrow that does not know it, or another fault of the URI
                found = FileSystem.from_uri(uri)
        else:
            found = FileSystem.from_uri(uri)
    return found


@contextmanager
def explained(place: object) -> Iterator[None]:
    """Turn what a store or pyarrow says of a URI into one line that says what to try.

    Raises:
        ConfigurationError: The block raised an error of pyarrow's or of the store.
    """
    try:
        yield
    except (OSError, ValueError, ImportError, NotImplementedError) as e:
        if isinstance(e, KprotoError):
            raise
        said = " ".join(str(e).split())
        advice = next((advice for word, advice in _ADVICE.items() if word in said), said[:300])
        raise ConfigurationError(without_secret(f"{place}: {advice}")) from e
