"""Starts and stops a real Kafka 3.9.1 by ``tools/real_kafka``."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from free_ports import free_ports

from channel.broker.fleet import Fleet

IS_LONG = os.environ.get("KPROTO_FORM") == "long"
"""Whether the long form of the proofs was asked for: every protocol version, outages of 10 and 30 seconds."""

PROTOCOL_VERSIONS = ("0.10.2", "1.0", "2.4-IV1", "2.8", "3.9") if IS_LONG else ("0.10.2", "3.9")
"""The inter-broker protocol versions that proofs are run with."""

REAL_KAFKA = Path(__file__).parents[1] / "tools" / "real_kafka" / "real-kafka"


def real_kafka(*args: str) -> dict[str, Any]:
    """Run tools/real_kafka and return its output."""
    done = subprocess.run(
        [sys.executable, str(REAL_KAFKA), *args], capture_output=True, text=True, timeout=400, check=False
    )
    if done.returncode:
        raise RuntimeError(f"real-kafka {' '.join(args)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def eventually(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until a condition on real processes holds, which may take long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def administrator(settings: dict[str, Any]) -> AdminClient:
    """A client of librdkafka that knows the controller: where its broker knew none, it would wait until it gives up."""
    admin = AdminClient(settings)
    eventually(lambda: admin.list_topics(timeout=60).controller_id >= 0)
    return admin


def elected(fleet: Fleet) -> int:
    """Wait until a broker of the fleet is the active controller; returns its id."""
    found: list[int | None] = [None]

    def is_led() -> bool:
        found[0] = fleet.controller_id
        return found[0] is not None

    eventually(is_led)
    assert found[0] is not None
    return found[0]


@contextlib.contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stop a process by SIGSTOP for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


_SECURITY = """security.protocol={protocol}
ssl.truststore.location={folder}/conf/ca.pem
ssl.keystore.location={folder}/conf/own.pem
sasl.mechanism=PLAIN
sasl.enabled.mechanisms=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
  username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";
"""


def security_file(folder: Path, protocol: str) -> Path:
    """Write the settings by which our end joins a secured cluster in a folder; its certificate is the brokers' own."""
    key, certificate, _ = pkcs12.load_key_and_certificates((folder / "conf" / "keys.p12").read_bytes(), b"changeit")
    assert key is not None
    assert certificate is not None
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    (folder / "conf" / "own.pem").write_bytes(pem)
    security = folder / "security.properties"
    security.write_text(_SECURITY.format(protocol=protocol, folder=folder))
    return security


def client_settings(folder: Path, protocol: str, bootstrap: str) -> dict[str, Any]:
    """The settings of a librdkafka client of a cluster in a folder."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = str(folder / "conf" / "ca.pem")
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret"}
    return settings


def jars() -> Path:
    """A folder with Kafka's jars, fetched by Maven at the first call."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kproto-real-kafka"
    if not all(list((cache / "lib").glob(f"{name}-*.jar")) for name in ("kafka_2.13", "kafka-tools-3")):
        real_kafka("install", str(cache))
    return cache / "lib"


@contextlib.contextmanager
def zookeeper_alone(folder: Path) -> Iterator[str]:
    """A real ZooKeeper without brokers that keeps its files in ``folder``; gives its address."""
    port = free_ports(1)
    real_kafka("install", str(folder), "--jars", str(jars()))
    try:
        real_kafka("start", str(folder), "--no-brokers", "--zk-port", str(port))
        yield f"127.0.0.1:{port}"
    finally:
        real_kafka("stop", str(folder), "--kill")
