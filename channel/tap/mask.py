"""A mask for SASL secrets in recordings: it zeroes the tokens of a connection and leaves every other byte as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kproto.api import ApiKey, response_header_version
from kproto.codec import decode_request, decode_response, encode
from kproto.errors import KprotoError
from kproto.headers import decode_request_header_from, decode_response_header_from

if TYPE_CHECKING:
    from channel.network.recorder import Direction

__all__ = ["SaslMask"]

_REQUEST_HEAD: Final = 12
"""Bytes: length, API key, version, correlation id."""

_RESPONSE_HEAD: Final = 8
"""Bytes: length, correlation id."""

_MOST_HELD: Final = 65_536
"""The longest frame with a token that is held back until it is whole; a longer frame is zeroed as it arrives."""

_BARE_TOKENS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1, "GSSAPI": 3}
"""Number of tokens that each side sends as bare frames after SaslHandshake v0, by mechanism."""


class _Stream:
    """One direction of the connection, with the frame that is being examined.

    Attributes:
        held: The bytes of the frame that have arrived and are held back.
        wanted: The number of held bytes that the next step needs.
        rest: Number of further bytes of the frame, which need not be held back.
        is_hidden: Whether those further bytes are zeroed.
        bare_tokens: Number of the next frames that are bare tokens.
    """

    __slots__ = ("bare_tokens", "held", "is_hidden", "rest", "wanted")

    def __init__(self) -> None:
        self.held = bytearray()
        self.wanted = 4
        self.rest = 0
        self.is_hidden = False
        self.bare_tokens = 0


class SaslMask:
    """The SASL exchange of one connection, followed on its two byte streams.

    The head of each frame, and a whole frame with a token, are held back until they are complete; other bytes pass.
    """

    __slots__ = ("_authenticates", "_handshakes", "_streams")

    def __init__(self) -> None:
        self._streams = {"sent": _Stream(), "received": _Stream()}
        self._authenticates: dict[bytes, int] = {}  # correlation id to version
        self._handshakes: dict[bytes, int] = {}  # correlation id of SaslHandshake v0 to the number of bare tokens

    def apply(self, direction: Direction, data: memoryview) -> list[bytes | memoryview]:
        """Return the bytes to record instead of these, which the caller may then overwrite; some may be held back."""
        stream = self._streams[direction]
        recorded: list[bytes | memoryview] = []
        while data:
            if stream.rest:
                piece = data[: stream.rest]
                recorded.append(bytes(len(piece)) if stream.is_hidden else piece)
                stream.rest -= len(piece)
                data = data[len(piece) :]
                continue
            piece = data[: stream.wanted - len(stream.held)]
            stream.held += piece
            data = data[len(piece) :]
            if len(stream.held) == stream.wanted:
                self._examine(direction, stream, recorded)
        return recorded

    def _examine(self, direction: Direction, stream: _Stream, recorded: list[bytes | memoryview]) -> None:
        """Ask for more bytes of the frame, or record the held bytes and decide whether to zero the rest."""
        whole = 4 + max(0, int.from_bytes(stream.held[:4], "big", signed=True))
        head = min(whole, _REQUEST_HEAD if direction == "sent" else _RESPONSE_HEAD)
        if len(stream.held) < head:
            stream.wanted = head
            return
        frame = bytes(stream.held)
        has_token = stream.bare_tokens > 0 or self._has_token(direction, frame)
        needs_all = whole <= _MOST_HELD and (has_token or self._is_old_handshake(direction, frame))
        if needs_all and len(frame) < whole:
            stream.wanted = whole
            return
        if stream.bare_tokens:
            stream.bare_tokens -= 1
            frame = frame[:4] + bytes(len(frame) - 4)
        elif has_token:
            frame = self._masked(direction, frame)
        elif needs_all:
            self._note_handshake(direction, frame)
        recorded.append(frame)
        stream.held.clear()
        stream.wanted = 4
        stream.rest = whole - len(frame)
        stream.is_hidden = has_token

    def _has_token(self, direction: Direction, frame: bytes) -> bool:
        if direction == "sent":
            return len(frame) >= _REQUEST_HEAD and int.from_bytes(frame[4:6], "big") == ApiKey.SASL_AUTHENTICATE
        return frame[4:8] in self._authenticates

    def _is_old_handshake(self, direction: Direction, frame: bytes) -> bool:
        if direction == "sent":
            return int.from_bytes(frame[4:8], "big") == ApiKey.SASL_HANDSHAKE << 16
        return frame[4:8] in self._handshakes

    def _masked(self, direction: Direction, frame: bytes) -> bytes:
        api_key = ApiKey.SASL_AUTHENTICATE
        try:
            if direction == "sent":
                header, at = decode_request_header_from(frame[4:])
                version = header.request_api_version
                self._authenticates[frame[8:12]] = version
                message = decode_request(api_key, version, frame[4 + at :])
            else:
                version = self._authenticates.pop(frame[4:8])
                _, at = decode_response_header_from(frame[4:], response_header_version(api_key, version))
                message = decode_response(api_key, version, frame[4 + at :])
            message.auth_bytes = bytes(len(message.auth_bytes))
            return frame[: 4 + at] + encode(message, version)
        except KprotoError:  # it may still hold a secret
            head = _REQUEST_HEAD if direction == "sent" else _RESPONSE_HEAD
            return frame[:head] + bytes(len(frame) - head)

    def _note_handshake(self, direction: Direction, frame: bytes) -> None:
        try:
            if direction == "sent":
                _, at = decode_request_header_from(frame[4:])
                mechanism = decode_request(ApiKey.SASL_HANDSHAKE, 0, frame[4 + at :]).mechanism
                self._handshakes[frame[8:12]] = _BARE_TOKENS.get(mechanism, 1)
                return
            tokens = self._handshakes.pop(frame[4:8])
            if decode_response(ApiKey.SASL_HANDSHAKE, 0, frame[8:]).error_code == 0:
                for stream in self._streams.values():
                    stream.bare_tokens = tokens
        except KprotoError:  # no handshake, so no bare tokens
            return
