"""What passes between a controller and its brokers, and the rules that every frame must keep."""

from __future__ import annotations

import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from kproto import codec, headers, messages
from kproto.api import ApiKey, api_name, response_header_version

if TYPE_CHECKING:
    from .network import Network, Socket
    from .scheduler import World

__all__ = ["Channel", "Entry", "Wires"]

_head = struct.Struct(">hhi")
_RESPONSES = {
    ApiKey.LEADER_AND_ISR: messages.LeaderAndIsrResponse,
    ApiKey.STOP_REPLICA: messages.StopReplicaResponse,
    ApiKey.UPDATE_METADATA: messages.UpdateMetadataResponse,
}


class Entry:
    """A request that the controller has decided to send to a broker."""

    __slots__ = ("answered", "body", "dropped", "may_be_cut", "request", "times")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.body: bytes | None = None
        self.answered = False
        self.dropped = False
        self.may_be_cut = False  # it was answered before it was whole
        self.times = 0

    def matches(self, frame: bytes) -> bool:
        """Whether a frame carries this request."""
        if self.body is None:
            self.body = b"".join(self.request.build(self.request.latest_version))
        return frame.endswith(self.body)


class Channel:
    """The requests of one broker from its addition to its removal, in the order of decisions."""

    def __init__(self, broker_id: int, number: int) -> None:
        self.broker_id = broker_id
        self.number = number
        self.entries: list[Entry] = []
        self.at = -1  # the request that was delivered last
        self.newest = -1  # the latest connection that delivered one
        self.was_injected = False  # an answer was sent in the broker's name

    @property
    def is_excused(self) -> bool:
        """Whether the broker may have an old state, as a request was answered without having arrived."""
        return any(self._is_answered_unread(entry) for entry in self.entries)

    def _is_answered_unread(self, entry: Entry) -> bool:
        """Whether an injected answer was taken for a request's, which then was lost with its connection."""
        return entry.answered and not entry.times and (entry.may_be_cut or self.was_injected)

    def due(self) -> int:
        """Return the number of the next request that may be delivered for the first time."""
        at = self.at + 1
        while at < len(self.entries):
            entry = self.entries[at]
            if not (entry.dropped or self._is_answered_unread(entry)):
                break
            at += 1
        return at

    def may_be_cut(self, begun: bytes) -> None:
        """Note that the request that is under way is answered before it is whole."""
        for entry in self.entries[max(0, self.at) :]:
            if not entry.answered and not entry.dropped:
                entry.may_be_cut = True
                return

    def __repr__(self) -> str:
        return f"channel {self.number} to broker {self.broker_id}"


class _Wire:
    """One connection from the controller to a broker."""

    __slots__ = (
        "accepted", "answers", "channel", "correlation_id", "early", "frames", "got", "number", "odd", "sent",
        "sock",
    )  # fmt: skip

    def __init__(self, number: int, sock: Socket, accepted: Socket, channel: Channel | None) -> None:
        self.number = number
        self.sock = sock
        self.accepted = accepted
        self.channel = channel
        self.got = b""
        self.sent = b""
        self.frames = 0
        self.answers = 0
        self.correlation_id = -1
        self.early = False
        self.odd = False  # something that no broker sends was put into it


class Wires:
    """Watches the connections between one controller and its brokers.

    Args:
        world: Takes what breaks a rule.
        network: The network.
        brokers: Broker ids by address.
        is_encrypted: Whether frames are seen when an end decrypts them, not when they arrive.

    Attributes:
        frames: How many requests have arrived at brokers.
        are_ordered: Whether one thread decides, so that requests must arrive in the order of decisions.
        recent: The latest of them, for the timeline.
        open: The open connections, by the controller's socket.
    """

    def __init__(
        self, world: World, network: Network, brokers: dict[tuple[str, int], int], *, is_encrypted: bool
    ) -> None:
        self._world = world
        self._network = network
        self._brokers = brokers
        self._is_encrypted = is_encrypted
        self.channels: dict[int, Channel] = {}
        self.by_request: dict[int, Entry] = {}
        self.frames = 0
        self.recent: deque[tuple[int, str]] = deque(maxlen=12)
        self._number = 0
        self.are_ordered = True
        self.open: dict[Socket, _Wire] = {}
        network.on_connection = self._connected

    # ---- decisions

    def began(self, broker_id: int) -> None:
        """Note that a broker was added."""
        before = self.channels.get(broker_id)
        self.channels[broker_id] = Channel(broker_id, 0 if before is None else before.number + 1)

    def decided(self, broker_id: int, request: Any) -> None:
        """Note a request that is about to be queued."""
        channel = self.channels.get(broker_id)
        if channel is not None:
            entry = Entry(request)
            channel.entries.append(entry)
            self.by_request[id(request)] = entry

    # ---- frames

    def _connected(self, sock: Socket, accepted: Socket) -> None:
        broker_id = self._brokers.get(accepted.name)
        if broker_id is None or not sock.process.name.startswith("controller"):
            return
        for known in [known for known in self.open if known.closed]:
            del self.open[known]
        self._number += 1
        wire = self.open[sock] = _Wire(self._number, sock, accepted, self.channels.get(broker_id))
        requests, answers = partial(self._request_bytes, wire), partial(self._answer_bytes, wire)
        if self._is_encrypted:
            accepted.tap_of_plaintext, sock.tap_of_plaintext = requests, answers
        else:
            accepted.tap, sock.tap = requests, answers

    def _request_bytes(self, wire: _Wire, data: bytes) -> None:
        got = wire.got + data if wire.got else data
        while len(got) >= 4:
            end = 4 + int.from_bytes(got[:4], "big")
            if len(got) < end:
                break
            self._request(wire, got[4:end])
            got = got[end:]
        wire.got = got
        if wire.early and len(got) >= 12:
            wire.early = False
            api_key, version, correlation_id = _head.unpack_from(got, 4)
            if api_key not in _RESPONSES:
                return
            self.inject(wire, api_key, version, correlation_id)
            if wire.channel is not None:
                wire.channel.may_be_cut(got[4:])
            self._world.note(f"{wire.channel}: answered before request {correlation_id} is whole")

    def inject(self, wire: _Wire, api_key: int, version: int, correlation_id: int) -> None:
        """Send an answer in the broker's name."""
        wire.odd = True
        if wire.channel is not None:
            wire.channel.was_injected = True
        header = headers.encode_response_header(
            headers.response_header(correlation_id), response_header_version(api_key, version)
        )
        body = codec.encode(_RESPONSES[ApiKey(api_key)](), version)
        self._network.transmit(wire.accepted, struct.pack(">i", len(header) + len(body)) + header + body)

    def _request(self, wire: _Wire, frame: bytes) -> None:
        world, channel = self._world, wire.channel
        self.frames += 1
        api_key, _, correlation_id = _head.unpack_from(frame)
        if api_key not in _RESPONSES:  # authentication
            wire.frames += 1
            return
        self.recent.append((world.now, f"{channel}: request {correlation_id}, {api_name(api_key)}, arrives"))
        if correlation_id <= wire.correlation_id:
            world.problem(f"{channel}: correlation id {correlation_id} follows {wire.correlation_id}")
        wire.correlation_id = correlation_id
        wire.frames += 1
        if wire.frames > wire.answers + 1 and not wire.odd:
            world.problem(f"{channel}: a request is sent while another is in flight")
        if not self.are_ordered or channel is None or channel is not self.channels.get(channel.broker_id):
            return  # the broker was removed while this was under way
        entries, at = channel.entries, channel.at
        if wire.number < channel.newest:
            if not wire.odd:  # a connection that had an early answer is closed, and its last request may be under way
                world.problem(f"{channel}: a request arrives over an old connection after one of a newer connection")
            return
        channel.newest = wire.number
        if at < 0 or entries[at].answered or not entries[at].matches(frame):
            due = channel.due()
            if due >= len(entries) or not entries[due].matches(frame):  # one that was given up on its way?
                due = next((i for i in range(at + 1, due) if entries[i].matches(frame)), due)
            at = due
            if at >= len(entries) or not entries[at].matches(frame):
                later = next((i for i in range(len(entries)) if entries[i].matches(frame)), None)
                world.problem(f"{channel}: a request is out of order: number {later} where {at} is due")
                return
            if channel.at >= 0 and not (entries[channel.at].answered or entries[channel.at].dropped):
                world.problem(f"{channel}: request {at} is sent before request {channel.at} was answered")
            channel.at = at
        entries[at].times += 1

    def _answer_bytes(self, wire: _Wire, data: bytes) -> None:
        sent = wire.sent + data if wire.sent else data
        while len(sent) >= 4:
            end = 4 + int.from_bytes(sent[:4], "big")
            if len(sent) < end:
                break
            wire.answers += 1
            sent = sent[end:]
        wire.sent = sent
