"""What a line of ``kafka-request.log`` says, of every release that logs JSON, and of those that log structs as text.

All give the form that Kafka 3.9 logs: ``requestHeader``, ``request``, ``response``, ``connection``, ``totalTimeMs``.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any, Final

from kproto.api import ApiKey
from kproto.json_form import camel_case

from .struct_text import parse_struct
from .times import UnusableLine

MARK: Final = b"Completed request:"
"""What each such line holds, but for those whose fields stand beside others in one JSON object."""

STRUCTS: Final = ("RequestHeader(", "{api_key=")
"""What a request begins with that is logged as text of its structs."""

NOT_LOGGED: Final[dict[str, Any]] = {}
"""Stands for a response that was sent, and that the line does not show: before 1.0 none is logged at DEBUG."""

_raw_decode: Final = json.JSONDecoder().raw_decode
_ESCAPED: Final = re.compile(r'(?:[^"\\]|\\.)*')
_QUOTED: Final = re.compile(r"\{\s*[\u201c-\u201f'\u2018-\u201b]")
_QUOTES: Final = dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f'\u2018\u2019\u201a\u201b"), '"')
"""What may stand for the quotes of JSON."""

_NESTED: Final = "the JSON of a logged request is nested too deeply"


def parse_request(text: str) -> dict[str, Any]:
    """Read what stands behind ``Completed request:``.

    Raises:
        UnusableLine: It is no request that was logged as a whole.
    """
    text = text.lstrip()
    if text.startswith('{\\"'):  # within another text in quotes
        quoted = _ESCAPED.match(text)
        assert quoted is not None
        text = _json(f'"{quoted[0]}"')
    elif text.startswith('{""'):  # within a field of CSV
        text = text.replace('""', '"')
    elif text.startswith("{&quot;"):
        text = html.unescape(text)
    if _QUOTED.match(text):  # by a word processor
        text = text.translate(_QUOTES)
    if re.match(r'\{\s*"', text):
        entry = _json(text)
        if not isinstance(entry, dict):
            raise UnusableLine("a logged request that is no JSON object")
        return entry
    if text.startswith(STRUCTS):
        return _from_text(text)
    if text.startswith("Name:"):
        if shutdown := _CONTROLLED_SHUTDOWN.match(text):
            return _controlled_shutdown(shutdown, text)
        name = re.match(r"Name:\s?(\w{1,60})", text)
        raise UnusableLine(
            f"a request in the form of Kafka before 0.10 ({name[1] if name else 'Name:'}), which lacks the partition "
            "epochs and the connection; read state-change.log of these releases instead"
        )
    raise UnusableLine("a logged request that is neither JSON nor a struct; was the line cut?")


def _json(text: str) -> Any:
    try:
        return _raw_decode(text)[0]
    except json.JSONDecodeError as e:
        raise UnusableLine(f"a logged request whose JSON is cut or damaged at character {e.pos}") from None
    except RecursionError:
        raise UnusableLine(_NESTED) from None
    except ValueError:
        raise UnusableLine("a logged request with a number of thousands of digits") from None


# ---- structs as text -------------------------------------------------------------------------------------------------

_HEADER: Final = re.compile(
    r"RequestHeader\(apiKey=(?P<key>\w{1,60}), apiVersion=(?P<version>-?\d{1,5}), clientId=(?P<client>.{0,2000}?), "
    r"correlationId=(?P<id>-?\d{1,10})(?:, headerVersion=\d+)?\)(?= -- |$)"
)
_FIRST_HEADER: Final = re.compile(
    r"\{api_key=(?P<key>\d{1,5}),api_version=(?P<version>-?\d{1,5}),correlation_id=(?P<id>-?\d{1,10}),"
    r"client_id=(?P<client>.{0,2000}?)\}(?= -- |$)"
)
_TAIL: Final = re.compile(r" from connection (?P<connection>\S{1,300}?);totalTime:(?P<total>\d{1,15}(?:\.\d{1,9})?),")

_CONTROLLED_SHUTDOWN: Final = re.compile(
    r"Name: ?ControlledShutdownRequest; Version: (?P<version>\d{1,5}); CorrelationId: (?P<id>-?\d{1,10}); ?"
    r"(?:ClientId: ?(?:Some\((?P<client>.{0,2000}?)\)|None); ?)?BrokerId: ?(?P<broker>\d{1,10}) from connection "
)


def _controlled_shutdown(found: re.Match[str], text: str) -> dict[str, Any]:
    """The one request that 0.10 and 0.11 do not log as a struct."""
    tail = _TAIL.search(text, found.end() - len(" from connection "))
    if tail is None:
        raise UnusableLine("a request logged as text whose connection is missing; was the line cut?")
    return {
        "requestHeader": {
            "requestApiKey": int(ApiKey.CONTROLLED_SHUTDOWN),
            "requestApiVersion": int(found["version"]),
            "correlationId": int(found["id"]),
            "clientId": found["client"],
        },
        "request": {"brokerId": int(found["broker"])},
        "response": NOT_LOGGED,
        "connection": tail["connection"],
        "totalTimeMs": float(tail["total"]),
    }


_OLD_APIS: Final = {
    "ALTER_ISR": ApiKey.ALTER_PARTITION,
    "ELECT_PREFERRED_LEADERS": ApiKey.ELECT_LEADERS,
    "CONTROLLED_SHUTDOWN_KEY": ApiKey.CONTROLLED_SHUTDOWN,
    "LIST_OFFSET": ApiKey.LIST_OFFSETS,
    "GROUP_COORDINATOR": ApiKey.FIND_COORDINATOR,
}


def _from_text(text: str) -> dict[str, Any]:
    header = (_HEADER if text[0] == "R" else _FIRST_HEADER).match(text[:3000])
    tail = _TAIL.search(text, max(text.rfind(" from connection "), 0))
    if header is None or tail is None:
        raise UnusableLine("a request logged as text whose header or connection is missing; was the line cut?")
    name = header["key"]
    if name.isdigit():
        api_key = int(name)
    elif name in ApiKey.__members__ or name in _OLD_APIS:
        api_key = int(_OLD_APIS.get(name) or ApiKey[name])
    else:
        raise UnusableLine(f"a request of an API named {name}, which is not known")
    version = int(header["version"])
    request = response = None
    at = header.end() + len(" -- ")
    try:
        request, at = parse_struct(text, at)
        if text.startswith(",response:", at):
            response, _ = parse_struct(text, at + len(",response:"))
        elif text.startswith(" from connection ", at):
            response = NOT_LOGGED
    except ValueError:
        if api_key in _RENAMED and (request is None or text.startswith(",response:{", at)):
            raise UnusableLine("a request logged as text whose fields cannot be read; was the line cut?") from None
        response = NOT_LOGGED
    client_id = header["client"]
    return {
        "requestHeader": {
            "requestApiKey": api_key,
            "requestApiVersion": version,
            "correlationId": int(header["id"]),
            "clientId": None if client_id == "null" else client_id,
        },
        "request": None if request is None else _as_json(request, api_key, version, "request"),
        "response": response if not response else _as_json(response, api_key, version, "response"),
        "connection": tail["connection"],
        "totalTimeMs": float(tail["total"]),
    }


_STATES: Final = {"topic": "topicName", "partition": "partitionIndex", "partition_states": "partitionStates"}
_ERRORS: Final = {"topic": "topicName", "partition": "partitionIndex", "partitions": "partitionErrors"}
_RENAMED: Final[dict[int, dict[str, str]]] = {
    ApiKey.LEADER_AND_ISR: {**_STATES, "id": "brokerId", "host": "hostName"},
    ApiKey.STOP_REPLICA: {**_STATES},
    ApiKey.UPDATE_METADATA: {
        **_STATES,
        "end_points": "endpoints",
        "listener_name": "listener",
        "security_protocol_type": "securityProtocol",
    },
    ApiKey.CONTROLLED_SHUTDOWN: {**_STATES, "partitions_remaining": "remainingPartitions"},
}
"""The structs of Kafka up to 2.3 name these fields otherwise; from 2.4 on their names are the JSON's in snake_case."""


def _as_json(struct: dict[str, Any], api_key: int, version: int, kind: str) -> dict[str, Any]:
    names = _RENAMED.get(api_key, {})
    if kind == "response" and api_key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA):
        names = _ERRORS
    form: dict[str, Any] = _renamed(struct, names)
    if kind == "request" and api_key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA):
        if "partition_states" in struct:
            form["ungroupedPartitionStates"] = form.pop("partitionStates")
        if api_key == ApiKey.UPDATE_METADATA and version == 0:
            for broker in form.get("liveBrokers") or ():
                for old, new in (("host", "v0Host"), ("port", "v0Port")):
                    if isinstance(broker, dict) and old in broker:
                        broker[new] = broker.pop(old)
    if kind == "request" and api_key == ApiKey.STOP_REPLICA and "partitions" in struct:
        parts = form.pop("partitions")
        if version == 0:
            form["ungroupedPartitions"] = parts
        else:
            form["topics"] = [
                {"name": part.get("topicName"), "partitionIndexes": part.get("partitions")}
                for part in parts
                if isinstance(part, dict)
            ]
    return form


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(name) or camel_case(name): _renamed(each, names) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return value


# ---- names of earlier releases ---------------------------------------------------------------------------------------

_FORMER: Final[dict[tuple[int, str], dict[str, str]]] = {
    (ApiKey.FETCH, "response"): {
        "partitionResponses": "partitions",
        "partition": "partitionIndex",
        "recordSet": "records",
    },
    (ApiKey.LEADER_AND_ISR, "request"): {"zkVersion": "partitionEpoch"},
    (ApiKey.DESCRIBE_CONFIGS, "request"): {"includeSynoyms": "includeSynonyms"},
    (ApiKey.DESCRIBE_LOG_DIRS, "request"): {"partitionIndex": "partitions"},
    (ApiKey.ELECT_LEADERS, "request"): {"partitionId": "partitions"},
    (ApiKey.ALTER_PARTITION, "request"): {"name": "topicName", "currentIsrVersion": "partitionEpoch"},
    (ApiKey.ALTER_PARTITION, "response"): {"name": "topicName", "currentIsrVersion": "partitionEpoch"},
}
"""Fields that releases before 3.9 name otherwise: by comparing the definitions of the messages in the client jars of
2.4.1, 2.8.2, 3.0.2, 3.2.3, 3.4.1 and 3.6.2 with those of 3.9.1, for the APIs that have a codec."""


def present_form(form: Any, api_key: int, kind: str) -> Any:
    """Give the fields of a body of any release the names that Kafka 3.9 logs."""
    names = _FORMER.get((api_key, kind))
    return form if names is None else _with_names(form, names)


def _with_names(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(name, name): _with_names(each, names) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_names(each, names) for each in value] if value and isinstance(value[0], (dict, list)) else value
    return value
