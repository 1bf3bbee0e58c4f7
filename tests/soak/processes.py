"""The processes of a soak: ZooKeeper, controllers, brokers behind taps, and analyze; each may be killed or stopped."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import trustme
from free_ports import free_ports
from real_brokers import jars, real_kafka

from channel.errors import ChannelError
from channel.network.node_client import NodeClient
from channel.security import read_security
from channel.zookeeper.session import ZooKeeperSession

from .disks import Disks

__all__ = ["CONTROLLERS", "Program", "Soak"]

CONTROLLERS: Final = (1000, 1001)
SESSION_S: Final = 6
GROUP: Final = 10
"""How many brokers share a process."""

_SABOTEUR: Final = Path(__file__).with_name("saboteur.py")

TAPPED: Final = "127.0.0.2"
"""The address at which taps listen, with the brokers' own ports."""

_SERVER: Final = """security.protocol=SASL_SSL
ssl.keystore.location={folder}/own.pem
ssl.truststore.location={folder}/ca.pem
sasl.mechanism=PLAIN
sasl.enabled.mechanisms=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  username="admin" password="admin-secret" user_admin="admin-secret";
"""
_TLS: Final = "ssl.keystore.location={folder}/own.pem\nssl.truststore.location={folder}/ca.pem\n"
_CONTROLLER: Final = f"""zookeeper.session.timeout.ms={1000 * SESSION_S}
default.replication.factor=3
request.timeout.ms=4000
"""


class Program:
    """A command of kproto that may end and begin again; its logs are kept.

    Args:
        name: What the logs are called.
        folder: Where they go.
        arguments: Those of ``kproto``.
        takes_orders: Whether faults can be made in the process; see ``saboteur``.

    Attributes:
        process: The latest process.
        started_at: When it was started, by the monotonic clock.
    """

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], *, takes_orders: bool = False) -> None:
        self.name, self.folder, self.arguments = name, folder, list(arguments)
        self._orders = folder / f"{name}.order" if takes_orders else None
        self.out, self.log = folder / f"{name}.out", folder / f"{name}.log"
        self.process: subprocess.Popen[str] | None = None
        self.started_at = 0.0
        self.kills = 0
        self.stops = 0

    def start(self) -> None:
        """Start a process."""
        self.started_at = time.monotonic()
        command = ["-m", "kproto"] if self._orders is None else [str(_SABOTEUR), str(self._orders)]
        with self.out.open("a") as out, self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, *self.arguments],
                stdin=subprocess.PIPE, stdout=out, stderr=log, text=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process is not None and self.process.poll() is None

    def say(self, line: str) -> None:
        """Write a line to the process's standard input."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def order(self, timeout_s: float = 60, **order: float) -> str:
        """Have a fault made in the process; gives what it tells of it.

        Raises:
            TimeoutError: It does not obey.
        """
        assert self._orders is not None
        told, ready = self._orders.with_suffix(".told"), self._orders.with_suffix(".ready")
        deadline = time.monotonic() + timeout_s
        while not (ready.exists() and ready.read_text() == str(self.pid)):  # the signal would end it
            self._must_go_on(deadline)
        told.unlink(missing_ok=True)
        self._orders.write_text(json.dumps(order))
        os.kill(self.pid, signal.SIGUSR1)
        while self._orders.exists():
            self._must_go_on(deadline)
        return told.read_text()

    def _must_go_on(self, deadline: float) -> None:
        if not self.is_running or time.monotonic() > deadline:
            raise TimeoutError(f"{self.name} does not obey")
        time.sleep(0.05)

    def kill(self) -> None:
        """End the process as kill -9 does."""
        assert self.process is not None
        self.kills += 1
        self.process.kill()
        self.process.wait(60)
        self._close_input()

    def stop(self) -> None:
        """Stop the process by SIGSTOP."""
        self.stops += 1
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the process continue."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self, with_signal: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        """End the process in order; gives its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
            raise
        finally:
            self._close_input()

    def _close_input(self) -> None:
        assert self.process is not None
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def lines(self) -> list[dict[str, Any]]:
        """The whole JSON lines that it has printed; kill -9 may leave the last of a process cut."""
        found = []
        for line in self.out.read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found


class Soak:
    """The whole of it, in a folder; a context manager.

    Args:
        folder: For data, logs, recordings and tables.
        brokers: How many brokers there are, a multiple of ten.
    """

    def __init__(self, folder: Path, brokers: int) -> None:
        self.folder = folder
        self.recordings = folder / "recordings"
        self.tables = folder / "tables"
        for made in (folder, self.recordings, folder / "logs"):
            made.mkdir(parents=True, exist_ok=True)
        self.disks = Disks(folder / "disks", self.recordings)
        self._certificates()
        self.ids = range(brokers)
        self.ports: dict[int, int] = {}
        self.zookeeper = f"127.0.0.1:{free_ports(1)}"
        self.session = ZooKeeperSession(self.zookeeper)
        self.wrong: list[str] = []  # what faults and the administrator have met
        self.controllers = [self._controller(each) for each in CONTROLLERS]
        self.groups, self.taps = [], []
        for number, first in enumerate(range(0, brokers, GROUP)):
            base = free_ports(GROUP)
            ids = range(first, min(first + GROUP, brokers))
            self.ports |= {i: base + i - first for i in ids}
            self.groups.append(self._brokers(number, ids, base))
            self.taps.append(self._tap(number, [self.ports[i] for i in ids]))
        self.analyze = Program(
            "analyze", folder / "logs",
            ["analyze", "--follow", str(self.recordings), "--out", str(self.tables), "--master", "local[1]",
             "--log", str(folder / "logs" / "spark.log"),
             "--brokers", ",".join(f"{i}=127.0.0.1:{port}" for i, port in self.ports.items())],
        )  # fmt: skip

    def _certificates(self) -> None:
        ca = trustme.CA()
        own = ca.issue_cert("127.0.0.1", TAPPED, "localhost")
        (self.folder / "ca.pem").write_bytes(ca.cert_pem.bytes())
        (self.folder / "own.pem").write_bytes(own.private_key_and_cert_chain_pem.bytes())
        for name, text in ("security", _SERVER), ("tls", _TLS), ("controller", _CONTROLLER):
            (self.folder / f"{name}.properties").write_text(text.format(folder=self.folder))

    def _controller(self, controller_id: int) -> Program:
        return Program(
            f"controller-{controller_id}", self.folder / "logs",
            ["controller", "--zookeeper", self.zookeeper, "--id", str(controller_id), "--log-json",
             "--config", str(self.folder / "controller.properties"),
             "--security", str(self.folder / "security.properties")],
            takes_orders=True,
        )  # fmt: skip

    def _brokers(self, number: int, ids: range, base: int) -> Program:
        return Program(
            f"brokers-{number}", self.folder / "logs",
            ["brokers", "--zookeeper", self.zookeeper, "--count", str(len(ids)), "--first-id", str(ids.start),
             "--base-port", str(base - ids.start), "--advertised-host", TAPPED, "--requests", "--commands",
             "--session-timeout", str(SESSION_S), "--replica-lag", "4", "--shutdown-timeout", "0.5",
             "--security", str(self.folder / "security.properties")],
        )  # fmt: skip

    def _tap(self, number: int, ports: list[int]) -> Program:
        maps = [word for port in ports for word in ("--map", f"{TAPPED}:{port}=127.0.0.1:{port}")]
        tls = str(self.folder / "tls.properties")
        out = self.disks.of(f"tap-{number}") / f"tap-{number}.pcapng"
        return Program(
            f"tap-{number}", self.folder / "logs",
            ["tap", *maps, "--out", str(out), "--rotate-seconds", "15",
             "--listener-security", tls, "--upstream-security", tls],
        )  # fmt: skip

    @property
    def programs(self) -> list[Program]:
        """Every program but analyze."""
        return [*self.controllers, *self.taps, *self.groups]

    # ---- from start to end

    def __enter__(self) -> Self:
        real_kafka("install", str(self.folder / "zookeeper"), "--jars", str(jars()))
        try:
            real_kafka("start", str(self.folder / "zookeeper"), "--no-brokers",
                       "--zk-port", self.zookeeper.rpartition(":")[2])  # fmt: skip
            self.session.start()
            self.disks.start()
            for program in (*self.taps, *self.controllers, *self.groups):
                program.start()
            self.analyze.start()
            self.wait_for(lambda: self.registered() >= {*self.ids}, "every broker is registered")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in (*self.programs, self.analyze):
            if program.is_running:
                program.go_on()
                program.process.kill()  # type: ignore[union-attr]
                program.process.wait(60)  # type: ignore[union-attr]
        self.disks.close()
        self.session.close()
        real_kafka("stop", str(self.folder / "zookeeper"), "--kill")

    def wait_for(self, condition: Any, what: str, seconds: float = 120) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: It does not; the text says which.
        """
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ChannelError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {seconds:g} s it does not hold that {what}")
            time.sleep(0.2)

    def registered(self) -> set[int]:
        """The ids that are registered in ZooKeeper."""
        return {int(name) for name in self.session.children("/brokers/ids")}

    @property
    def addresses(self) -> dict[tuple[str, int], int]:
        """The brokers' ids by the address behind their tap."""
        return {("127.0.0.1", port): i for i, port in self.ports.items()}

    def zookeeper_pid(self) -> int:
        """ZooKeeper's process."""
        return int((self.folder / "zookeeper" / "run" / "zookeeper.pid").read_text())

    def ids_of(self, program: Program) -> range:
        """The brokers of a process, or behind a tap."""
        number = (self.groups if program in self.groups else self.taps).index(program)
        return self.ids[number * GROUP : (number + 1) * GROUP]

    def is_in_hole(self, broker_id: int, at: float) -> bool:
        """Whether the recording may lack what a broker answered then, in seconds since the epoch."""
        tap = self.taps[broker_id // GROUP].name
        return any(hole.tap == tap and hole.began - 2 < at < hole.ended + 2 for hole in self.disks.holes)

    def ask(self, broker_id: int, message: Any, version: int, timeout_ms: int = 30_000) -> Any:
        """Ask a broker through its tap."""
        return self.ask_at((TAPPED, self.ports[broker_id]), message, version, timeout_ms)

    def ask_at(self, address: tuple[str, int], message: Any, version: int, timeout_ms: int = 30_000) -> Any:
        """Ask the node at an address."""
        protocol, security = read_security(self.folder / "security.properties")
        with NodeClient(address, "soak", protocol=protocol, security=security, timeout_ms=timeout_ms) as client:
            return client.ask(message, version)

    def client_settings(self) -> dict[str, Any]:
        """Settings of a client of librdkafka."""
        some = [f"{TAPPED}:{self.ports[i]}" for i in self.ids[:: max(1, len(self.ids) // 5)]]
        return {
            "bootstrap.servers": ",".join(some),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "admin-secret",
            "log_level": 0,
        }
