"""Makes the wire reference: every field of the three control requests, from the reference codec's declarations."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from kproto.api import CONTROL_APIS, api_name, check_version
from kproto.reference import message_class
from kproto.reference.datatypes import ArrayOf, Nullable

if TYPE_CHECKING:
    from kproto.reference.fields import Field, Type

_KINDS: Final[tuple[Literal["request", "response"], ...]] = ("request", "response")

MEANINGS: Final = {
    "adding_replicas": "replicas that a reassignment adds",
    "broker_epoch": "the broker's registration that the request is meant for; -1: not stated",
    "broker_id": "broker",
    "controller_epoch": "epoch of the controller that sends the request; in a partition's state: that decided it",
    "controller_id": "broker or KRaft node that sends the request as controller",
    "delete_partition": "whether the broker deletes the partition's log",
    "delete_partitions": "whether the broker deletes the logs of all partitions in the request",
    "endpoints": "addresses of the broker, one for each listener",
    "error_code": "0: accepted; for a partition, the result of that partition",
    "host": "host name or address",
    "host_name": "host name or address",
    "id": "broker",
    "is_kraft_controller": "whether the sender is a KRaft controller, during a migration from ZooKeeper",
    "is_new": "whether the replica has never existed before",
    "isr": "in-sync replicas",
    "leader": "broker that leads the partition; -1: none, -2: the topic is being deleted",
    "leader_epoch": "number of the leadership; grows with each change of the leader",
    "leader_recovery_state": "1: the leader was elected outside the ISR and still recovers; 0: it has recovered",
    "listener": "listener name",
    "live_brokers": "brokers that are alive",
    "live_leaders": "addresses of the leaders that the partitions name",
    "name": "topic",
    "offline_replicas": "replicas on brokers or disks that are not available",
    "partition_epoch": "version of the partition's state in ZooKeeper; grows with each change",
    "partition_errors": "results of partitions",
    "partition_index": "partition",
    "partition_indexes": "partitions",
    "partition_states": "states of the topic's partitions",
    "port": "port",
    "rack": "rack; null: none",
    "removing_replicas": "replicas that a reassignment removes",
    "replicas": "assigned replicas, the preferred leader first",
    "security_protocol": "0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL",
    "topic_id": "id of the topic; zeros: none",
    "topic_name": "topic",
    "topic_states": "partitions by topic",
    "topics": "partitions by topic",
    "type": "0 unknown, 1 incremental: some partitions, 2 full: all partitions",
    "ungrouped_partition_states": "states of partitions, each with its topic's name",
    "ungrouped_partitions": "partitions, each with its topic's name",
    "v0_host": "host name or address",
    "v0_port": "port",
    "zk_version": "version of the partition's state in ZooKeeper; grows with each change",
}
"""Meaning of each field. A field without one stops the build."""


def pages() -> dict[str, str]:
    """Return the pages by file name, in Markdown."""
    return {f"{api_name(api).lower()}.md": _page(int(api)) for api in sorted(CONTROL_APIS)}


def _page(api: int) -> str:
    request = message_class(api, "request")
    newest = check_version(api, 0).max_version
    flexible = next((v for v in range(newest + 1) if check_version(api, v).is_flexible(v)), None)
    history = inspect.getdoc(inspect.getmodule(request)) or ""
    purpose = re.match(r"\w+ \(\d+\): (.*) Versions ", history)
    if purpose is None:
        raise ValueError(f"the docstring of {request.__module__} does not begin with its purpose and versions")
    lines = [
        f"# {api_name(api)}",
        "",
        f"{purpose[1][0].upper()}{purpose[1][1:]}",
        f"API key {api}, versions 0 to {newest}; flexible from version {flexible} on.",
        "",
        "| version | what it brought |",
        "|---|---|",
    ]
    for version, change in re.findall(r"^    (\d+)  (.*(?:\n     .*)*)", history, re.MULTILINE):
        lines.append(f"| {version} | {' '.join(change.split()).replace('``', '`')} |")
    lines.append("")
    for kind in _KINDS:
        lines += [f"## {kind.capitalize()}", "", *_table(message_class(api, kind), newest)]
    return "\n".join(lines) + "\n"


def _table(cls: Any, newest: int) -> list[str]:
    rows = ["| field | type | versions | meaning |", "|---|---|---|---|"]
    rows += _rows(cls, (0, newest), 0)
    return [*rows, ""]


def _rows(cls: Any, versions: tuple[int, int], depth: int) -> list[str]:
    rows = []
    for field in cls.fields.all.values():
        since, until = max(field.since, versions[0]), min(field.until, versions[1])
        if since > until:
            continue
        indent, shown = "&emsp;" * depth, str(since) if since == until else f"{since}-{until}"
        rows.append(f"| {indent}`{field.name}` | {_type(field)} | {shown} | {MEANINGS[field.name]} |")
        nested = _nested(field.type)
        if nested is not None:
            rows += _rows(nested, (since, until), depth + 1)
    return rows


def _type(field: Field) -> str:
    tag = "" if field.tag is None else f", tag {field.tag}"
    return _name(field.type) + tag


def _name(of: Type) -> str:
    if isinstance(of, Nullable):
        return f"{_name(of.of)} or null"
    if isinstance(of, ArrayOf):
        nested = _nested(of)
        return f"array of {_name(of.item) if nested is None else 'structs'}"
    kind = type(of).__name__.lower().lstrip("_")
    return f"int{8 * of.at(0, False, False).length}" if kind == "integer" else kind


def _nested(of: Type) -> Any:
    return getattr(of.item, "cls", None) if isinstance(of, ArrayOf) else None
