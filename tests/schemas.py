"""Kafka's message schemas, read out of the kafka-clients jar that ``tools/oracle`` fetches.

The facts of every field: name, type, versions, nullability, default, tag, ignorable. Names come in snake_case.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kproto.json_form import snake_case
from kproto.types import ZERO_UUID

__all__ = ["Schema", "SchemaField", "jar", "schema"]


@dataclass(frozen=True)
class SchemaField:
    """One field as the schema has it; ``until`` is the message's last version for fields that are still there.

    ``type`` is that of the schema, but ``struct`` and ``[]struct`` for nested ones, whose own fields are ``fields``;
    ``plain`` marks strings that never take the compact form.
    """

    name: str
    json_name: str
    type: str
    since: int
    until: int
    nullable_since: int | None
    default: Any
    ignorable: bool
    tag: int | None
    plain: bool
    struct: str
    fields: tuple[SchemaField, ...]

    def exists_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


@dataclass(frozen=True)
class Schema:
    """One message; ``flexible_from`` is None where no version is flexible."""

    name: str
    api_key: int
    kind: str
    highest: int
    flexible_from: int | None
    fields: tuple[SchemaField, ...]


def jar() -> Path:
    """The kafka-clients jar; the oracle must have been built."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    base = Path(os.environ.get("ORACLE_CACHE") or Path(cache_home) / "kproto-oracle")
    found = sorted(base.glob("*/lib/kafka-clients-3.9.1.jar"), key=lambda path: path.stat().st_mtime)
    assert found, f"no kafka-clients jar under {base}"
    return found[-1]


@cache
def schema(name: str) -> Schema:
    """The schema ``common/message/<name>.json`` of the jar."""
    with zipfile.ZipFile(jar()) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    form = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    lowest, highest = _range(form["validVersions"], 0)
    assert lowest == 0
    flexible = None if form["flexibleVersions"] == "none" else _range(form["flexibleVersions"], highest)[0]
    structs = {struct["name"]: struct["fields"] for struct in form.get("commonStructs", ())}
    kind = {"RequestHeader": "request_header", "ResponseHeader": "response_header"}.get(name, form["type"])
    fields = _fields(form["fields"], highest, structs)
    return Schema(form["name"], form.get("apiKey", -1), kind, highest, flexible, fields)


def _range(text: str, highest: int) -> tuple[int, int]:
    first, dash, last = text.rstrip("+").partition("-")
    return int(first), highest if text.endswith("+") else int(last if dash else first)


def _fields(forms: list[dict[str, Any]], highest: int, structs: dict[str, Any]) -> tuple[SchemaField, ...]:
    return tuple(_field(form, highest, structs) for form in forms)


def _field(form: dict[str, Any], highest: int, structs: dict[str, Any]) -> SchemaField:
    kind = form["type"]
    item = kind.removeprefix("[]")
    nested = form.get("fields") or structs.get(item)
    if nested:
        kind = kind.replace(item, "struct")
    since, until = _range(form["versions"], highest)
    if "tag" in form:
        assert _range(form["taggedVersions"], highest) == (since, until)
    json_name = form["name"][0].lower() + form["name"][1:]
    return SchemaField(
        name=snake_case(json_name),
        json_name=json_name,
        type=kind,
        since=since,
        until=until,
        nullable_since=max(since, _range(form["nullableVersions"], highest)[0]) if "nullableVersions" in form else None,
        default=_default(kind, form.get("default")),
        ignorable=form.get("ignorable", False),
        tag=int(form["tag"]) if "tag" in form else None,
        plain=form.get("flexibleVersions") == "none",
        struct=item if nested else "",
        fields=_fields(nested, highest, structs) if nested else (),
    )


def _default(kind: str, given: Any) -> Any:
    if given == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if kind == "bool":
        return given in ("true", True)
    if "int" in kind:
        return int(str(given or 0), 0)
    return {"string": given or "", "bytes": b"", "records": b"", "uuid": ZERO_UUID, "struct": None, "float64": 0.0}[
        kind
    ]
