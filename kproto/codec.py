"""Decoding and encoding of messages: bodies of requests and responses, without frame and header.

The functions use the C-accelerated codec for LeaderAndIsr, StopReplica and UpdateMetadata, and the Construct reference
for every other API. ``get_codec`` returns one implementation alone, by name. Where the extension is not built, its
first use raises an ``ImportError`` that says what to do; the slow reference never takes its place in silence. In the
wheels for macOS and Windows, which have no extension, the reference does take its place, and a warning says so once.

A type checker knows what each API decodes to: ``decode_request(ApiKey.METADATA, 12, body)`` is a ``MetadataRequest``,
whose fields have their types.

>>> from kproto.api import ApiKey
>>> answer = decode_response(ApiKey.STOP_REPLICA, 4, bytes.fromhex("000b0100"))
>>> answer.error_code, encode(answer, 4).hex()
(11, '000b0100')
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    Self,
    cast,
    runtime_checkable,
)

from .api import CONTROL_APIS
from .errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .types import Buffer, Json, Kind

Implementation = Literal["cython", "construct"]


@runtime_checkable
class Message(Protocol):
    """A request or response of either codec; its fields have the protocol's names in snake_case."""

    @property
    def api_key(self) -> int:
        """The API that it belongs to."""

    @property
    def kind(self) -> Kind:
        """``request`` or ``response``."""

    def to_json(self, version: int) -> Json:
        """Kafka's JSON form of that version: what the brokers' request log prints.

        Raises:
            FieldNotInVersion: As ``encode``.
            UnsupportedVersion: The API has no such version.
        """

    def for_version(self, version: int) -> Self:
        """Return the message as one who reads it in this version gets it: with the fields that the version has.

        Raises:
            FieldNotInVersion: A field that the version lacks holds a value that may not be dropped.
            EncodeError, UnsupportedVersion: As ``encode``.
        """

    @classmethod
    def from_json(cls, json: Mapping[str, Any], version: int) -> Self:
        """Make a message from Kafka's JSON form of that version.

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
        """Make a header from that form."""


class RequestHeaderLike(Header, Protocol):
    """A request header of either codec. The client id stays null where the wire has null."""

    request_api_key: int
    request_api_version: int
    client_id: str | None

    @property
    def client_id_or_empty(self) -> str:
        """The client id as Kafka's own parser presents it: null becomes the empty string."""


class Codec(Protocol):
    """The functions and classes of an implementation, which is a module.

    ``data`` is any buffer. Decoding reads one message from its start and ignores the bytes after it, as Kafka does; the
    functions whose names end in ``_from`` also return how many bytes they read. ``strict`` refuses what the protocol
    forbids although Kafka accepts it. Decoding raises ``DecodeError`` for bad bytes, ``UnsupportedApi`` and
    ``UnsupportedVersion`` for an API or version that the implementation lacks, and nothing else.
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
_PURE_WHEEL: Final = "kproto._pure_wheel"
"""The module that ``KPROTO_PURE=wheel`` (setup.py) puts into a wheel without extensions."""


@functools.cache
def get_codec(implementation: Implementation) -> Codec:
    """Return one implementation: ``cython`` (the three control APIs) or ``construct`` (every API that kproto knows).

    Raises:
        ConfigurationError: No such implementation.
        ImportError: The extension is not built.
    """
    try:
        name = _MODULES[implementation]
    except KeyError:
        raise ConfigurationError(f"there is no codec {implementation!r}; choose {' or '.join(_MODULES)}") from None
    try:
        return cast("Codec", importlib.import_module(name))
    except ImportError as e:
        if implementation != "cython" or e.name not in (None, name):
            raise
        if importlib.util.find_spec(_PURE_WHEEL) is not None:
            warnings.warn(
                "this kproto has no extension (no wheel for macOS or Windows has): control requests are read by the "
                "reference, some hundred times slower",
                stacklevel=2,
            )
            return cast("Codec", importlib.import_module("kproto.reference.stand_in"))
        from .extras import clone

        raise ImportError(
            "kproto's extension is not built for this Python; "
            + (
                f"these are the sources in {place}: to use a kproto that is installed, start Python in another "
                f"directory; to build it here: pip install -e '{place}'; "
                if (place := clone())
                else "install kproto again where there is a C compiler, "
            )
            + 'or use the slow reference by its name: get_codec("construct")',
            name=name,
        ) from e


def codec_for(api_key: int) -> Codec:
    """Return the codec that this module's functions use for an API."""
    return get_codec("cython" if api_key in CONTROL_APIS else "construct")


if TYPE_CHECKING:  # what each API decodes to: a stub, since there are two hundred overloads
    from ._typed_codec import (
        decode_request as decode_request,
    )
    from ._typed_codec import (
        decode_request_from as decode_request_from,
    )
    from ._typed_codec import (
        decode_response as decode_response,
    )
    from ._typed_codec import (
        decode_response_from as decode_response_from,
    )
    from ._typed_codec import (
        message_class as message_class,
    )
else:

    def decode_request(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
        """Read a request's body.

        Args:
            api_key: The request's API, e.g. ``ApiKey.UPDATE_METADATA``.
            version: The API version that the request's header names.
            data: The body, without length prefix and header. Bytes after the message are ignored unless ``strict``.
            strict: Refuse what the protocol forbids although Kafka accepts it.

        Raises:
            DecodeError: The bytes are no such message.
            UnsupportedApi: Kafka 3.9.1 has no such API, or kproto does not read its bodies.
            UnsupportedVersion: The API has no such version in Kafka 3.9.1.
        """
        return codec_for(api_key).decode_request(api_key, version, data, strict=strict)

    def decode_request_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
        """Read a request's body as ``decode_request`` does; also return how many bytes it took."""
        return codec_for(api_key).decode_request_from(api_key, version, data, strict=strict)

    def decode_response(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
        """Read a response's body. ``version`` is that of the request; errors are those of ``decode_request``."""
        return codec_for(api_key).decode_response(api_key, version, data, strict=strict)

    def decode_response_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
        """Read a response's body as ``decode_response`` does; also return how many bytes it took."""
        return codec_for(api_key).decode_response_from(api_key, version, data, strict=strict)

    def message_class(api_key: int, kind: Literal["request", "response"]) -> type[Any]:
        """Return the class of an API's requests or responses.

        Raises:
            UnsupportedApi: Kafka 3.9.1 has no such API, or kproto does not read its bodies.
            ValueError: ``kind`` is neither ``request`` nor ``response``.
        """
        return codec_for(api_key).message_class(api_key, kind)


def encode(message: Message, version: int) -> bytes:
    """Write a message of either codec, byte for byte as Kafka 3.9.1 does.

    Raises:
        FieldNotInVersion: A field that this version lacks holds a value that may not be dropped.
        OutOfRange: A value does not fit its field.
        EncodeError: The message cannot be written for another reason, e.g. a null where null is not allowed.
        UnsupportedVersion: The API has no such version.
    """
    name: Implementation = "cython" if type(message).__module__ == "kproto._codec" else "construct"
    return get_codec(name).encode(message, version)
