"""Turns what captures show of KRaft's brokers, quorum and administrators into rows of the tables."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from kproto.tables.arrays import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kproto.metadata_log.batches import LogRecord
    from kproto.metadata_log.deliveries import MetadataTraffic
    from kproto.metadata_log.folding import BrokerSpan

_LATEST_US: Final = 253_402_300_799_999_999
"""The end of the year 9999: damaged records can name any time."""


def us(time_ns: int | None) -> int | None:
    """A time in us since 1970, within the calendar."""
    return None if time_ns is None else max(0, min(time_ns // 1000, _LATEST_US))


class TimesTold:
    """When the first replica was told of an offset, by the capture's clock."""

    def __init__(self, traffic: MetadataTraffic, clocks: Mapping[int, int]) -> None:
        self._clocks = clocks
        first: dict[int, tuple[int, int]] = {}
        for each in traffic.deliveries:
            first.setdefault(each.base_offset, (each.last_offset, each.time_ns))
        self._bases = sorted(first)
        self._first = first

    def of(self, span: BrokerSpan) -> int:
        """When a broker's state began; where no delivery shows it, the time that its controller wrote."""
        place = bisect_right(self._bases, span.offset) - 1
        if place >= 0:
            last, time_ns = self._first[self._bases[place]]
            if span.offset <= last:
                return time_ns
        return span.from_ms * 1_000_000 + self._clocks.get(span.epoch, 0)

    def end_of(self, span: BrokerSpan, later: BrokerSpan | None) -> int | None:
        """When a broker's state ended, by what came ``later``, or where the log has a gap; None: it lasts."""
        if later is not None and span.until_ms == later.from_ms:
            return self.of(later)
        return None if span.until_ms is None else span.until_ms * 1_000_000 + self._clocks.get(span.epoch, 0)


def traffic_rows(
    traffic: MetadataTraffic, changing: Sequence[LogRecord], clocks: Mapping[int, int]
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables that captures alone give, by table.

    Args:
        traffic: What the captures show.
        changing: The log's records that administrative requests can make.
        clocks: See ``controllers_clocks``.
    """
    rows: dict[str, Iterator[dict[str, Any]]] = {
        "broker_registrations": _registrations(traffic),
        "broker_heartbeats": _heartbeats(traffic),
        "broker_progress": _progress(traffic),
        "quorum_requests": _requests(traffic),
        "quorum_outages": _outages(traffic),
        "admin_changes": _changes(traffic, changing, clocks),
    }
    return {name: [*some] for name, some in rows.items()}


def _registrations(traffic: MetadataTraffic) -> Iterator[dict[str, Any]]:
    for one in traffic.heartbeats.registrations.values():
        yield {
            "broker_id": one.broker_id, "incarnation_id": one.incarnation_id, "cluster_id": plain_text(one.cluster_id),
            "address": one.address, "listeners": [plain_text(text) for text in one.listeners],
            "error_code": one.error_code, "broker_epoch": one.broker_epoch, "first_ts": us(one.first_ns),
            "last_ts": us(one.last_ns), "requests": one.count,
        }  # fmt: skip


def _heartbeats(traffic: MetadataTraffic) -> Iterator[dict[str, Any]]:
    for (broker_id, broker_epoch), runs in traffic.heartbeats.runs.items():
        for run in runs:
            yield {
                "broker_id": broker_id, "broker_epoch": broker_epoch, "first_ts": us(min(run.times_ns)),
                "last_ts": us(max(run.times_ns)), "heartbeats": len(run.times_ns),
                "longest_gap_us": us(run.longest_gap_ns), "wants_fence": run.wants_fence,
                "wants_shutdown": run.wants_shutdown, "error_code": run.error_code, "is_fenced": run.is_fenced,
                "is_caught_up": run.is_caught_up, "last_offset": run.offsets[-1],
            }  # fmt: skip


def _progress(traffic: MetadataTraffic) -> Iterator[dict[str, Any]]:
    told: dict[int, tuple[list[int], list[int]]] = {}
    for each in traffic.deliveries:
        times, offsets = told.setdefault(each.node_id, ([], []))
        times.append(each.time_ns)
        offsets.append(max(each.last_offset, offsets[-1] if offsets else -1))
    for row in traffic.heartbeats.progress(traffic.committed):
        times, offsets = told.get(row.broker_id, ([], []))
        place = bisect_right(times, row.time_ns)
        yield {
            "broker_id": row.broker_id, "ts": us(row.time_ns), "told_offset": offsets[place - 1] if place else None,
            "committed_offset": None if row.committed is None else row.committed - 1, "applied_offset": row.applied,
            "lag_us": us(row.lag_ns), "late": row.late,
        }  # fmt: skip


def _requests(traffic: MetadataTraffic) -> Iterator[dict[str, Any]]:
    for one in traffic.quorum.requests:
        yield {
            "first_ts": us(one.first_ns), "last_ts": us(one.last_ns), "count": one.count, "api_key": int(one.api_key),
            "node_id": one.node_id, "to_node": one.to_node, "controller_epoch": one.epoch,
            "is_pre_vote": one.pre_vote, "is_granted": one.granted, "error_code": one.error_code,
            "leader_id": one.leader_id, "leader_epoch": one.leader_epoch, "is_diverging": one.diverges,
        }  # fmt: skip


def _outages(traffic: MetadataTraffic) -> Iterator[dict[str, Any]]:
    for outage in traffic.quorum.outages:
        yield {
            "valid_from": us(outage.from_ns), "valid_to": us(outage.until_ns), "last_ts": us(outage.last_ns),
            "votes": outage.votes, "elections": outage.elections, "refused": outage.refused, "nodes": outage.nodes,
        }  # fmt: skip


def _changes(
    traffic: MetadataTraffic, changing: Sequence[LogRecord], clocks: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    for asked in traffic.admin.joined(changing, clocks):
        request, change = asked.request, asked.change
        yield {
            "ts": us(request.time_ns), "client_id": plain_text(request.client_id), "client_address": request.address,
            "principal": None if request.principal is None else plain_text(request.principal),
            "api_key": int(request.api_key), "topic": None if change.topic is None else plain_text(change.topic),
            "partition": change.partition, "what": plain_text(change.what), "error_code": change.error_code,
            "log_offset": asked.offsets[0] if asked.offsets else None, "records": len(asked.offsets),
            "note": asked.note or None,
        }  # fmt: skip
