"""Log lines of every form, made from what a capture holds."""

import json
import time
from collections.abc import Iterable
from typing import Any

from conftest import DATA, read_jsonl

from kproto.capture import CaptureReader, CaptureSummary, Exchange
from kproto.logs import LogReading


def rows_of(name: str) -> list[dict[str, Any]]:
    """What the request logs of a recorded cluster hold of each request in its capture."""
    return [row for row in read_jsonl(DATA / "captures" / f"{name}.truth.jsonl.gz") if row["in_capture"]]


def entry_of(row: dict[str, Any]) -> dict[str, Any]:
    """A request as Kafka logs it."""
    header = {"requestApiKey": row["api_key"], "requestApiVersion": row["version"]}
    header |= {"correlationId": row["correlation_id"], "clientId": row["client_id"]}
    entry = {"isForwarded": False, "requestHeader": header, "request": row["request"], "response": row["response"]}
    return entry | {"connection": row["connection"], "totalTimeMs": row["total_time_ms"]}


def clock_of(row: dict[str, Any]) -> tuple[str, str]:
    """Day and time of day in UTC at which a request was answered."""
    seconds, millis = divmod(round(row["time"] * 1000), 1000)
    day, clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)).split()
    return day, f"{clock},{millis:03d}"


def message_of(row: dict[str, Any], **form: Any) -> str:
    """A request's line without time and level."""
    return f"Completed request:{json.dumps(entry_of(row), **form)} (kafka.request.logger)"


def line_of(row: dict[str, Any], **form: Any) -> str:
    """A request's line in Kafka's own layout."""
    return f"[{' '.join(clock_of(row))}] DEBUG {message_of(row, **form)}"


def as_log(rows: Iterable[dict[str, Any]]) -> str:
    """Ground truth of a capture in the words of a broker's log, with lines of other kinds between."""
    lines = []
    for row in rows:
        lines.append(line_of(row))
        lines.append(f"[{' '.join(clock_of(row))}] INFO something else {{}} (kafka.server.KafkaServer)")
    return "\n".join(lines) + "\n"


def read(data: str | bytes, *, step: int = 1 << 20, name: str = "kafka.log", **reading: Any) -> tuple[Any, Any]:
    """The answered requests of a log, and the summary of reading it."""
    data = data.encode() if isinstance(data, str) else data
    summary = CaptureSummary()
    reader = CaptureReader(apis=None, summary=summary, logs=LogReading(**reading))
    reader.begin_file(name)
    events = [event for at in range(0, len(data), step) for event in reader.feed(data[at : at + step])]
    events += reader.end()
    found = [event for event in events if isinstance(event, Exchange)]
    answered = [(each, each.to_json()) for each in found if each.response is not None]
    return [(each.response.time_ns, form["request"], form["response"]) for each, form in answered], summary
