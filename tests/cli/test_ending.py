"""SIGTERM ends a command that runs in the foreground, once."""

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest
from commands import run_kproto
from network_peers import until

import channel.node.controller_node
import kproto.__main__
from channel.network.recorder import PcapngRecorder
from kproto.cli import main
from kproto.cli.ending import ended_by_sigterm
from kproto.query import ask_sql


def test_sigterm_breaks_off_the_start_but_not_what_it_cleans_up() -> None:
    cleaned = []

    def start() -> None:
        with ended_by_sigterm():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert cleaned


def test_sigterm_ends_the_wait_although_python_drops_its_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: dropped.append(unraisable.exc_type))

    class Signalled:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with ended_by_sigterm() as wait:
        Signalled()
        wait(lambda: None, threading.Event().wait)
    assert [issubclass(each, KeyboardInterrupt) for each in dropped] == [True]


def test_sigterm_during_a_clean_end_changes_nothing() -> None:
    previous = signal.getsignal(signal.SIGTERM)
    stop = threading.Event()
    stop.set()
    with ended_by_sigterm() as wait:
        wait(lambda: None, stop.wait)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is previous


def test_who_is_told_of_the_start_may_end_the_command_at_once() -> None:
    with ended_by_sigterm() as wait:
        wait(partial(signal.raise_signal, signal.SIGTERM), threading.Event().wait)
        signal.raise_signal(signal.SIGTERM)


def test_a_controller_resigns_although_sigterm_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    class Node(SimpleNamespace):
        endpoint = SimpleNamespace(host="127.0.0.1", port=1)
        error = None

        def __enter__(self) -> None:
            ending.start()

        def __exit__(self, *_: object) -> None:
            signal.raise_signal(signal.SIGTERM)
            ended.append("resigned")

    def end_once_started() -> None:
        until(lambda: b'"id":7' in sys.stdout.buffer.getvalue())  # type: ignore[attr-defined]  # the runner's
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end_once_started)
    monkeypatch.setattr(channel.node.controller_node, "ControllerNode", lambda *_, **__: Node())
    result = run_kproto("controller", "--zookeeper", "127.0.0.1:1", "--id", "7")
    ending.join(60)
    assert (result.exit_code, ended) == (0, ["resigned"])
    assert '"id":7' in result.stdout


@pytest.mark.parametrize("keep", [False, True])
def test_a_controller_records_no_secrets_unless_they_are_to_be_kept(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = ("127.0.0.1", 1), ("127.0.0.1", 2)
    alter_user_scram_credentials = b"\0\x33\0\0\0\0\0\7\0\1ahunter2"

    def node(*_: object, recorder: PcapngRecorder, **__: object) -> None:
        recorder.opened(*ends, 0, initiator=False)
        recorder.record("received", *ends, 0, [struct.pack(">i", 18), alter_user_scram_credentials])
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(channel.node.controller_node, "ControllerNode", node)
    command = ["controller", "--zookeeper", "127.0.0.1:1", "--id", "7", "--record", str(tmp_path)]
    assert run_kproto(*command, *(["--keep-secrets"] if keep else [])).exit_code == 0
    recorded = (tmp_path / "controller-7.pcapng").read_bytes()
    assert (b"hunter2" in recorded, alter_user_scram_credentials[:8] in recorded) == (keep, True)


def test_ctrl_c_while_the_modules_are_loaded_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "kproto.cli", Interrupted())  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as ended:
        kproto.__main__.main()
    assert ended.value.code == 130


LONG_QUERY = "SELECT count(*) FROM range(1000000000000)"


def query(masked: Iterable[signal.Signals] = ()) -> None:
    """Ctrl-C comes amid a question."""
    threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, masked)
    try:
        ask_sql(duckdb.connect(), LONG_QUERY)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def signal_of_another_thread() -> None:
    """The thread that waits for the answer is not woken by the signal, as where it had just begun to wait."""
    query([signal.SIGINT])


def duckdbs_own_error() -> None:
    """Ctrl-C comes amid a query that this thread runs: DuckDB raises an error of its own."""
    threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    duckdb.connect(config={"threads": 1}).execute(LONG_QUERY)


def drop() -> None:
    """Ctrl-C comes where Python drops its exception."""

    class Signalled:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    Signalled()
    threading.Event().wait(30)


@pytest.mark.parametrize("work", [query, signal_of_another_thread, duckdbs_own_error, drop])
def test_ctrl_c_ends_a_command_whatever_it_does(work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main.get_command(None, "tables"), "callback", lambda **_: work())  # type: ignore[arg-type]
    result = run_kproto("tables")
    assert (result.exit_code, result.output) == (130, "")


def test_a_command_in_the_background_of_a_script_ends_at_sigint() -> None:
    """The shell starts such a command with SIGINT ignored."""
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from kproto.cli import main; main()"
    command = [sys.executable, "-c", program, "brokers", "--count", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it runs
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
