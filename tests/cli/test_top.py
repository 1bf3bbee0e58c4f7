"""``kproto top``: what it shows of captures, of growing ones and of metrics, in a pipe and on a terminal."""

import fcntl
import gc
import gzip
import http.server
import importlib
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import kproto_running, program, run_kproto, shown_until
from conftest import few

from kproto.api import api_name
from kproto.capture import CaptureReader, CaptureSummary, exchanges
from kproto.cli.metrics_top import metrics_lines
from kproto.cli.screen import Screen
from kproto.errors import ConfigurationError
from kproto.verdicts.facts import Facts
from kproto.verdicts.live import LiveFold, Snapshot
from kproto.verdicts.rules import findings
from tests.packets import Talk, pcap

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "tests" / "data" / "captures" / "ibp-3.9-a.pcap.gz"
LIMIT_S = 60


@pytest.fixture(scope="module")
def data() -> bytes:
    return gzip.decompress(CAPTURE.read_bytes())


def top(*arguments: str, code: int = 0) -> str:
    result = run_kproto("top", *arguments)
    assert result.exit_code == code, result.output
    return result.output


def folding(data: bytes, piece: int, window_s: int = 10, *, thrifty: bool = False) -> Iterator[LiveFold]:
    """The fold after each piece of a capture."""
    summary = CaptureSummary()
    reader = CaptureReader(summary=summary)
    fold = LiveFold(window_s, {"": summary}, thrifty=thrifty)
    for at in range(0, len(data), piece):
        fold.add(reader.feed(data[at : at + piece]))
        yield fold


def folded(data: bytes, window_s: int = 3600, *, thrifty: bool = False) -> tuple[LiveFold, Snapshot]:
    *_, fold = folding(data, 4000, window_s, thrifty=thrifty)
    return fold, fold.snapshot()


# ---- what a snapshot holds -------------------------------------------------------------------------------------------


def test_a_snapshot_counts_what_the_capture_holds(data: bytes) -> None:
    _fold, snapshot = folded(data)
    whole = [e for e in exchanges(data) if e.request is not None and e.response is not None]
    apis = Counter(api_name(e.api_key) for e in whole if e.api_key is not None)
    assert {flow.name: flow.requests for flow in snapshot.apis} == apis
    assert snapshot.total == snapshot.all.requests == len(whole)
    assert sum(flow.requests for flow in snapshot.brokers) == len(whole)
    assert {flow.name for flow in snapshot.brokers} == {"0", "1", "2"}
    latencies = sorted((e.response.time_ns - e.request.time_ns) // 1000 for e in whole if e.request and e.response)
    assert snapshot.all.median_us == latencies[(len(latencies) + 1) // 2 - 1]
    assert snapshot.all.per_second == pytest.approx(len(whole) / snapshot.seconds)
    accepted = [e for e in whole if e.response_message.error_code == 0]
    assert snapshot.controller is not None
    assert snapshot.controller.controller_epoch == max(e.request_message.controller_epoch for e in accepted)
    newest = max(accepted, key=lambda e: e.request_message.controller_epoch)
    assert snapshot.controller.controller_id == newest.request_message.controller_id
    last = {e.server.port: e.request_message.broker_epoch for e in accepted}
    assert sorted(flow.broker_epoch or 0 for flow in snapshot.brokers) == sorted(last.values())


def test_findings_are_those_of_the_doctor(data: bytes) -> None:
    from kproto.tables.reading import chunks

    _fold, snapshot = folded(data)
    doctor = findings(Facts(chunks([str(CAPTURE)])))
    assert doctor
    assert {f.key for f in snapshot.findings} == {f.key for f in doctor}
    assert snapshot.findings[0].severity == doctor[0].severity


def test_beyond_the_most_findings_the_least_severe_go(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    _fold, every = folded(data)
    worst = [f.key for f in every.findings if f.severity != "note"]
    assert 0 < len(worst) < len(every.findings)
    monkeypatch.setattr("kproto.verdicts.live._MOST_FINDINGS", len(worst))
    _fold, snapshot = folded(data)
    assert {f.key for f in snapshot.findings} == set(worst)


@pytest.mark.slow
def test_a_finding_that_later_requests_refute_is_withdrawn(data: bytes) -> None:
    shown = set()
    for fold in folding(data, 40_000):
        shown |= {f.key for f in fold.snapshot().findings}
    _fold, whole = folded(data)
    last = {f.key for f in fold.snapshot().findings}
    assert last == {f.key for f in whole.findings}
    assert last < shown


@pytest.mark.slow
def test_a_broker_that_left_the_live_brokers_is_shown_as_down(data: bytes) -> None:
    down: dict[str, list[bool]] = {}
    for fold in folding(data, 20_000):
        for flow in fold.snapshot().brokers:
            down.setdefault(flow.name, []).append(flow.is_down)
    assert {name for name, states in down.items() if True in states} == {"0", "1", "2"}  # each was away once
    assert not any(states[0] for states in down.values())
    assert "0 (down)" in top("--once", str(CAPTURE))  # it left last


def test_a_capture_of_tls_says_what_to_try(tmp_path: Path) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(506)
    talk = Talk().open().ask(hello).answer(b"\x16\x03\x03\x00\x7a" + bytes(122))
    path = tmp_path / "tls.pcap"
    path.write_bytes(pcap(talk.packets))
    lines = top("--once", str(path)).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "record with kproto tap" in " ".join(map(str.strip, lines))


def test_the_window_slides_and_a_quiet_time_empties_it(data: bytes) -> None:
    fold, short = folded(data, window_s=10)
    assert 0 < short.all.requests < short.total
    later = fold.snapshot(short.time_ns + 60 * 10**9)
    assert (later.all.requests, later.total, later.all.median_us) == (0, short.total, None)
    assert [flow.broker_epoch for flow in later.brokers].count(None) == 0
    assert later.changes == short.changes


def test_a_request_without_answer_is_in_flight(data: bytes) -> None:
    most = 0
    for number, fold in enumerate(folding(data, 200, thrifty=True)):
        if number < 300:
            most = max(most, sum(flow.in_flight for flow in fold.snapshot().brokers))
    assert most >= 1
    assert fold.snapshot().all.in_flight == 0


def test_memory_is_bounded_by_the_window_not_by_the_stream(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("kproto.verdicts.live._MOST_EXAMINED", 50)
    monkeypatch.setattr("kproto.verdicts.live._MOST_CHANGES", 7)
    fold, snapshot = folded(data, window_s=2, thrifty=True)
    assert len(fold._examined) == 50
    assert len(snapshot.changes) == 7
    assert len(fold._seconds) <= 3
    assert not fold._in_flight


def test_without_budget_changes_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("kproto.verdicts.live._BURST_S", 0.0)
    _fold, snapshot = folded(data, thrifty=True)
    assert snapshot.not_compared == snapshot.total
    assert snapshot.changes == ()


# ---- in a pipe -------------------------------------------------------------------------------------------------------


def assert_fits(text: str, columns: int = 80) -> None:
    assert "\x1b" not in text
    assert not [line for line in text.splitlines() if len(line) > columns]


def test_a_snapshot_in_a_pipe_is_plain_and_fits_80_columns() -> None:
    out = top("--once", str(CAPTURE))
    assert_fits(out)
    for title in ("Requests", "Brokers", "Latest changes", "Findings so far"):
        assert title in out.splitlines()
    assert "controller 2, epoch 3 (ZooKeeper); 348 requests so far" in out


def test_changes_are_worded_as_inspect_words_them() -> None:
    inspected = run_kproto("inspect", "--changes", CAPTURE).output
    assert "live brokers 0-2→1-2" in inspected
    assert "live brokers 0-2→1-2" in top("--once", str(CAPTURE))


def test_standard_input_gives_the_snapshot_of_the_file(data: bytes) -> None:
    def of(*arguments: str, text: bytes | None = None) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "kproto", "top", *arguments],
            input=text,
            capture_output=True,
            check=True,
            timeout=120,
        )
        assert done.stderr == b""
        return done.stdout.decode().splitlines()[1:]

    assert of("--interval", "3600", "-", text=data) == top("--once", str(CAPTURE)).splitlines()[1:]


@pytest.mark.parametrize(
    ("arguments", "text", "says"),
    [
        ([], b"", "name one of a capture"),
        (["-", "--metrics", "http://127.0.0.1:1/metrics"], b"", "name one of a capture"),
        (["-", str(CAPTURE)], b"", "- stands alone"),
        (["--metrics", "127.0.0.1:1"], b"", "is no URL; try --metrics http://"),
        (["--metrics", "http://127.0.0.1:1/metrics"], b"", "no metrics at http://127.0.0.1:1/metrics"),
        (["--once", "-"], b"no capture at all, but text\0" * 9, "not a capture"),
        (["/no/such/capture"], b"", "no such file"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], text: bytes, says: str) -> None:
    result = run_kproto("top", *arguments, input=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("text", [b"no capture at all, but text\0" * 9, None])
def test_the_garbage_collector_is_as_before(text: bytes | None) -> None:
    before = gc.get_threshold()
    run_kproto("top", "--once", "-" if text else CAPTURE, input=text)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["text.pcap", "a.pcap"], ["text.pcap: not a capture"]),
        (["a.pcap", "missing.pcap", "text.pcap"], ["missing.pcap: no such file", "text.pcap: not a capture"]),
        (["."], ["text.pcap: not a capture"]),
    ],
)
def test_a_file_that_cannot_be_read_is_told_and_the_others_are_followed(
    names: list[str], told: list[str], tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "a.pcap").write_bytes(data)
    (tmp_path / "text.pcap").write_text("no capture\n" * 9)
    result = run_kproto("top", "--once", *(tmp_path / name for name in names))
    warnings = result.stderr.splitlines()
    assert (result.exit_code, len(warnings)) == (0, len(told))
    assert [text in line for text, line in zip(told, warnings, strict=True)] == [True] * len(told)
    assert result.stdout.splitlines()[1:] == top("--once", str(tmp_path / "a.pcap")).splitlines()[1:]


def test_files_none_of_which_can_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "text.pcap").write_text("no capture\n" * 9)
    result = run_kproto("top", "--once", tmp_path / "text.pcap", tmp_path / "missing.pcap")
    assert (result.exit_code, result.stdout) == (2, "")
    last = result.stderr.splitlines()[-1]
    assert ("missing.pcap: no such file" in last, "text.pcap: not a capture" in last) == (True, True)


def test_a_note_waits_until_the_screen_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with Screen(1, once=False) as screen:
        screen.note("note: one")
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "note: one\n"


def test_a_pipe_without_a_byte_is_no_capture() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kproto", "top", "--once", "-"], input=b"", capture_output=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"nothing came; did the command before the pipe fail?" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_stream_that_breaks_off_ends_with_what_was_shown_and_a_warning(data: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kproto", "top", "-"], input=data[:-7], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0
    assert "requests so far" in done.stdout.decode()
    assert "could not be used" in done.stderr.decode()


# ---- what grows ------------------------------------------------------------------------------------------------------


def test_a_growing_file_is_followed_and_ctrl_c_ends_with_130(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "growing.pcap"
    path.write_bytes(b"")
    with kproto_running("top", "--interval", "0.1", str(path)) as process:
        assert_fits(shown_until(process, "no control request yet"))
        with path.open("ab") as file:
            file.write(data[: len(data) // 2])
        assert_fits(shown_until(process, "requests so far"))
        with path.open("ab") as file:
            file.write(data[len(data) // 2 :])
        assert_fits(shown_until(process, "348 requests so far"))
        process.send_signal(signal.SIGINT)
        _out, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors) == (130, "")


def test_files_that_come_into_a_directory_are_followed(tmp_path: Path, data: bytes) -> None:
    cut = 24
    while cut < len(data) // 2:  # between two packets
        cut += 16 + struct.unpack_from("<I", data, cut + 8)[0]
    (tmp_path / "tap-00001.pcap").write_bytes(data[:cut])
    with kproto_running("top", "--interval", "0.1", str(tmp_path)) as process:
        shown_until(process, "requests so far")
        (tmp_path / "part").write_bytes(data[:24] + data[cut:])
        (tmp_path / "part").rename(tmp_path / "tap-00002.pcap")
        shown_until(process, "348 requests so far")


# ---- several capture points ------------------------------------------------------------------------------------------

PORTS = (19092, 19093, 19094)


@pytest.fixture(scope="module")
def by_broker(data: bytes) -> dict[int, list[bytes]]:
    """The packets of the capture, by the port of the broker that they go to or come from."""
    packets: dict[int, list[bytes]] = {port: [] for port in PORTS}
    at = 24
    while at < len(data):
        end = at + 16 + struct.unpack_from("<I", data, at + 8)[0]
        ports = set(struct.unpack_from(">HH", data, at + 16 + 14 + 20))
        (port,) = ports & set(PORTS)
        packets[port].append(data[at:end])
        at = end
    return packets


def test_captures_of_several_places_are_shown_as_one_of_all(
    tmp_path: Path, data: bytes, by_broker: dict[int, list[bytes]]
) -> None:
    files = []
    for port, packets in by_broker.items():
        files.append(tmp_path / f"broker{port % 19092}.pcap")
        files[-1].write_bytes(data[:24] + b"".join(packets))
    whole = top("--once", str(CAPTURE)).splitlines()
    for several in (top("--once", *map(str, files)), top("--once", str(tmp_path))):
        assert_fits(several)
        lines = several.splitlines()
        assert lines[0].startswith("kproto top  3 capture points  2026-11-20 19:35:51Z")
        assert lines[2].startswith("  points: broker0.pcap 19:35:50 (115), broker")
        assert lines[2].endswith(", and 1 more")
        assert [lines[1], *lines[3:]] == whole[1:]


def test_each_capture_point_of_a_directory_is_followed_and_new_ones_too(
    tmp_path: Path, data: bytes, by_broker: dict[int, list[bytes]]
) -> None:
    first, second, third = (by_broker[port] for port in PORTS)

    def write(name: str, packets: list[bytes]) -> None:
        (tmp_path / "part").write_bytes(data[:24] + b"".join(packets))
        (tmp_path / "part").rename(tmp_path / name)

    write("east-00001.pcap", first[: len(first) // 2])
    write("west-00001.pcap", second[: len(second) // 2])
    with kproto_running("top", "--interval", "0.1", str(tmp_path)) as process:
        shown_until(process, "2 capture points")
        with (tmp_path / "west-00001.pcap").open("ab") as file:
            file.write(b"".join(second[len(second) // 2 :]))
        write("east-00002.pcap", first[len(first) // 2 :])
        write("north-00001.pcap", third)
        shown_until(process, "3 capture points")
        assert_fits(shown_until(process, "348 requests so far"))


# ---- on a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "lines"), few([(80, 24), (200, 50)]))
def test_the_screen_fits_the_terminal(tmp_path: Path, data: bytes, columns: int, lines: int) -> None:
    path = tmp_path / "control.pcap"
    path.write_bytes(data)
    terminal, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    settings = termios.tcgetattr(other)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(other, termios.TCSANOW, settings)
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kproto", "top", "--interval", "0.2", "--window", "3600", str(path)],
        stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(other)
    seen = b""
    try:
        # The findings come with the next judgement, which may be later than the last request.
        seen = read_until(terminal, seen, lambda b: b"Findings so far" in b.rpartition(b"\x1b[H")[0])
        os.write(terminal, b"\x03")  # Ctrl-C
        seen = read_until(terminal, seen, lambda b: b"\x1b[?1049l" in b)
        assert process.wait(LIMIT_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    screens = seen.decode().split("\x1b[?1049h")[1].split("\x1b[H")
    whole = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen) for screen in screens if "Findings so far" in screen]
    assert whole
    for screen in whole:
        shown = screen.replace("\r", "").split("\n")
        assert len(shown) <= lines
        assert_fits("\n".join(shown), columns)


def without_rates(text: str) -> list[str]:
    """The lines, without the requests a second of the tables."""
    return [re.sub(r" +[\d.]+(?= +\d+ +\d+ +[\d.]+ +[\d.]+)", "", line) for line in text.splitlines()]


@pytest.mark.parametrize(("columns", "lines"), [pytest.param(80, 24, marks=pytest.mark.slow), (200, 50)])
def test_tmux_shows_the_lines_of_the_plain_output(tmp_path: Path, data: bytes, columns: int, lines: int) -> None:
    (tmp_path / "control.pcap").write_bytes(data)
    command = [sys.executable, "-m", "kproto", "top", "--interval", "0.2", "--window", "3600", "control.pcap"]
    environment = {"TERM": "xterm", "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}

    def tmux(*arguments: str) -> str:
        return subprocess.run(
            [program("tmux"), "-S", str(tmp_path / "socket"), "-f", "/dev/null", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT_S,
        ).stdout  # fmt: skip

    plain = without_rates(top("--once", "--window", "3600", str(tmp_path / "control.pcap")))
    until_changes = plain.index("Latest changes") + 1

    def screen_with(*lines: str) -> list[str]:
        """The screen, once each of these lines stands on it, or is a part of one."""
        until = time.monotonic() + LIMIT_S
        while not all(line in (screen := "\n".join(without_rates(tmux("capture-pane", "-p")))) for line in lines):
            assert time.monotonic() < until, screen
            time.sleep(0.1)
        return screen.splitlines()

    tmux("new-session", "-d", "-x", str(columns), "-y", str(lines), "PS1='before ' exec sh -i")
    try:
        screen_with("before")
        tmux("send-keys", shlex.join(command), "Enter")
        # A screen between two judgements shows newer requests beside older marks of brokers that are down, and the
        # rates fall while nothing comes.
        shown = screen_with(*plain[1:until_changes], "Findings so far")
        tmux("send-keys", "C-c")
        assert any("kproto" in line for line in screen_with("before", "--interval")), "the former screen is back"
    finally:
        tmux("kill-server")
    assert_fits("\n".join(shown), columns)
    assert shown[0].startswith("kproto top  control.pcap")
    assert shown[1:until_changes] == plain[1:until_changes]


def read_until(descriptor: int, seen: bytes, is_enough: object) -> bytes:
    until = time.monotonic() + LIMIT_S
    while not is_enough(seen):  # type: ignore[operator]
        ready, _, _ = select.select([descriptor], [], [], max(until - time.monotonic(), 0))
        assert ready, seen
        try:
            seen += os.read(descriptor, 65536)
        except OSError:  # the other end was closed
            break
    return seen


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_a_controller_are_shown_by_broker() -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from channel import EmbeddedCluster, ScriptedController
    from channel.metrics import prometheus_collector

    with EmbeddedCluster(2) as cluster, ScriptedController(cluster) as controller:
        controller.wait_all()
        registry = CollectorRegistry()
        registry.register(prometheus_collector(controller.metrics))
        server, thread = start_http_server(0, "127.0.0.1", registry=registry)
        try:
            out = top("--once", "--metrics", f"http://127.0.0.1:{server.server_port}/metrics")
        finally:
            server.shutdown()
            thread.join(LIMIT_S)
            server.server_close()
    assert_fits(out)
    assert "0 requests queued" in out
    names = next(line for line in out.splitlines() if "queued" in line and "broker" in line).split()
    assert names[:2] == ["broker", "queued"]
    assert [line.split()[:2] for line in out.splitlines() if re.match(r"  [01]  ", line)] == [["0", "0"], ["1", "0"]]


def test_where_metrics_fail_the_last_figures_stay_with_the_reason() -> None:
    queued = "kafka_controller_controllerchannelmanager_queuesize"
    found = {(queued, str(broker)): float(broker) for broker in range(30)}
    url = "http://127.0.0.1:9404/metrics"
    lines = list(metrics_lines(found, url, f"no metrics at {url}: refused; check the address", 80, 24))
    assert_fits("\n".join(lines))
    assert len(lines) <= 24
    assert lines[1] == f"  no metrics at {url}: refused; check the address"
    rows = [line.split()[:2] for line in lines if re.match(r"  [0-9]+  ", line)]
    assert rows[0] == ["29", "29"]
    assert lines[-1] == f"  and {30 - len(rows)} more with shorter queues"


def test_metrics_that_fail_once_begun_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("kproto.cli.metrics_top")
    answers: list[object] = [
        {("queue", "1"): 3.0},
        ConfigurationError("refused; check the address"),
        KeyboardInterrupt(),
    ]
    shown: list[str] = []

    def metrics(url: str) -> object:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(module, "read_metrics", metrics)
    screen = SimpleNamespace(
        once=False, size=(80, None), wait_s=lambda: 0.0, show=lambda lines: shown.append("\n".join(lines))
    )
    with pytest.raises(KeyboardInterrupt):
        module.show_metrics("http://127.0.0.1:9404/metrics", screen)
    assert ["refused; check the address" in text for text in shown] == [False, True]


def test_a_server_without_a_controllers_metrics_is_refused() -> None:
    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"up 1\n")

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Empty) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        out = top("--metrics", f"http://127.0.0.1:{server.server_port}/metrics", code=2)
        thread.join(LIMIT_S)
    assert "has no metrics of a controller" in out
