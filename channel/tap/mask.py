"""A mask for secrets in recordings: it writes zeros for passwords and tokens, and leaves every other byte as it is.

It follows the requests of a connection and hides

- what a client sends after a SaslHandshake and is no Kafka request: a bare token of SASL, whether the broker has
  accepted the handshake, has refused it or has not answered it yet; and the broker's answers to such tokens;
- the tokens in SaslAuthenticate requests and responses;
- requests and responses of APIs that carry passwords, keys or values of settings: those of delegation tokens,
  AlterUserScramCredentials, AlterConfigs and IncrementalAlterConfigs, also inside an Envelope.

A hidden frame keeps its length, and a hidden request or response its head: API, version and correlation id.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.codec import decode_request, decode_response, encode, message_class
from kproto.errors import KprotoError
from kproto.headers import (
    decode_request_header_from,
    decode_response_header_from,
    encode_request_header,
    encode_response_header,
    request_header,
    response_header,
)

if TYPE_CHECKING:
    from channel.network.recorder import Direction

__all__ = ["SecretMask"]

_REQUEST_HEAD: Final = 12
"""Bytes: length, API key, version, correlation id."""

_RESPONSE_HEAD: Final = 8
"""Bytes: length, correlation id."""

_MOST_HELD: Final = 65_536
"""The longest frame that is held back until it is whole; a longer one with a secret is zeroed as it arrives."""

_MOST_IDS: Final = 64
"""Number of correlation ids that are kept of the latest requests, and of requests whose answers have a secret."""

_HIDDEN_APIS: Final = frozenset({
    ApiKey.ALTER_CONFIGS, ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
})  # fmt: skip
_EXAMINED_APIS: Final = _HIDDEN_APIS | {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ENVELOPE}

# A request's first four bytes are its API and version: small numbers, which no token of a SASL mechanism begins with.
_HIGHEST_API: Final = 127
_HIGHEST_VERSION: Final = 30

_head = struct.Struct(">iHH")


class _Stream:
    """One direction of the connection, with the frame that is being examined.

    Attributes:
        held: The bytes of the frame that have arrived and are held back.
        wanted: The number of held bytes that the next step needs.
        rest: Number of further bytes of the frame, which need not be held back.
        is_hidden: Whether those further bytes are zeroed.
    """

    __slots__ = ("held", "is_hidden", "rest", "wanted")

    def __init__(self) -> None:
        self.held = bytearray()
        self.wanted = 4
        self.rest = 0
        self.is_hidden = False


class SecretMask:
    """The two byte streams of one connection, as they may be recorded.

    The head of each frame, and a whole frame with a secret, are held back until they are complete; other bytes pass.
    """

    __slots__ = ("_answers", "_answers_tokens", "_before_token", "_has_handshake", "_latest", "_received", "_sent")

    def __init__(self) -> None:
        self._sent = _Stream()
        self._received = _Stream()
        self._has_handshake = False
        self._answers: dict[bytes, tuple[int, int]] = {}  # correlation id of a response with a secret: API and version
        self._latest: deque[bytes] = deque(maxlen=_MOST_IDS)  # correlation ids of requests, since the last bare token
        self._before_token: frozenset[bytes] = frozenset()
        self._answers_tokens = False  # whether the broker's frames may be answers to bare tokens

    def apply(self, direction: Direction, data: memoryview) -> list[bytes | memoryview]:
        """Return the bytes to record instead of these, which the caller may then overwrite; some may be held back."""
        is_request = direction == "sent"
        stream, passes = (self._sent, self._request_passes) if is_request else (self._received, self._response_passes)
        head = _REQUEST_HEAD if is_request else _RESPONSE_HEAD
        recorded: list[bytes | memoryview] = []
        begin = at = 0  # data[begin:at] passes
        end = len(data)
        while at < end:
            if stream.rest:
                count = min(stream.rest, end - at)
                if stream.is_hidden:
                    if begin < at:
                        recorded.append(data[begin:at])
                    recorded.append(bytes(count))
                    begin = at + count
                stream.rest -= count
                at += count
                continue
            if not stream.held and end - at >= head and (size := passes(data, at)) is not None:
                stream.rest = 4 + size
                stream.is_hidden = False
                continue
            if begin < at:
                recorded.append(data[begin:at])
            begin = min(end, at + stream.wanted - len(stream.held))
            stream.held += data[at:begin]
            at = begin
            if len(stream.held) == stream.wanted:
                self._examine(stream, recorded)
        if begin < at:
            recorded.append(data[begin:at])
        return recorded

    def _request_passes(self, data: memoryview, at: int) -> int | None:
        """Return the size of a request that has no secret, None if the frame must be examined."""
        size, api_key, version = _head.unpack_from(data, at)
        if size < 8 or api_key > _HIGHEST_API or version > _HIGHEST_VERSION or api_key in _EXAMINED_APIS:
            return None
        self._latest.append(bytes(data[at + 8 : at + 12]))
        return int(size)

    def _response_passes(self, data: memoryview, at: int) -> int | None:
        """Return the size of a response if none with a secret is due, None if the frame must be examined."""
        if self._answers or self._answers_tokens:
            return None
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        return size if size >= 0 else None

    def _examine(self, stream: _Stream, recorded: list[bytes | memoryview]) -> None:
        """Ask for more bytes of the frame, or record the held bytes and decide whether to zero the rest."""
        is_request = stream is self._sent
        size = int.from_bytes(stream.held[:4], "big", signed=True)
        whole = 4 + max(0, size)
        head = min(whole, _REQUEST_HEAD if is_request else _RESPONSE_HEAD)
        if len(stream.held) < head:
            stream.wanted = head
            return
        frame = bytes(stream.held)
        api = self._api_of_request(frame) if is_request else self._api_of_response(frame)
        if api is not None and api[0] not in _HIDDEN_APIS and len(frame) < whole <= _MOST_HELD:
            stream.wanted = whole
            return
        is_hidden, shown = False, frame
        if api is not None:
            is_hidden = True
            shown = _masked(frame, whole, *api, is_request=is_request)
        elif is_request and self._has_handshake and not _is_request(frame):
            is_hidden = True
            shown = frame[:4] + bytes(len(frame) - 4)
            self._note_token()
            if size < 0:  # no frames any more
                whole = sys.maxsize
        elif not is_request and self._answers_tokens:
            is_hidden = not self._is_response(frame)
            shown = frame[:4] + bytes(len(frame) - 4) if is_hidden else frame
        if not is_request:
            self._answers.pop(frame[4:8], None)
        elif _is_request(frame):
            self._note_request(frame, has_secret=api is not None and (api[0] != ApiKey.ENVELOPE or shown != frame))
        recorded.append(shown)
        stream.held.clear()
        stream.wanted = 4
        stream.rest = whole - len(frame)
        stream.is_hidden = is_hidden

    def _api_of_request(self, frame: bytes) -> tuple[int, int] | None:
        """API and version of a request that may have a secret."""
        if not _is_request(frame):
            return None
        _, api_key, version = _head.unpack_from(frame)
        return (api_key, version) if api_key in _EXAMINED_APIS else None

    def _api_of_response(self, frame: bytes) -> tuple[int, int] | None:
        """API and version of a response that has a secret."""
        return self._answers.get(frame[4:8]) if len(frame) >= _RESPONSE_HEAD else None

    def _note_request(self, frame: bytes, *, has_secret: bool) -> None:
        _, api_key, version = _head.unpack_from(frame)
        correlation_id = frame[8:12]
        if api_key == ApiKey.SASL_HANDSHAKE:
            self._has_handshake = True
        elif has_secret:
            if len(self._answers) >= _MOST_IDS:
                del self._answers[next(iter(self._answers))]
            self._answers[correlation_id] = (api_key, version)
        self._latest.append(correlation_id)

    def _note_token(self) -> None:
        self._before_token = frozenset(self._latest) | (self._before_token if not self._latest else frozenset())
        self._latest.clear()
        self._answers_tokens = True

    def _is_response(self, frame: bytes) -> bool:
        """Whether a frame of the broker answers a request, and no bare token."""
        correlation_id = frame[4:8]
        if len(frame) < _RESPONSE_HEAD:
            return False
        if correlation_id in self._latest:  # a request after the last token: all tokens have been answered
            self._answers_tokens = False
            return True
        return correlation_id in self._before_token


def _is_request(frame: bytes) -> bool:
    """Whether the head of a frame is that of a Kafka request."""
    if len(frame) < _REQUEST_HEAD:
        return False
    _, api_key, version = _head.unpack_from(frame)
    return api_key == ApiKey.SASL_HANDSHAKE or bool(api_key <= _HIGHEST_API and version <= _HIGHEST_VERSION)


def _masked(frame: bytes, whole: int, api_key: int, version: int, *, is_request: bool) -> bytes:
    """Return a frame, or as much of it as was held back, with zeros for its secrets."""
    head = _REQUEST_HEAD if is_request else _RESPONSE_HEAD
    if len(frame) == whole and api_key not in _HIDDEN_APIS:
        shown: bytes | None = None
        try:
            shown = _masked_request(frame, ApiKey(api_key), version) if is_request else None
            if not is_request and api_key == ApiKey.SASL_AUTHENTICATE:
                shown = _masked_authentication(frame, version)
        except KprotoError:  # it may still hold a secret
            pass
        # Other lengths come of fields that are not known here, and may be anything.
        if shown is not None and len(shown) == len(frame):
            return shown
    return frame[:head] + bytes(len(frame) - head)


def _masked_request(frame: bytes, api_key: ApiKey, version: int) -> bytes | None:
    header, at = decode_request_header_from(frame[4:])
    body = decode_request(api_key, version, frame[4 + at :])
    shown: Any
    if api_key == ApiKey.ENVELOPE:
        embedded = int.from_bytes(bytes(body.request_data or b"")[:2], "big")
        return None if embedded in _HIDDEN_APIS else frame
    if api_key == ApiKey.SASL_HANDSHAKE:
        shown = message_class(api_key, "request")(mechanism=body.mechanism)
    else:
        shown = message_class(api_key, "request")(auth_bytes=bytes(len(body.auth_bytes)))
    known = request_header(api_key, version, header.correlation_id, header.client_id)
    return frame[:4] + encode_request_header(known, request_header_version(api_key, version)) + encode(shown, version)


def _masked_authentication(frame: bytes, version: int) -> bytes:
    api_key = ApiKey.SASL_AUTHENTICATE
    header, at = decode_response_header_from(frame[4:], response_header_version(api_key, version))
    shown = decode_response(api_key, version, frame[4 + at :])
    shown = message_class(api_key, "response")(
        error_code=shown.error_code,
        error_message=shown.error_message,
        auth_bytes=bytes(len(shown.auth_bytes)),
        session_lifetime_ms=shown.session_lifetime_ms,
    )
    known = response_header(header.correlation_id)
    return frame[:4] + encode_response_header(known, response_header_version(api_key, version)) + encode(shown, version)
