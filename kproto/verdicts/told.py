"""Holds what controllers told: a request, and a distinct body with the brokers that got it. Times are us since 1970."""

from __future__ import annotations

from typing import Any, NamedTuple


class Request(NamedTuple):
    """A row of ``requests``, ``ts`` in us since 1970; ``broker_id`` is the address as text where no id is known."""

    ts: int
    frame_id: bytes
    capture: str
    conn_id: bytes
    api_key: int
    api_version: int
    controller_id: int | None
    controller_epoch: int
    broker_epoch: int | None
    is_kraft_controller: bool | None
    type: int | None
    live_brokers_id: bytes | None
    broker_id: Any
    server_ip: str
    server_port: int
    n_partitions: int | None
    body_id: bytes | None
    response_frame_id: bytes | None
    latency_us: int | None
    error_code: int | None
    unmatched_reason: str | None
    decode_error: str | None


class Body:
    """A distinct request body that some broker accepted.

    Attributes:
        api_key: The API.
        states: Its partitions' states; of StopReplica, whether the log is to be deleted.
        told: For each broker that accepted it, when it did first and last.
        sent: For each broker that it was sent to, accepted or not, when it was first.
        first, last: When a broker first accepted it, and when one did last.
    """

    __slots__ = ("api_key", "first", "last", "live", "request", "sent", "states", "told")

    def __init__(self, request: Request, live: frozenset[int] | None) -> None:
        self.api_key: int = request.api_key
        self.request = request
        self.live = live
        self.first: int = 0
        self.last: int = 0
        self.states: list[tuple[str, int, bytes | None, Any]] = []
        self.told: dict[Any, tuple[int, int]] = {}
        self.sent: dict[Any, int] = {}
