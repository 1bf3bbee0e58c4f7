"""``kproto brokers``: embedded brokers in the foreground, for a controller to rule."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproto.cli.text import counted
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.broker.hooks import BrokerHooks, RequestContext

__all__ = ["command"]


@click.command(
    epilog="""\b
Brokers answer LeaderAndIsr, StopReplica, UpdateMetadata, Metadata, ControlledShutdown and ApiVersions as Kafka 3.9
does, and keep replicas as the control plane sees them: leaders, epochs, ISR, topic ids. They store no messages.

\b
Examples:
  kproto brokers --count 3 --base-port 19092                  brokers 0-2 on ports 19092-19094
  kproto brokers --count 3 --base-port 19092 --requests       and a JSON line for each request
  kproto brokers --count 1000 --base-port 20000 > ports.json  a thousand; ports.json says where
  kproto brokers --security broker.properties                 TLS, SASL or both; the file has Kafka's own names """
)
@click.option("--count", default=3, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option("--base-port", default=0, type=click.IntRange(0, 65_535), help="Broker N listens at this port + N.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where they listen.")
@click.option("--first-id", default=0, show_default=True, type=click.IntRange(0), help="The first broker's id.")
@click.option("--requests", is_flag=True, help="Print each request with its answer, one JSON object a line.")
@click.option(
    "--security", type=click.Path(dir_okay=False, exists=True, path_type=Path), metavar="FILE",
    help="Properties: security.protocol, ssl.*, sasl.* of every listener.",
)  # fmt: skip
def command(count: int, base_port: int, host: str, first_id: int, requests: bool, security: Path | None) -> None:
    """Run embedded brokers until Ctrl-C.

    Prints one JSON object a line for each broker (id, host, port, broker_epoch) once all of them listen.
    """
    from channel.broker.cluster import EmbeddedCluster
    from channel.security import read_security

    protocol, settings = read_security(security)
    if first_id + count > 1 << 31:
        raise ConfigurationError(f"broker ids end at {(1 << 31) - 1}; choose a lower first id")
    stop, unread = threading.Event(), threading.Event()

    def reader_is_gone() -> None:
        unread.set()
        stop.set()

    cluster = EmbeddedCluster(
        range(first_id, first_id + count),
        base_port=base_port,
        host=host,
        hooks=(lambda broker_id: _told(broker_id, reader_is_gone)) if requests else None,
        protocol=protocol,
        security=settings,
    )
    previous = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with cluster:
            for member in cluster:
                _line({"broker": member.id, "host": member.host, "port": member.port, "broker_epoch": member.epoch})
            print(f"{counted(count, 'broker')} listening; Ctrl-C ends them", file=sys.stderr, flush=True)
            while not stop.wait(1):
                pass
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)
    if unread.is_set():
        raise BrokenPipeError  # as any command whose reader goes away


def _told(broker_id: int, reader_is_gone: Callable[[], None]) -> BrokerHooks:
    from channel.broker.hooks import BrokerHooks

    def answered(context: RequestContext, request: Any, answer: Any) -> None:
        told = {
            "time": time.time(),
            "broker": broker_id,
            "client": context.peer,
            "api_key": context.api_key,
            "api_version": context.version,
            "correlation_id": context.correlation_id,
            "client_id": context.client_id,
            "request": None if request is None else request.to_json(context.version),
            "response": None if answer is None else answer.to_json(context.version),
        }
        try:
            _line(told)
        except BrokenPipeError:
            reader_is_gone()

    return BrokerHooks(answered=answered)


def _line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")  # at once: two threads write lines
    sys.stdout.flush()
