"""The type of options that name a directory or file which must be on a mounted file system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from kproto.errors import ConfigurationError
from kproto.tables.files import is_uri

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["LocalPath"]


class LocalPath(click.ParamType[Path]):
    """A path, or a URI ``file:///path``, as a ``Path``; an object store is refused, not taken for a path."""

    name = "path"

    def convert(
        self, value: str | PathLike[str] | Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path.

        Raises:
            ConfigurationError: The URI is not that of a file.
        """
        text = str(value)
        if not is_uri(text):
            return Path(text)
        uri = urlsplit(text)
        if uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost"):
            raise ConfigurationError(
                f"{text}: tables are kept in directories, which need rename and lock; name a mounted one "
                "(NFS, HDFS by its NFS gateway or FUSE), and copy finished tables from there"
            )
        return Path(unquote(uri.path))
