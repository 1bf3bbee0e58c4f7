"""Kafka's controller-to-broker protocol: bytes, messages, frames and tables; no sockets, no threads.

Each name is loaded on first use, so that ``import kproto`` is quick, imports no optional package, and works where the
extension is not built.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which costs more than all that is here: Ctrl-C may come while this is loaded

if TYPE_CHECKING:
    from typing import Any

    from .api import ApiKey
    from .codec import decode_request, decode_response, encode
    from .error_codes import ErrorCode
    from .errors import (
        CaptureError,
        ConfigurationError,
        DecodeError,
        EncodeError,
        FieldNotInVersion,
        FrameTooLarge,
        KprotoError,
        Malformed,
        OutOfRange,
        Truncated,
        UnsupportedApi,
        UnsupportedVersion,
    )
    from .messages import (
        LeaderAndIsrRequest,
        LeaderAndIsrResponse,
        StopReplicaRequest,
        StopReplicaResponse,
        UpdateMetadataRequest,
        UpdateMetadataResponse,
    )
    from .types import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "ApiKey",
    "CaptureError",
    "ConfigurationError",
    "DecodeError",
    "EncodeError",
    "ErrorCode",
    "FieldNotInVersion",
    "FrameTooLarge",
    "KprotoError",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "Malformed",
    "OutOfRange",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "TopicPartition",
    "Truncated",
    "UnsupportedApi",
    "UnsupportedVersion",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "__version__",
    "decode_request",
    "decode_response",
    "encode",
]


_HOMES = {"ApiKey": "api", "ErrorCode": "error_codes", "TopicPartition": "types"} | dict.fromkeys(
    ("decode_request", "decode_response", "encode"), "codec"
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("api", "error_codes", "errors", "types"):
        return import_module(f"kproto.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    is_message = name.endswith(("Request", "Response"))
    home = import_module(f"kproto.{_HOMES.get(name, 'messages' if is_message else 'errors')}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
