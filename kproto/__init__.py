"""Kafka's controller-to-broker protocol: bytes, messages, frames and tables; no sockets, no threads.

Functions and message classes are loaded on first use, so that ``import kproto`` is quick, imports no optional package,
and works where the extension is not built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import ApiKey
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
from .types import TopicPartition

if TYPE_CHECKING:
    from .codec import decode_request, decode_response, encode
    from .messages import (
        LeaderAndIsrRequest,
        LeaderAndIsrResponse,
        StopReplicaRequest,
        StopReplicaResponse,
        UpdateMetadataRequest,
        UpdateMetadataResponse,
    )

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


def __getattr__(name: str) -> Any:
    if name in ("decode_request", "decode_response", "encode"):
        from . import codec

        return getattr(codec, name)
    if name in __all__:
        from . import messages

        return getattr(messages, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
