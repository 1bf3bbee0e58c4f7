"""The type of arguments and options that name a directory or file by its path or URI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kproto.tables.places import Place, RemotePath, place_of

if TYPE_CHECKING:
    from os import PathLike


class PlaceType(click.ParamType[Place]):
    """A path, or a URI such as ``s3://bucket/tables``."""

    name = "path"

    def convert(
        self, value: str | PathLike[str] | RemotePath | Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Return the place.

        Raises:
            ConfigurationError: A file URI names another host.
        """
        return place_of(value)
