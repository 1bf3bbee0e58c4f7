"""Controller and brokers over TLS and SASL, with real sockets and certificates: what passes, and what fails how."""

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from asking import ask_port
from control_messages import leader_and_isr, leader_state, stop_replica, update_metadata
from network_peers import until
from tls_certificates import certificates

from channel.broker.administrator_requests import AdministratorRequests
from channel.broker.cluster import EmbeddedCluster
from channel.broker.hooks import BrokerHooks, RequestContext
from channel.config import ChannelConfig
from channel.errors import AuthenticationFailed, Disconnected, RequestTimeout
from channel.metadata.clients import ClusterClient, MetadataSender
from channel.network import sasl
from channel.network.recorder import PcapngRecorder
from channel.security import Password, SecurityConfig
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint, SecurityProtocol
from kproto.api import ApiKey
from kproto.capture import exchanges
from kproto.messages import ApiVersionsRequest

SECURED = [SecurityProtocol.SSL, SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL]
MECHANISM = "SCRAM-SHA-512"


def pem(text: str) -> tuple[Password, str]:
    key, _, chain = text.partition("-----BEGIN CERTIFICATE-----")
    return Password(key), "-----BEGIN CERTIFICATE-----" + chain


def broker_security(certificate: str | None = None, **more: Any) -> SecurityConfig:
    key, chain = pem(certificate or certificates().server)
    settings: dict[str, Any] = {
        "ssl_keystore_key": key,
        "ssl_keystore_certificate_chain": chain,
        "ssl_truststore_certificates": certificates().authority,
        "sasl_enabled_mechanisms": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "users": {"controller": Password("secret")},
    }
    return SecurityConfig(**settings | more)


def controller_security(**more: Any) -> SecurityConfig:
    settings: dict[str, Any] = {
        "ssl_truststore_certificates": certificates().authority,
        "sasl_mechanism": MECHANISM,
        "sasl_username": "controller",
        "sasl_password": Password("secret"),
    }
    return SecurityConfig(**settings | more)


@contextlib.contextmanager
def secured(
    protocol: SecurityProtocol,
    *,
    brokers: SecurityConfig | None = None,
    controller: SecurityConfig | None = None,
    count: int = 1,
    host: str = "localhost",
    **options: Any,
) -> Iterator[tuple[EmbeddedCluster, ControllerChannelManager]]:
    """A cluster and a channel manager that is connected to it, both secured."""
    config = ChannelConfig(security_inter_broker_protocol=protocol.name, security=controller or controller_security())
    cluster = EmbeddedCluster(count, protocol=protocol, security=brokers or broker_security())
    with cluster, ControllerChannelManager(9, lambda: 1, config, **options) as manager:
        manager.start(Broker(member.id, (EndPoint(host, member.port, protocol.name, protocol),)) for member in cluster)
        yield cluster, manager


def answered(manager: ControllerChannelManager, broker_id: int, message: Any, version: int) -> Any:
    answers: SimpleQueue[Any] = SimpleQueue()
    manager.send_request(broker_id, SingleRequest(message, version), answers.put)
    return answers.get(timeout=30)


# ---- what passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", SECURED, ids=lambda p: p.name)
@pytest.mark.parametrize("send_threads", [1, "per_broker"])
def test_all_three_requests_reach_secured_brokers(protocol: SecurityProtocol, send_threads: Any) -> None:
    with secured(protocol, count=3, send_threads=send_threads) as (cluster, manager):
        for member in cluster:
            sender = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": member.epoch}
            requests = [
                (update_metadata({}, **sender), 8),
                (leader_and_isr({"t": [leader_state(0, member.id)]}, **sender), 5),
                (stop_replica({"t": [(0, 0, True)]}, **sender), 4),
            ]
            for message, version in requests:
                assert answered(manager, member.id, message, version).error_code == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_is_accepted(mechanism: str) -> None:
    ours = controller_security(sasl_mechanism=mechanism)
    with secured(SecurityProtocol.SASL_PLAINTEXT, controller=ours) as (cluster, manager):
        assert answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8).error_code == 0


def test_kafkas_key_for_the_mechanism_between_brokers_is_enough() -> None:
    settings = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "sasl.jaas.config": 'x.ScramLoginModule required username="controller" password="secret";',
    }
    protocol = SecurityProtocol.SASL_PLAINTEXT
    cluster = EmbeddedCluster(1, protocol=protocol, security=broker_security())
    with cluster, ControllerChannelManager(9, lambda: 1, ChannelConfig.of(settings)) as manager:
        manager.add_broker(Broker(0, (EndPoint("localhost", cluster[0].port, protocol.name, protocol),)))
        assert answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8).error_code == 0


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_certificates_and_both_versions_of_tls(version: str) -> None:
    key, chain = pem(certificates().client)
    ours = controller_security(ssl_keystore_key=key, ssl_keystore_certificate_chain=chain)
    theirs = broker_security(ssl_client_auth="required", ssl_enabled_protocols=(version,))
    with secured(SecurityProtocol.SSL, brokers=theirs, controller=ours) as (cluster, manager):
        assert answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8).error_code == 0


def test_a_large_update_passes_through_tls_whole() -> None:
    big: dict[str, list[Any]] = {f"{i:05d}" + "-" * 200: [] for i in range(10_000)}
    with secured(SecurityProtocol.SSL) as (cluster, manager):
        message = update_metadata(big, broker_epoch=cluster[0].epoch)
        assert answered(manager, 0, message, 8).error_code == 0


@pytest.mark.parametrize("announced", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT, 9])
@pytest.mark.parametrize("settings", [
    {"security.inter.broker.protocol": "SASL_SSL"},
    {"inter.broker.listener.name": "SASL_SSL"},
    {"inter.broker.listener.name": "INTERNAL", "listener.security.protocol.map": "INTERNAL:SASL_SSL"},
    {"control.plane.listener.name": "CONTROL", "security.inter.broker.protocol": "SASL_SSL"},
])  # fmt: skip
def test_a_brokers_registration_does_not_choose_the_security_of_its_connection(
    announced: int, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    config = dataclasses.replace(ChannelConfig.of(settings), security=controller_security())
    names = [config.control_plane_listener_name, config.inter_broker_listener]
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,
        ControllerChannelManager(9, lambda: 1, config=config) as manager,
    ):
        endpoints = tuple(EndPoint("localhost", broker.getsockname()[1], name, announced) for name in names if name)
        manager.start([Broker(0, endpoints)])
        manager.send_request(0, SingleRequest(update_metadata({}, broker_epoch=1), 8))
        accepted, _ = broker.accept()
        with accepted:
            accepted.settimeout(30)
            first = accepted.recv(3)
        assert manager.failed_threads == []
    assert first == b"\x16\3\1"  # a TLS handshake
    assert "broker 0 has registered listener" in caplog.text


def test_running_ends_take_new_certificates_when_their_files_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server, client = tmp_path / "server.pem", tmp_path / "client.pem"
    server.write_text(certificates().other_host)
    client.write_text(certificates().stranger)
    files = {"ssl_keystore_key": None, "ssl_keystore_certificate_chain": None}
    theirs = broker_security(ssl_client_auth="required", ssl_keystore_location=str(server), **files)
    ours = controller_security(ssl_keystore_location=str(client))
    answers: SimpleQueue[int] = SimpleQueue()
    with secured(SecurityProtocol.SSL, brokers=theirs, controller=ours) as (cluster, manager):
        manager.send_request(0, SingleRequest(update_metadata({}, broker_epoch=1), 8), lambda _: answers.put(1))
        until(lambda: "is not accepted" in caplog.text)
        server.write_text(certificates().server)
        until(lambda: "alert" in caplog.text)
        client.write_text(certificates().client)
        assert answers.get(timeout=60) == 1
        server.write_text("no certificate")
        epoch = cluster.restart(0)
        manager.send_request(0, SingleRequest(update_metadata({}, broker_epoch=epoch), 8), lambda _: answers.put(2))
        assert answers.get(timeout=60) == 2
        assert "the former ones are kept" in caplog.text
    assert "new connections use the changed certificates" in caplog.text


def test_a_broker_that_makes_the_controller_compute_stalls_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One send thread has both brokers; the computation for one is held until the other has answered."""
    hostile, answered = threading.Event(), threading.Event()
    compute = sasl._scram_client_final

    def held(scram: Any) -> bytes:
        if str(scram.username) == "slow":
            hostile.set()
            assert answered.wait(60)
        return compute(scram)

    monkeypatch.setattr(sasl, "_scram_client_final", held)
    made, real = [], sasl.client_tokens

    def client_tokens(name: str, credentials: Any) -> Any:
        made.append(name)  # the first connection is that to the slow broker
        user = dataclasses.replace(credentials, username="slow") if len(made) == 1 else credentials
        return real(name, user)

    monkeypatch.setattr(sasl, "client_tokens", client_tokens)
    theirs = broker_security(users={"controller": Password("secret"), "slow": Password("secret")})
    protocol = SecurityProtocol.SASL_PLAINTEXT
    config = ChannelConfig(security_inter_broker_protocol=protocol.name, security=controller_security())
    with (
        EmbeddedCluster(2, protocol=protocol, security=theirs) as cluster,
        ControllerChannelManager(9, lambda: 1, config=config) as manager,
    ):
        answers: SimpleQueue[int] = SimpleQueue()
        for member in cluster:
            manager.add_broker(Broker(member.id, (EndPoint("localhost", member.port, protocol.name, protocol),)))
            request = SingleRequest(update_metadata({}, broker_epoch=1), 8)
            manager.send_request(member.id, request, lambda _, broker_id=member.id: answers.put(broker_id))
            if member.id == 0:
                assert hostile.wait(60)
        assert answers.get(timeout=60) == 1
        answered.set()
        assert answers.get(timeout=60) == 0


@pytest.mark.parametrize("protocol", SECURED, ids=lambda p: p.name)
def test_a_connection_that_never_authenticates_is_closed_in_time(protocol: SecurityProtocol) -> None:
    config = ChannelConfig(receive_stall_max_ms=200, security=broker_security())
    with (
        EmbeddedCluster(1, protocol=protocol, config=config) as cluster,
        contextlib.ExitStack() as stack,
    ):
        socks = [stack.enter_context(socket.create_connection(("localhost", cluster[0].port), 60)) for _ in range(3)]
        socks[1].sendall(b"\x16")  # what begins a handshake, and a frame's length
        for sock in socks:
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""


def test_a_recording_of_a_secured_channel_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "secured.pcapng"
    with PcapngRecorder(path) as recorder, secured(SecurityProtocol.SASL_SSL, recorder=recorder) as (cluster, manager):
        answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8)
    (exchange,) = exchanges(path)
    assert exchange.response_message.error_code == 0
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize("protocol", SECURED, ids=lambda p: p.name)
def test_a_broker_that_restarts_is_reached_again(protocol: SecurityProtocol) -> None:
    with secured(protocol) as (cluster, manager):
        answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8)
        cluster.kill(0)
        answers: SimpleQueue[Any] = SimpleQueue()
        manager.send_request(0, SingleRequest(update_metadata({}, broker_epoch=-1), 8), answers.put)
        cluster.restart(0)
        assert answers.get(timeout=30).error_code == 0


# ---- who asks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "certificate", "principal"),
    [
        (SecurityProtocol.PLAINTEXT, False, "User:ANONYMOUS"),
        (SecurityProtocol.SSL, False, "User:ANONYMOUS"),
        (SecurityProtocol.SSL, True, "User:CN=client"),
        (SecurityProtocol.SASL_PLAINTEXT, False, "User:controller"),
        (SecurityProtocol.SASL_SSL, True, "User:controller"),
    ],
)
def test_a_hook_decides_by_the_principal_that_was_established(
    protocol: SecurityProtocol, certificate: bool, principal: str
) -> None:
    asked: list[str] = []

    def authorize(context: RequestContext) -> bool:
        asked.append(context.principal)
        return context.principal == "User:controller"

    own: dict[str, Any] = {}
    if certificate:
        key, chain = pem(certificates().client)
        own = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": chain}
    theirs = broker_security(ssl_client_auth="requested")
    with secured(protocol, brokers=theirs, controller=controller_security(**own)) as (cluster, manager):
        cluster[0].broker.hooks = BrokerHooks(authorize=authorize)
        code = answered(manager, 0, update_metadata({}, broker_epoch=-1), 8).error_code
    assert code == (0 if principal == "User:controller" else 31)
    (seen,) = asked
    assert seen.partition(",OU=")[0] == principal  # the certificate's subject goes on


# ---- what fails ------------------------------------------------------------------------------------------------------


def test_a_caller_of_a_metadata_sender_hears_of_a_rejected_password() -> None:
    protocol = SecurityProtocol.SASL_PLAINTEXT
    config = ChannelConfig(security=controller_security(sasl_password=Password("wrong")))
    with (
        EmbeddedCluster(1, protocol=protocol, security=broker_security()) as cluster,
        MetadataSender([("localhost", cluster[0].port)], config, protocol=protocol) as sender,
        pytest.raises(AuthenticationFailed),
    ):
        sender.wait_for_topic("orders")


def error_of(protocol: SecurityProtocol, port: int, security: SecurityConfig, timeout_ms: int = 30_000) -> Exception:
    """How asking a broker ends."""
    client = ClusterClient([("localhost", port)], protocol=protocol, security=security, timeout_ms=timeout_ms)
    with pytest.raises((Disconnected, AuthenticationFailed, RequestTimeout)) as caught:
        client.ask_any()
    return caught.value


WRONG = {
    "another host's certificate": ({"certificate": "other_host"}, {}, "hostname mismatch"),
    "expired": ({"certificate": "expired"}, {}, "expired"),
    "an unknown authority": ({"certificate": "stranger"}, {}, "local issuer"),
    "no client certificate": ({"ssl_client_auth": "required"}, {}, "certificate required|handshake"),
    "no common version": (
        {"ssl_enabled_protocols": ("TLSv1.3",)}, {"ssl_enabled_protocols": ("TLSv1.2",)}, "version|handshake"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_tls_that_cannot_be_agreed_on_is_a_failed_authentication(case: str) -> None:
    theirs, ours, reason = WRONG[case]
    if "certificate" in theirs:
        theirs = {**theirs, "certificate": getattr(certificates(), str(theirs["certificate"]))}
    with EmbeddedCluster(1, protocol=SecurityProtocol.SSL, security=broker_security(**theirs)) as cluster:  # type: ignore[arg-type]
        error = error_of(SecurityProtocol.SSL, cluster[0].port, controller_security(**ours))
    assert isinstance(error, AuthenticationFailed)
    assert any(part in str(error).lower() for part in reason.split("|")), error


@pytest.mark.parametrize("protocol", [SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL], ids=lambda p: p.name)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_told_without_repeating_it(protocol: SecurityProtocol, mechanism: str) -> None:
    wrong = controller_security(sasl_mechanism=mechanism, sasl_password=Password("hunter2"))
    with EmbeddedCluster(1, protocol=protocol, security=broker_security()) as cluster:
        error = error_of(protocol, cluster[0].port, wrong)
    assert isinstance(error, AuthenticationFailed)
    assert "invalid username or password" in str(error)
    assert "hunter2" not in str(error)


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    theirs = broker_security(sasl_enabled_mechanisms=("SCRAM-SHA-256",))
    with EmbeddedCluster(1, protocol=SecurityProtocol.SASL_PLAINTEXT, security=theirs) as cluster:
        error = error_of(SecurityProtocol.SASL_PLAINTEXT, cluster[0].port, controller_security(sasl_mechanism="PLAIN"))
    assert "it offers SCRAM-SHA-256" in str(error)


@pytest.mark.parametrize("protocol", SECURED, ids=lambda p: p.name)
def test_a_peer_that_stalls_in_the_handshake_ends_in_bounded_time(protocol: SecurityProtocol) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        error = error_of(protocol, silent.getsockname()[1], controller_security(), 200)
        assert isinstance(error, Disconnected)


@pytest.mark.parametrize("protocol", SECURED, ids=lambda p: p.name)
@pytest.mark.parametrize("allowed", [0, 1, 5, 100, 600, 1500])
def test_a_connection_that_is_cut_in_the_handshake_is_tried_again(protocol: SecurityProtocol, allowed: int) -> None:
    """A relay that cuts its first connections after this number of the broker's bytes."""
    config = ChannelConfig(security_inter_broker_protocol=protocol.name, security=controller_security())
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(1, protocol=protocol, security=broker_security()))
        port = stack.enter_context(cutting_relay(cluster[0].port, allowed))
        manager = stack.enter_context(ControllerChannelManager(9, lambda: 1, config))
        manager.add_broker(Broker(0, (EndPoint("localhost", port, protocol.name, protocol),)))
        assert answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8).error_code == 0


@contextlib.contextmanager
def cutting_relay(port: int, allowed: int, cut: int = 2) -> Iterator[int]:
    listening = socket.create_server(("localhost", 0))
    open_sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def copy(source: socket.socket, target: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := source.recv(min(left, 65_536))):
                left -= len(data)
                target.sendall(data)
            for each in (source, target):
                each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            for number in range(1000):
                near, _ = listening.accept()
                far = socket.create_connection(("localhost", port))
                open_sockets.extend((near, far))
                left = allowed if number < cut else 1 << 40
                for source, target, limit in ((near, far, 1 << 40), (far, near, left)):
                    threads.append(threading.Thread(target=copy, args=(source, target, limit)))
                    threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listening.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listening.close()
        for each in open_sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for each in open_sockets:
            each.close()


@pytest.mark.parametrize("protocol", SECURED, ids=lambda p: p.name)
def test_strangers_bytes_end_their_connection_and_no_other(protocol: SecurityProtocol) -> None:
    with secured(protocol) as (cluster, manager):
        for hello in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x04abcd", bytes(100), b"\xff" * 100):
            with socket.create_connection((cluster[0].host, cluster[0].port), timeout=30) as stranger:
                stranger.sendall(hello)
                with contextlib.suppress(OSError):
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(1000):
                        pass
        assert answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8).error_code == 0


def test_a_plaintext_request_to_a_secured_listener_is_never_served() -> None:
    with EmbeddedCluster(1, protocol=SecurityProtocol.SASL_PLAINTEXT, security=broker_security()) as cluster:
        error = error_of(SecurityProtocol.PLAINTEXT, cluster[0].port, SecurityConfig())
        assert isinstance(error, Disconnected)
        until(lambda: not cluster[0].listener.connections)  # type: ignore[union-attr]


def test_a_client_is_told_all_apis_before_it_has_authenticated() -> None:
    """A client may ask for the versions once, before it authenticates; librdkafka does."""
    hooks = BrokerHooks(controller=AdministratorRequests(None, None))
    protocol = SecurityProtocol.SASL_PLAINTEXT
    with EmbeddedCluster(1, hooks=lambda _: hooks, protocol=protocol, security=broker_security()) as cluster:
        answer = ask_port(cluster[0].port, ApiVersionsRequest(), 0)
    assert {ApiKey.CREATE_TOPICS, ApiKey.METADATA, ApiKey.SASL_HANDSHAKE} <= {row.api_key for row in answer.api_keys}


def test_secrets_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    wrong = dataclasses.replace(controller_security(), sasl_password=Password("hunter2"))
    with EmbeddedCluster(1, protocol=SecurityProtocol.SASL_SSL, security=broker_security()) as cluster:
        error_of(SecurityProtocol.SASL_SSL, cluster[0].port, wrong)
    with secured(SecurityProtocol.SASL_SSL) as (cluster, manager):
        answered(manager, 0, update_metadata({}, broker_epoch=cluster[0].epoch), 8)
    text = caplog.text
    assert "hunter2" not in text
    assert "secret" not in text
