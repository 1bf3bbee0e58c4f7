"""``kproto brokers``: runs embedded brokers in the foreground, for a controller to lead."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kproto.cli.ending import Reader, check_threads, ended_by_sigterm
from kproto.cli.options import properties_option
from kproto.cli.text import print_line
from kproto.cli.times import Seconds
from kproto.errors import ConfigurationError, KprotoError
from kproto.text import counted, ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from channel.broker.cluster import ClusterMember
    from channel.broker.fleet import Fleet
    from channel.broker.hooks import BrokerHooks, RequestContext
    from channel.broker.links import Stand
    from channel.config import BrokerConfigs
    from channel.rehearsal.command_server import CommandServer, FleetCommands
    from channel.rehearsal.fleet_steps import StepReport


@click.command(
    epilog="""\b
Brokers answer LeaderAndIsr, StopReplica, UpdateMetadata, Metadata,
ControlledShutdown and ApiVersions as Kafka 3.9 does, and keep replicas as
the control plane sees them: leaders, epochs, ISR, topic ids. They store no
messages.

\b
With --zookeeper they register there, and a real Kafka controller leads
them. Their leaders drop silent followers from the ISR; SIGTERM or Ctrl-C is
a controlled shutdown, and Ctrl-C during it ends them at once. ZooKeeper
must allow a connection for each broker (maxClientCnxns, 60 by default; 0
for no limit).

\b
With --commands they take steps from standard input, one a line, and print
a report of each as a JSON line:
  kill 101,105-107     restart 101     bounce random:10     leave 103
  pause 104            resume 104      slow 105 0.5         wait 10
  new-controller       stop
  kill controller      with --elect: the broker of these that leads

\b
With --http 8080 they take the same steps as requests:
  curl --json '{"step": "kill random:3"}' http://127.0.0.1:8080/steps

\b
With --quorum they take part in a migration from ZooKeeper to KRaft: a KRaft
controller registers them, and leads them.

\b
With --elect every broker stands for election too. The winner leads the
others, and itself over its own socket; when it ends, another leads with the
next controller epoch. A JSON line tells of each election.

\b
--config takes Kafka's settings for all of them, or for one:
  num.partitions=6                           of every broker
  broker.102.default.replication.factor=1    of broker 102, if it leads

\b
Examples:
  kproto brokers --count 3 --base-port 19092
      brokers 0-2 on ports 19092-19094
  kproto brokers --count 3 --base-port 19092 --requests
      and a JSON line for each request
  kproto brokers --count 1000 --base-port 20000 > ports.json
      a thousand; ports.json says where
  kproto brokers --security broker.properties
      TLS, SASL or both; the file has Kafka's own names
  kproto brokers --zookeeper 127.0.0.1:2181 --count 50 --first-id 100
      fifty for the controller of that cluster
  kproto brokers --zookeeper 127.0.0.1:2181 --count 3 --elect
      a cluster of their own
  echo 'bounce random:10' | kproto brokers --zookeeper 127.0.0.1:2181 \\
      --count 50 --first-id 100 --commands """
)
@click.option("--count", default=3, type=click.IntRange(1, 10_000), help="The number of brokers.")
@click.option(
    "--base-port",
    default=0,
    show_default=False,
    type=click.IntRange(0, 65_535),
    help="Broker N listens at this port + N.",
)
@click.option("--host", default="127.0.0.1", help="Where they listen.")
@click.option("--advertised-host", metavar="HOST", help="Register this host, such as a tap's; needs --zookeeper.")
@click.option("--first-id", default=0, type=click.IntRange(0), help="The first broker's id.")
@click.option("--requests", is_flag=True, help="Print each request with its answer, one JSON object a line.")
@properties_option("Properties: security.protocol, ssl.*, sasl.*, connections.max.reauth.ms of every listener.")
@click.option("--zookeeper", metavar="HOST:PORT", help="Register the brokers in this ZooKeeper; HOST:PORT/PATH too.")
@properties_option("Properties under Kafka's names; broker.ID.KEY=VALUE is for one broker alone.", "--config")
@click.option("--ibp", show_default="3.9", help="Their inter.broker.protocol.version.")
@click.option(
    "--session-timeout", show_default="18", type=Seconds(1), metavar="SECONDS",
    help="The timeout of their ZooKeeper sessions: a killed broker stays registered for this time.",
)  # fmt: skip
@click.option(
    "--replica-lag", default=30.0, type=Seconds(0.1), metavar="SECONDS",
    help="The time for which a silent follower stays in the ISR.",
)  # fmt: skip
@click.option(
    "--shutdown-timeout", default=10.0, type=Seconds(0), metavar="SECONDS",
    help="The time that the controlled shutdown may take.",
)  # fmt: skip
@click.option("--racks", metavar="RACK,...", help="Their racks, one broker after the other in turn; needs --zookeeper.")
@click.option(
    "--quorum", metavar="ID@HOST:PORT,...",
    help="Register with these KRaft controllers too, for a migration; needs --zookeeper.",
)  # fmt: skip
@click.option("--elect", is_flag=True, help="Let every broker stand for election; needs --zookeeper.")
@click.option("--commands", is_flag=True, help="Read steps from standard input; needs --zookeeper.")
@click.option(
    "--http", metavar="[HOST:]PORT",
    help="Take steps by HTTP, on loopback unless HOST is given; port 0 for any. Needs --zookeeper.",
)  # fmt: skip
def command(
    count: int, base_port: int, host: str, advertised_host: str | None, first_id: int, requests: bool,
    security: Path | None, zookeeper: str | None,
    config: Path | None, ibp: str | None, session_timeout: float | None,
    replica_lag: float, shutdown_timeout: float, racks: str | None,
    quorum: str | None, elect: bool, commands: bool, http: str | None,
) -> None:  # fmt: skip
    """Run simulated brokers until Ctrl-C.

    Prints one JSON object a line for each broker (id, host, port, broker_epoch) once all of them listen.
    """
    from channel.addresses import parse_address, parse_voters
    from channel.config import BrokerConfigs
    from channel.security import SecurityConfig, read_properties, read_security
    from channel.threads import first_error

    given = {} if config is None else read_properties(config)
    if ibp is not None:
        given["inter.broker.protocol.version"] = ibp
    if session_timeout is not None:
        given["zookeeper.session.timeout.ms"] = str(round(session_timeout * 1000))
    configs = BrokerConfigs.of(given)
    listener = configs.common.inter_broker_listener_name if zookeeper is not None else None
    protocol, settings = read_security(security, serves=True, listener=listener)
    if first_id + count > 1 << 31:
        raise ConfigurationError(f"broker ids end at {(1 << 31) - 1}; choose a lower first id")
    if (commands or http is not None) and zookeeper is None:
        option = "--commands" if commands else "--http"
        raise click.UsageError(f"{option} needs --zookeeper: without a controller the steps have no effect to report")
    address = None if http is None else parse_address(http if ":" in http else f"127.0.0.1:{http}")
    for option, value in ("--racks", racks), ("--quorum", quorum), ("--advertised-host", advertised_host):
        if value is not None and zookeeper is None:
            raise click.UsageError(f"{option} needs --zookeeper, where the brokers register")
    if elect and zookeeper is None:
        raise click.UsageError("--elect needs --zookeeper, where the election is held")
    reader = Reader()
    failure: BaseException | None = None
    brokers: dict[str, Any] = {
        "base_port": base_port,
        "host": host,
        "hooks": partial(_printing_hooks, reader=reader) if requests else None,
        "protocol": protocol,
        "security": settings,
    }
    broker_ids = range(first_id, first_id + count)
    if configs.common.security != SecurityConfig():
        raise ConfigurationError(f"{config} has settings of TLS or SASL; put them into the file of --security")
    if any(each.authorizer_class_name for each in (configs.common, *configs.single.values())):
        raise ConfigurationError(f"{config} names an authorizer; these brokers have none, and serve everybody")
    strangers = sorted(configs.single.keys() - set(broker_ids))
    if strangers:
        raise ConfigurationError(
            f"{config} has settings of broker {strangers[0]}; the brokers are {first_id}-{broker_ids[-1]}"
        )
    with contextlib.suppress(KeyboardInterrupt), ended_by_sigterm() as wait:
        if zookeeper is None:
            from channel.broker.cluster import EmbeddedCluster

            with EmbeddedCluster(broker_ids, config=configs.common, **brokers) as cluster:
                wait(partial(_announce, cluster), lambda seconds: reader.stop.wait(seconds) or cluster.error)
                failure = cluster.error
        else:
            from channel.broker.fleet import Fleet

            logging.getLogger("kazoo").addHandler(logging.NullHandler())  # it logs each attempt to connect
            fleet = Fleet(
                zookeeper,
                broker_ids,
                advertised_host=advertised_host,
                config=configs,
                session_timeout_ms=configs.common.zookeeper_session_timeout_ms,
                replica_lag_time_max_ms=round(replica_lag * 1000),
                racks=() if racks is None else [_rack(text) for text in racks.split(",")],
                quorum=[] if quorum is None else parse_voters(quorum),
                stand=_candidates(configs.secured(protocol.name, settings), reader) if elect else None,
                **brokers,
            )
            with fleet:
                with _commanded(fleet, commands, address, reader) as (begin, door):
                    wait(begin, lambda seconds: reader.stop.wait(seconds) or first_error(fleet, door))
                    failure = first_error(fleet, door)
                if failure is None:
                    _leave(fleet, shutdown_timeout)
    reader.check()
    check_threads("the cluster", failure)


def _rack(text: str) -> str:
    if not text.strip():
        raise ConfigurationError("a rack of --racks has no name; write --racks a,b")
    return text.strip()


def _candidates(config: BrokerConfigs, reader: Reader) -> Stand:
    from channel.node.controller_node import candidates

    def elected(broker_id: int, epoch: int) -> None:
        reader.tell({"controller": broker_id, "leading": epoch > 0, "controller_epoch": epoch or None})

    return candidates(config, elected)


def _announce(brokers: Iterable[ClusterMember]) -> None:
    members = list(brokers)
    for member in members:
        print_line({"broker_id": member.id, "host": member.host, "port": member.port, "broker_epoch": member.epoch})
    print(f"{counted(len(members), 'broker')} listening; Ctrl-C ends them", file=sys.stderr, flush=True)


def _leave(fleet: Fleet, timeout_s: float) -> None:
    print("shutting down; Ctrl-C ends the brokers at once", file=sys.stderr, flush=True)
    by_reason = defaultdict[str, list[int]](list)
    for broker_id, reason in fleet.shut_down(timeout_s=timeout_s).items():
        by_reason[reason].append(broker_id)
    for reason, broker_ids in by_reason.items():
        left = f"broker {broker_ids[0]} has" if len(broker_ids) == 1 else f"brokers {ranges(broker_ids)} have"
        print(f"{left} left though {reason}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _commanded(
    fleet: Fleet,
    from_stdin: bool,
    http: tuple[str, int] | None,
    reader: Reader,
) -> Iterator[tuple[Callable[[], None], CommandServer | None]]:
    """Take steps by HTTP; yields the function that announces the brokers and takes steps from standard input."""
    from channel.addresses import show_address
    from channel.rehearsal.command_server import CommandServer, FleetCommands

    commands = FleetCommands(fleet, reader.tell)
    with contextlib.ExitStack() as stack:
        server = None if http is None else stack.enter_context(CommandServer(commands, *http, on_stop=reader.stop.set))

        def begin() -> None:
            _announce(fleet)
            if server is not None:
                print_line({"commands": f"http://{show_address(server.address)}"})
            if from_stdin:
                threading.Thread(target=_follow, args=(commands, reader), daemon=True).start()

        yield begin, server


def _follow(commands: FleetCommands, reader: Reader) -> None:
    """Take the steps on standard input, and sum them up in a table at its end."""
    from channel.rehearsal.fleet_steps import report_table

    events: list[StepReport] = []
    ends = False
    for text in sys.stdin:
        if text.strip() == "stop":
            ends = True
            break
        if not text.strip() or text.startswith("#"):
            continue
        try:
            events.append(commands.take(text, wait=True))
        except (KprotoError, ValueError) as e:
            reader.tell({"step": text.strip(), "error": str(e)})
    if events:
        print("\n".join(report_table(events)), file=sys.stderr, flush=True)
    if ends:
        reader.stop.set()


def _printing_hooks(broker_id: int, reader: Reader) -> BrokerHooks:
    from channel.broker.hooks import BrokerHooks

    def answered(context: RequestContext, request: Any, answer: Any) -> None:
        reader.tell({
            "time": time.time(),
            "broker_id": broker_id,
            "client": context.peer,
            "api_key": context.api_key,
            "api_version": context.version,
            "correlation_id": context.correlation_id,
            "client_id": context.client_id,
            "request": None if request is None else request.to_json(context.version),
            "response": None if answer is None else answer.to_json(context.version),
        })  # fmt: skip

    return BrokerHooks(answered=answered)
