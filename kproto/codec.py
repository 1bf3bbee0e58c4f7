"""The door to both codecs.

``decode_request``, ``decode_response`` and ``encode`` here take the C-accelerated codec for the three control requests
and the Construct reference for every other API. ``get_codec`` gives one implementation alone, by name. A missing
extension is a loud error on first use: nobody gets a slower codec in silence.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, cast, runtime_checkable

from .api import CONTROL_APIS
from .errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .types import Buffer, Json, Kind

__all__ = [
    "Codec",
    "Header",
    "Implementation",
    "Message",
    "codec_for",
    "decode_request",
    "decode_request_from",
    "decode_response",
    "decode_response_from",
    "encode",
    "get_codec",
    "message_class",
]

Implementation = Literal["cython", "construct"]


@runtime_checkable
class Message(Protocol):
    """What a message of either codec can do beside holding the wire's fields in snake_case."""

    @property
    def api_key(self) -> int:
        """Whose message it is."""

    @property
    def kind(self) -> Kind:
        """``request`` or ``response``."""

    def to_json(self, version: int) -> Json:
        """Kafka's JSON form of that version: what the brokers' request log prints.

        Raises:
            FieldNotInVersion: As ``encode``.
            UnsupportedVersion: The API has no such version.
        """

    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self:
        """The message behind Kafka's JSON form of that version.

        Raises:
            EncodeError: A field is missing, of the wrong type or out of range.
            UnsupportedVersion: The API has no such version.
        """


@runtime_checkable
class Header(Protocol):
    """A request or response header of either codec."""

    correlation_id: int

    def to_json(self, version: int) -> Json:
        """Kafka's JSON form; ``version`` is the header's own."""

    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self:
        """The header behind it."""


class RequestHeaderLike(Header, Protocol):
    """A request header of either codec. The client id stays null where the wire has null."""

    request_api_key: int
    request_api_version: int
    client_id: str | None

    @property
    def client_id_or_empty(self) -> str:
        """The client id as Kafka's own parser presents it: null becomes the empty string."""


class Codec(Protocol):
    """What both implementations offer, as modules.

    ``data`` is any buffer. Decoding reads one message from its start and ignores what follows, as Kafka does; the
    ``_from`` twins also tell how many bytes were used. ``strict`` refuses what the protocol forbids though Kafka lets
    it pass. All decoding raises ``DecodeError`` for bad bytes, ``UnsupportedApi`` and ``UnsupportedVersion`` for what
    this codec does not know, and nothing else.
    """

    def decode_request(self, api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any: ...
    def decode_request_from(
        self, api_key: int, version: int, data: Buffer, *, strict: bool = False
    ) -> tuple[Any, int]: ...
    def decode_response(self, api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any: ...
    def decode_response_from(
        self, api_key: int, version: int, data: Buffer, *, strict: bool = False
    ) -> tuple[Any, int]: ...
    def encode(self, message: Any, version: int) -> bytes: ...
    def message_class(self, api_key: int, kind: Literal["request", "response"]) -> type[Any]: ...

    @property
    def RequestHeader(self) -> type[Any]: ...
    @property
    def ResponseHeader(self) -> type[Any]: ...

    def decode_request_header(
        self, data: Buffer, header_version: int | None = None, *, strict: bool = False
    ) -> RequestHeaderLike: ...
    def decode_request_header_from(
        self, data: Buffer, header_version: int | None = None, *, strict: bool = False
    ) -> tuple[RequestHeaderLike, int]: ...
    def encode_request_header(self, header: Any, header_version: int | None = None) -> bytes: ...
    def decode_response_header(self, data: Buffer, header_version: int, *, strict: bool = False) -> Header: ...
    def decode_response_header_from(
        self, data: Buffer, header_version: int, *, strict: bool = False
    ) -> tuple[Header, int]: ...
    def encode_response_header(self, header: Any, header_version: int) -> bytes: ...


_MODULES: Final = {"cython": "kproto._codec", "construct": "kproto.reference"}


@functools.cache
def get_codec(implementation: Implementation) -> Codec:
    """One implementation: ``cython`` (the three control APIs) or ``construct`` (all that kproto knows).

    Raises:
        ConfigurationError: No such implementation.
        ImportError: The extension is not built.
    """
    try:
        name = _MODULES[implementation]
    except KeyError:
        raise ConfigurationError(f"no codec {implementation!r}; there are: {', '.join(_MODULES)}") from None
    try:
        return cast("Codec", importlib.import_module(name))
    except ImportError as e:
        if implementation != "cython" or e.name not in (None, name):
            raise
        raise ImportError(
            "kproto's extension is not built for this Python; reinstall kproto with a C compiler at hand, "
            'or ask for the slow reference by name: get_codec("construct")',
            name=name,
        ) from e


def codec_for(api_key: int) -> Codec:
    """The codec that the functions below use for an API: the extension for the control APIs, else the reference."""
    return get_codec("cython" if api_key in CONTROL_APIS else "construct")


def decode_request(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
    """Read a request's body.

    Args:
        api_key: Whose request, e.g. ``ApiKey.UPDATE_METADATA``.
        version: The version that its header named.
        data: The body, without size and header; what follows the message is ignored unless ``strict``.
        strict: Refuse what the protocol forbids though Kafka lets it pass.

    Raises:
        DecodeError: The bytes are no such message.
        UnsupportedApi, UnsupportedVersion: kproto or Kafka 3.9.1 does not have it.
    """
    return codec_for(api_key).decode_request(api_key, version, data, strict=strict)


def decode_request_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """``decode_request``, and how many bytes the message took."""
    return codec_for(api_key).decode_request_from(api_key, version, data, strict=strict)


def decode_response(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
    """Read a response's body; ``version`` is that of the request it answers. Errors as ``decode_request``."""
    return codec_for(api_key).decode_response(api_key, version, data, strict=strict)


def decode_response_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """``decode_response``, and how many bytes the message took."""
    return codec_for(api_key).decode_response_from(api_key, version, data, strict=strict)


def encode(message: Message, version: int) -> bytes:
    """Write a message of either codec, byte for byte as Kafka 3.9.1 does.

    Raises:
        FieldNotInVersion: A field that this version lacks holds a value that may not be dropped.
        OutOfRange, EncodeError: A value that cannot be written.
        UnsupportedVersion: The API has no such version.
    """
    module = type(message).__module__
    name: Implementation = "cython" if module == "kproto._codec" else "construct"
    return get_codec(name).encode(message, version)


def message_class(api_key: int, kind: Literal["request", "response"]) -> type[Any]:
    """The class of an API's requests or responses.

    Raises:
        UnsupportedApi: Neither codec knows it.
    """
    return codec_for(api_key).message_class(api_key, kind)
