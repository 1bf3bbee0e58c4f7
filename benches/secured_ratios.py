"""What TLS costs the channel: the CPU of an exchange beside a bare ``ssl`` loop that makes the same exchanges.

    python benches/secured_ratios.py [--pairs 7] [--quick] [--json FILE]

One server of bare ``ssl`` sockets, in a process of its own, answers all. The channel is its network client: connection,
correlation ids, time-outs, requests in flight. The bare loop packs the same header, writes header and body to an
``ssl`` socket with a time-out, reads the answer, looks at its correlation id and decodes it. The same client over
plaintext shows what of the CPU is TLS. Clients and server run on one CPU: waking a process on another CPU may take a
client longer than the exchange, and the scheduler chooses whether it has to. A pair is one process in which short
blocks of exchanges alternate between the programs; a figure is the least CPU, user and system, of an exchange over its
blocks. Rows show medians over the pairs.

Ends with 1 if a limit is missed, a row is not measured or a program fails. The figures and every round go to
benches/results/secured.json; --quick runs every program once, briefly, judges no limit and writes no file.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import trustme
from figures import Goal, finish, options_of
from measure import machine
from plain_sockets import LOOPBACK, at_once, received_into

from channel.clock import FOREVER
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.node_client import await_ready
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.security import SecurityConfig
from channel.types import Node, SecurityProtocol
from kproto.api import ApiKey
from kproto.codec import decode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Exchange: TypeAlias = Callable[[], None]

ANSWER = struct.pack(">i", 8)  # before correlation id, the header's tagged fields and the body
BODY = b"\0\0\0"  # UpdateMetadata response 8: no error, no tagged fields
HEADER = struct.Struct(">ihhih5sB")
CLIENT_ID = b"bench"
CASES = {"300 bytes": (300, 50), "20,000 bytes": (20_000, 30), "1,000,000 bytes": (1_000_000, 3)}
"""Bytes of a request's body, and exchanges in one block."""
RECORD = 16_384
BLOCKS = 100
TIMEOUT_S = 30


def serve(certificate: Path) -> None:
    """Answer every frame, on two ports: TLS and plaintext; ends with its standard input."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = [socket.create_server(LOOPBACK) for _ in range(2)]
    for sock, secured in zip(listening, (context, None), strict=True):
        threading.Thread(target=accept, args=(sock, secured), daemon=True).start()
    print(*(sock.getsockname()[1] for sock in listening), flush=True)
    sys.stdin.read()


def accept(listening: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        sock, _ = listening.accept()
        threading.Thread(target=answer, args=(sock, context), daemon=True).start()


def answer(sock: socket.socket, context: ssl.SSLContext | None) -> None:
    at_once(sock)
    with contextlib.suppress(OSError), sock if context is None else context.wrap_socket(sock, server_side=True) as peer:
        buffer = memoryview(bytearray(1 << 21))
        while received_into(peer, buffer[:4]):
            size = int.from_bytes(buffer[:4], "big")
            received_into(peer, buffer[:size])
            peer.sendall(ANSWER + buffer[4:8] + b"\0" + BODY)


class Encoded:
    """A request whose body is these bytes."""

    api_key = ApiKey.UPDATE_METADATA
    oldest_version = latest_version = 8

    def __init__(self, body: bytes) -> None:
        self._pieces = [body]

    def build(self, _version: int) -> list[bytes]:
        return self._pieces


@contextlib.contextmanager
def channel(protocol: SecurityProtocol, authority: Path, port: int, body: bytes) -> Iterator[Exchange]:
    """One exchange of the network client: send, and poll until the answer is there."""
    security = SecurityConfig(ssl_truststore_location=str(authority))
    selector = Selector(channel_builder=client_channels(protocol, security, CLIENT_ID.decode()))
    node = Node(0, "localhost", port)
    client = NetworkClient(selector, MetadataUpdater([node]), CLIENT_ID.decode(), discover_versions=False)
    assert await_ready(client, node, 10_000)
    builder = Encoded(body)
    found: list[Any] = []

    def exchange() -> None:
        client.request("0", builder, found.append, client.clock.milliseconds())
        while not found:
            client.poll(FOREVER)
        assert found.pop().body.error_code == 0

    yield exchange
    client.close()


@contextlib.contextmanager
def bare(authority: Path, port: int, body: bytes) -> Iterator[Exchange]:
    """The same exchange with nothing between it and ``ssl``."""
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        at_once(sock)
        sock.settimeout(TIMEOUT_S)  # as the channel's requests have
        buffer = memoryview(bytearray(1 << 16))
        room = RECORD - HEADER.size
        rest = memoryview(body)[room:]
        correlation_ids = itertools.count()

        def exchange() -> None:
            correlation_id = next(correlation_ids)
            size = HEADER.size - 4 + len(body)
            header = HEADER.pack(size, ApiKey.UPDATE_METADATA, 8, correlation_id, len(CLIENT_ID), CLIENT_ID, 0)
            sock.sendall(header + body[:room])  # as few TLS records as can be
            if rest:
                sock.sendall(rest)
            received_into(sock, buffer[:4])
            size = int.from_bytes(buffer[:4], "big")
            received_into(sock, buffer[:size])
            assert int.from_bytes(buffer[:4], "big") == correlation_id
            assert decode_response(ApiKey.UPDATE_METADATA, 8, buffer[5:size]).error_code == 0

        yield exchange


def once(authority: Path, tls_port: int, plain_port: int, size: int, count: int, blocks: int) -> dict[str, float]:
    """The least CPU of an exchange in µs, over blocks that alternate between the programs."""
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    with (
        channel(SecurityProtocol.SSL, authority, tls_port, body) as secured,
        bare(authority, tls_port, body) as alone,
        channel(SecurityProtocol.PLAINTEXT, authority, plain_port, body) as plain,
    ):
        programs = {"tls": secured, "ssl": alone, "plain": plain}
        least = dict.fromkeys(programs, float("inf"))
        for number in range(blocks + 1):
            for name, exchange in programs.items():
                began = time.process_time_ns()
                for _ in range(count):
                    exchange()
                if number:  # the first is for warming up
                    least[name] = min(least[name], (time.process_time_ns() - began) / count / 1e3)
    return least


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """The authority's file, and the ports of TLS and plaintext, of a server in a process of its own."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    command = [sys.executable, __file__, "--serve", str(folder / "server.pem")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        tls_port, plain_port = map(int, process.stdout.readline().split())
        yield folder / "authority.pem", tls_port, plain_port
        process.communicate()


def goals() -> list[Goal]:
    """The rows."""
    found = []
    for case in CASES:
        found.append(
            Goal("secured", "CPU of an exchange over TLS", case, "us", f"tls {case}", f"ssl {case}", "ssl", 1.4)
        )
        found.append(
            Goal("secured", "the same over plaintext", case, "us", f"plain {case}", f"ssl {case}", "ssl over TLS")
        )
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", type=int, default=7)
    arguments.add_argument("--quick", action="store_true", help="one short pair, no limits")
    arguments.add_argument("--json", type=Path, help="the result file")
    arguments.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--once", nargs=6, help=argparse.SUPPRESS)
    options = options_of(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    if options.once:
        authority, *numbers = options.once
        print(json.dumps(once(Path(authority), *map(int, numbers))))
        return 0
    at_start, failures, rounds = machine(), list[str](), list[dict[str, float]]()
    pairs = 1 if options.quick else options.pairs
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # for its children, too
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as (authority, *ports):
        for number in range(1, pairs + 1):
            rounds.append({})
            for case, (size, count) in CASES.items():
                print(f"{case}: pair {number} of {pairs}", file=sys.stderr, flush=True)
                asked = [*ports, size, count, 2 if options.quick else BLOCKS]
                command = [sys.executable, __file__, "--once", str(authority), *map(str, asked)]
                try:
                    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout
                    rounds[-1] |= {f"{name} {case}": value for name, value in json.loads(out).items()}
                except (subprocess.SubprocessError, ValueError) as e:
                    failures.append(f"{case}, pair {number}: {e}")
    return finish(
        "secured",
        goals(),
        rounds,
        at_start,
        failures,
        options,
        settings={"pairs": pairs},
    )


if __name__ == "__main__":
    sys.exit(main())
