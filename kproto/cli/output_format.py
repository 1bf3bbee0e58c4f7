"""The option ``--format``, which most commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def format_option(*others: str, description: str | None = None) -> Callable[..., Any]:
    """Give a command ``--format``, passed to it as ``form``: ``text``, which is the default, or another format.

    Args:
        others: The formats beside ``text``.
        description: The option's text in ``--help``.
    """
    return click.option(
        "--format", "form", type=click.Choice(["text", *others]), default="text", show_default=True, help=description
    )
