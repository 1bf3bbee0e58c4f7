"""``kproto tap``: runs a relay in the foreground that records Kafka traffic."""

from __future__ import annotations

import contextlib
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kproto.cli.ending import check_recording, check_threads, ended_by_sigterm
from kproto.cli.options import properties_option
from kproto.cli.times import Seconds
from kproto.errors import ConfigurationError
from kproto.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel.network.recorder import PcapngRecorder
    from channel.tap import Tap, TapMapping
    from channel.tls_contexts import CurrentContext


@click.command(
    epilog="""\b
Let brokers advertise the tap's address (advertised.listeners) and listen
elsewhere: then the controller and all clients pass through the tap. What it
writes is read by inspect, summary, analyze, tshark and Wireshark, also
while it grows. The files are for their owner alone (mode 0600), and have
zeros in the places of passwords and tokens.

\b
Examples:
  kproto tap --map 127.0.0.1:19092=127.0.0.1:9092 --out control.pcapng
  kproto tap --map :19092=kafka-1:9092 --map :19093=kafka-2:9092 \\
      --out /var/tmp/tap --rotate-size 1000
  kproto tap --map :19092=kafka-1:9093 \\
      --listener-security near.properties --upstream-security far.properties \\
      --out control.pcapng

\b
A properties file has Kafka's own names:
  ssl.keystore.location=/etc/kafka/tap.pem
  ssl.truststore.location=/etc/kafka/ca.pem """
)
@click.option(
    "--map", "maps", multiple=True, required=True, metavar="LISTEN=UPSTREAM",
    help="Listen at HOST:PORT, relay to the node at HOST:PORT. Repeatable.",
)  # fmt: skip
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="The recording, a new file: FILE.1 if FILE is there; with rotation FILE-00001.pcapng and so on.",
)  # fmt: skip
@click.option("--rotate-size", type=click.IntRange(1), metavar="MB", help="Begin a new file after this many megabytes.")
@click.option("--rotate-seconds", type=Seconds(1), metavar="SECONDS", help="Begin a new file after this many seconds.")
@click.option("--keep-secrets", is_flag=True, help="Record passwords and tokens; by default zeros are recorded.")
@properties_option("Speak TLS with clients; FILE has the settings ssl.*.", "--listener-security")
@properties_option("Speak TLS with nodes; FILE has the settings ssl.*.", "--upstream-security")
def command(
    maps: tuple[str, ...],
    out: Path,
    rotate_size: int | None,
    rotate_seconds: float | None,
    keep_secrets: bool,
    listener_security: Path | None,
    upstream_security: Path | None,
) -> None:
    """Relay connections between Kafka nodes, and record both directions as pcapng, until Ctrl-C.

    Needs no right to capture packets. Every byte is relayed unchanged; a slow disk slows the relay down, and nothing is
    lost. TLS ends at the tap and begins anew, so that the recording is readable.
    """
    from channel.network.recorder import PcapngRecorder
    from channel.tap import Tap, TapMapping
    from channel.tap.rotation import RotatingRecorder

    mappings = [TapMapping.of(text) for text in maps]
    near = None if listener_security is None else _context(listener_security, server=True)
    far = None if upstream_security is None else _context(upstream_security, server=False)
    try:
        recorder: PcapngRecorder
        if rotate_size or rotate_seconds:
            recorder = RotatingRecorder(
                out,
                max_bytes=(rotate_size or 0) * 10**6,
                max_seconds=rotate_seconds or 0,
                keep_secrets=keep_secrets,
            )
        else:
            recorder = PcapngRecorder(out, keep_secrets=keep_secrets)
    except OSError as e:
        raise ConfigurationError(
            f"cannot write {out}: {str(e.strerror).lower()}; choose another file with --out"
        ) from e
    tap: Tap | None = None
    with contextlib.suppress(KeyboardInterrupt), ended_by_sigterm() as wait, recorder:
        tap = Tap(mappings, recorder, listener_tls=near, upstream_tls=far)
        with tap:
            wait(partial(_announce, tap, mappings, recorder.path), partial(_has_ended, tap, recorder))
    if tap is None:
        return  # interrupted before it relayed anything
    where = counted(recorder.finished, "file") if isinstance(recorder, RotatingRecorder) else str(recorder.path)
    print(f"{counted(tap.connections, 'connection')}, {tap.relayed:,} bytes: {where}", file=sys.stderr)
    check_threads("the tap", tap.error)
    check_recording(recorder, "piece")
    if tap.recording_error is not None:
        raise ConfigurationError(f"the recording is incomplete: {tap.recording_error}") from tap.recording_error


def _announce(tap: Tap, mappings: Sequence[TapMapping], recording: Path) -> None:
    for (host, port), mapping in zip(tap.listening, mappings, strict=True):
        print(f"relaying {host}:{port} to {mapping.upstream[0]}:{mapping.upstream[1]}", file=sys.stderr)
    print(f"recording to {recording}; Ctrl-C ends it", file=sys.stderr, flush=True)


def _has_ended(tap: Tap, recorder: PcapngRecorder, seconds: float) -> bool:
    """Wait this number of seconds, and rotate files that are old; returns whether the tap has ended by itself."""
    from channel.tap.rotation import RotatingRecorder

    time.sleep(seconds)
    if isinstance(recorder, RotatingRecorder):
        recorder.rotate_if_due()
    return not tap.is_alive


def _context(path: Path, *, server: bool) -> CurrentContext:
    from channel.security import SecurityConfig, read_properties
    from channel.tls_contexts import CurrentContext, client_context, server_context

    security = SecurityConfig.of(read_properties(path))
    return CurrentContext(server_context if server else client_context, security)
