"""kio's end of the comparison, in a process that imports nothing of kproto.

One JSON object a line in, one out. ``decode`` reads a frame's payload and says what it found in Kafka's JSON form,
``encode`` makes the payload from that form; both by walking kio's own dataclasses.
"""

import base64
import dataclasses
import datetime
import enum
import io
import json
import sys
import types
import typing
import uuid

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

ONE_MS = datetime.timedelta(milliseconds=1)


def json_name(field):
    head, *rest = field.name.rstrip("_").split("_")
    name = head + "".join(word.capitalize() for word in rest)
    return name + "Ms" if field.metadata.get("kafka_type", "").startswith("timedelta") else name


def to_form(value):
    if dataclasses.is_dataclass(value):
        return {
            json_name(f): to_form(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if "tag" not in f.metadata or getattr(value, f.name) != f.default
        }
    if isinstance(value, tuple):
        return [to_form(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // ONE_MS
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def without_null(kind):
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        (kind,) = (each for each in typing.get_args(kind) if each is not type(None))
    return kind


def from_form(kind, value):
    kind = without_null(kind)
    if value is None:
        return None
    if typing.get_origin(kind) is tuple:
        return tuple(from_form(typing.get_args(kind)[0], each) for each in value)
    if dataclasses.is_dataclass(kind):
        return kind(
            **{
                f.name: from_form(f.type, value[json_name(f)])
                for f in dataclasses.fields(kind)
                if "tag" not in f.metadata or json_name(f) in value
            }
        )
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if isinstance(value, int) and isinstance(kind, type) and issubclass(kind, datetime.timedelta):
        return value * ONE_MS
    if kind is uuid.UUID:
        held = uuid.UUID(bytes=base64.urlsafe_b64decode(value + "=="))
        return held if held.int else None
    return base64.b64decode(value) if kind is bytes else value


def nulls(form):
    """kio shows the zero topic id as None, which has its own way to be written; the form has it as zeros."""
    if isinstance(form, dict):
        return {key: "A" * 22 if key == "topicId" and value is None else nulls(value) for key, value in form.items()}
    return [nulls(each) for each in form] if isinstance(form, list) else form


def answer(question):
    load = load_request_schema if question["kind"] == "request" else load_response_schema
    body = load(question["api"], question["version"])
    header = body.__header_schema__
    if question["op"] == "encode":
        out = io.BytesIO()
        entity_writer(header)(out, from_form(header, question["header"]))
        entity_writer(body)(out, from_form(body, question["body"]))
        return {"hex": out.getvalue().hex()}
    data = bytes.fromhex(question["hex"])
    head, at = entity_reader(header)(data, 0)
    message, size = entity_reader(body)(data, at)
    return {"header": to_form(head), "body": nulls(to_form(message)), "left": len(data) - at - size}


assert not {name for name in sys.modules if name.partition(".")[0] in ("kproto", "channel")}
for line in sys.stdin:
    try:
        told = answer(json.loads(line))
    except Exception as e:
        told = {"error": f"{type(e).__name__}: {e}"}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
