"""AlterUserScramCredentials (51): an administrator sets or removes SCRAM credentials. Version 0; flexible."""

from __future__ import annotations

from typing import ClassVar

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bytes, Int8, Int16, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage, Struct


class ScramCredentialDeletion(Struct):
    """A user's credential to remove. ``mechanism`` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "mechanism" / Int8,
    )
    name: str
    mechanism: int


class ScramCredentialUpsertion(Struct):
    """A user's credential to set: the password as the client has salted it."""

    fields: ClassVar[Fields] = Fields(
        "name" / String,
        "mechanism" / Int8,
        "iterations" / Int32,
        "salt" / Bytes,
        "salted_password" / Bytes,
    )
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(RequestMessage):
    """The credentials to remove and to set."""

    api_key: int = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    fields: ClassVar[Fields] = Fields(
        "deletions" / ArrayOf(ScramCredentialDeletion),
        "upsertions" / ArrayOf(ScramCredentialUpsertion),
    )
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    fields: ClassVar[Fields] = Fields(
        "user" / String,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )
    user: str
    error_code: int
    error_message: str | None


class AlterUserScramCredentialsResponse(ResponseMessage):
    """The results, one for each user."""

    api_key: int = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    fields: ClassVar[Fields] = Fields(
        "throttle_time_ms" / Int32,
        "results" / ArrayOf(AlterUserScramCredentialsResult),
    )
    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResult]
