"""What the commands share that speak with brokers: the option of a file of Kafka's properties, and lines of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def properties_option(description: str, name: str = "--security") -> Callable[..., Any]:
    """Give a command an option that names a file of properties."""
    kind = click.Path(dir_okay=False, exists=True, path_type=Path)
    return click.option(name, type=kind, metavar="FILE", help=description)


def print_line(value: dict[str, Any]) -> None:
    """Print a JSON object as one line: by one call, since several threads write."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()
