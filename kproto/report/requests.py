"""Collects the requests that a report's marks link to, each once, with their bodies in Kafka's JSON form."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kproto.codec import decode_request, decode_response
from kproto.errors import ConfigurationError, KprotoError
from kproto.json_form import uuid_to_json
from kproto.query import ask_sql
from kproto.tables.filters import Filters
from kproto.tables.json_choice import wanted_partitions
from kproto.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from kproto.query import Answer

_WHOLE: Final = 100
"""A body with at most this many partitions is shown whole, a larger body with this many of the marked partitions."""

_LONGEST: Final = 1 << 20
"""Bodies of more bytes are not decoded for the page."""

_UNREADABLE: Final = -1
_LEFT_OUT: Final = -2
"""Stand for the index of a body that the page does not hold."""

SERVER: Final = (
    "CASE WHEN contains(server_ip, ':') THEN '[' || server_ip || ']' ELSE server_ip END || ':' || server_port"
)
"""SQL of a broker's address."""


def columns_of(answer: Answer) -> dict[str, list[Any]]:
    """Return an answer's values by column."""
    return {name: [row[at] for row in answer.rows] for at, name in enumerate(answer.columns)}


class RequestIndex:
    """Numbers requests in the order in which marks first name them.

    Args:
        sql: The tables; the requests are looked up there at the end, all at once.
    """

    def __init__(self, sql: duckdb.DuckDBPyConnection) -> None:
        self._sql = sql
        self._places: dict[bytes, int] = {}
        self._marked: dict[int, set[TopicPartition]] = {}

    def place(self, frame_id: bytes | None, topic: str | None = None, partition: int = 0) -> int:
        """Return the index of a request in ``rows``, -1 for none.

        Args:
            frame_id: The request's frame.
            topic, partition: The partition that the mark is about, which the body's JSON must contain.
        """
        if frame_id is None:
            return -1
        place = self._places.setdefault(frame_id, len(self._places))
        if topic is not None:
            marked = self._marked.setdefault(place, set())
            if len(marked) < _WHOLE:
                marked.add(TopicPartition(topic, partition))
        return place

    def rows(self, captures: Mapping[str, int], body_bytes: int, cut: list[str]) -> dict[str, list[Any]]:
        """Return the requests by column, and their bodies.

        Args:
            captures: Places of captures by their names.
            body_bytes: The largest number of bytes of bodies' JSON to give.
            cut: Takes a sentence about what was left out.

        Returns:
            Columns of the same length; ``request`` and ``response`` are places in ``bodies``, -1 for none or a body
            that cannot be read, -2 for a body that is left out.

        Raises:
            ConfigurationError: A request is of a capture that is not among these.
        """
        wanted = pa.table({"frame_id": pa.array(self._places, pa.binary()), "place": list(range(len(self._places)))})
        self._sql.register("wanted_requests", wanted)
        found = ask_sql(
            self._sql,
            f"""
            SELECT epoch_us(q.ts) AS ts, q.capture, f.file, q.api_key, q.api_version, q.correlation_id, q.client_id,
                   q.controller_id, q.controller_epoch, q.broker_epoch, q.broker_id, {SERVER} AS server,
                   q.error_code, q.latency_us, q.n_partitions, q.unmatched_reason, q.decode_error,
                   q.body_id AS request, r.body_id AS response
            FROM wanted_requests w
            JOIN requests q ON q.frame_id = w.frame_id
            LEFT JOIN frames f ON f.frame_id = q.frame_id
            LEFT JOIN frames r ON r.frame_id = q.response_frame_id
            ORDER BY w.place
            """,  # noqa: S608  # our own names
        )
        self._sql.unregister("wanted_requests")
        rows = columns_of(found)
        try:
            rows["capture"] = [captures[name] for name in rows["capture"]]
        except KeyError as e:
            raise ConfigurationError(
                f"the table captures lacks {e}, of which the table requests has some; make the tables again"
            ) from None
        ids = list(zip(rows["request"], rows["response"], strict=True))
        marked: dict[bytes, set[TopicPartition]] = defaultdict(set)
        for place, partitions in self._marked.items():
            for body_id in ids[place]:
                marked[body_id] |= partitions
        bodies = _Bodies(self._sql, body_bytes, marked)
        pairs = bodies.places(ids)
        rows["request"] = [pair[0] for pair in pairs]
        rows["response"] = [pair[1] for pair in pairs]
        if bodies.left_out:
            cut.append(
                f"Bodies of {bodies.left_out:,} of {len(rows['ts']):,} requests are not in this page, to keep it "
                "small; the command beside each request shows it whole."
            )
        return rows | {"bodies": bodies.json}


class _Bodies:
    """Distinct bodies as JSON, as many as fit; ``marked`` has the partitions that the JSON of each must contain."""

    def __init__(
        self, sql: duckdb.DuckDBPyConnection, most_bytes: int, marked: Mapping[bytes, set[TopicPartition]]
    ) -> None:
        self._sql = sql
        self._left = most_bytes
        self._marked = marked
        self.json: list[dict[str, Any]] = []
        self.left_out = 0

    def places(self, pairs: list[tuple[bytes | None, bytes | None]]) -> list[tuple[int, int]]:
        """Return the indexes in ``json`` of the bodies of requests and of their responses."""
        payloads = self._payloads(pairs)
        known: dict[bytes, int] = {}
        found = []
        for request_id, response_id in pairs:
            for body_id in (request_id, response_id):
                if body_id is not None and body_id not in known:
                    body = payloads.get(body_id)
                    known[body_id] = _LEFT_OUT if body is None else self._add(body_id, *body)
            self.left_out += request_id is not None and known[request_id] == _LEFT_OUT
            found.append((known.get(request_id or b"", _UNREADABLE), known.get(response_id or b"", _UNREADABLE)))
        return found

    def _payloads(self, pairs: list[tuple[bytes | None, bytes | None]]) -> dict[bytes, tuple[int, int, str, bytes]]:
        """Return the payloads of bodies that are short enough, as many as may fit."""
        ids = list(dict.fromkeys(body_id for pair in pairs for body_id in pair if body_id is not None))
        wanted = pa.table({"body_id": pa.array(ids, pa.binary()), "place": list(range(len(ids)))})
        self._sql.register("wanted_bodies", wanted)
        found = ask_sql(
            self._sql,
            f"""
            WITH short AS (
                SELECT b.*, w.place, sum(octet_length(payload)) OVER (ORDER BY w.place) AS total
                FROM bodies b JOIN wanted_bodies w ON w.body_id = b.body_id WHERE octet_length(payload) <= {_LONGEST}
            )
            SELECT body_id, api_key, api_version, direction, payload FROM short WHERE total <= {8 * self._left}
            """,  # noqa: S608  # our own numbers
        ).rows
        self._sql.unregister("wanted_bodies")
        return {body_id: (key, version, direction, payload) for body_id, key, version, direction, payload in found}

    def _add(self, body_id: bytes, api_key: int, version: int, direction: str, payload: bytes) -> int:
        try:
            message = (decode_request if direction == "request" else decode_response)(api_key, version, payload)
            form = message.to_json(version)
        except KprotoError:
            return _UNREADABLE
        ids = {uuid_to_json(uuid): name for name, uuid in getattr(message, "topic_ids", {}).items()}
        shown = self._cut(form, body_id, ids)
        size = len(json.dumps(shown))
        if size > self._left:
            return _LEFT_OUT
        self._left -= size
        self.json.append(shown)
        return len(self.json) - 1

    def _cut(self, form: dict[str, Any], body_id: bytes, ids: dict[str, str]) -> dict[str, Any]:
        if _partitions(form) <= _WHOLE:
            return form
        marked = frozenset(sorted(self._marked.get(body_id, ()))[:_WHOLE])
        shown = {name: [] if name in _LISTS else value for name, value in form.items()}
        if marked:
            shown = wanted_partitions(form, Filters(partitions=marked), ids)
        kept = _partitions(shown)
        return {"(kproto)": f"{kept} of {_partitions(form)} partitions; the command shows all", **shown}


_LISTS: Final = (
    "topicStates", "topics", "ungroupedPartitionStates", "ungroupedPartitions", "partitionErrors", "partitionStates",
    "partitionIndexes",
)  # fmt: skip
"""The lists of a body that hold partitions, or topics with such lists."""


def _partitions(form: Mapping[str, Any]) -> int:
    """Count the partitions in a body's JSON form."""
    return sum(
        _partitions(item) if isinstance(item, dict) and item.keys() & set(_LISTS) else 1
        for name in _LISTS
        for item in form.get(name) or ()
    )
