"""``kproto controller``: runs a candidate for the controller of a real cluster, in the foreground."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kproto.cli.ending import Reader, check_recording, check_threads, ended_by_sigterm
from kproto.cli.options import properties_option
from kproto.cli.text import print_line
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from channel.config import ChannelConfig
    from channel.metrics import Metrics
    from channel.network.http_door import HttpDoor

_M_ARENA_MAX: Final = -8
"""A setting of glibc's mallopt."""


@click.command(
    epilog="""\b
It stands for election in ZooKeeper like a broker of Kafka 3.9, and leads
once it is elected: leaders and ISR, new topics and partitions,
reassignment, deletion, preferred elections, controlled shutdown. While
another controller leads, it waits for /controller to be free. It keeps no
records and gets no replicas. Ctrl-C or SIGTERM: it resigns.

\b
Its listener serves what brokers, clients and Kafka's tools ask of a
controller: topics, partitions, elections, reassignments, producer ids,
SCRAM credentials, also in an Envelope. It names the coordinators of groups
and transactions. What any broker may answer (ACLs, quotas, settings of
topics) it passes on to a live broker; with TLS or SASL, where it cannot
speak for the client, it closes the connection, and the client asks another
broker. New replicas are spread over the racks if every broker has one.
Settings of topics are checked as Kafka 3.9 checks them.

\b
In a migration to KRaft --quorum names the KRaft controllers, as
controller.quorum.voters does for brokers: it registers there too, as they
wait for every registered broker, and ends once they have taken the cluster
over.


Prints one JSON object a line: where it listens, then each new leader.

\b
Examples:
  kproto controller --zookeeper 127.0.0.1:2181 --id 1000
  kproto controller --zookeeper zk1:2181,zk2:2181/kafka --id 1000 \\
      --listener 10.0.0.7:9092 --config controller.properties
  kproto controller --zookeeper 127.0.0.1:2181 --id 1000 \\
      --record recordings --metrics 127.0.0.1:9404 --log-json
  kproto controller --zookeeper 127.0.0.1:2181 --id 1000 \\
      --security broker.properties
  kproto controller --zookeeper 127.0.0.1:2181 --id 1000 \\
      --quorum 3000@127.0.0.1:9093
  kproto controller --zookeeper 127.0.0.1:2181 --status

\b
--config has Kafka's own names, --security those of a broker's listener:
  inter.broker.protocol.version=3.9
  zookeeper.session.timeout.ms=6000
  default.replication.factor=3
In a cluster with an authorizer name it there, and the super users, who
alone are served what goes to the controller: it reads no ACLs.
  authorizer.class.name=kafka.security.authorizer.AclAuthorizer
  super.users=User:admin """
)
@click.option(
    "--zookeeper", required=True, metavar="HOST:PORT[,...][/PATH]", help="Where ZooKeeper is; /PATH is a chroot."
)
@click.option(
    "--id", "controller_id", type=click.IntRange(0, (1 << 31) - 1), help="A broker id not in use; required to lead."
)
@click.option(
    "--listener", default="127.0.0.1:0", metavar="HOST:PORT",
    help="Where brokers and clients reach it; port 0 for any.",
)  # fmt: skip
@properties_option("Properties of the controller.", "--config")
@properties_option("Properties: security.protocol, ssl.*, sasl.* of its listener and of connections to brokers.")
@click.option(
    "--record", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Record all its traffic to DIR/controller-ID.pcapng (.1 if that is there), zeros for secrets.",
)  # fmt: skip
@click.option("--keep-secrets", is_flag=True, help="Record passwords and tokens; by default zeros are recorded.")
@click.option(
    "--quorum", metavar="ID@HOST:PORT,...",
    help="The KRaft controllers of a migration; it ends once they lead.",
)  # fmt: skip
@click.option("--metrics", metavar="HOST:PORT", help="Serve http://HOST:PORT/metrics for Prometheus.")
@click.option("--status", is_flag=True, help="Show the controller and the operations in progress, and end.")
@click.option("--log-json", is_flag=True, help="Write log lines as JSON objects.")
@click.option("--verbose", "-v", is_flag=True, help="Log state changes too, one line for each request.")
def command(
    zookeeper: str,
    controller_id: int | None,
    listener: str,
    config: Path | None,
    security: Path | None,
    record: Path | None,
    keep_secrets: bool,
    quorum: str | None,
    metrics: str | None,
    status: bool,
    log_json: bool,
    verbose: bool,
) -> None:
    """Stand for election as a real cluster's controller, and lead it while elected."""
    from channel.addresses import parse_address, parse_voters
    from channel.node.controller_node import ControllerNode
    from channel.threads import first_error

    logging.getLogger("kazoo").setLevel(logging.ERROR)  # the session logs the state of its connection itself
    if status:
        from channel.zookeeper.cluster_state import controller_status
        from channel.zookeeper.session import ZooKeeperSession

        with ZooKeeperSession(zookeeper) as session:
            print_line(controller_status(session))
        return
    if controller_id is None:
        raise click.UsageError("--id is missing; give a broker id that no broker of the cluster has")
    host, port = parse_address(listener)
    settings = _settings(config, security)
    _log_to_stderr(as_json=log_json, verbose=verbose)
    _share_one_arena()
    reader = Reader()
    failure: BaseException | None = None

    def changed(active_id: int, epoch: int) -> None:
        leads = {"leading": True, "controller_epoch": epoch} if epoch else {"leading": False}
        reader.tell({"controller": None if active_id < 0 else active_id, **leads})
        if quorum is not None and node.controller.is_led_by_kraft:
            reader.stop.set()

    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        wait = stack.enter_context(ended_by_sigterm())
        recorder = None
        if record is not None:
            from channel.network.recorder import PcapngRecorder

            try:
                record.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise ConfigurationError(f"{record} is a file; --record takes a directory") from None
            path = record / f"controller-{controller_id}.pcapng"
            recorder = stack.enter_context(PcapngRecorder(path, keep_secrets=keep_secrets))
        node = ControllerNode(
            controller_id,
            zookeeper,
            host=host,
            port=port,
            config=settings,
            quorum=() if quorum is None else parse_voters(quorum),
            recorder=recorder,
            on_change=changed,
        )
        door = None if metrics is None else stack.enter_context(_door_of(node.metrics, metrics))
        with node:
            assert node.endpoint is not None
            announced = {"id": controller_id, "host": node.endpoint.host, "port": node.endpoint.port}
            wait(partial(print_line, announced), lambda seconds: reader.stop.wait(seconds) or first_error(node, door))
            failure = first_error(node, door)
    reader.check()
    check_threads("the controller", failure)
    if recorder is not None:
        check_recording(recorder, "frame")


def _settings(config: Path | None, security: Path | None) -> ChannelConfig:
    from channel.config import ChannelConfig
    from channel.security import read_properties, read_security

    settings = ChannelConfig.of({} if config is None else read_properties(config))
    if security is None:
        return settings
    protocol, secured = read_security(security, serves=True, listener=settings.inter_broker_listener_name)
    return settings.secured(protocol.name, secured)


def _share_one_arena() -> None:
    """Let all threads allocate from one arena of glibc's: each of them allocates little, and holds Python's lock."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _log_to_stderr(*, as_json: bool, verbose: bool) -> None:
    from channel.logs import STATE_CHANGE, JsonLines

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    STATE_CHANGE.setLevel(logging.INFO if verbose else logging.ERROR)


def _door_of(metrics: Metrics, address: str) -> HttpDoor:
    """Make the server of the metrics for Prometheus."""
    import prometheus_client
    from prometheus_client.exposition import choose_encoder

    from channel.addresses import parse_address
    from channel.metrics import prometheus_collector
    from channel.network.http_door import DoorHandler, HttpDoor

    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus_collector(metrics))

    class Handler(DoorHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/", "/metrics"):
                self.refuse(HTTPStatus.NOT_FOUND, "there is GET /metrics")
                return
            try:
                write, content_type = choose_encoder(self.headers.get("Accept", ""))
            except (TypeError, ValueError):  # a form in a version that is no number
                write, content_type = choose_encoder("")
            self.answer(HTTPStatus.OK, content_type, write(registry))

    return HttpDoor("metrics-thread", *parse_address(address), Handler)
