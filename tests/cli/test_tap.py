"""``kproto tap`` from the command line: what its options do to connections, to recordings and to their files."""

import contextlib
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run_kproto
from network_peers import EchoServer, frame, until
from tls_certificates import certificates

from channel.security import SecurityConfig
from channel.tls_contexts import client_context

HANDSHAKE = frame(b"\0\x11\0\0\0\0\0\5\0\1a\0\5PLAIN")
TOKEN = frame(b"\0admin\0hunter2")
REQUEST = frame(b"\0\3\0\0\0\0\0\6\0\1a\0\0\0\0")


class Running:
    """A tap in a process of its own, before an echoing node.

    Attributes:
        port: Where it listens.
        said: What it has written to standard error, once it has ended.
    """

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.said = ""

    def end(self) -> int:
        """Interrupt it; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        self.said = self.process.communicate(timeout=60)[1]
        return self.process.returncode


@contextlib.contextmanager
def tap(*options: object, tls: bool = False) -> Iterator[Running]:
    with EchoServer(tls=tls) as echo:
        command = [sys.executable, "-m", "kproto", "tap", "--map", f"127.0.0.1:0=localhost:{echo.address[1]}"]
        process = subprocess.Popen([*command, *map(str, options)], stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            if "/dev/full has ended" in first:
                first = process.stderr.readline()
            assert first.startswith("relaying 127.0.0.1:"), first + process.stderr.read()
            yield Running(process, int(first.split()[1].rpartition(":")[2]))
        finally:
            process.kill()
            process.communicate()


def echoed(sock: socket.socket, data: bytes) -> bytes:
    sock.settimeout(60)
    sock.sendall(data)
    answer = b""
    while len(answer) < len(data):
        answer += sock.recv(65_536) or pytest.fail("the connection has ended")
    return answer


@pytest.mark.parametrize("keep", [False, True])
def test_passwords_are_recorded_only_with_keep_secrets(keep: bool, tmp_path: Path) -> None:
    out = tmp_path / "tap.pcapng"
    with tap("--out", out, *(["--keep-secrets"] if keep else [])) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            assert echoed(sock, HANDSHAKE + TOKEN + REQUEST) == HANDSHAKE + TOKEN + REQUEST
        assert running.end() == 0
    recorded = out.read_bytes()
    assert (b"hunter2" in recorded, REQUEST in recorded) == (keep, True)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert running.said.splitlines()[-1].startswith("1 connection, ")


def test_listener_security_is_the_tls_that_clients_speak(tmp_path: Path) -> None:
    (tmp_path / "tap.pem").write_text(certificates().server)
    settings = tmp_path / "near.properties"
    settings.write_text(f"# of the tap itself\n\nssl.keystore.location={tmp_path / 'tap.pem'}\n")
    out = tmp_path / "tap.pcapng"
    trust = client_context(SecurityConfig(ssl_truststore_certificates=certificates().authority))
    with tap("--out", out, "--listener-security", settings) as running:
        with (
            socket.create_connection(("127.0.0.1", running.port)) as plain,
            trust.wrap_socket(plain, server_hostname="localhost") as sock,
        ):
            assert echoed(sock, REQUEST) == REQUEST
        assert running.end() == 0
    assert REQUEST in out.read_bytes()


def test_upstream_security_is_the_tls_that_nodes_speak(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(certificates().authority)
    settings = tmp_path / "far.properties"
    settings.write_text(f"ssl.truststore.location={tmp_path / 'ca.pem'}\n")
    out = tmp_path / "tap.pcapng"
    with tap("--out", out, "--upstream-security", settings, tls=True) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            assert echoed(sock, REQUEST) == REQUEST
        assert running.end() == 0
    assert REQUEST in out.read_bytes()


def test_a_node_that_the_upstream_settings_do_not_trust_gets_nothing(tmp_path: Path) -> None:
    settings = tmp_path / "far.properties"
    settings.write_text("# the system's authorities\n")
    with tap("--out", tmp_path / "tap.pcapng", "--upstream-security", settings, tls=True) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock, contextlib.suppress(ConnectionResetError):
            sock.settimeout(60)
            assert sock.recv(1) == b""
        assert running.end() == 0
    assert "certificate is not accepted" in running.said


def test_a_recording_with_a_hole_is_told_at_the_end(tmp_path: Path) -> None:
    with tap("--out", "/dev/full") as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            assert echoed(sock, REQUEST) == REQUEST
        assert running.end() == 2
    last = running.said.splitlines()[-1]
    assert "the recording is incomplete, 2 pieces could not be written: No space left on device; make room" in last


def test_rotate_size_begins_a_new_file_after_so_many_megabytes(tmp_path: Path) -> None:
    with tap("--out", tmp_path / "tap", "--rotate-size", 1) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            for _ in range(5):
                echoed(sock, frame(bytes(300_000)))
        assert running.end() == 0
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == [f"tap-{i:05d}.pcapng" for i in range(1, len(files) + 1)]
    assert len(files) >= 3
    assert all(path.stat().st_size < 2_000_000 for path in files)
    assert running.said.splitlines()[-1].endswith(f"{len(files)} files")


def test_rotate_seconds_finishes_a_file_while_nothing_passes(tmp_path: Path) -> None:
    with tap("--out", tmp_path / "tap", "--rotate-seconds", 1) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            echoed(sock, REQUEST)
            # A file may have been finished before the request came: on a busy machine that takes more than a second.
            until(lambda: any(REQUEST in file.read_bytes() for file in tmp_path.glob("tap-*.pcapng")))
        assert running.end() == 0


def test_a_mapping_to_itself_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    done = run_kproto("tap", "--map", f"{address}={address}", "--out", tmp_path / "tap.pcapng")
    assert done.exit_code != 0
    assert "own listening address" in done.output
