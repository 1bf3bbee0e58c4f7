"""State-change and controller logs are read the same whatever stands around their lines, as request logs are."""

# ruff: noqa: E501  log lines are as long as they are

from __future__ import annotations

import calendar
import html
import json
import re
import textwrap
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
from state_runs import logs_of

from kproto.capture import CaptureSummary, exchanges
from kproto.errors import CaptureError
from kproto.logs.detection import looks_like_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LINE: Final = re.compile(r"\[(?P<at>\S+ \S+)\] (?P<level>\w+) (?P<text>.*) \((?P<logger>[\w.$]+)\)")

RUNS: Final = [("kafka-2.8.2", "TRACE"), ("kafka-2.8.2", "INFO"), ("kafka-0.11.0.3", "TRACE")]
NAMES: Final = ["broker-1/state-change.log", "broker-1/controller.log"]


@cache
def lines_of(run: str, level: str, name: str) -> tuple[tuple[str, dict[str, str]], ...]:
    """Each line that is no part of an exception, and its parts; the first hundreds are enough for each form."""
    lines = logs_of(run, level)[name].decode().splitlines()[:400]
    return tuple((line, found.groupdict()) for line in lines if (found := _LINE.fullmatch(line)))


def iso(parts: dict[str, str]) -> str:
    return parts["at"].replace(" ", "T").replace(",", ".") + "Z"


def ns(parts: dict[str, str]) -> int:
    return calendar.timegm(time.strptime(parts["at"][:19], "%Y-%m-%d %H:%M:%S")) * 10**9 + int(parts["at"][20:]) * 10**6


def pieces(line: str, parts: dict[str, str]) -> str:
    at = range(0, len(line), 150)
    return "\n".join(f"{iso(parts)} stdout {'F' if n == at[-1] else 'P'} {line[n : n + 150]}" for n in at)


SYSLOG: Final = {"INFO": 6, "WARN": 4, "ERROR": 3}

DRESSES: Final[dict[str, Callable[[str, dict[str, str]], str]]] = {
    "Docker": lambda line, parts: json.dumps({"log": line + "\n", "stream": "stdout", "time": iso(parts)}),
    "JsonLayout": lambda _, parts: json.dumps(
        {
            "instant": {"epochSecond": ns(parts) // 10**9, "nanoOfSecond": ns(parts) % 10**9},
            "level": parts["level"],
            "message": parts["text"],
        }
    ),
    "JsonTemplateLayout, over lines": lambda _, parts: json.dumps(
        {"@timestamp": iso(parts), "log.level": parts["level"], "message": parts["text"]}, indent=2
    ),
    "JSON in JSON": lambda _, parts: json.dumps(
        {"log": json.dumps({"timeMillis": ns(parts) // 10**6, "level": parts["level"], "message": parts["text"]})}
    ),
    "CRI's pieces": pieces,
    "RFC 3164": lambda line, _: f"<134>Nov 26 21:10:59 kafka1 kafka[12]: {line}",
    "RFC 5424": lambda _, parts: f"<134>1 {iso(parts)} kafka1 kafka 12 - - {parts['level']} {parts['text']}",
    "compose": lambda line, _: f"kafka-1  | {line}",
    "kubectl": lambda line, _: f"[pod/kafka-0/kafka] {line}",
    "grep": lambda line, _: f"logs/state-change.log.2026-11-26-20:7:{line}",
    "colours": lambda line, _: f"\x1b[36m{line[:25]}\x1b[0m{line[25:]}\x1b[0m",
    "slashes": lambda _, parts: (
        f"{parts['at'].replace('-', '/')} {parts['level']} {parts['text']} (state.change.logger)"
    ),
    "milliseconds": lambda _, parts: f"{ns(parts) // 10**6} {parts['level']} {parts['text']}",
    "logfmt": lambda _, parts: f"ts={iso(parts)} level={parts['level'].lower()} msg={json.dumps(parts['text'])}",
    "CSV": lambda line, parts: f'"{iso(parts)}","{line}"',
    "a mail's quote": lambda line, _: f">> {line}",
    "HTML": lambda line, _: html.escape(line),
    "no-break spaces": lambda line, _: line.replace(" ", "\u00a0", 3),
    "the thread before": lambda _, parts: (
        f"[{parts['at']}] {parts['level']} [handler-3] {parts['text']} ({parts['logger']})"
    ),
    "the level first": lambda _, parts: f"{parts['level']}  {parts['at']} [main] {parts['logger']} - {parts['text']}",
    "a level below a name": lambda _, parts: json.dumps(
        {"@timestamp": iso(parts), "log": {"level": parts["level"]}, "message": parts["text"]}
    ),
    "GELF": lambda _, parts: json.dumps(
        {"short_message": parts["text"], "timestamp": ns(parts) / 1e9, "level": SYSLOG.get(parts["level"], 7)}
    ),
    "a field that is not known": lambda line, parts: json.dumps({"TimeGenerated": iso(parts), "LogEntry": line}),
    "fields with one value": lambda line, parts: json.dumps(
        {"fields": {"@timestamp": [iso(parts)], "message": [line]}}
    ),
    "OpenTelemetry": lambda _, parts: json.dumps(
        {
            "resourceLogs": [
                {
                    "scopeLogs": [
                        {
                            "logRecords": [
                                {
                                    "timeUnixNano": str(ns(parts)),
                                    "severityText": parts["level"],
                                    "body": {"stringValue": parts["text"]},
                                }
                            ]
                        }
                    ]
                }
            ]
        }
    ),
    "logcli": lambda line, parts: f"\x1b[34m{iso(parts)}\x1b[0m {{}} {line}",
}


def broken(text: str, width: int) -> str:
    """A text as a mail client cuts it."""
    return "\n".join(
        f"> {part}"
        for line in text.splitlines()
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    )


WHOLE: Final[dict[str, Callable[[str], bytes]]] = {
    "UTF-16": lambda text: text.encode("utf-16"),
    "CRLF and a mark": lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
    "an array of texts": lambda text: json.dumps(text.splitlines()).encode(),
    "Ansible's output": lambda text: json.dumps({"stdout": text, "stdout_lines": text.splitlines()}, indent=4).encode(),
    "CloudWatch Insights": lambda text: json.dumps(
        {"results": [[{"field": "@message", "value": line}] for line in text.splitlines()]}
    ).encode(),
    "Loki, with metadata": lambda text: json.dumps(
        {"data": {"result": [{"values": [["1732700000000000000", line, {"a": "b"}] for line in text.splitlines()]}]}}
    ).encode(),
    "objects without lines between": lambda text: "".join(
        json.dumps({"message": line}) for line in text.splitlines()
    ).encode(),
    "an array of objects over lines": lambda text: (
        "[\n" + "\n, ".join(json.dumps({"message": line}, indent=2) for line in text.splitlines()) + "\n]\n"
    ).encode(),
    "cut by a mail client": lambda text: broken(text, 100).encode(),
    "an array": lambda text: json.dumps([{"message": line} for line in text.splitlines()]).encode(),
    "a search's hits": lambda text: json.dumps(
        {"hits": {"hits": [{"_source": {"message": line}} for line in text.splitlines()]}}
    ).encode(),
}


def told(data: bytes) -> list[tuple[int, dict[str, Any]]]:
    summary = CaptureSummary()
    found = [(each.time_ns, each.to_json()) for each in exchanges(data, summary=summary)]
    assert summary.bad_inputs == []
    assert summary.format == "state-change log"
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("run", "level"), RUNS)
def test_a_state_log_is_the_same_in_every_dress(run: str, level: str, name: str) -> None:
    lines = lines_of(run, level, name)
    plain = "\n".join(line for line, _ in lines)
    wanted = told(plain.encode())
    assert len(wanted) > 2
    for form, dress in DRESSES.items():
        assert told("\n".join(dress(*line) for line in lines).encode()) == wanted, form
    for form, dress_all in WHOLE.items():
        assert told(dress_all(plain)) == wanted, form


def test_text_that_only_names_loggers_and_lines_is_no_log(tmp_path: Path) -> None:
    texts = [
        "log4j.logger.kafka.request.logger=DEBUG, requestAppender\nlog4j.logger.state.change.logger=TRACE, state\n",
        'MARK = re.compile(r"Completed request:(.*)")\nfor line in log:\n    if "[Broker id=7]" in line:\n        print(line)\n',
        "# How to read logs\n\nA line has `Completed request:` and `[Controller id=1 epoch=2]`.\nBroker 7 received nothing.\n",
        "broker.id=1\nlisteners=PLAINTEXT://10.0.0.1:9092\n",
    ]
    for text in texts:
        assert not looks_like_log(text.encode())
    path = tmp_path / "tool.py"
    path.write_text(texts[1])
    with pytest.raises(CaptureError, match="not a capture"):
        list(exchanges(path))


def test_a_backlog_that_is_shipped_late_makes_no_zone() -> None:
    """A shipper's time that lies half an hour behind the line's own is no zone of half an hour."""
    line = (
        '{"@timestamp": "2024-05-06T07:%s:09.000Z", "message": "[2024-05-06 07:00:09,000] INFO [Controller id=2] %s"}'
    )
    became = "2 successfully elected as the controller. Epoch incremented to 4 and epoch zk version is now 4 (KafkaController)"
    for minute in ("00", "15", "30", "45"):
        assert [at for at, _ in told((line % (minute, became)).encode())] == [1_714_978_809_000_000_000]
