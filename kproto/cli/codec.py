"""``kproto codec``: answer questions from standard input on standard output, one JSON object a line.

The Java oracle in ``tools/oracle`` answers the same questions with Kafka's own classes, so that a program can compare
its answers with kproto's.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from typing import TYPE_CHECKING, Any, Final, cast

import click

from kproto.api import CONTROL_APIS, request_header_version, response_header_version
from kproto.codec import get_codec
from kproto.errors import KprotoError

if TYPE_CHECKING:
    from kproto.codec import Implementation

_INT32: Final = 1 << 31
_parse: Final = json.JSONDecoder().decode
_print: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode


class BadQuestion(KprotoError):
    """A question that cannot be answered: not JSON, an unknown op or kind, a key that is missing or of a wrong type."""


class Respondent:
    """Answers questions; no question ends the process.

    Args:
        implementation: ``cython`` uses the reference for the APIs that the extension lacks, as ``kproto.codec`` does;
            ``construct`` is the reference alone.
        strict: Refuse messages that the protocol forbids although Kafka accepts them.
    """

    def __init__(self, implementation: Implementation, *, strict: bool = False) -> None:
        self._codec: Any = get_codec(implementation)  # Any: the protocol does not type header classes
        self._strict = strict

    def answer(self, line: bytes) -> str:
        """Answer the question in one line."""
        of: dict[str, Any] = {}
        try:
            question = _parse(line.decode("utf-8", "replace"))
            if type(question) is dict and "id" in question:
                of = {"id": question["id"]}
            return _print(self._reply(question) | of)
        except json.JSONDecodeError as e:
            error = f"BadQuestion: not JSON: {e}"
        except Exception as e:  # noqa: BLE001  # whatever a question provokes is its answer
            error = f"{type(e).__name__}: {e}"
        try:
            return _print({"ok": False, "error": error} | of)
        except (RecursionError, ValueError):
            return _print({"ok": False, "error": error})  # the id is nested too deeply, or is a number that JSON lacks

    def _reply(self, question: Any) -> dict[str, Any]:
        if type(question) is not dict:
            raise BadQuestion("the question is not a JSON object")
        match question.get("op"):
            case "decode":
                return self._decode(question)
            case "encode":
                return self._encode(question)
            case op:
                raise BadQuestion(f"op is decode or encode, not {op!r}")

    def _decode(self, question: dict[str, Any]) -> dict[str, Any]:
        api, kind, version = _message_of(question)
        data = _data(question)
        codec, strict = self._codec_of(api, kind), self._strict
        if kind.endswith("_header"):
            message, consumed = getattr(codec, f"decode_{kind}_from")(data, version, strict=strict)
        elif strict:  # which refuses bytes after the body
            message, consumed = getattr(codec, f"decode_{kind}")(api, version, data, strict=True), len(data)
        else:
            message, consumed = getattr(codec, f"decode_{kind}_from")(api, version, data)
        omit = question.get("omit")
        omit = omit if type(omit) is list else ()
        answer: dict[str, Any] = {"ok": True, "consumed": consumed}
        if "json" not in omit:
            answer["json"] = message.to_json(version)
        if "reencoded" not in omit:
            try:
                answer["reencoded"] = _text(_write(codec, kind, message, version), question)
            except (KprotoError, ValueError, TypeError, OverflowError) as e:
                answer["reencoded"] = None
                answer["reencode_error"] = f"{type(e).__name__}: {e}"
        return answer

    def _encode(self, question: dict[str, Any]) -> dict[str, Any]:
        api, kind, version = _message_of(question)
        if "json" not in question:
            raise BadQuestion("encode needs json")
        read_as = version
        if "json_version" in question:
            read_as = _header_version(api, kind, _number(question, "json_version"))
        codec = self._codec_of(api, kind)
        headers = {"request_header": codec.RequestHeader, "response_header": codec.ResponseHeader}
        message = (headers.get(kind) or codec.message_class(api, kind)).from_json(question["json"], read_as)
        form = "base64" if question.get("as") == "base64" else "hex"
        return {"ok": True, form: _text(_write(codec, kind, message, version), {"as": form})}

    def _codec_of(self, api: int, kind: str) -> Any:
        is_cold = api not in CONTROL_APIS and kind in ("request", "response")
        return get_codec("construct") if is_cold else self._codec


def _message_of(question: dict[str, Any]) -> tuple[int, str, int]:
    """Return api, kind and version of the message; for a header the header's own version."""
    kind = question.get("kind")
    if kind not in ("request", "response", "request_header", "response_header"):
        raise BadQuestion(f"kind is request, response, request_header or response_header, not {kind!r}")
    api = _number(question, "api") if "api" in question else -1
    return api, kind, _header_version(api, kind, _number(question, "version"))


def _header_version(api: int, kind: str, version: int) -> int:
    if not -32_768 <= version <= 32_767:
        raise BadQuestion(f"version {version} is not an int16")
    if api >= 0 and kind == "request_header":
        return request_header_version(api, version)
    if api >= 0 and kind == "response_header":
        return response_header_version(api, version)
    return version


def _number(question: dict[str, Any], key: str) -> int:
    value = question.get(key)
    if type(value) is not int or not -_INT32 <= value < _INT32:
        raise BadQuestion(f"{key} must be an integer")
    return value


def _data(question: dict[str, Any]) -> bytes:
    key = "base64" if "base64" in question else "hex"
    text = question.get(key)
    if type(text) is not str:
        raise BadQuestion(f"{key} must be a string")
    try:
        if key == "hex":
            return binascii.unhexlify(text)
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as e:
        raise BadQuestion(f"{key}: {e}") from None


def _text(data: bytes, question: dict[str, Any]) -> str:
    """Write bytes in the form that the key ``as`` names, by default in the question's form."""
    form = question.get("as")
    if form == "base64" or (form != "hex" and "base64" in question):
        return base64.b64encode(data).decode("ascii")
    return data.hex()


def _write(codec: Any, kind: str, message: Any, version: int) -> bytes:
    encode = getattr(codec, f"encode_{kind}") if kind.endswith("_header") else codec.encode
    return cast("bytes", encode(message, version))


@click.command(
    epilog="""\b
Examples:
  echo '{"op":"decode","api":5,"version":4,"kind":"response",
      "hex":"000b0100"}' | tr -d '\\n' | kproto codec
  echo '{"op":"encode","api":5,"version":4,"kind":"response",
      "json":{"errorCode":11,"partitionErrors":[]}}' | tr -d '\\n' \\
      | kproto codec --implementation construct"""
)
@click.option(
    "--implementation",
    type=click.Choice(["cython", "construct"]),
    default="cython",
    help="cython: the extension for the control APIs and headers, the reference for other APIs. "
    "construct: the reference alone.",
)
@click.option("--strict", is_flag=True, help="Refuse messages that the protocol forbids although Kafka accepts them.")
def command(implementation: Implementation, *, strict: bool) -> None:
    """Answer decode and encode questions, one JSON object a line.

    \b
    A question:
      op
          decode, encode
      kind
          request, response, request_header, response_header
      api
          the API's key; not needed for a header, whose version is its own
      version
          the body's version, 0 and up
      hex
          the bytes to decode, or base64
      json
          the message to encode, in Kafka's JSON form
      json_version
          read json in that version's form, write version
      omit
          parts to leave out of the answer to decode: ["json", "reencoded"]
      as
          hex or base64, the form of bytes in the answer
      id
          copied into the answer

    An answer has ok; and consumed, json and reencoded (decode), hex or base64 (encode), or error (either). If a message
    can be read but not written again, reencoded is null and reencode_error says why. No question ends the process; an
    empty line gets no answer.
    """
    respondent = Respondent(implementation, strict=strict)
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        if not line.isspace():
            out.write(respondent.answer(line).encode("ascii") + b"\n")
            out.flush()
