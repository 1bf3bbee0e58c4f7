"""Turns exchanges into frames: the bytes of both halves, their times, and the ids by which tables name them."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from kproto.generate.bodies import encode_response, request_head, response_head, shared_body
from kproto.generate.content import Content
from kproto.generate.packets import burst_times, first_sequences
from kproto.generate.traffic import PlannedConnection, PlannedExchange


@dataclass(eq=False, slots=True)
class PlannedFrame:
    """One half of an exchange, as a capture shows it.

    Attributes:
        exchange: The exchange.
        exchange_id: The exchange's id.
        direction: ``request`` or ``response``.
        capture: The capture point.
        conn_id: The connection's id.
        frame_id: The frame's id.
        body_id: The id of its body.
        length: Bytes of header and body.
        time_ns, last_ns: The times of its first and last bytes, ns since 1970.
    """

    exchange: PlannedExchange
    exchange_id: bytes
    direction: Literal["request", "response"]
    capture: str
    conn_id: bytes
    frame_id: bytes
    body_id: bytes
    length: int
    time_ns: int
    last_ns: int


class FramePlanner:
    """Makes the frames of exchanges.

    Args:
        per_host: Whether each broker's connections are a capture of their own.
        mss: Of the packets, which decide when a frame's last byte passes.
        seed: Decides the first sequence numbers.
    """

    def __init__(self, *, per_host: bool, mss: int, seed: int = 1) -> None:
        self._per_host = per_host
        self._mss = mss
        self._seed = seed
        self._conn_ids: dict[PlannedConnection, bytes] = {}
        self._sequences: dict[PlannedConnection, list[int]] = {}
        self._body_ids: dict[Content, tuple[bytes, bytes, int]] = {}

    def forget(self) -> None:
        """Forget bodies that are not sent again."""
        self._body_ids.clear()

    def record(self, exchange: PlannedExchange) -> tuple[PlannedFrame, PlannedFrame | None]:
        """Return the frames of the request, and of the response unless it is lost."""
        content = exchange.content
        request_body_id, response_body_id, response_size = self._bodies(content)
        body = sum(map(len, shared_body(content).pieces(0)))
        size = len(request_head(content, exchange.correlation_id)) + body
        request = self._frame(exchange, "request", request_body_id, size, exchange.time_ns, exchange.last_ns, b"")
        if exchange.lost:
            return request, None
        size = len(response_head(content, exchange.correlation_id)) + response_size
        return request, self._frame(
            exchange, "response", response_body_id, size, exchange.answer_ns, exchange.answer_last_ns,
            request.exchange_id,
        )  # fmt: skip

    def _bodies(self, content: Content) -> tuple[bytes, bytes, int]:
        found = self._body_ids.get(content)
        if found is None:
            response = encode_response(content)
            found = (
                _body_id(content, "request", b"".join(shared_body(content).pieces(0))),
                _body_id(content, "response", response),
                len(response),
            )
            self._body_ids[content] = found
        return found

    def _frame(
        self,
        exchange: PlannedExchange,
        direction: Literal["request", "response"],
        body_id: bytes,
        size: int,
        time_ns: int,
        last_ns: int,
        exchange_id: bytes,
    ) -> PlannedFrame:
        connection = exchange.connection
        capture = f"broker-{exchange.broker}.pcap" if self._per_host else "control.pcap"
        conn_id = self._conn_ids.get(connection)
        if conn_id is None:
            conn_id = self._conn_ids[connection] = _conn_id(capture, connection)
        side = direction == "response"
        next_ = self._sequences.get(connection)
        if next_ is None:
            next_ = self._sequences[connection] = [n + 1 for n in first_sequences(self._seed, connection)]
        number = next_[side] & 0xFFFFFFFF
        next_[side] += size + 4
        ends = [f"{end.ip}:{end.port}" for end in (connection.client, connection.server)]
        frame_id = _hash(_named("frame", *ends, direction, number, 0, time_ns))
        exchange_id = exchange_id or _hash(_named("exchange", *ends, "request", number, exchange.correlation_id, -1))
        passed_last_ns = burst_times(size, time_ns, last_ns, self._mss)[-1]
        return PlannedFrame(
            exchange, exchange_id, direction, capture, conn_id, frame_id, body_id, size, time_ns, passed_last_ns
        )


def _named(*parts: str | int) -> bytes:
    """The bytes whose hash is an id: texts that end with a zero byte, and numbers of eight bytes."""
    return b"".join(part.to_bytes(8, signed=True) if isinstance(part, int) else f"{part}\0".encode() for part in parts)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _conn_id(capture: str, connection: PlannedConnection) -> bytes:
    ends = sorted(f"{end.ip}:{end.port}" for end in (connection.client, connection.server))
    return _hash("\0".join((capture, *ends, str(connection.opened_ns))).encode())


def _body_id(content: Content, direction: str, body: bytes) -> bytes:
    """A hash of API, version, direction and body; requests are encoded with broker epoch 0, which is left out so."""
    is_request = direction == "request"
    head = content.api_key.to_bytes(2) + content.version.to_bytes(2) + bytes([is_request])
    return _hash(head + body)
