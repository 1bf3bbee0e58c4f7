"""The same requests are read from a log however a logging system, a container runtime or a person kept its lines."""

import html
import json
import textwrap
import time
from collections.abc import Callable
from typing import Final

import pytest
from log_lines import clock_of, entry_of, line_of, message_of, read, rows_of

from kproto.errors import CaptureError

ROWS: Final = [row for row in rows_of("ibp-2.8-a") if row["api_key"] in (4, 6) and row["response"]][:4]
LONG: Final = max((row for row in rows_of("ibp-2.8-a") if row["api_key"] == 6), key=lambda row: len(str(row)))
DAY: Final = clock_of(ROWS[0])[0]
NS: Final = [round(row["time"] * 1000) * 1_000_000 for row in ROWS]
"""When each request was answered."""

LINES: Final = [line_of(row) for row in ROWS]
BODIES: Final = [message_of(row) for row in ROWS]
ENTRIES: Final = [entry_of(row) for row in ROWS]


WANTED: Final = [(ns, row["request"], row["response"]) for ns, row in zip(NS, ROWS, strict=True)]


def stamp(form: str, ns: int, *, ahead_s: int = 0) -> str:
    """A time in a form of strftime; %f stands for milliseconds."""
    form = form.replace("%f", f"{ns // 1_000_000 % 1000:03d}").replace("%s", str(ns // 1_000_000_000))
    return time.strftime(form, time.gmtime(ns // 1_000_000_000 + ahead_s))


def each(form: Callable[[int, int], str]) -> str:
    """A line of each request; the form gets the request's number and its time."""
    return "\n".join(form(n, ns) for n, ns in enumerate(NS)) + "\n"


def iso(ns: int) -> str:
    """The time as a container's runtime stamps a line, a little later."""
    return stamp("%Y-%m-%dT%H:%M:%S.%f", ns) + "912345Z"


def pretty(n: int) -> str:
    before, _, after = LINES[n].partition("{")
    return f"{before}{json.dumps(ENTRIES[n], indent=2)} {after.rpartition(' ')[2]}"


def export(n: int, ns: int, field: bytes) -> bytes:
    return b"__CURSOR=s=1;i=%d\n__REALTIME_TIMESTAMP=%d\n_PID=12\n%b\n_UID=0\n\n" % (n, ns // 1000, field)


FORMS: Final[dict[str, str | bytes]] = {
    "byte order mark": b"\xef\xbb\xbf" + "\n".join(LINES).encode(),
    "UTF-16 with a mark": "\n".join(LINES).encode("utf-16"),
    "UTF-16 without": "\n".join(LINES).encode("utf-16-be"),
    "CRLF": "\r\n".join(LINES) + "\r\n",
    "colours": "\n".join(f"\x1b[36m{line[:25]}\x1b[0;1m{line[25:]}\x1b[0m" for line in LINES),
    "slashes": each(lambda n, ns: f"{stamp('%Y/%m/%d %H:%M:%S.%f', ns)} DEBUG {BODIES[n]}"),
    "milliseconds": each(lambda n, ns: f"{ns // 1_000_000} DEBUG {BODIES[n]}"),
    "seconds": each(lambda n, ns: f"{stamp('%s.%f', ns)} DEBUG {BODIES[n]}"),
    "the day first": each(lambda n, ns: f"{stamp('%d %b %Y %H:%M:%S,%f', ns)} DEBUG {BODIES[n]}"),
    "a zone by letters": each(lambda n, ns: f"{stamp('%Y-%m-%d %H:%M:%S,%f CET', ns, ahead_s=3600)} DEBUG {BODIES[n]}"),
    "a zone by numbers": each(lambda n, ns: f"{stamp('%Y-%m-%dT%H:%M:%S.%f-0330', ns, ahead_s=-12600)} {BODIES[n]}"),
    "a space": "\n".join(line.replace("request:{", "request: {", 1) for line in LINES),
    "Strimzi's layout": each(lambda n, ns: f"{stamp('%Y-%m-%d %H:%M:%S,%f', ns)} DEBUG {BODIES[n]} [handler-1]"),
    "Docker's json-file": each(lambda n, ns: json.dumps({"log": LINES[n] + "\n", "stream": "stdout", "time": iso(ns)})),
    "fluentd": each(lambda n, ns: json.dumps({"container_id": "c", "log": LINES[n], "source": "stdout"})),
    "filebeat": each(
        lambda n, ns: json.dumps(
            {
                "@timestamp": iso(ns + 9_000_000_000),
                "message": LINES[n],
                "log": {"offset": 1, "file": {"path": "/v/k.log"}},
            }
        )
    ),
    "log4j2's JsonLayout": each(
        lambda n, ns: json.dumps(
            {
                "instant": {"epochSecond": ns // 10**9, "nanoOfSecond": ns % 10**9},
                "level": "DEBUG",
                "message": BODIES[n],
                "thread": "handler-1",
            }
        )
    ),
    "JsonLayout, timeMillis": each(lambda n, ns: json.dumps({"timeMillis": ns // 10**6, "message": BODIES[n]})),
    "JsonTemplateLayout": each(
        lambda n, ns: json.dumps(
            {"@timestamp": stamp("%Y-%m-%dT%H:%M:%S.%fZ", ns), "message": BODIES[n], "log.level": "DEBUG"}
        )
    ),
    "merged": each(
        lambda n, ns: json.dumps({"@timestamp": stamp("%Y-%m-%dT%H:%M:%S.%fZ", ns), "level": "DEBUG", **ENTRIES[n]})
    ),
    "merged below a name": each(
        lambda n, ns: json.dumps({"@timestamp": stamp("%Y-%m-%dT%H:%M:%S.%fZ", ns), "kafka": {"x": 1, **ENTRIES[n]}})
    ),
    "CRI": each(lambda n, ns: f"{iso(ns)} stdout F {LINES[n]}"),
    "CRI's pieces": "\n".join(
        f"{iso(ns)} stdout {'F' if at + 300 >= len(line) else 'P'} {line[at : at + 300]}"
        for line, ns in zip(LINES, NS, strict=True)
        for at in range(0, len(line), 300)
    ),
    "CRI with JSON": each(
        lambda n, ns: f"{iso(ns + 10**9)} stderr F " + json.dumps({"timeMillis": ns // 10**6, "message": BODIES[n]})
    ),
    "RFC 5424": each(
        lambda n, ns: f"<134>1 {stamp('%Y-%m-%dT%H:%M:%S.%f+01:00', ns, ahead_s=3600)} kafka1 kafka 12 - - {BODIES[n]}"
    ),
    "RFC 5424 with data": each(lambda n, ns: f'<134>1 {iso(ns)} kafka1 kafka 12 ID4 [x@1 a="12:33:44"] {LINES[n]}'),
    "RFC 3164": each(lambda n, ns: f"<134>{stamp('%b %d %H:%M:%S', ns)} kafka1 kafka[12]: {LINES[n]}"),
    "journald, short": each(lambda n, ns: f"{stamp('%b %d %H:%M:%S', ns)} kafka1 start.sh[12]: {LINES[n]}"),
    "journald, short-iso": each(
        lambda n, ns: f"{stamp('%Y-%m-%dT%H:%M:%S+0200', ns, ahead_s=7200)} kafka1 start.sh[12]: {LINES[n]}"
    ),
    "journald, json": each(lambda n, ns: json.dumps({"__REALTIME_TIMESTAMP": str(ns // 1000), "MESSAGE": BODIES[n]})),
    "journald, json, bytes": each(
        lambda n, ns: json.dumps({"__REALTIME_TIMESTAMP": str(ns // 1000), "MESSAGE": list(BODIES[n].encode())})
    ),
    "journald, json-pretty": each(
        lambda n, ns: json.dumps({"__REALTIME_TIMESTAMP": str(ns // 1000), "MESSAGE": BODIES[n]}, indent=8)
    ),
    "journald, export": b"".join(export(n, ns, b"MESSAGE=" + BODIES[n].encode()) for n, ns in enumerate(NS)),
    "journald, export, bytes": b"".join(
        export(n, ns, b"MESSAGE\n" + len(BODIES[n].encode()).to_bytes(8, "little") + BODIES[n].encode())
        for n, ns in enumerate(NS)
    ),
    "compose": "\n".join(f"kafka-1  | {line}" for line in LINES),
    "kubectl --prefix": "\n".join(f"[pod/kafka-0/kafka] {line}" for line in LINES),
    "kubectl --timestamps": each(lambda n, ns: f"{iso(ns)} {LINES[n]}"),
    "grep": "\n".join(f"kafka-request.log.2023-11-20-19:{n}:{line}" for n, line in enumerate(LINES)),
    "printed over lines": "\n".join(map(pretty, range(4))),
    "printed over lines, compose": "\n".join(f"kafka-1  | {line}" for n in range(4) for line in pretty(n).splitlines()),
    "printed over lines, Docker": "\n".join(
        json.dumps({"log": line + "\n", "stream": "stdout", "time": iso(NS[n])})
        for n in range(4)
        for line in pretty(n).splitlines()
    ),
    "merged, over lines": each(
        lambda n, ns: json.dumps({"@timestamp": stamp("%Y-%m-%dT%H:%M:%S.%fZ", ns), **ENTRIES[n]}, indent=4)
    ),
    "an array": json.dumps([{"message": line} for line in LINES]),
    "an array over lines": json.dumps([{"message": line} for line in LINES], indent=2),
    "a search's hits": json.dumps({"hits": {"hits": [{"_source": {"message": line}} for line in LINES]}}),
    "Loki's answer": json.dumps({"data": {"result": [{"values": [[str(ns), BODIES[n]] for n, ns in enumerate(NS)]}]}}),
    "JSON in JSON": each(
        lambda n, ns: json.dumps({"log": json.dumps({"timeMillis": ns // 10**6, "message": BODIES[n]}) + "\n"})
    ),
    "a mail's quote": "\n".join(f"> {line}" for line in LINES),
    "cut by a mail client": "\n".join(
        f"> {part}"
        for line in LINES
        for part in textwrap.wrap(line, 72, break_long_words=False, break_on_hyphens=False)
    ),
    "cut by a terminal": "\n".join(line[at : at + 120] for line in LINES for at in range(0, len(line), 120)),
    "HTML": html.escape("\n".join(LINES)),
    "no-break spaces": "\n".join(line.replace(" ", "\u00a0", 3) for line in LINES),
    "an array of texts": json.dumps(LINES),
    "an array of texts, over lines": json.dumps(LINES, indent=4),
    "Ansible's output": json.dumps({"stdout": "\n".join(LINES), "stdout_lines": LINES}, indent=4),
    "CloudWatch Insights": json.dumps(
        {
            "results": [
                [{"field": "@timestamp", "value": iso(NS[n])}, {"field": "@message", "value": line}]
                for n, line in enumerate(LINES)
            ]
        }
    ),
    "Loki's answer with metadata": json.dumps(
        {"data": {"result": [{"values": [[str(ns), BODIES[n], {"a": "b"}] for n, ns in enumerate(NS)]}]}}
    ),
    "logcli": each(lambda n, ns: f"\x1b[34m{iso(ns)}\x1b[0m {{}} {LINES[n]}"),
    "Azure": each(lambda n, ns: json.dumps({"TimeGenerated": iso(ns), "LogEntry": LINES[n]})),
    "OpenTelemetry": each(
        lambda n, ns: json.dumps({"logRecords": [{"timeUnixNano": str(ns), "body": {"stringValue": BODIES[n]}}]})
    ),
    "fields with one value": each(
        lambda n, ns: json.dumps({"fields": {"@timestamp": [iso(ns)], "message": [LINES[n]]}})
    ),
    "objects without lines between": "".join(json.dumps({"message": line}) for line in LINES),
    "an array of objects over lines": "[\n"
    + "\n, ".join(json.dumps({"message": line}, indent=2) for line in LINES)
    + "\n]\n",
    "logfmt": each(lambda n, ns: f"ts={stamp('%Y-%m-%dT%H:%M:%S.%fZ', ns)} level=debug msg={json.dumps(BODIES[n])}"),
    "CSV": each(lambda n, ns: f'"{iso(ns)}","{LINES[n].replace(chr(34), chr(34) * 2)}"'),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_requests(form: str) -> None:
    found, summary = read(FORMS[form])
    assert found == WANTED
    assert summary.bad_inputs == []


@pytest.mark.parametrize("form", FORMS)
def test_it_does_not_matter_how_the_bytes_come(form: str) -> None:
    assert read(FORMS[form], step=61)[0] == WANTED


def test_a_line_that_docker_cut_at_16_kib_is_one_again() -> None:
    line = line_of(LONG) + "\n"
    assert len(line) < 16384
    line = line.replace('"replicas": [', '"replicas": [' + "7, " * 9000, 1)
    cut = [line[at : at + 16384] for at in range(0, len(line), 16384)]
    assert len(cut) > 1
    docker = "\n".join(json.dumps({"log": part, "stream": "stdout", "time": iso(NS[0])}) for part in cut)
    fluentd = "\n".join(
        json.dumps(
            {"log": part, "partial_message": "true", "partial_id": "x", "partial_last": str(part is cut[-1]).lower()}
        )
        for part in cut
    )
    (wanted,), _ = read(line)
    assert read(docker)[0] == read(fluentd)[0] == [wanted]


def test_streams_of_a_container_keep_their_pieces_apart() -> None:
    one, other = LINES[:2]
    mixed = "\n".join(
        [
            f"{iso(NS[0])} stdout P {one[:90]}",
            f"{iso(NS[1])} stderr P {other[:80]}",
            f"{iso(NS[0])} stdout F {one[90:]}",
            f"{iso(NS[1])} stderr F {other[80:]}",
        ]
    )
    assert read(mixed)[0] == WANTED[:2]


def test_a_zone_that_is_written_counts_whatever_the_reader_is_told() -> None:
    for form in ("RFC 5424", "a zone by letters", "CRI", "Docker's json-file", "milliseconds"):
        assert read(FORMS[form], zone="Asia/Tokyo", zone_required=True)[0] == WANTED


def test_the_zone_of_the_log_is_the_readers_own_or_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "\n".join(LINES)
    shifted = [(ns - 9 * 3600 * 10**9, *rest) for ns, *rest in WANTED]
    found, summary = read(log, zone="Asia/Tokyo")
    assert found == shifted
    assert not summary.assumed_zone
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    found, summary = read(log)
    assert found == shifted
    assert summary.assumed_zone
    assert read(log, zone="+00:00")[0] == WANTED


def test_a_cluster_has_to_be_told_the_zone() -> None:
    found, summary = read("\n".join(LINES), zone_required=True)
    assert found == []
    assert summary.problem() == (
        ": no line can be used; why the first of 4 cannot: "
        "a time without a zone; name the zone of the log: --log-zone Europe/Berlin"
    ).replace(": ", "kafka.log: ", 1)


def test_a_time_of_day_takes_the_date_that_the_file_tells() -> None:
    log = each(lambda n, ns: f"{stamp('%H:%M:%S,%f', ns)} DEBUG {BODIES[n]}")
    assert read(log, name=f"kafka-request.log.{DAY}-06")[0] == WANTED
    assert read(log, day=DAY)[0] == WANTED
    assert read(f"[{' '.join(clock_of(ROWS[0]))}] INFO begun\n" + LINES[0] + "\n" + log)[0] == [WANTED[0], *WANTED]
    found, summary = read(log)
    assert found == []
    assert summary.bad_inputs[0].reason == "a line with a time of day alone; name its date: --log-date 2023-11-20"


def test_syslog_without_a_year_takes_one_that_is_told() -> None:
    log = each(lambda n, ns: f"{stamp('%b %d %H:%M:%S', ns)} kafka1 {BODIES[n]}")
    found, _ = read(log, day="2019-01-01")
    assert [time.gmtime(ns // 10**9)[:1] for ns, *_ in found] == [(2019,)] * 4
    assert [request for _, request, _ in found] == [request for _, request, _ in WANTED]


def test_text_that_only_begins_like_an_object_swallows_no_line() -> None:
    log = f"{LINES[0]}\n{{\n[{DAY} 01:01:01,000] INFO x {{\n{LINES[1]}\nINFO Map({{\n{LINES[2]}\n{LINES[3]}\n"
    assert read(log)[0] == WANTED


def test_a_request_that_was_cut_off_swallows_no_line_that_follows() -> None:
    for end in ("", "\n", " [...]\n", "\n> "):
        found, summary = read(
            f"{LINES[0]}\n{LINES[1][:200]}{end}\n{LINES[2]}\n> {LINES[3]}\nkafka-0 kafka {LINES[0]}\n"
        )
        assert found == [WANTED[0], *WANTED[2:], WANTED[0]]
        assert len(summary.bad_inputs) == 1


@pytest.mark.parametrize("form", ["Docker's json-file", "journald, export", "printed over lines", "CRI's pieces"])
def test_a_log_that_ends_anywhere_gives_what_is_whole(form: str) -> None:
    data = FORMS[form]
    data = data.encode() if isinstance(data, str) else data
    for share in (0.3, 0.55, 0.8):
        try:
            found, _ = read(data[: int(len(data) * share)])
        except CaptureError:
            continue
        assert found == WANTED[: len(found)]
