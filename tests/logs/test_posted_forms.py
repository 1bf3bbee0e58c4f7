"""What people post: real logs of eight kinds in 350 forms give the rows of the plain log, in each."""

# ruff: noqa: E501  log lines are as long as they are

import base64
import bz2
import csv
import gzip
import html
import io
import json
import lzma
import quopri
import random
import re
import tarfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import pytest
import zstandard
from conftest import DATA
from hypothesis import example, given, settings
from hypothesis import strategies as st
from state_runs import files_of, logs_of

from kproto.capture import CaptureReader, CaptureSummary, Exchange, exchanges
from kproto.capture.source import Source
from kproto.errors import CaptureError
from kproto.logs import LogReading
from kproto.logs.detection import looks_like_log
from kproto.logs.times import stamps_in
from kproto.logs.wrappers import Lines

NS: Final = 10**9


class Line(NamedTuple):
    """A line in Kafka's own layout, and its parts."""

    line: str
    at: str
    level: str
    text: str
    logger: str
    ns: int


_LINE: Final = re.compile(r"\[(\S+ \S+)\] (\w+) (.*) \(([\w.$]+)\)")


def parts_of(line: str) -> Line | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    ns = calendar_ns(found[1])
    return Line(line, found[1], found[2], found[3], found[4], ns)


def calendar_ns(at: str) -> int:
    return int(time.mktime(time.strptime(at[:19], "%Y-%m-%d %H:%M:%S"))) * NS + int(at[20:]) * 10**6


def _request_log() -> bytes:
    return gzip.decompress((DATA / "request_log" / "broker-0-kafka-request.log.gz").read_bytes())


LOGS: Final[dict[str, tuple[Callable[[], bytes], int, int]]] = {
    "requests as JSON": (_request_log, 0, 8),
    "requests as text": (lambda: files_of("kafka-2.0.1")["broker-1/kafka-request.log"], 0, 14),
    "states at TRACE": (lambda: logs_of("kafka-2.8.2", "TRACE")["broker-1/state-change.log"], 0, 70),
    "states at INFO": (lambda: logs_of("kafka-2.8.2", "INFO")["broker-1/state-change.log"], 0, 70),
    "states before 1.0": (lambda: logs_of("kafka-0.11.0.3", "TRACE")["broker-0/state-change.log"], 0, 70),
    "a controller's states": (lambda: logs_of("ibp-3.9-a", "INFO")["broker-2/state-change.log"], 0, 70),
    "controller.log": (lambda: files_of("ibp-3.9-a")["broker-2/controller.log"], 0, 90),
    "KRaft's states": (lambda: files_of("kraft-3.9.1")["broker-1/state-change.log"], 0, 70),
}
"""Each log, and which of its lines; those of exceptions' traces are left out."""


@cache
def lines_of(log: str) -> list[Line]:
    data, first, count = LOGS[log]
    found = (parts_of(line) for line in data().decode().splitlines())
    return [each for each in found if each is not None][first : first + count]


def stamp(form: str, ns: int, *, ahead_s: int = 0) -> str:
    """A time in a form of strftime; %f stands for milliseconds, %i for the hour of twelve without a zero."""
    form = form.replace("%f", f"{ns // 10**6 % 1000:03d}").replace("%s", str(ns // NS))
    form = form.replace("%i", str((ns // NS + ahead_s) // 3600 % 12 or 12))
    return time.strftime(form, time.gmtime(ns // NS + ahead_s))


def iso(ns: int) -> str:
    return stamp("%Y-%m-%dT%H:%M:%S.%fZ", ns)


def later(ns: int) -> str:
    """As a container's runtime stamps a line, a little later."""
    return stamp("%Y-%m-%dT%H:%M:%S.%f", ns) + "912345Z"


# ---- dates and layouts ----------------------------------------------------------------------------------------------

DATES: Final[dict[str, Callable[[int], str]]] = {
    "2023/11/20": lambda ns: stamp("%Y/%m/%d %H:%M:%S,%f", ns),
    "2023/11/20, in brackets": lambda ns: stamp("[%Y/%m/%d %H:%M:%S.%f]", ns),
    "2023.11.20": lambda ns: stamp("%Y.%m.%d %H:%M:%S.%f", ns),
    "20231120": lambda ns: stamp("%Y%m%d %H:%M:%S,%f", ns),
    "11/20/2023": lambda ns: stamp("%m/%d/%Y %H:%M:%S.%f", ns),
    "11/20/2023, in brackets": lambda ns: stamp("[%m/%d/%Y %H:%M:%S,%f]", ns),
    "11/20/2023 7:35 PM": lambda ns: stamp("%m/%d/%Y %i:%M:%S.%f %p", ns),
    "11/20/23": lambda ns: stamp("%m/%d/%y %H:%M:%S.%f", ns),
    "11-20-2023": lambda ns: stamp("%m-%d-%Y %H:%M:%S.%f", ns),
    "20/11/2023": lambda ns: stamp("%d/%m/%Y %H:%M:%S.%f", ns),
    "20.11.2023": lambda ns: stamp("%d.%m.%Y %H:%M:%S,%f", ns),
    "20-Nov-2023": lambda ns: stamp("%d-%b-%Y %H:%M:%S.%f", ns),
    "20 Nov 2023": lambda ns: stamp("%d %b %Y %H:%M:%S,%f", ns),
    "20/Nov/2023": lambda ns: stamp("[%d/%b/%Y:%H:%M:%S.%f +0000]", ns),
    "Nov 20, 2023": lambda ns: stamp("%b %d, %Y %H:%M:%S.%f", ns),
    "Nov 20, 2023 @": lambda ns: stamp("%b %d, %Y @ %H:%M:%S.%f", ns),
    "Nov 20, 2023 7:35 PM": lambda ns: stamp("%b %d, %Y %i:%M:%S.%f %p", ns),
    "November 20th 2023": lambda ns: stamp("%B %dth %Y, %H:%M:%S.%f", ns),
    "Mon Nov 20 2023": lambda ns: stamp("%a %b %d %Y %H:%M:%S.%f", ns),
    "ISO": iso,
    "ISO, in brackets": lambda ns: f"[{iso(ns)}]",
    "ISO with microseconds": lambda ns: stamp("%Y-%m-%dT%H:%M:%S.%f", ns) + "000+00:00",
    "ISO ahead": lambda ns: stamp("%Y-%m-%dT%H:%M:%S.%f+05:30", ns, ahead_s=19800),
    "ISO behind": lambda ns: stamp("%Y-%m-%dT%H:%M:%S,%f-0800", ns, ahead_s=-28800),
    "ISO without zone": lambda ns: stamp("%Y-%m-%dT%H:%M:%S.%f", ns),
    "a zone by letters": lambda ns: stamp("%Y-%m-%d %H:%M:%S,%f CET", ns, ahead_s=3600),
    "UTC": lambda ns: stamp("%Y-%m-%d %H:%M:%S,%f UTC", ns),
    "epoch, milliseconds": lambda ns: str(ns // 10**6),
    "epoch, seconds": lambda ns: stamp("%s.%f", ns),
    "epoch, in brackets": lambda ns: f"[{ns // 10**6}]",
    "without brackets": lambda ns: stamp("%Y-%m-%d %H:%M:%S,%f", ns),
    "a point before milliseconds": lambda ns: stamp("[%Y-%m-%d %H:%M:%S.%f]", ns),
    "compact": lambda ns: stamp("%Y%m%d%H%M%S%f", ns),
    "basic": lambda ns: stamp("%Y%m%dT%H%M%S,%f", ns),
    "basic with a zone": lambda ns: stamp("%Y%m%dT%H%M%S.%fZ", ns),
    "GMT and hours": lambda ns: stamp("%Y-%m-%d %H:%M:%S.%f GMT+2", ns, ahead_s=7200),
    "GMT and a distance": lambda ns: stamp("%Y-%m-%d %H:%M:%S.%f GMT+02:00", ns, ahead_s=7200),
    "UTC and a distance": lambda ns: stamp("%Y-%m-%d %H:%M:%S.%f (UTC-05:00)", ns, ahead_s=-18000),
    "hours alone": lambda ns: stamp("%Y-%m-%d %H:%M:%S.%f+02", ns, ahead_s=7200),
    "hours alone, behind": lambda ns: stamp("%Y-%m-%d %H:%M:%S.%f -08", ns, ahead_s=-28800),
    "a zone's name": lambda ns: stamp("%Y-%m-%d %H:%M:%S.%f America/New_York", ns, ahead_s=-18000),
    "a zone's name in brackets": lambda ns: stamp("[%Y-%m-%d %H:%M:%S,%f][Asia/Tokyo]", ns, ahead_s=32400),
    "a zone behind brackets": lambda ns: stamp("[%Y-%m-%d %H:%M:%S,%f] +0200", ns, ahead_s=7200),
    "a distance and a zone's name": lambda ns: stamp("%Y-%m-%dT%H:%M:%S.%f+01:00[Europe/Berlin]", ns, ahead_s=3600),
    "epoch, a comma": lambda ns: stamp("%s,%f", ns),
    "a colon before the hour": lambda ns: stamp("%Y-%m-%d:%H:%M:%S.%f", ns),
    "small letters": lambda ns: stamp("%Y-%m-%dt%H:%M:%S.%fz", ns),
    "small letters for the half": lambda ns: stamp("%m/%d/%Y %i:%M:%S.%f %p", ns).lower(),
    "points for the half": lambda ns: re.sub("([AP])M", "\\1.M.", stamp("%m/%d/%Y %i:%M:%S.%f %p", ns)).lower(),
    "a narrow space": lambda ns: stamp("%m/%d/%Y, %i:%M:%S.%f\u202f%p", ns),
    "20 nov. 2023": lambda ns: stamp("%d nov. %Y %H:%M:%S,%f", ns),
    "20. November 2023": lambda ns: stamp("[%d. November %Y %H:%M:%S.%f]", ns),
    "20 de nov. de 2023": lambda ns: stamp("%d de nov. de %Y, %H:%M:%S.%f", ns),
    "20 \u043d\u043e\u044f\u0431. 2023": lambda ns: stamp("%d \u043d\u043e\u044f\u0431. %Y %H:%M:%S,%f", ns),
    "2023\u5e7411\u670820\u65e5": lambda ns: stamp("%Y\u5e74%m\u6708%d\u65e5 %H:%M:%S.%f", ns),
    "2023. 11. 20.": lambda ns: stamp("%Y. %m. %d. %H:%M:%S.%f", ns),
    "digits of Arabic": lambda ns: stamp("[%Y-%m-%d %H:%M:%S,%f]", ns).translate(
        {48 + n: 0x660 + n for n in range(10)}
    ),
    "a comma behind the date": lambda ns: stamp("%Y-%m-%d, %H:%M:%S.%f", ns),
    "a column for the date": lambda ns: stamp("%Y-%m-%d;%H:%M:%S.%f;", ns),
    "a dash before the time": lambda ns: stamp("%Y-%m-%d-%H:%M:%S.%f", ns),
    "a zone in words": lambda ns: stamp("%Y-%m-%d %H:%M:%S,%f Pacific Standard Time", ns, ahead_s=-28800),
    "a colon before milliseconds": lambda ns: stamp("%Y-%m-%d %H:%M:%S:%f", ns),
}

LAYOUTS: Final[dict[str, Callable[[Line], str]]] = {
    "plain": lambda x: x.line,
    "without logger": lambda x: f"[{x.at}] {x.level} {x.text}",
    "without level": lambda x: f"[{x.at}] {x.text}",
    "the thread before": lambda x: f"[{x.at}] {x.level} [handler-3] {x.text} ({x.logger})",
    "the thread first": lambda x: f"[data-plane-kafka-request-handler-3] {x.at} {x.level} logger - {x.text}",
    "the thread behind": lambda x: f"{x.at} {x.level} {x.text} ({x.logger}) [handler-3]",
    "the level first": lambda x: f"{x.level}  {x.at} [main] {x.logger} - {x.text}",
    "the level first, in brackets": lambda x: f"[{x.level}] [{x.at}] {x.logger}: {x.text}",
    "logback": lambda x: f"{x.at} [handler-3] {x.level:5} {x.logger} - {x.text}",
    "Spring's": lambda x: f"{x.at.replace(',', '.')}  {x.level} 12 --- [handler-3] {x.logger} : {x.text}",
    "logger and number": lambda x: f"{x.at} {x.level} {x.logger}:71 - {x.text}",
    "columns by bars": lambda x: f"{x.at} | {x.level} | {x.logger} | {x.text}",
    "the level in brackets": lambda x: f"{x.at} [{x.level}] {x.text}",
    "the level in small letters": lambda x: f"{x.at} {x.level.lower()} {x.text}",
    "Confluent's": lambda x: f"[{x.at}] {x.level} {x.text} ({x.logger})",
    "two spaces": lambda x: f"[{x.at}]  {x.level}  {x.text} ({x.logger})",
    "tabs": lambda x: f"{x.at}\t{x.level}\t{x.logger}\t{x.text}",
    "the level in bold": lambda x: f"[{x.at}] **{x.level}** {x.text} ({x.logger})",
    "a context in JSON behind": lambda x: f'{iso(x.ns)}\t{x.level.lower()}\tkafka\t{x.text}\t{{"pod": "kafka-0"}}',
    "the text in quotes": lambda x: f'[{x.at}] {x.level} "{x.text}" ({x.logger})',
    "a context in JSON": lambda x: f'[{x.at}] {x.level} {{"trace":"1"}} {x.text} ({x.logger})',
    "columns by commas": lambda x: f"{x.at.replace(',', '.')},{x.level},{x.text},{x.logger}",
    "RFC 5424, text": lambda x: f"<134>1 {iso(x.ns)} kafka1 kafka 12 - - {x.level} {x.text}",
    "logfmt": lambda x: f"ts={iso(x.ns)} level={x.level.lower()} msg={json.dumps(x.text)}",
    "logfmt, time quoted": lambda x: f'time="{iso(x.ns)}" level={x.level.lower()} msg={json.dumps(x.text)}',
}

OBJECTS: Final[dict[str, Callable[[Line], Any]]] = {
    "JsonLayout": lambda x: {
        "instant": {"epochSecond": x.ns // NS, "nanoOfSecond": x.ns % NS},
        "thread": "handler-1", "level": x.level, "loggerName": x.logger, "message": x.text, "threadId": 40,
    },
    "JsonLayout, timeMillis": lambda x: {"timeMillis": x.ns // 10**6, "level": x.level, "message": x.text},
    "JsonTemplateLayout, ECS": lambda x: {
        "@timestamp": iso(x.ns), "ecs.version": "1.2.0", "log.level": x.level, "message": x.text, "log.logger": x.logger,
    },
    "JsonTemplateLayout, Logstash": lambda x: {
        "@version": 1, "source_host": "kafka1", "message": x.text, "level": x.level, "logger_name": x.logger, "@timestamp": iso(x.ns),
    },
    "JsonTemplateLayout, Google": lambda x: {
        "timestamp": iso(x.ns), "severity": x.level, "message": x.text, "logging.googleapis.com/labels": {},
    },
    "GELF": lambda x: {
        "version": "1.1", "host": "kafka1", "short_message": x.text, "timestamp": x.ns / 1e9,
        "level": {"INFO": 6, "WARN": 4, "ERROR": 3}.get(x.level, 7),
    },
    "GELF, full": lambda x: {"host": "kafka1", "short_message": x.text[:20], "full_message": x.text, "timestamp": x.ns / 1e9, "_level": x.level, "level": 7 if x.level in ("TRACE", "DEBUG") else 6},
    "JSON with a nested level": lambda x: {"@timestamp": iso(x.ns), "log": {"level": x.level}, "message": x.text},
    "JSON with ts in seconds": lambda x: {"ts": x.ns / 1e9, "level": x.level.lower(), "msg": x.text, "logger": x.logger},
    "JSON with ts in milliseconds": lambda x: {"ts": x.ns // 10**6, "lvl": x.level, "level": x.level, "msg": x.text},
    "JSON with a whole line": lambda x: {"message": x.line, "host": "kafka1"},
    "OpenTelemetry": lambda x: {"timeUnixNano": str(x.ns), "severityText": x.level, "body": {"stringValue": x.text}},
    "Datadog": lambda x: {"id": "AQ", "attributes": {"timestamp": iso(x.ns), "status": "info", "message": x.line}},
    "Stackdriver": lambda x: {"insertId": "x", "textPayload": x.line, "timestamp": later(x.ns), "severity": "INFO"},
    "Stackdriver, JSON": lambda x: {"jsonPayload": {"message": x.line}, "timestamp": later(x.ns), "severity": "DEFAULT"},
    "filebeat": lambda x: {"@timestamp": iso(x.ns + 9 * NS), "@metadata": {"beat": "filebeat"}, "message": x.line, "log": {"offset": 1, "file": {"path": "/v/k.log"}}},
    "fluentd": lambda x: {"log": x.line, "stream": "stdout", "kubernetes": {"pod_name": "kafka-0"}},
    "fluent-bit": lambda x: {"date": x.ns / 1e9, "log": x.line, "stream": "stdout", "_p": "F"},
    "logstash": lambda x: {"@timestamp": iso(x.ns + NS), "@version": "1", "message": x.line, "tags": [], "path": "/v/k.log", "host": "k1"},
    "logstash, event.original": lambda x: {"@timestamp": iso(x.ns + NS), "event": {"original": x.line}, "host": {"name": "k1"}},
    "vector": lambda x: {"file": "/v/k.log", "host": "k1", "message": x.line, "source_type": "file", "timestamp": later(x.ns)},
    "Splunk": lambda x: {"preview": False, "result": {"_raw": x.line, "_time": stamp("%Y-%m-%d %H:%M:%S.%f UTC", x.ns)}},
    "Splunk's collector": lambda x: {"time": x.ns / 1e9, "host": "k1", "event": x.line},
    "Sumo Logic": lambda x: {"_raw": f"{x.level} {x.text}", "_messagetime": str(x.ns // 10**6), "_receipttime": str(x.ns // 10**6 + 2000)},
    "CloudWatch": lambda x: {"timestamp": x.ns // 10**6, "message": x.line, "ingestionTime": x.ns // 10**6 + 900},
    "journald": lambda x: {"__REALTIME_TIMESTAMP": str(x.ns // 1000), "PRIORITY": "6", "MESSAGE": f"{x.level} {x.text}"},
    "journald, bytes": lambda x: {"__REALTIME_TIMESTAMP": str(x.ns // 1000), "MESSAGE": list(f"{x.level} {x.text}".encode())},
    "Docker": lambda x: {"log": x.line + "\n", "stream": "stdout", "time": later(x.ns)},
    "Elasticsearch's hit": lambda x: {"_index": "l", "_source": {"@timestamp": iso(x.ns), "message": x.line}},
    "Elasticsearch's fields": lambda x: {"fields": {"@timestamp": [iso(x.ns)], "message": [x.line]}},
    "Azure": lambda x: {"TimeGenerated": later(x.ns), "LogEntry": x.line},
    "a field that is not known": lambda x: {"when": later(x.ns), "logline": x.line},
    "Graylog": lambda x: {"message": {"timestamp": iso(x.ns), "source": "k1", "message": x.line}, "index": "g"},
    "a time of ingestion nearer to the line": lambda x: {"@timestamp": iso(x.ns), "event": {"ingested": iso(x.ns + 3 * NS), "original": f"{x.level} {x.text}"}},
    "times of others alone": lambda x: {"event.ingested": iso(x.ns + 3 * NS), "event.created": iso(x.ns), "said": f"{x.level} {x.text}"},
    "OpenTelemetry, nested": lambda x: {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": str(x.ns), "severityText": x.level, "body": {"stringValue": x.text}}]}]}]},
    "filebeat, names with points": lambda x: {"@timestamp": iso(x.ns + NS), "json.message": x.text, "json.level": x.level, "json.timestamp": iso(x.ns)},
    "date and time apart": lambda x: {"date": stamp("%Y-%m-%d", x.ns), "time": stamp("%H:%M:%S.%f", x.ns), "level": x.level, "message": x.text},
    "protobuf's time": lambda x: {"timestamp": {"seconds": x.ns // NS, "nanos": x.ns % NS}, "level": x.level, "message": x.text},
    "a number by a name that is not known": lambda x: {"created_ms": x.ns // 10**6, "level": x.level, "message": x.text},
    "Mongo": lambda x: {"ts": {"$date": iso(x.ns)}, "level": x.level, "msg": x.text},
}  # fmt: skip

PREFIXES: Final[dict[str, Callable[[Line], str]]] = {
    "compose": lambda x: "kafka-1  | ",
    "compose, colours": lambda x: "\x1b[36mkafka-1  |\x1b[0m ",
    "compose --timestamps": lambda x: f"kafka-1  | {later(x.ns)} ",
    "kubectl --prefix": lambda x: "[pod/kafka-0/kafka] ",
    "kubectl --timestamps": lambda x: f"{later(x.ns)} ",
    "kubectl --prefix --timestamps": lambda x: f"[pod/kafka-0/kafka] {later(x.ns)} ",
    "stern": lambda x: "kafka-0 kafka ",
    "stern, colours": lambda x: "\x1b[32mkafka-0\x1b[0m \x1b[33mkafka\x1b[0m ",
    "stern --timestamps": lambda x: f"kafka-0 kafka {later(x.ns)} ",
    "stern, many namespaces": lambda x: "kafka kafka-0 \u203a kafka ",
    "kail": lambda x: "kafka/kafka-0[kafka]: ",
    "CRI": lambda x: f"{later(x.ns)} stdout F ",
    "grep -H": lambda x: "logs/state-change.log.2026-11-26-20:",
    "grep -n": lambda x: "71:",
    "grep -Hn": lambda x: "/var/log/kafka/server.log:71:",
    "grep -b": lambda x: "4711-71:",
    "less -N": lambda x: "     71 ",
    "cat -n": lambda x: "    71\t",
    "tail -f of two files": lambda x: "==> /var/log/kafka/state-change.log <==\n",
    "RFC 3164": lambda x: f"<134>{stamp('%b %d %H:%M:%S', x.ns)} kafka1 kafka[12]: ",
    "RFC 3164, as stored": lambda x: f"{stamp('%b %d %H:%M:%S', x.ns)} kafka1 kafka[12]: ",
    "RFC 5424": lambda x: f"<134>1 {later(x.ns)} kafka1 kafka 12 - - ",
    "RFC 5424, data": lambda x: f'<134>1 {later(x.ns)} kafka1 kafka 12 ID4 [x@1 a="12:33:44"] ',
    "RFC 5424, counted": lambda x: f"312 <134>1 {later(x.ns)} kafka1 kafka 12 - - ",
    "rsyslog": lambda x: f"{stamp('%Y-%m-%dT%H:%M:%S.%f', x.ns)}345+00:00 kafka1 kafka[12]: ",
    "journald, short": lambda x: f"{stamp('%b %d %H:%M:%S', x.ns)} kafka1 start.sh[12]: ",
    "journald, short-iso": lambda x: f"{stamp('%Y-%m-%dT%H:%M:%S+0200', x.ns, ahead_s=7200)} kafka1 start.sh[12]: ",
    "journald, short-precise": lambda x: f"{stamp('%b %d %H:%M:%S.%f', x.ns)}123 kafka1 start.sh[12]: ",
    "journald, short-full": lambda x: f"{stamp('%a %Y-%m-%d %H:%M:%S UTC', x.ns)} kafka1 start.sh[12]: ",
    "journald, short-unix": lambda x: f"{stamp('%s.%f', x.ns)}123 kafka1 start.sh[12]: ",
    "journald, short-monotonic": lambda x: "[   71.123456] kafka1 start.sh[12]: ",
    "a mail's quote": lambda x: "> ",
    "quoted twice": lambda x: "> > ",
    "quoted, close": lambda x: ">>",
    "indented": lambda x: "    ",
    "indented by a tab": lambda x: "\t",
    "a list": lambda x: "- ",
    "a list by numbers": lambda x: "12. ",
    "a diff": lambda x: "+",
    "a table": lambda x: "| ",
    "Loki's labels": lambda x: f'{later(x.ns)} {{app="kafka"}} ',
    "logcli": lambda x: f"\x1b[34m{later(x.ns)}\x1b[0m {{}} ",
    "CloudWatch's tail": lambda x: f"{later(x.ns)} kafka/kafka-0 ",
    "Heroku": lambda x: f"{later(x.ns)} app[web.1]: ",
    "supervisord": lambda x: "kafka-1 stdout | ",
    "an S3 line": lambda x: f"s3://b/k.log.gz:{x.ns % 97}:",
    "Ansible": lambda x: "kafka1 | ",
    "pssh": lambda x: "[1] ",
    "ssh": lambda x: "kafka1: ",
    "tmux's time": lambda x: f"{stamp('%H:%M:%S', x.ns)} ",
    "ts": lambda x: f"{stamp('%b %d %H:%M:%S', x.ns)} ",
}  # fmt: skip


# ---- whole files -----------------------------------------------------------------------------------------------------


def wrapped(lines: Iterable[str], width: int, mark: str = "> ") -> str:
    """Lines as a mail client cuts them."""
    return "\n".join(
        mark + part
        for line in lines
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    )


def refilled(text: str, width: int) -> str:
    """Lines that another mail client cuts again, without a mark before the rest."""
    return "\n".join(
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
    )


def cut(lines: Iterable[str], width: int) -> str:
    """Lines as a terminal cuts them."""
    return "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width))


def indented(lines: Iterable[Line], width: int, mark: str = "    ") -> str:
    """Lines that are cut, and go on behind a mark."""
    return "".join(
        f"\n{mark}".join(x.line[at : at + width] for at in range(0, len(x.line), width)) + "\n" for x in lines
    )


def yaml_text(line: str) -> str:
    """A text in double quotes over several lines, as gcloud prints it."""
    return '"' + re.sub(r"(.{80}\S*) ", "\\1\\\\\n    \\\\ ", line.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def log4j2_event(x: Line) -> str:
    """What log4j2's XMLLayout writes."""
    return (
        f'<Event xmlns="http://logging.apache.org/log4j/2.0/events" timeMillis="{x.ns // 10**6}" thread="main" '
        f'level="{x.level}" loggerName="{x.logger}" threadId="1">\n  <Instant epochSecond="{x.ns // NS}"/>\n'
        f"  <Message>{html.escape(x.text, quote=False)}</Message>\n</Event>\n"
    )


def log4j_event(x: Line) -> str:
    """What log4j 1's XMLLayout writes."""
    return (
        f'<log4j:event logger="{x.logger}" timestamp="{x.ns // 10**6}" level="{x.level}" thread="main">\n'
        f"<log4j:message><![CDATA[{x.text}]]></log4j:message>\n</log4j:event>\n\n"
    )


def boxed(lines: Iterable[Line]) -> str:
    parts = (x.line[at : at + 100] for x in lines for at in range(0, len(x.line), 100))
    return "".join(f"\u2502 {part:100} \u2502\n" for part in parts)


def table(lines: list[Line], columns: dict[str, Callable[[Line], str]], **form: Any) -> str:
    """A CSV export."""
    into = io.StringIO()
    writer = csv.writer(into, **form)
    writer.writerow(columns)
    writer.writerows([column(line) for column in columns.values()] for line in lines)
    return into.getvalue()


def export(x: Line, n: int, field: bytes) -> bytes:
    return b"__CURSOR=s=1;i=%d\n__REALTIME_TIMESTAMP=%d\n_PID=12\n%b\n_UID=0\n\n" % (n, x.ns // 1000, field)


def pieces(lines: list[Line], size: int) -> str:
    return "\n".join(
        f"{later(x.ns)} stdout {'F' if at + size >= len(x.line) else 'P'} {x.line[at : at + size]}"
        for x in lines
        for at in range(0, len(x.line), size)
    )


def docker_pieces(lines: list[Line]) -> str:
    parts = ((x, (x.line + "\n")[at : at + 90], at) for x in lines for at in range(0, len(x.line) + 1, 90))
    return "\n".join(
        json.dumps(
            {
                "log": part,
                "stream": "stdout",
                "time": later(x.ns),
                "partial_message": "true",
                "partial_id": str(x.ns),
                "partial_last": str(part.endswith("\n")).lower(),
            }
        )
        for x, part, _ in parts
    )


def pretty(x: Line, indent: int = 2) -> str:
    """A line whose JSON is printed over several lines."""
    before, brace, rest = x.line.partition("{")
    try:
        value, end = json.JSONDecoder().raw_decode(brace + rest)
    except ValueError:
        return x.line
    return before + json.dumps(value, indent=indent) + (brace + rest)[end:]


def merged(x: Line) -> dict[str, Any]:
    """A record with the fields of a request, where the line holds them as JSON."""
    _before, _mark, rest = x.text.partition("Completed request:")
    fields = json.JSONDecoder().raw_decode(rest)[0] if rest.startswith("{") else {"message": x.text}
    return {"@timestamp": iso(x.ns), "level": x.level, **fields}


def plain(lines: list[Line]) -> str:
    return "\n".join(x.line for x in lines) + "\n"


WHOLE: Final[dict[str, Callable[[list[Line]], str | bytes]]] = {
    "byte order mark": lambda lines: b"\xef\xbb\xbf" + plain(lines).encode(),
    "UTF-16": lambda lines: plain(lines).encode("utf-16"),
    "UTF-16, big end, no mark": lambda lines: plain(lines).encode("utf-16-be"),
    "UTF-16, little end, no mark": lambda lines: plain(lines).encode("utf-16-le"),
    "UTF-16, CRLF": lambda lines: plain(lines).replace("\n", "\r\n").encode("utf-16"),
    "CRLF": lambda lines: plain(lines).replace("\n", "\r\n"),
    "CRLF and a mark": lambda lines: b"\xef\xbb\xbf" + plain(lines).replace("\n", "\r\n").encode(),
    "no end of the last line": lambda lines: plain(lines).rstrip(),
    "empty lines between": lambda lines: plain(lines).replace("\n", "\n\n"),
    "spaces at ends": lambda lines: plain(lines).replace("\n", "   \n"),
    "gzip": lambda lines: gzip.compress(plain(lines).encode()),
    "two members of gzip": lambda lines: gzip.compress(plain(lines[:5]).encode()) + gzip.compress(plain(lines[5:]).encode()),
    "bzip2": lambda lines: bz2.compress(plain(lines).encode()),
    "xz": lambda lines: lzma.compress(plain(lines).encode()),
    "zstd": lambda lines: zstandard.compress(plain(lines).encode()),
    "gzip of Docker's json-file": lambda lines: gzip.compress("\n".join(json.dumps(OBJECTS["Docker"](x)) for x in lines).encode()),
    "colours": lambda lines: "\n".join(f"\x1b[36m{x.line[:25]}\x1b[0;1m{x.line[25:]}\x1b[0m" for x in lines),
    "colours of grep": lambda lines: re.sub(r"(LeaderAndIsr|Partition|Completed)", "\x1b[01;31m\x1b[K\\1\x1b[m\x1b[K", plain(lines)),
    "a colour for the level": lambda lines: "\n".join(f"[{x.at}] \x1b[32m{x.level}\x1b[0m {x.text} ({x.logger})" for x in lines),
    "HTML": lambda lines: html.escape(plain(lines)),
    "HTML, quotes kept": lambda lines: html.escape(plain(lines), quote=False),
    "HTML, lines broken": lambda lines: "<pre>\n" + "<br>\n".join(html.escape(x.line) for x in lines) + "\n</pre>",
    "HTML, apostrophes": lambda lines: html.escape(plain(lines)).replace("&#x27;", "&#39;"),
    "no-break spaces": lambda lines: "\n".join(x.line.replace(" ", "\u00a0", 3) for x in lines),
    "markdown's fence": lambda lines: f"Here is my log:\n\n```\n{plain(lines)}```\n\nWhat is wrong?\n",
    "markdown's fence, named": lambda lines: f"~~~log\n{plain(lines)}~~~\n",
    "markdown, indented": lambda lines: "Hello,\n\n" + "".join(f"    {x.line}\n" for x in lines) + "\nthanks\n",
    "Jira's": lambda lines: "{code:java}\n" + plain(lines) + "{code}\n",
    "Jira's noformat": lambda lines: "{noformat}\n" + plain(lines) + "{noformat}\n",
    "a mail, 72 columns": lambda lines: wrapped((x.line for x in lines), 72),
    "a mail, 78 columns": lambda lines: wrapped((x.line for x in lines), 78),
    "a mail, 72 columns, no quote": lambda lines: wrapped((x.line for x in lines), 72, ""),
    "a mail, 100 columns, no quote": lambda lines: wrapped((x.line for x in lines), 100, ""),
    "a mail's source": lambda lines: quopri.encodestring(plain(lines).encode()),
    "a mail's source, CRLF": lambda lines: quopri.encodestring(plain(lines).encode()).replace(b"\n", b"\r\n"),
    "a mail's source, headers": lambda lines: b"From: a@b\nContent-Transfer-Encoding: quoted-printable\n\n" + quopri.encodestring(plain(lines).encode()),
    "a mail's source, quoted": lambda lines: quopri.encodestring("".join(f"> {x.line}\n" for x in lines).encode()),
    "a mail's source, Docker's": lambda lines: quopri.encodestring("\n".join(json.dumps(OBJECTS["Docker"](x)) for x in lines).encode()),
    "a mail, quoted, then cut again": lambda lines: refilled(wrapped((x.line for x in lines), 76), 72),
    "a mail, 72 columns, an empty line behind each": lambda lines: wrapped((x.line for x in lines), 72, "").replace("\n", "\n\n"),
    "a mail, 72 columns, initials": lambda lines: wrapped((x.line for x in lines), 72, "AB> "),
    "a mail, 72 columns, bars": lambda lines: wrapped((x.line for x in lines), 72, "| "),
    "a terminal, 80 columns": lambda lines: cut((x.line for x in lines), 80),
    "a terminal, 120 columns": lambda lines: cut((x.line for x in lines), 120),
    "a terminal, 200 columns": lambda lines: cut((x.line for x in lines), 200),
    "a terminal of 120 columns, indented": lambda lines: textwrap.indent(cut((x.line for x in lines), 120), "    "),
    "a terminal of 120 columns, compose": lambda lines: cut((f"kafka-1  | {x.line}" for x in lines), 120),
    "a terminal, 211 columns, JSON": lambda lines: cut((json.dumps(OBJECTS["JsonLayout"](x)) for x in lines), 211),
    "pieces of CRI": lambda lines: pieces(lines, 150),
    "pieces of CRI, short": lambda lines: pieces(lines, 61),
    "pieces of Docker": docker_pieces,
    "printed over lines": lambda lines: "\n".join(pretty(x) for x in lines),
    "printed over lines, compose": lambda lines: "\n".join(f"kafka-1  | {line}" for x in lines for line in pretty(x).splitlines()),
    "printed over lines, CRLF": lambda lines: "\r\n".join(line for x in lines for line in pretty(x, 4).splitlines()),
    "printed over lines, Docker's": lambda lines: "\n".join(json.dumps({"log": f"{line}\n", "stream": "stdout", "time": later(x.ns)}) for x in lines for line in pretty(x).splitlines()),
    "an array of texts": lambda lines: json.dumps([x.line for x in lines]),
    "an array of texts, over lines": lambda lines: json.dumps([x.line for x in lines], indent=4),
    "Ansible's output": lambda lines: json.dumps({"stdout": plain(lines), "stdout_lines": [x.line for x in lines]}, indent=4),
    "an array of objects": lambda lines: json.dumps([OBJECTS["JsonLayout"](x) for x in lines]),
    "an array of objects, over lines": lambda lines: json.dumps([OBJECTS["filebeat"](x) for x in lines], indent=2),
    "JsonTemplateLayout, over lines": lambda lines: "\n".join(json.dumps(OBJECTS["JsonTemplateLayout, ECS"](x), indent=2) for x in lines),
    "an array of objects, a line each": lambda lines: "[\n" + ",\n".join(json.dumps(OBJECTS["CloudWatch"](x)) for x in lines) + "\n]\n",
    "objects without lines between": lambda lines: "".join(json.dumps(OBJECTS["fluentd"](x)) for x in lines),
    "a search's hits": lambda lines: json.dumps({"hits": {"hits": [OBJECTS["Elasticsearch's hit"](x) for x in lines]}}),
    "a search's hits, over lines": lambda lines: json.dumps({"hits": {"hits": [OBJECTS["Elasticsearch's hit"](x) for x in lines]}}, indent=2),
    "CloudWatch's events": lambda lines: json.dumps({"events": [OBJECTS["CloudWatch"](x) for x in lines]}, indent=4),
    "CloudWatch Insights": lambda lines: json.dumps({"results": [[{"field": "@timestamp", "value": iso(x.ns)}, {"field": "@message", "value": x.line}] for x in lines]}),
    "Loki's answer": lambda lines: json.dumps({"data": {"result": [{"values": [[str(x.ns), f"{x.level} {x.text}"] for x in lines]}]}}),
    "Loki's answer, metadata": lambda lines: json.dumps({"data": {"result": [{"values": [[str(x.ns), x.line, {"a": "b"}] for x in lines]}]}}),
    "Grafana's JSON": lambda lines: json.dumps([{"line": x.line, "timestamp": str(x.ns), "fields": {"app": "kafka"}} for x in lines], indent=2),
    "JSON in JSON": lambda lines: "\n".join(json.dumps({"log": json.dumps(OBJECTS["JsonLayout"](x)) + "\n", "time": later(x.ns)}) for x in lines),
    "a request's fields, over lines": lambda lines: "\n".join(json.dumps(merged(x), indent=4) for x in lines),
    "a request's fields beside its time": lambda lines: "\n".join(json.dumps(merged(x)) for x in lines),
    "a request's fields below a name": lambda lines: "\n".join(json.dumps({"kafka": {"x": 1, **merged(x)}}) for x in lines),
    "a space before a request": lambda lines: plain(lines).replace("request:{", "request: {"),
    "objects over lines, commas first": lambda lines: "[\n" + "\n, ".join(json.dumps({"message": x.line}, indent=2) for x in lines) + "\n]\n",
    "JSON in JSON in CRI": lambda lines: "\n".join(f"{later(x.ns)} stdout F {json.dumps({'log': json.dumps(OBJECTS['JsonLayout'](x))})}" for x in lines),
    "JSON, over lines, by journald": lambda lines: "\n".join(json.dumps(OBJECTS["journald"](x), indent=8) for x in lines),
    "journald, json-seq": lambda lines: "".join(f"\x1e{json.dumps(OBJECTS['journald'](x))}\n" for x in lines),
    "journald, json-sse": lambda lines: "".join(f"data: {json.dumps(OBJECTS['journald'](x))}\n\n" for x in lines),
    "journald, export": lambda lines: b"".join(export(x, n, f"MESSAGE={x.level} {x.text}".encode()) for n, x in enumerate(lines)),
    "journald, export, bytes": lambda lines: b"".join(export(x, n, b"MESSAGE\n" + len(x.line).to_bytes(8, "little") + x.line.encode()) for n, x in enumerate(lines)),
    "Kibana's CSV": lambda lines: table(lines, {"@timestamp": lambda x: stamp("%b %d, %Y @ %H:%M:%S.%f", x.ns), "message": lambda x: x.line}, quoting=csv.QUOTE_ALL),
    "Kibana's CSV, message first": lambda lines: table(lines, {"message": lambda x: x.line, "@timestamp": lambda x: stamp("%b %d, %Y @ %H:%M:%S.%f", x.ns)}, quoting=csv.QUOTE_ALL),
    "Kibana's CSV, message alone": lambda lines: table(lines, {"@timestamp": lambda x: stamp("%b %d, %Y @ %H:%M:%S.%f", x.ns), "level": lambda x: x.level, "message": lambda x: x.text}, quoting=csv.QUOTE_ALL),
    "Splunk's CSV": lambda lines: table(lines, {"_raw": lambda x: x.line, "_time": lambda x: stamp("%Y-%m-%dT%H:%M:%S.%f+0000", x.ns), "host": lambda x: "k1"}, quoting=csv.QUOTE_ALL),
    "Splunk's CSV, few quotes": lambda lines: table(lines, {"_serial": lambda x: "1", "_time": lambda x: stamp("%Y-%m-%dT%H:%M:%S.%f+0000", x.ns), "_raw": lambda x: x.line}),
    "Loki's CSV": lambda lines: table(lines, {"Date": lambda x: iso(x.ns), "Line": lambda x: x.line, "labels": lambda x: '{"app":"kafka"}', "tsNs": lambda x: str(x.ns), "id": lambda x: "1_a"}),
    "CloudWatch's CSV": lambda lines: table(lines, {"timestamp": lambda x: str(x.ns // 10**6), "message": lambda x: x.line}),
    "CSV, two times": lambda lines: table(lines, {"timestamp": lambda x: iso(x.ns), "ingested": lambda x: iso(x.ns + 3 * NS), "message": lambda x: f"{x.level} {x.text}"}),
    "CSV, two times behind": lambda lines: table(lines, {"Severity": lambda x: x.level, "Message": lambda x: x.text, "Time": lambda x: iso(x.ns), "ReceivedAt": lambda x: str(x.ns // 10**6 + 3000)}, delimiter=";"),
    "CSV, names that are not known": lambda lines: table(lines, {"generated_at": lambda x: iso(x.ns), "received_at": lambda x: iso(x.ns + 3 * NS), "said": lambda x: f"{x.level} {x.text}"}, quoting=csv.QUOTE_ALL),
    "CSV, lines of several in a cell": lambda lines: table(lines, {"message": lambda x: f"{x.level} {x.text}\n\tat kafka.A.b", "timestamp": lambda x: iso(x.ns), "_indextime": lambda x: str(x.ns // NS + 9)}),
    "CSV, received before": lambda lines: table(lines, {"ingestionTime": lambda x: str(x.ns // 10**6 + 1900), "message": lambda x: f"{x.level} {x.text}", "timestamp": lambda x: str(x.ns // 10**6)}),
    "TSV, two times": lambda lines: "id\tgenerated_at\treceived_at\tmessage\n" + "".join(f"1\t{iso(x.ns)}\t{iso(x.ns + 3 * NS)}\t{x.level} {x.text}\n" for x in lines),
    "a database's table": lambda lines: "+--+\n| message | ts |\n+--+\n" + "".join(f"| {x.level} {x.text} | {iso(x.ns)} |\n" for x in lines),
    "TSV": lambda lines: table(lines, {"at": lambda x: iso(x.ns), "message": lambda x: x.line}, dialect="excel-tab"),
    "TSV without quotes": lambda lines: "\n".join(f"{iso(x.ns)}\tkafka1\t{x.line}" for x in lines),
    "CSV by semicolons": lambda lines: table(lines, {"at": lambda x: iso(x.ns), "message": lambda x: x.line}, delimiter=";", quoting=csv.QUOTE_ALL),
    "a shell's session": lambda lines: f"[root@kafka1 ~]# tail -n 70 /var/log/kafka/state-change.log\n{plain(lines)}[root@kafka1 ~]# \n",
    "lines of other loggers between": lambda lines: "".join(f"{x.line}\n[{x.at}] INFO [GroupCoordinator 1]: Stabilized group g (kafka.coordinator.group.GroupCoordinator)\n" for x in lines),
    "exceptions between": lambda lines: "".join(f"{x.line}\njava.lang.IllegalStateException: no\n\tat kafka.A.b(A.scala:71)\nCaused by: java.io.IOException\n\t... 3 more\n" for x in lines),
    "a time of day, a file with its date": lambda lines: "\n".join(f"{x.at[11:]} {x.level} {x.text} ({x.logger})" for x in lines),
    "a time of day, in brackets": lambda lines: "\n".join(f"[{x.at[11:]}] {x.level} {x.text} ({x.logger})" for x in lines),
    "a log of a screen": lambda lines: "Script started on 2026-11-21 06:00:00+00:00\n" + plain(lines).replace("\n", "\r\n") + "Script done\n",
    "all in one line": lambda lines: " ".join(x.line for x in lines),
    "line breaks as text": lambda lines: "\\n".join(x.line for x in lines),
    "line breaks of HTML alone": lambda lines: "<pre>" + "<br/>".join(html.escape(x.line) for x in lines) + "</pre>",
    "a line separator": lambda lines: "\u2028".join(x.line for x in lines),
    "Python's list": lambda lines: repr([x.line for x in lines]),
    "Python's list of dicts": lambda lines: repr([{"message": x.line, "offset": n} for n, x in enumerate(lines)]),
    "Python's bytes": lambda lines: "\n".join(repr(f"{x.line}\n".encode()) for x in lines),
    "HTML twice": lambda lines: html.escape(html.escape(plain(lines))),
    "HTML, spaces": lambda lines: html.escape(plain(lines)).replace(" ", "&nbsp;"),
    "HTML, elements": lambda lines: "".join(f'<p class="line"><span class="at">[{x.at}]</span> <b>{x.level}</b> {html.escape(x.text)} ({x.logger})</p>\n' for x in lines),
    "thin spaces": lambda lines: plain(lines).replace(" ", "\u2009"),
    "characters without width": lambda lines: plain(lines).replace(",", ",\u200b"),
    "apostrophes of a word processor": lambda lines: plain(lines).replace("'", "\u2019"),
    "quotes of a word processor": lambda lines: re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", plain(lines)),
    "markdown's escapes": lambda lines: re.sub(r"([\[\]_*`{}<>])", r"\\\1", plain(lines)),
    "Jira's escapes": lambda lines: plain(lines).replace("{", "\\{").replace("}", "\\}"),
    "YAML": lambda lines: "".join("---\nlabel: x\nmsg: '{}'\n".format(x.line.replace("'", "''")) for x in lines),
    "SQL": lambda lines: "".join("INSERT INTO logs VALUES (12, '{}');\n".format(x.line.replace("'", "''")) for x in lines),
    "Splunk's XML": lambda lines: "<results>\n" + "".join(f"<result>\n\t<field k='_raw'><v xml:space='preserve' trim='0'>{html.escape(x.line)}</v></field>\n</result>\n" for x in lines),
    "cut at 90, indented": lambda lines: "".join("\n        ".join(x.line[at : at + 90] for at in range(0, len(x.line), 90)) + "\n" for x in lines),
    "cut at 90, four spaces": lambda lines: indented(lines, 90),
    "cut at 120, four spaces": lambda lines: indented(lines, 120),
    "cut at 120, a tab": lambda lines: indented(lines, 120, "\t"),
    "an editor's hanging lines": lambda lines: "\n".join(part for x in lines for part in textwrap.wrap(x.line, 90, subsequent_indent="    ", break_on_hyphens=False, drop_whitespace=False)),
    "a mail, indented": lambda lines: "".join("\n    ".join(textwrap.wrap(x.line, 100, break_long_words=False, break_on_hyphens=False)) + "\n" for x in lines),
    "YAML, in quotes": lambda lines: "".join(f"- severity: INFO\n  textPayload: {yaml_text(x.line)}\n  timestamp: '{iso(x.ns)}'\n" for x in lines),
    "a slice of Go": lambda lines: f"[{' '.join(x.line for x in lines)}]",
    "a slice of Go, quoted": lambda lines: f"[{' '.join(json.dumps(x.line) for x in lines)}]",
    "a slice of Go, as source": lambda lines: f"[]string{{{', '.join(json.dumps(x.line) for x in lines)}}}",
    "a vector of Rust": lambda lines: f"vec![{', '.join(json.dumps(x.line) for x in lines)}]",
    "dashes of a word processor": lambda lines: plain(lines).replace(" -- {", " \u2013 {").replace("-", "\u2013"),
    "arrows of a word processor": lambda lines: plain(lines).replace("->", "\u2192"),
    "a minus": lambda lines: plain(lines).replace("-", "\u2212"),
    "letters of a PDF": lambda lines: plain(lines).replace("ffi", "\ufb03").replace("fi", "\ufb01").replace("fl", "\ufb02"),
    "log4j2's XMLLayout": lambda lines: "".join(map(log4j2_event, lines)),
    "log4j2's XMLLayout, compact": lambda lines: "".join(map(log4j2_event, lines)).replace("\n", ""),
    "log4j 1's XMLLayout": lambda lines: "".join(map(log4j_event, lines)),
    "GELF, ended by zeros": lambda lines: b"".join(json.dumps(OBJECTS["GELF"](x)).encode() + b"\0" for x in lines),
    "lines ended by zeros": lambda lines: plain(lines).replace("\n", "\0"),
    "tabs for spaces": lambda lines: plain(lines).replace(" ", "\t"),
    "encoded as in a URL": lambda lines: "\n".join(quote(x.line) for x in lines),
    "a form of HTTP": lambda lines: urlencode({"text": plain(lines)}),
    "numbers of lines, cut": lambda lines: "\n".join((" " * 7 if at else f"{n:6} ") + x.line[at : at + 113] for n, x in enumerate(lines, 1) for at in range(0, len(x.line), 113)),
    "Ruby's hashes": lambda lines: "".join(f'{{\n  "at" => {iso(x.ns)},\n  "message" => {json.dumps(x.line)}\n}}\n' for x in lines),
    "HTML, rows in one line": lambda lines: "".join(f"<tr><td>{iso(x.ns)}</td><td>{html.escape(f'{x.level} {x.text}')}</td></tr>" for x in lines),
    "HTML, each word": lambda lines: "".join("<div>" + " ".join(f"<span class='w'>{html.escape(word)}</span>" for word in x.line.split(" ")) + "</div>\n" for x in lines),
    "Windows' spaces": lambda lines: plain(lines).encode().replace(b" ", b"\xa0"),
    "Windows' dashes": lambda lines: plain(lines).encode().replace(b"->", b"\x96>"),
    "wide characters": lambda lines: plain(lines).translate({ord(each): 0xFEE0 + ord(each) for each in "[]:=,"}),
    "a box, cut": boxed,
    "an object of lines": lambda lines: json.dumps({str(n): x.line for n, x in enumerate(lines)}, indent=1),
    "Kibana's CSV, records": lambda lines: table(lines, {"at": lambda x: "1", "_source": lambda x: json.dumps(OBJECTS["JsonLayout"](x))}, quoting=csv.QUOTE_ALL),
    "a table's rows": lambda lines: json.dumps({"tables": [{"columns": [{"name": "At"}, {"name": "LogLevel"}, {"name": "Text"}], "rows": [[iso(x.ns), x.level, x.text] for x in lines]}]}),
    "a time by a name that is not known": lambda lines: "\n".join(json.dumps({"ISODATE": iso(x.ns), "PROGRAM": "kafka", "MESSAGE": f"{x.level} {x.text}"}) for x in lines),
    "a line in two fields": lambda lines: "\n".join(json.dumps({"_source": {"message": x.line}, "fields": {"message.keyword": [x.line], "@timestamp": [iso(x.ns)]}}) for x in lines),
    "lines in one text": lambda lines: json.dumps({"log": "\r\n".join(x.line for x in lines)}),
    "each line twice": lambda lines: "".join(f"{x.line}\n" * 2 for x in lines),
    "each record twice": lambda lines: "".join(f"{json.dumps(OBJECTS['Docker'](x))}\n" * 2 for x in lines),
    "the log twice": lambda lines: plain(lines) * 2,
    "the log three times, as objects": lambda lines: "".join(f"{json.dumps(OBJECTS['Docker'](x))}\n" for x in lines) * 3,
    "the log twice, newest first": lambda lines: plain(lines[::-1]) * 2,
    "the beginning twice": lambda lines: plain(lines[:20] + lines),
    "the end again": lambda lines: plain(lines[:50] + lines[30:]),
    "newest first": lambda lines: plain(lines[::-1]),
    "newest first, CSV": lambda lines: WHOLE["Kibana's CSV"](lines[::-1]),
    "newest first, JSON": lambda lines: WHOLE["an array of objects"](lines[::-1]),
    "newest first, cut": lambda lines: pieces(lines[::-1], 150),
    "latin-1 beside": lambda lines: b"# caf\xe9\n" + plain(lines).encode(),
    "a zero behind": lambda lines: plain(lines).encode() + b"\0" * 4096,
}  # fmt: skip

NESTED: Final = [
    (outer, inner)
    for outer in ("CRI", "compose", "kubectl --prefix", "RFC 5424", "journald, short-iso", "stern", "a mail's quote", "grep -Hn")
    for inner in ("JsonLayout", "JsonTemplateLayout, ECS", "Docker", "fluentd")
]  # fmt: skip


def _forms() -> dict[str, Callable[[list[Line]], str | bytes]]:
    forms: dict[str, Callable[[list[Line]], str | bytes]] = {}

    def each(name: str, form: Callable[[Line], str]) -> None:
        assert name not in forms
        forms[name] = lambda lines: "\n".join(map(form, lines)) + "\n"

    for name, date in DATES.items():
        each(f"date: {name}", lambda x, date=date: f"{date(x.ns)} {x.level} {x.text} ({x.logger})")  # type: ignore[misc]
    for name, layout in LAYOUTS.items():
        each(f"layout: {name}", layout)
    for name, fields in OBJECTS.items():
        each(f"object: {name}", lambda x, fields=fields: json.dumps(fields(x)))  # type: ignore[misc]
    for name, prefix in PREFIXES.items():
        each(f"prefix: {name}", lambda x, prefix=prefix: prefix(x) + x.line)  # type: ignore[misc]
    for outer, inner in NESTED:
        prefix, fields = PREFIXES[outer], OBJECTS[inner]
        each(f"{outer}: {inner}", lambda x, prefix=prefix, fields=fields: prefix(x) + json.dumps(fields(x)))  # type: ignore[misc]
    forms.update(WHOLE)
    for name in ("Docker", "JsonLayout", "filebeat", "JsonTemplateLayout, ECS", "JSON with a whole line"):
        for width in (80, 97, 120):
            forms[f"a terminal, {width} columns: {name}"] = lambda lines, name=name, width=width: cut(  # type: ignore[misc]
                (json.dumps(OBJECTS[name](x)) for x in lines), width
            )
        for mark, width in (("", 72), ("> ", 72), ("", 100)):
            forms[f"a mail, {width} columns, {mark}: {name}"] = lambda lines, name=name, width=width, mark=mark: (
                wrapped(  # type: ignore[misc]
                    (json.dumps(OBJECTS[name](x)) for x in lines), width, mark
                )
            )
    return forms


FORMS: Final = _forms()


EVERY_NTH: Final = 23
"""Which pairs of a form and a log are tried each time; the others are slow together."""


def read(pieces: Iterable[bytes], name: str = "kafka.log", **reading: Any) -> tuple[list[Any], list[str]]:
    """What a reader gives of a log, and the reasons of what it notes."""
    summary = CaptureSummary()
    reader = CaptureReader(apis=None, summary=summary, logs=LogReading(**reading))
    reader.begin_file(name)
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.end()
    return events, [bad.reason for bad in summary.bad_inputs]


def rows_of(data: str | bytes, name: str = "kafka.log", step: int = 1 << 20) -> list[tuple[int, dict[str, Any]]]:
    """The exchanges of a log that comes in pieces of so many bytes; nothing is noted."""
    with Source(data.encode() if isinstance(data, str) else data) as source:
        whole = b"".join(iter(source.read, b""))
    events, noted = read((whole[at : at + step] for at in range(0, len(whole), step)), name)
    assert noted == []
    return [(each.time_ns, each.to_json()) for each in events if isinstance(each, Exchange)]


@cache
def wanted(log: str) -> list[tuple[int, dict[str, Any]]]:
    return rows_of(plain(lines_of(log)))


def check(form: str, log: str, *steps: int) -> None:
    lines = lines_of(log)
    name = f"kafka.log.{lines[0].at[:10]}-06" if "a time of day" in form else "kafka.log"
    assert len(wanted(log)) > 3
    for step in steps or (1 << 20, 61):
        assert rows_of(FORMS[form](lines), name, step) == wanted(log), step


PAIRS: Final = [(form, log) for form in FORMS for log in LOGS]


@pytest.mark.parametrize("log", LOGS)
def test_some_forms_give_the_rows_of_the_plain_log(log: str) -> None:
    for form, of in PAIRS[::EVERY_NTH]:
        if of == log:
            check(form, of)


@pytest.mark.parametrize("step", [1 << 20, 61])
def test_every_other_form_of_a_request_log_gives_its_rows(step: int) -> None:
    for form in list(FORMS)[step % 2 :: 2]:
        check(form, "requests as JSON", step)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_rows_of_the_plain_log(form: str) -> None:
    for log in LOGS:
        check(form, log)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [form for form in FORMS if form.startswith(("a mail, ", "a terminal", "layout: without"))]
)
@pytest.mark.parametrize("first", [300, 900])
def test_lines_that_were_cut_or_lack_their_level_are_the_same_wherever_a_log_is_cut(form: str, first: int) -> None:
    for log, (data, _, count) in LOGS.items():
        lines = [each for line in data().decode().splitlines() if (each := parts_of(line)) is not None]
        begin = max(min(first, len(lines) - count), 0)
        part = lines[begin : begin + count]
        assert rows_of(FORMS[form](part)) == rows_of(plain(part)), log


@pytest.mark.parametrize(
    ("date", "wanted"),
    [
        ("11/20/2023 19:35:10", "2023-11-20 19:35:10"),
        ("20/11/2023 19:35:10", "2023-11-20 19:35:10"),
        ("11/11/2023 19:35:10", "2023-11-11 19:35:10"),
        ("03.04.2024 19:35:10", "2024-04-03 19:35:10"),
        ("11/20/2023 7:35:10.000 PM", "2023-11-20 19:35:10"),
        ("11/20/2023 12:35:10 AM", "2023-11-20 00:35:10"),
        ("11/20/2023, 12:35:10 PM", "2023-11-20 12:35:10"),
        ("11/26/26 19:35:10", "2026-11-26 19:35:10"),
    ],
)
def test_dates_of_numbers_whose_order_they_show(date: str, wanted: str) -> None:
    (found,) = stamps_in(date.encode())
    assert not found.lacks
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.ns // NS)) == wanted


@pytest.mark.parametrize("date", ["03/04/2024", "03-04-2024", "23/11/20"])
def test_a_date_that_may_be_two_days_is_none(date: str) -> None:
    line = lines_of("requests as JSON")[0]
    text = f"{date} 19:35:10 {line.level} {line.text}\n"
    reason = "a date whose day and month may be either number, such as 03/04/2024"
    assert read([text.encode()], day="2024-01-01") == ([], [reason])


@pytest.mark.parametrize("letters", ["IST", "BST", "India Standard Time"])
def test_letters_that_stand_for_several_zones_are_refused_unless_the_zone_is_named(letters: str) -> None:
    x = lines_of("requests as JSON")[0]
    for zone, count in (("", 0), ("Asia/Kolkata", 1)):
        events, noted = read([f"{x.at} {letters} {x.level} {x.text}\n".encode()], zone=zone)
        found = [each for each in events if isinstance(each, Exchange)]
        assert len(found) == count
        if found:
            assert found[0].time_ns == rows_of(x.line + "\n")[0][0] - 19800 * NS
        else:
            assert noted == [
                f"a time in {letters}, which may be several zones; name the log's: --log-zone Asia/Kolkata"
            ]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize(
    "row",
    [
        lambda x: f"EVENTS\t37\t{x.ns // 10**6 + 1900}\tkafka-0\t{x.level} {x.text}\t{x.ns // 10**6}",
        lambda x: f"1\t{iso(x.ns)}\t{iso(x.ns + 3 * NS)}\tkafka\t{x.level} {x.text}",
        lambda x: f'"{iso(x.ns)}","{iso(x.ns + 3 * NS)}","{x.level} {x.text}"',
        lambda x: json.dumps({"one": iso(x.ns), "other": iso(x.ns + 3 * NS), "said": f"{x.level} {x.text}"}),
    ],
)
def test_a_line_beside_several_times_of_which_none_is_known_to_be_its_own_is_not_read(
    log: str, row: Callable[[Line], str]
) -> None:
    if '"' in lines_of(log)[0].text and row(lines_of(log)[0])[0] == '"':
        return  # CSV would double its quotes
    events, noted = read(["".join(f"{row(x)}\n" for x in lines_of(log)).encode()])
    assert events == []
    assert {*noted} == {"a line beside several times, none known to be its own; give its column the name time"}


@pytest.mark.parametrize("log", ["requests as JSON", "states at INFO"])
def test_a_log_without_times_is_called_so(log: str) -> None:
    text = "".join(f"71 [main] {x.level} {x.logger} - {x.text}\n" for x in lines_of(log))
    with pytest.raises(CaptureError, match="a log whose lines have no time that can be read"):
        rows_of(text)


def tar_of(data: bytes) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as tar:
        member = tarfile.TarInfo("logs/state-change.log")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return into.getvalue()


PACKED: Final[dict[str, tuple[Callable[[bytes], bytes], str]]] = {
    "tar": (tar_of, "a tar archive; unpack it first: tar -xf"),
    "tar.gz": (lambda data: gzip.compress(tar_of(data)), "a tar archive; unpack it first: tar -xf"),
    "gzip twice": (lambda data: gzip.compress(gzip.compress(data)), "packed twice"),
    "lzma": (lambda data: lzma.compress(data, lzma.FORMAT_ALONE), "compressed with lzma"),
    "7z": (lambda _: b"7z\xbc\xaf\x27\x1c\0\4" + bytes(60), "a 7z archive"),
    "lz4": (lambda _: b"\x04\x22\x4d\x18" + bytes(60), "lz4 -d"),
}


@pytest.mark.parametrize("form", PACKED)
def test_an_archive_is_refused_by_its_name(form: str) -> None:
    pack, reason = PACKED[form]
    with pytest.raises(CaptureError, match=reason):
        rows_of(pack(plain(lines_of("states at INFO")).encode()))


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("width", [130, 2000])
@pytest.mark.parametrize("left_column", [False, True])
def test_two_logs_side_by_side_are_called_so(log: str, width: int, left_column: bool) -> None:
    """As ``diff -y`` prints them: cut, with tabs up to the right one, of which a line in ten differs."""
    half = width // 2 - 3
    rows = [(x.line[:half], ("[2027" * (number % 10 == 9) + x.line)[:half]) for number, x in enumerate(lines_of(log))]
    if left_column:
        sides = "".join(f"{one}\t    |\t{other}\n" if one != other else f"{one}\t    (\n" for one, other in rows)
    else:
        sides = "".join(f"{one}\t  {'|' if one != other else ' '}\t{other}\n" for one, other in rows)
    with pytest.raises(CaptureError, match="two logs side by side, as diff -y prints them"):
        rows_of(sides)


@pytest.mark.parametrize("log", [log for log in LOGS if log != "controller.log"])
@pytest.mark.parametrize("columns", [150, 180, 220])
def test_lines_that_lack_their_ends_are_noted(log: str, columns: int) -> None:
    """As ``cut -c 1-180`` leaves them; where none that tells of a state is as long they are the plain log."""
    lines = [x.line[:columns] + "\n" for x in lines_of(log)]
    summary = CaptureSummary()
    found = [(each.time_ns, each.to_json()) for each in exchanges("".join(lines).encode(), summary=summary, apis=None)]
    assert found == wanted(log) or summary.bad_inputs


@pytest.mark.parametrize("log", [log for log in LOGS if log != "controller.log"])
@pytest.mark.parametrize("mark", [" ... ", "[...]", " \u2026 ", "<snip>", " xxx ", "[truncated 71 characters]"])
def test_lines_that_lack_their_middle_are_noted(log: str, mark: str) -> None:
    lines = [x.line if len(x.line) < 200 else f"{x.line[:100]}{mark}{x.line[-90:]}" for x in lines_of(log)]
    assert read(["\n".join(lines).encode()], "state-change.log")[1]


@pytest.mark.parametrize("log", ["states before 1.0", "states at TRACE", "a controller's states"])
def test_a_state_whose_parts_cannot_be_put_together_is_noted(log: str) -> None:
    lines = "".join(x.line.replace("eaderEpoch", "eaderE\n>-<\npoch") + "\n" for x in lines_of(log))
    summary = CaptureSummary()
    list(exchanges(lines.encode(), summary=summary))
    assert {bad.reason for bad in summary.bad_inputs} == {
        "a line of a state change that was cut where its parts cannot be put together"
    }


def tells_no_more(found: Any, whole: Any) -> bool:
    """Whether all that a value tells stands in another one; null, and no topic id or broker epoch, tell nothing."""
    if isinstance(found, dict) and isinstance(whole, dict):
        of = found | {"brokerEpoch": whole["brokerEpoch"]} if found.get("brokerEpoch") == -1 else found
        return of.keys() == whole.keys() and all(tells_no_more(of[name], whole[name]) for name in of)
    if isinstance(found, list) and isinstance(whole, list):
        return len(found) == len(whole) and all(map(tells_no_more, found, whole))
    return found in (None, "A" * 22, whole)


@pytest.mark.parametrize("log", LOGS)
@settings(max_examples=settings().max_examples // 4)
@given(
    first=st.integers(0, 50),
    cuts=st.lists(
        st.tuples(st.sampled_from(["terminal", "mail", "> mail"]), st.integers(40, 200)), min_size=2, max_size=2
    ),
)
@example(first=0, cuts=[("terminal", 100), ("> mail", 72)])
@example(first=0, cuts=[("mail", 72), ("terminal", 40)])
@example(first=0, cuts=[("mail", 72), ("terminal", 60)])
@example(first=0, cuts=[("terminal", 47), ("> mail", 81)])
@example(first=14, cuts=[("mail", 63), ("terminal", 48)])
def test_lines_that_were_cut_twice_tell_nothing_wrong(log: str, first: int, cuts: list[tuple[str, int]]) -> None:
    """As by a terminal and a mail client, in either order: what cannot be put together again is told."""
    lines = lines_of(log)
    lines = lines[min(first, max(len(lines) - 20, 0)) :][:30]
    text = plain(lines)
    for by, width in cuts:
        text = (
            cut(text.splitlines(), width) if by == "terminal" else wrapped(text.splitlines(), width, by[: -len("mail")])
        )
    wanted = rows_of(plain(lines))
    try:
        events, noted = read([text.encode()])
    except CaptureError:  # refused: that tells it, too
        return
    found = [(each.time_ns, each.to_json()) for each in events if isinstance(each, Exchange)]
    for at, row in found:
        near = [each for ns, each in wanted if row["request"] is None or abs(ns - at) < NS]
        assert any(
            all(tells_no_more(row[name], each[name]) for name in ("server", "request", "response")) for each in near
        )
    assert noted or len(found) == len(wanted)


def test_replicas_among_which_a_space_was_put_are_not_told_in_part() -> None:
    text = plain(lines_of("a controller's states"))
    torn, count = re.subn(r"(NewPartition with assigned replicas \d,)(\d)", r"\1 \2", text)
    assert count
    for (_, found), (_, whole) in zip(rows_of(torn), rows_of(text), strict=True):
        assert tells_no_more(found["request"], whole["request"])


def test_a_request_lacks_its_states_where_one_of_them_cannot_be_read() -> None:
    lines = [x.line for x in lines_of("states at TRACE")]
    at = [n for n, line in enumerate(lines) if " eceived LeaderAndIsr request " in line.replace("R", " ")]
    for number in at[:8]:
        torn = "\n".join([*lines[:number], lines[number][:150], *lines[number + 1 :]]) + "\n"
        events, noted = read([torn.encode()])
        found = [each.to_json() for each in events if isinstance(each, Exchange)]
        short = [row for row in found if row["request"] is None]
        assert noted == ["a line whose end is missing: a program cut it to show it"]
        assert len(short) == 1
        assert short[0]["api_key"] == 4
        rows = [row for _, row in wanted("states at TRACE")]
        assert [row for row in rows if row not in found] == [
            row for row in rows if row["api_key"] == 4 and row["correlation_id"] == short[0]["correlation_id"]
        ]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("width", [75, 150])
def test_a_log_whose_lines_were_filled_like_a_paragraph_is_called_so(log: str, width: int) -> None:
    text = textwrap.fill(plain(lines_of(log)), width, break_long_words=False, break_on_hyphens=False)
    with pytest.raises(CaptureError, match="a log whose lines were filled like a paragraph, as fmt does"):
        rows_of(text)


@pytest.mark.parametrize("end", ["", "1", "1.2"])
def test_a_request_logged_as_text_that_ends_within_its_duration_is_noted(end: str) -> None:
    line = lines_of("requests as text")[0].line
    whole = line[: line.index("totalTime:") + len("totalTime:")]
    events, noted = read([f"{whole}{end}\n".encode()])
    assert events == []
    assert noted == ["a request logged as text whose header or connection is missing; was the line cut?"]


def test_a_state_of_a_topic_with_a_long_name_that_is_cut_is_noted() -> None:
    line = next(
        x.line for x in lines_of("a controller's states") if "OnlinePartition with state LeaderAndIsr" in x.text
    )
    topic = line.partition("partition ")[2].partition("-0 ")[0]
    events, noted = read([f"{line.replace(topic, 'x' * 249)[:480]}\n".encode()], "state-change.log")
    assert events == []
    assert noted == ["a line whose end is missing: a program cut it to show it"]


def test_what_a_controller_decided_is_no_damage_at_trace() -> None:
    """As releases before 2.5 log it; the requests tell the same."""
    data = logs_of("kafka-2.0.1", "TRACE")["broker-1/state-change.log"].decode()
    lines = [each for line in data.splitlines()[:300] if (each := parts_of(line)) is not None]
    assert any("to OnlinePartition with state LeaderAndIsr" in x.text for x in lines)
    assert rows_of("".join(f"kafka-1  | {x.line}\n" for x in lines)) == rows_of(plain(lines)) != []


def states_of(rows: list[tuple[int, dict[str, Any]]]) -> Counter[str]:
    """What each partition's states are, by request."""
    return Counter(
        json.dumps([row["api_key"], row["server"], max(row["correlation_id"], 0), topic["topicName"], state])
        for _, row in rows
        for topic in row["request"].get("topicStates", [])
        for state in topic["partitionStates"]
    )


@pytest.mark.parametrize("name", ["broker-1/state-change.log", "broker-2/state-change.log", "broker-1/controller.log"])
@pytest.mark.parametrize("run", ["kafka-2.8.2", "kafka-0.11.0.3", "ibp-3.9-a"])
def test_the_order_of_lines_of_one_millisecond_does_not_matter_at_trace(run: str, name: str) -> None:
    lines = [each for line in logs_of(run, "TRACE")[name].decode().splitlines() if (each := parts_of(line)) is not None]
    wanted = rows_of(plain(lines))
    for shuffled in (lines[::-1], random.Random(5).sample(lines, len(lines))):
        found = rows_of(plain(sorted(shuffled, key=lambda x: x.at)))
        assert states_of(found) == states_of(wanted)
        assert len(found) == len(wanted)


@pytest.mark.parametrize("run", ["kafka-2.8.2", "ibp-3.9-a"])
def test_lines_at_info_in_another_order_are_noted(run: str) -> None:
    """There a line of a partition does not name its request."""
    data = logs_of(run, "INFO")["broker-1/state-change.log"].decode()
    lines = [each for line in data.splitlines() if (each := parts_of(line)) is not None]
    lines.reverse()
    _events, (reason,) = read([plain(sorted(lines, key=lambda x: x.at)).encode()], "state-change.log")
    assert reason.startswith("lines of one millisecond stand in another order than they were written in")


def test_equal_lines_of_one_log_are_no_copies() -> None:
    lines = lines_of("KRaft's states")
    changes = [x.line for x in lines if " starts at leader epoch " in x.text][:4]
    at, text = (
        lines[0].line[:26],
        "INFO [Broker id=1] Transitioning 1 partition(s) to local leaders. (state.change.logger)",
    )
    one = "".join(f"{at}{text}\n{at}{line[26:]}\n" for line in changes)
    assert len(rows_of(one)) == 4
    assert len(rows_of(one.replace(at, lines[-1].line[:26]) + one)) == 8


def test_one_record_of_many_lines_newest_first_needs_no_more_memory_than_they_do() -> None:
    lines = [
        each
        for line in logs_of("kafka-2.8.2", "TRACE")["broker-1/state-change.log"].decode().splitlines()
        if (each := parts_of(line)) is not None
    ]
    newest_first = [[str(x.ns), x.line] for x in reversed(lines)]
    answer = json.dumps({"data": {"result": [{"stream": {"pod": "kafka-1"}, "values": newest_first}]}})
    assert len(answer) * len(lines) > 64 << 20
    assert rows_of(answer) == rows_of(plain(lines))


@pytest.mark.parametrize(
    "name", ["broker-0/controller.log broker-2/controller.log", "broker-0/state-change.log broker-1/state-change.log"]
)
def test_logs_of_several_brokers_in_one_file_are_those_apart(name: str) -> None:
    """As ``kubectl logs --prefix -l app=kafka`` and ``docker compose logs`` print them, of one moment each broker's in turn."""
    run, level = ("ibp-3.9-a", "INFO") if "controller.log" in name else ("kafka-2.8.2", "TRACE")
    every, apart = [], Counter[str]()
    for log in name.split():
        lines = [
            each for line in logs_of(run, level)[log].decode().splitlines() if (each := parts_of(line)) is not None
        ]
        apart.update(map(repr, rows_of(plain(lines))))
        every += [(x.at, f"[pod/{log.partition('/')[0]}/kafka] {x.line}\n") for x in lines]
    together = rows_of("".join(line for _at, line in sorted(every, key=lambda each: each[0])))
    assert Counter(map(repr, together)) == apart


def test_a_controllers_log_that_begins_in_the_middle_tells_nothing_that_the_whole_does_not() -> None:
    """Which of the brokers that it lists have just registered, only the lines before tell."""
    data = logs_of("ibp-3.9-a", "INFO")["broker-0/controller.log"].decode()
    lines = [each for line in data.splitlines() if (each := parts_of(line)) is not None]
    first = next(number for number, x in enumerate(lines) if "Updated broker epochs cache" in x.text)
    late = [
        repr(row) for row in rows_of(plain([x for x in lines[:first] if "Epoch incremented" in x.text] + lines[first:]))
    ]
    assert Counter(late) <= Counter(map(repr, rows_of(plain(lines))))


@pytest.mark.parametrize("mark", ["...", "\u2026", ">"])
@pytest.mark.parametrize("log", [log for log in LOGS if "requests" not in log])
def test_a_line_that_was_shown_in_part_is_not_read_in_part(log: str, mark: str) -> None:
    lines = [x.line[:60] + mark for x in lines_of(log)]
    events, noted = read(["\n".join(lines).encode()], "state-change.log")
    assert events == []
    assert set(noted) == {"a line whose end is missing: a program cut it to show it"}


@pytest.mark.parametrize("log", LOGS)
def test_a_log_in_base64_is_called_so(log: str) -> None:
    encoded = [base64.b64encode(x.line.encode()).decode() for x in lines_of(log)]
    for text in ("\n".join(encoded), json.dumps({"records": [{"data": line} for line in encoded]})):
        with pytest.raises(CaptureError, match="a log in base64; decode it first: base64 -d"):
            rows_of(text)


@pytest.mark.parametrize("head", ["", "frame.number\tframe.time_epoch\tip.src\n"])
def test_fields_that_tshark_printed_are_called_so(head: str) -> None:
    with pytest.raises(CaptureError, match="packets as tcpdump or tshark print them"):
        rows_of(head + "".join(f"{n}\t170050531{n}.5\t10.0.0.1\t10.0.0.2\t5001\t9092\t4\n" for n in range(9)))


def test_a_line_without_its_logger_takes_nothing_of_the_next() -> None:
    lines = lines_of("states before 1.0")
    bare = "".join(f"[{x.at}] {x.level} {x.text}\nsome text of another kind\n" for x in lines)
    assert rows_of(bare) == rows_of(plain(lines))


def test_a_json_record_whose_end_is_missing_takes_nothing_of_the_next() -> None:
    lines = lines_of("states at INFO")
    records = [json.dumps(OBJECTS["Docker"](x)) for x in lines]
    for rest in ("\n".join(records), plain(lines)):
        assert rows_of(f"{records[0][:70]}\n{rest}") == rows_of(plain(lines))


@pytest.mark.parametrize("log", LOGS)
def test_lines_that_only_seem_quoted_printable_are_as_they_stand(log: str) -> None:
    lines = lines_of(log)
    settings = "log.dirs=\nssl.keystore.location=\n" * 3
    assert rows_of(settings + plain(lines)) == rows_of(plain(lines))
    assert rows_of("topicId=3DhKZ4b2Q0W\n" + plain(lines)) == rows_of(plain(lines))


def test_a_number_is_no_escape() -> None:
    """``id=10`` would be a control character."""
    line = "[2026-11-20 10:00:00,000] INFO [Broker id=10] Stopped (state.change.logger)\n"
    assert (
        b"".join(each or b"" for each, _, _ in Lines().feed(f"a=3Db\n{line}".encode(), last=True))
        == f"a=b\n{line}".encode()
    )


@pytest.mark.parametrize("step", [4, 7, 1 << 20])
def test_a_zero_ends_a_line_and_more_are_space(step: int) -> None:
    data = b"first\0second\0\0\0\nthird\0"
    lines = Lines()
    found = [each for at in range(0, len(data), step) for each in lines.feed(data[at : at + step])]
    found += lines.feed(b"", last=True)
    assert found == [(b"first\n", 0, 6), (b"second\n", 6, 7), (b"\0\0\n", 13, 3), (b"third\n", 16, 6)]


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_offsets_of_lines_of_a_mails_source_are_those_of_the_file(step: int) -> None:
    text = plain(lines_of("states at TRACE"))
    data = quopri.encodestring(text.encode())
    lines = Lines()
    found = [each for at in range(0, len(data), step) for each in lines.feed(data[at : at + step])]
    found += lines.feed(b"", last=True)
    assert b"".join(line or b"" for line, _, _ in found) == text.encode()
    assert [at for _, at, _ in found] == [sum(each for _, _, each in found[:n]) for n in range(len(found))]
    assert sum(length for _, _, length in found) == len(data)


def test_a_part_of_a_mail_in_base64_is_noted_and_a_mail_of_base64_is_refused() -> None:
    lines = lines_of("states at TRACE")
    part = "Content-Transfer-Encoding: base64\n\n" + base64.encodebytes(plain(lines).encode()).decode()
    _events, noted = read([f"{plain(lines)}--boundary\n{part}".encode()], "mail.eml")
    assert noted == ["a part of a mail that is in base64: save it as a file of its own"]
    with pytest.raises(CaptureError, match="a mail whose text is in base64"):
        rows_of(f"From: a@b\nSubject: c\n{part}")


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
        assert [at for at, _ in rows_of(line % (minute, became))] == [1_714_978_809_000_000_000]
