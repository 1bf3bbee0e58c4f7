"""The optional packages, and the command that installs an extra of kproto where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

EXTRAS: Final = {
    "rich": "cli",
    "pyspark": "pipeline",
    "pyarrow": "tables",
    "duckdb": "query",
    "pytz": "query",
    "zstandard": "zstd",
    "prometheus_client": "metrics",
    "kazoo": "zookeeper",
}
"""Maps an optional package to the extra of kproto that installs it."""


def clone() -> Path | None:
    """Return the clone whose sources this kproto is; None if it is an installed copy."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").exists() else None


def install_command(extra: str) -> str:
    """Return the command that installs an extra: from the clone or directory from which kproto was installed, if any.

    Args:
        extra: An extra, such as ``cli``.
    """
    place, editable = _source()
    if place is None:
        return f"pip install 'kproto[{extra}]'"
    return f"pip install {'-e ' if editable else ''}'{place}[{extra}]'"


def _source() -> tuple[Path | None, bool]:
    """Return the directory that kproto was installed from, None for a package index; and whether it is editable."""
    from importlib.metadata import distributions  # brings some 3 MB of modules, which no command needs as a rule

    # A clone has a kproto.egg-info beside what pip has noted, and only pip's says where it came from.
    noted = (each.read_text("direct_url.json") for each in distributions(name="kproto"))
    try:
        origin = json.loads(next((text for text in noted if text), "{}"))
    except ValueError:
        return None, False
    if not origin:
        return clone(), clone() is not None
    url = urlsplit(str(origin.get("url", "")))
    if url.scheme != "file" or "dir_info" not in origin:
        return None, False
    return Path(unquote(url.path)), bool(origin["dir_info"].get("editable"))
