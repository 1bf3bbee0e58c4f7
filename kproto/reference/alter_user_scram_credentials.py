"""AlterUserScramCredentials (51): an administrator sets or removes SCRAM credentials. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bytes, Int8, Int16, Int32, Nullable, String
from .struct import RequestMessage, ResponseMessage, Struct


class ScramCredentialDeletion(Struct):
    """A user's credential to remove. ``mechanism`` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    name: str = String
    mechanism: int = Int8


class ScramCredentialUpsertion(Struct):
    """A user's credential to set: the password as the client has salted it."""

    name: str = String
    mechanism: int = Int8
    iterations: int = Int32
    salt: bytes = Bytes
    salted_password: bytes = Bytes


class AlterUserScramCredentialsRequest(RequestMessage, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """The credentials to remove and to set."""

    deletions: list[ScramCredentialDeletion] = ArrayOf(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = ArrayOf(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    user: str = String
    error_code: int = Int16
    error_message: str | None = Nullable(String)


class AlterUserScramCredentialsResponse(ResponseMessage, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """The results, one for each user."""

    throttle_time_ms: int = Int32
    results: list[AlterUserScramCredentialsResult] = ArrayOf(AlterUserScramCredentialsResult)
