"""Real brokers of Kafka 3.9.1 over TLS and SASL take all three requests from the channel manager."""

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from control_messages import leader_and_isr, leader_state, stop_replica, update_metadata
from free_ports import free_ports
from real_brokers import real_kafka

from channel.config import ChannelConfig
from channel.errors import AuthenticationFailed, Disconnected
from channel.metadata.clients import ClusterClient
from channel.metrics import Metrics
from channel.network.client import MetadataUpdater, NetworkClient
from channel.network.node_client import await_ready, send_and_receive
from channel.network.request import MessageRequest
from channel.network.secured import client_channels
from channel.network.selector import Selector
from channel.network.selector_metrics import SelectorMetrics
from channel.security import Password, SecurityConfig
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint, Node, SecurityProtocol
from kproto import messages as c

pytestmark = pytest.mark.kafka


@contextlib.contextmanager
def broker(protocol, folder, jars, *properties):
    """A real broker whose listener is secured: its protocol, port, epoch, and the settings to reach it."""
    real_kafka("install", folder, "--jars", str(jars))
    base = free_ports(2)
    try:
        started = real_kafka(
            "start", folder, "--brokers", "1", "--external-controller", "77", "--security", protocol.name,
            "--base-port", str(base), "--zk-port", str(base + 1),
            *(part for each in properties for part in ("--prop", each)),
        )  # fmt: skip
        settings: dict[str, Any] = {}
        if protocol.uses_tls:
            settings["ssl_truststore_location"] = str(Path(folder) / "conf" / "ca.pem")
        if protocol.uses_sasl:
            settings |= {"sasl_mechanism": "PLAIN", "sasl_username": "admin", "sasl_password": Password("admin-secret")}
        yield protocol, base, started["brokers"]["0"]["broker_epoch"], settings
    finally:
        real_kafka("stop", folder, "--kill")


@pytest.fixture(params=["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def secured(request, tmp_path, kafka_jars):
    with broker(SecurityProtocol[request.param], str(tmp_path), kafka_jars) as started:
        yield started


def test_all_three_requests_and_metadata_pass_and_a_wrong_password_does_not(secured):
    protocol, port, epoch, settings = secured
    security = SecurityConfig(**settings)
    config = ChannelConfig(security_inter_broker_protocol=protocol.name, security=security)
    sender = {"controller_id": 77, "controller_epoch": 5, "broker_epoch": epoch}
    endpoint = c.UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener=protocol.name, security_protocol=protocol)
    live = [c.UpdateMetadataBroker(id=0, endpoints=[endpoint], rack=None)]
    requests = [
        (update_metadata({}, live, **sender), 8),
        (
            leader_and_isr(
                {"t": [leader_state(0, 0, is_new=True, controller_epoch=5, replicas=[0], isr=[0])]}, **sender
            ),
            7,
        ),
        (stop_replica({"t": [(0, 0, True)]}, **sender), 4),
    ]
    with ControllerChannelManager(77, lambda: 5, config) as manager:
        manager.add_broker(Broker(0, (EndPoint("127.0.0.1", port, protocol.name, protocol),)))
        for message, version in requests:
            answered, answers = threading.Event(), []
            manager.send_request(
                0, SingleRequest(message, version), lambda a, e=answered, s=answers: (s.append(a), e.set())
            )
            assert answered.wait(60)
            assert answers[0].error_code == 0
    view = ClusterClient([("127.0.0.1", port)], protocol=protocol, security=security).ask_any()
    assert [(b.id, b.port) for b in view.brokers] == [(0, port)]
    if protocol.uses_sasl:
        wrong = SecurityConfig(**{**settings, "sasl_password": Password("guess")})
        client = ClusterClient([("127.0.0.1", port)], protocol=protocol, security=wrong)
        with pytest.raises(AuthenticationFailed, match="refused user and password"):
            client.ask_any()


def test_a_session_is_renewed_as_long_as_requests_come_and_the_broker_ends_it_else(tmp_path, kafka_jars, monkeypatch):
    lifetime_s = 8.0
    monkeypatch.setattr("channel.network.authenticator._RENEW_FROM", 0.4)  # a busy machine has half of it to renew
    properties = f"connections.max.reauth.ms={lifetime_s * 1000:.0f}"
    with broker(SecurityProtocol.SASL_PLAINTEXT, str(tmp_path), kafka_jars, properties) as (
        protocol,
        port,
        _,
        settings,
    ):
        metrics, node = Metrics(), Node(0, "127.0.0.1", port)
        selector = Selector(
            metrics=SelectorMetrics(metrics, "test"),
            channel_builder=client_channels(protocol, SecurityConfig(**settings), "test"),
        )
        client = NetworkClient(selector, MetadataUpdater([node]), "test")

        def ask():
            assert await_ready(client, node, 60_000)
            request = client.new_request("0", MessageRequest(c.MetadataRequest(topics=[])))
            assert send_and_receive(client, request).body.cluster_id

        def count(name):
            return metrics.value("test-metrics", f"{name}-total")

        try:
            deadline = time.monotonic() + 60
            while count("successful-reauthentication") < 2:
                assert time.monotonic() < deadline, "the session is not renewed"
                ask()
                time.sleep(0.01)
            assert (count("connection-creation"), count("connection-close")) == (1, 0)
            selector.channels["0"].authenticator.renews_ns = 0
            time.sleep(lifetime_s + 0.2)
            with pytest.raises(Disconnected):
                ask()
        finally:
            client.close()
