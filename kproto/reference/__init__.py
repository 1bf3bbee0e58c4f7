"""The reference codec on Construct: slow, readable beside the protocol's description, for every API that kproto knows.

It has the names of the C-accelerated codec (``kproto.codec.Codec``), shares no code with it and needs nothing compiled.
Each API has a module in which every message declares its fields over all its versions; ``fields``, ``datatypes`` and
``primitives`` make Constructs of them. The classes of LeaderAndIsr, StopReplica and UpdateMetadata here are the
reference's own; ``kproto.messages`` has the extension's, and the reference's of all other APIs.

>>> request = decode_request(6, 8, bytes.fromhex("000000010000000002ffffffffffffffff010101000102"))
>>> request
UpdateMetadataRequest(controller_id=1, type=2, controller_epoch=2)
>>> encode(request, 3).hex()
Traceback (most recent call last):
    ...
kproto.errors.FieldNotInVersion: type: version 3 has no such field, and its value is not the default
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from kproto.api import check_version
from kproto.errors import UnsupportedApi

from . import (  # noqa: F401 - each declares messages
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    controlled_shutdown,
    controller_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    produce,
    raft_voters,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    unregister_broker,
    update_features,
    update_metadata,
    vote,
)
from .headers import (
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    decode_request_header_from,
    decode_response_header,
    decode_response_header_from,
    encode_request_header,
    encode_response_header,
)
from .struct import ReferenceMessage, RequestMessage, ResponseMessage, Struct

if TYPE_CHECKING:
    from kproto.types import Buffer

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "decode_request",
    "decode_request_from",
    "decode_request_header",
    "decode_request_header_from",
    "decode_response",
    "decode_response_from",
    "decode_response_header",
    "decode_response_header_from",
    "encode",
    "encode_request_header",
    "encode_response_header",
    "message_class",
]

_MESSAGES: dict[tuple[int, str], type[ReferenceMessage]] = {
    (cls.api_key, cls.kind): cls for base in (RequestMessage, ResponseMessage) for cls in base.__subclasses__()
}
_CLASSES: dict[str, type[Struct]] = {cls.__name__: cls for cls in (*Struct.__subclasses__(), *_MESSAGES.values())}

if not TYPE_CHECKING:  # a type checker finds the classes in their modules

    def __getattr__(name: str) -> type[Struct]:
        """Every class of an API's module by its name; ``kproto.messages`` has the list of them."""
        if name not in _CLASSES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _CLASSES[name]


def message_class(api_key: int, kind: Literal["request", "response"]) -> type[Any]:
    """Return the class of an API's requests or responses.

    Raises:
        UnsupportedApi: Kafka 3.9.1 or kproto does not have it.
        ValueError: ``kind`` is something else.
    """
    if kind not in ("request", "response"):
        raise ValueError(f"kind is 'request' or 'response', not {kind!r}")
    name = check_version(api_key, 0).name
    if (api_key, kind) not in _MESSAGES:
        raise UnsupportedApi(api_key, f"kproto does not read or write the bodies of {name} ({api_key})")
    return _MESSAGES[api_key, kind]


def decode_request(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
    """Read a request's body.

    Args:
        api_key: The request's API.
        version: The API version that the request's header names.
        data: The body, without length prefix and header. Bytes after the message are ignored unless ``strict``.
        strict: Refuse what the protocol forbids although Kafka accepts it.

    Raises:
        DecodeError: The bytes are no such message.
        UnsupportedApi, UnsupportedVersion: kproto or Kafka 3.9.1 does not have it.
    """
    return message_class(api_key, "request").decode(version, data, strict=strict)[0]


def decode_request_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """Read a request's body; also return how many bytes it took. The bytes after it are ignored."""
    message, used = message_class(api_key, "request").decode(version, data, strict=strict, alone=False)
    return message, used


def decode_response(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> Any:
    """Read a response's body. ``version`` is that of the request; errors are those of ``decode_request``."""
    return message_class(api_key, "response").decode(version, data, strict=strict)[0]


def decode_response_from(api_key: int, version: int, data: Buffer, *, strict: bool = False) -> tuple[Any, int]:
    """Read a response's body; also return how many bytes it took. The bytes after it are ignored."""
    message, used = message_class(api_key, "response").decode(version, data, strict=strict, alone=False)
    return message, used


def encode(message: ReferenceMessage, version: int) -> bytes:
    """Write a message, byte for byte as Kafka 3.9.1 does.

    Raises:
        FieldNotInVersion: A field that this version lacks holds a value that may not be dropped.
        OutOfRange, EncodeError: A value that cannot be written.
        UnsupportedVersion: The API has no such version.
        TypeError: The message is not one of this codec.
    """
    if not isinstance(message, ReferenceMessage):
        raise TypeError(
            f"expected a message of kproto, got {type(message).__name__}; message_class(...).from_json makes one"
        )
    return message.encode(version)
