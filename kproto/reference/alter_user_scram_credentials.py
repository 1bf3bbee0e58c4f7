"""AlterUserScramCredentials (51): an administrator sets or removes SCRAM credentials. Version 0; flexible."""

from __future__ import annotations

from kproto.api import ApiKey

from .datatypes import ArrayOf, Bytes, Int8, Int16, Int32, Nullable, String
from .fields import Fields
from .struct import RequestMessage, ResponseMessage, Struct


class ScramCredentialDeletion(Struct):
    """A user's credential to remove. ``mechanism`` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    fields = Fields(
        "name" / String,
        "mechanism" / Int8,
    )


class ScramCredentialUpsertion(Struct):
    """A user's credential to set: the password as the client has salted it."""

    fields = Fields(
        "name" / String,
        "mechanism" / Int8,
        "iterations" / Int32,
        "salt" / Bytes,
        "salted_password" / Bytes,
    )


class AlterUserScramCredentialsRequest(RequestMessage):
    """The credentials to remove and to set."""

    api_key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    fields = Fields(
        "deletions" / ArrayOf(ScramCredentialDeletion),
        "upsertions" / ArrayOf(ScramCredentialUpsertion),
    )


class AlterUserScramCredentialsResult(Struct):
    """The result for one user."""

    fields = Fields(
        "user" / String,
        "error_code" / Int16,
        "error_message" / Nullable(String),
    )


class AlterUserScramCredentialsResponse(ResponseMessage):
    """The results, one for each user."""

    api_key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    fields = Fields(
        "throttle_time_ms" / Int32,
        "results" / ArrayOf(AlterUserScramCredentialsResult),
    )
