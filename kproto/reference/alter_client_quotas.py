"""AlterClientQuotas (49): an administrator sets or removes quotas of clients. Versions 0 and 1; flexible since 1."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Float64, Int16, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage, Struct


class AlterClientQuotasEntity(Struct):
    """A part of whom a quota is for: ``user``, ``client-id`` or ``ip``, and its name; null is the default."""

    fields: ClassVar[Fields] = Fields(
        "entity_type" / String,
        "entity_name" / Nullable(String),
    )
    entity_type: str
    entity_name: str | None


class AlterClientQuotasOp(Struct):
    """A quota to set or to remove."""

    fields: ClassVar[Fields] = Fields(
        "key" / String,
        "value" / Float64,
        "remove" / Bool,
    )
    key: str
    value: float
    remove: bool


class AlterClientQuotasEntry(Struct):
    """Whom the quotas are for, and the quotas."""

    fields: ClassVar[Fields] = Fields(
        "entity" / ArrayOf(AlterClientQuotasEntity),
        "ops" / ArrayOf(AlterClientQuotasOp),
    )
    entity: list[AlterClientQuotasEntity]
    ops: list[AlterClientQuotasOp]


class AlterClientQuotasRequest(RequestMessage):
    """The quotas; only checked if ``validate_only``."""

    api_key: int = ApiKey.ALTER_CLIENT_QUOTAS
    fields: ClassVar[Fields] = Fields(
        "entries" / ArrayOf(AlterClientQuotasEntry),
        "validate_only" / Bool,
    )
    entries: list[AlterClientQuotasEntry]
    validate_only: bool


class AlterClientQuotasResult(Struct):
    """The result for one entity."""

    fields: ClassVar[Fields] = Fields(
        "error_code" / Int16,
        "error_message" / Nullable(String),
        "entity" / ArrayOf(AlterClientQuotasEntity),
    )
    error_code: int
    error_message: str | None
    entity: list[AlterClientQuotasEntity]


class AlterClientQuotasResponse(ResponseMessage):
    """The results, one for each entity."""

    api_key: int = ApiKey.ALTER_CLIENT_QUOTAS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "entries" / ArrayOf(AlterClientQuotasResult),
    )
    throttle_time_ms: int
    entries: list[AlterClientQuotasResult]
