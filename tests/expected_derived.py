"""Makes the expected derived tables of a fleet's capture, by plain Python over its expected stored tables."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from kproto.api import ApiKey
from kproto.error_codes import ErrorCode
from kproto.types import ZERO_UUID

_Row = dict[str, Any]
_Partition = tuple[str, str, bytes | None, int]

_CLUSTER: Final = "default"
"""The name of the only cluster: its captures belong together, whichever host recorded them."""

_PARTITION: Final = ("cluster", "topic", "topic_id", "partition", "incarnation")
_STATE: Final = ("controller_epoch", "leader_epoch", "partition_epoch", "leader")
_BEING_DELETED: Final = -2


def derived_rows(stored: Mapping[str, list[_Row]], clocks: Mapping[str, str]) -> dict[str, list[_Row]]:
    """Return the expected derived tables.

    Args:
        stored: The expected stored tables.
        clocks: See ``expected_tables.expected_tables``.

    Returns:
        Table -> its rows, with the columns of ``expected_tables.EXPECTED``.
    """
    states: dict[bytes, list[_Row]] = defaultdict(list)
    for state in stored["partition_states"]:
        states[state["body_id"]].append(state)
    changes = _changes(stored["requests"], states)
    return {
        "changes": changes,
        "leadership": _leadership(changes),
        "isr_events": _isr_events(changes),
        "stale_requests": _stale_requests(stored["requests"], clocks),
        "propagation": _propagation(stored["requests"], stored["responses"]),
        "errors": _errors(stored["requests"], stored["partition_errors"]),
    }


def _accepted(requests: Iterable[_Row]) -> Iterator[_Row]:
    return (request for request in requests if not request["error_code"])


def _order(row: _Row) -> tuple[int, bytes]:
    return row["ts"], row["frame_id"]


def _changes(requests: Iterable[_Row], states: Mapping[bytes, list[_Row]]) -> list[_Row]:
    """Return each distinct state, by the first request that told it.

    Topics without ids are numbered: after a deletion, epochs of 0 begin another topic of that name.
    """
    first: dict[bytes, _Row] = {}
    for request in _accepted(requests):
        body_id = request["body_id"]
        if body_id not in first or _order(request) < _order(first[body_id]):
            first[body_id] = request
    told: dict[_Partition, list[tuple[_Row, _Row]]] = defaultdict(list)
    for body_id, request in first.items():
        for state in states[body_id]:
            if state["leader"] is not None:
                topic_id = None if state["topic_id"] == ZERO_UUID else state["topic_id"]
                told[_CLUSTER, state["topic"], topic_id, state["partition"]].append((request, state))
    found: dict[tuple[Any, ...], _Row] = {}
    for partition, sent in told.items():
        number, deleted, rows = 0, dict[int, int](), list[_Row]()
        for request, state in sorted(sent, key=lambda each: _order(each[0])):
            if state["leader"] == _BEING_DELETED:
                deleted.setdefault(number, request["ts"])
                continue
            if number in deleted and partition[2] is None and not (state["leader_epoch"] or state["partition_epoch"]):
                number += 1
            key = (*partition, number, *(state[name] for name in _STATE), tuple(state["isr"]))
            if key not in found:
                row = {
                    **dict(zip(_PARTITION, (*partition, number), strict=True)),
                    **{name: state[name] for name in (*_STATE, "isr", "replicas")},
                    "ts": request["ts"],
                    "controller_id": request["controller_id"],
                    "frame_id": request["frame_id"],
                }
                found[key] = row
                rows.append(row)
        for row in rows:
            row["deleted_ts"] = deleted.get(row["incarnation"])
    return list(found.values())


def _by_partition(rows: Iterable[_Row]) -> dict[tuple[Any, ...], list[_Row]]:
    found: dict[tuple[Any, ...], list[_Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in _PARTITION)].append(row)
    return found


def _leadership(changes: Iterable[_Row]) -> list[_Row]:
    """Return each leadership; a partition's leader epoch grows by one with each. The deletion ends the last of them."""
    rows = []
    for states in _by_partition(changes).values():
        reigns: dict[int, list[_Row]] = defaultdict(list)
        for state in states:
            reigns[state["leader_epoch"]].append(state)
        told = {epoch: min(states, key=_order) for epoch, states in reigns.items()}
        end: Any = None  # what is told after the next leader, or after the deletion, began before that
        for epoch in sorted(reigns, reverse=True):
            first = told[epoch]
            end = first["deleted_ts"] if end is None else end
            begin = first["ts"] if end is None else min(first["ts"], end)
            rows.append(
                {
                    **{name: first[name] for name in (*_PARTITION, "leader", "leader_epoch", "controller_id")},
                    "controller_epoch": _decided(reigns[epoch], is_first=epoch == min(reigns)),
                    "valid_from": begin,
                    "valid_to": end,
                    "changes_seen": len(reigns[epoch]),
                }
            )
            end = begin
    return rows


def _decided(reign: list[_Row], *, is_first: bool) -> int | None:
    """The epoch of the controller that elected a leader; None: the states may all be those of later changes."""
    first = min(reign, key=lambda state: state["partition_epoch"])
    if is_first and first["partition_epoch"] > first["leader_epoch"] and first["controller_epoch"] > 1:
        return None
    return min(state["controller_epoch"] for state in reign)


def _isr_events(changes: Iterable[_Row]) -> list[_Row]:
    """Return each change of an ISR; a partition's epoch grows by one with each change of its state."""
    rows = []
    for states in _by_partition(changes).values():
        states.sort(key=lambda state: state["partition_epoch"])
        for before, after in pairwise(states):
            removed = [broker for broker in before["isr"] if broker not in after["isr"]]
            added = [broker for broker in after["isr"] if broker not in before["isr"]]
            if removed or added:
                rows.append(
                    {
                        **{
                            name: after[name]
                            for name in (*_PARTITION, "ts", "leader", "leader_epoch", "partition_epoch")
                        },
                        "former_leader_epoch": before["leader_epoch"],
                        "former_partition_epoch": before["partition_epoch"],
                        "kind": "swap" if removed and added else "shrink" if removed else "expand",
                        "removed": removed,
                        "added": added,
                        "isr_size": len(after["isr"]),
                        "under_replicated": not set(after["replicas"]) <= set(after["isr"]),
                    }
                )
    return rows


def _stale_requests(requests: Iterable[_Row], clocks: Mapping[str, str]) -> list[_Row]:
    rows = []
    newest_by: dict[str | None, int] = {}  # clock -> the newest epoch that a broker has accepted
    for request in sorted(requests, key=_order):
        epoch, code = request["controller_epoch"], request["error_code"]
        clock = clocks.get(request["capture"])
        newest = newest_by.get(clock)
        regressed = newest is not None and epoch < newest
        if regressed or code == ErrorCode.STALE_CONTROLLER_EPOCH:
            rows.append(
                {
                    **{name: request[name] for name in ("frame_id", "ts", "broker_id", "controller_id")},
                    "cluster": _CLUSTER,
                    "reason": "controller_epoch_regressed" if regressed else "refused_as_stale",
                    "zombie": True,
                    "seen_epoch": epoch,
                    "known_epoch": newest,
                    "error_code": code,
                }
            )
        if code == 0:
            newest_by[clock] = max(epoch, newest or 0)
    return rows


def _propagation(requests: Iterable[_Row], responses: Iterable[_Row]) -> list[_Row]:
    acked = {response["frame_id"]: response["ts"] for response in responses if not response["error_code"]}
    delivered: dict[bytes, dict[int, tuple[int, int | None]]] = defaultdict(dict)
    for request in requests:
        if request["api_key"] != ApiKey.UPDATE_METADATA:
            continue
        broker, ts = request["broker_id"], request["ts"]
        brokers = delivered[request["body_id"]]
        answer = acked.get(request["frame_id"])
        sent, answered = brokers.get(broker, (ts, answer))
        answers = [time for time in (answered, answer) if time is not None]
        brokers[broker] = min(sent, ts), min(answers, default=None)
    rows = []
    for body_id, brokers in delivered.items():
        first_ts = min(sent for sent, _ in brokers.values())
        rows += [
            {
                "cluster": _CLUSTER,
                "change_id": body_id,
                "first_ts": first_ts,
                "broker_id": broker,
                "delivered_ts": sent,
                "acked_ts": answered,
                "lag_us": sent - first_ts,
            }
            for broker, (sent, answered) in brokers.items()
        ]
    return rows


def _errors(requests: Iterable[_Row], partition_errors: Iterable[_Row]) -> list[_Row]:
    by_id = {request["frame_id"]: request for request in requests}
    found: dict[tuple[int, int, str, int], list[int]] = defaultdict(list)
    for request in by_id.values():
        if request["error_code"]:
            found[request["api_key"], request["api_version"], "request", request["error_code"]].append(request["ts"])
    for error in partition_errors:
        request = by_id[error["frame_id"]]
        found[request["api_key"], request["api_version"], "partition", error["error_code"]].append(request["ts"])
    return [
        {
            "api_key": api_key,
            "api_version": version,
            "scope": scope,
            "error_code": code,
            "n": len(times),
            "first_ts": min(times),
            "last_ts": max(times),
        }
        for (api_key, version, scope, code), times in found.items()
    ]
