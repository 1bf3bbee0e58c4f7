"""AlterClientQuotas (49): an administrator sets or removes quotas of clients. Versions 0 and 1; flexible since 1."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bool, Float64, Int16, Int32, Nullable, String
from .struct import RequestMessage, ResponseMessage, Struct


class AlterClientQuotasEntity(Struct):
    """A part of whom a quota is for: ``user``, ``client-id`` or ``ip``, and its name; null is the default."""

    entity_type: str = String
    entity_name: str | None = Nullable(String)


class AlterClientQuotasOp(Struct):
    """A quota to set or to remove."""

    key: str = String
    value: float = Float64
    remove: bool = Bool


class AlterClientQuotasEntry(Struct):
    """Whom the quotas are for, and the quotas."""

    entity: list[AlterClientQuotasEntity] = ArrayOf(AlterClientQuotasEntity)
    ops: list[AlterClientQuotasOp] = ArrayOf(AlterClientQuotasOp)


class AlterClientQuotasRequest(RequestMessage, api_key=ApiKey.ALTER_CLIENT_QUOTAS):
    """The quotas; only checked if ``validate_only``."""

    entries: list[AlterClientQuotasEntry] = ArrayOf(AlterClientQuotasEntry)
    validate_only: bool = Bool


class AlterClientQuotasResult(Struct):
    """The result for one entity."""

    error_code: int = Int16
    error_message: str | None = Nullable(String)
    entity: list[AlterClientQuotasEntity] = ArrayOf(AlterClientQuotasEntity)


class AlterClientQuotasResponse(ResponseMessage, api_key=ApiKey.ALTER_CLIENT_QUOTAS):
    """The results, one for each entity."""

    throttle_time_ms: int = Int32
    entries: list[AlterClientQuotasResult] = ArrayOf(AlterClientQuotasResult)
