"""The same requests are read from a log however a logging system, a container runtime or a person kept its lines."""

import json
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
    "milliseconds": each(lambda n, ns: f"{ns // 1_000_000} DEBUG {BODIES[n]}"),
    "a zone by letters": each(lambda n, ns: f"{stamp('%Y-%m-%d %H:%M:%S,%f CET', ns, ahead_s=3600)} DEBUG {BODIES[n]}"),
    "Docker's json-file": each(lambda n, ns: json.dumps({"log": LINES[n] + "\n", "stream": "stdout", "time": iso(ns)})),
    "CRI": each(lambda n, ns: f"{iso(ns)} stdout F {LINES[n]}"),
    "CRI's pieces": "\n".join(
        f"{iso(ns)} stdout {'F' if at + 300 >= len(line) else 'P'} {line[at : at + 300]}"
        for line, ns in zip(LINES, NS, strict=True)
        for at in range(0, len(line), 300)
    ),
    "RFC 5424": each(
        lambda n, ns: f"<134>1 {stamp('%Y-%m-%dT%H:%M:%S.%f+01:00', ns, ahead_s=3600)} kafka1 kafka 12 - - {BODIES[n]}"
    ),
    "journald, export": b"".join(export(n, ns, b"MESSAGE=" + BODIES[n].encode()) for n, ns in enumerate(NS)),
    "printed over lines": "\n".join(map(pretty, range(4))),
}
"""Forms in which a log is cut or its zone is told; ``test_posted_forms.py`` has every form."""


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
