"""Real brokers of Kafka 3.9.1 over TLS and SASL take all three requests from the channel manager."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from control_messages import leader_and_isr, leader_state, stop_replica, update_metadata
from real_brokers import free_ports, real_kafka

from channel.cluster_client import ClusterClient
from channel.config import ChannelConfig
from channel.controller.manager import ControllerChannelManager
from channel.controller.requests import SingleRequest
from channel.errors import AuthenticationFailed
from channel.security import Password, SecurityConfig
from channel.types import Broker, EndPoint, SecurityProtocol
from kproto import messages as c

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def secured(request, tmp_path, kafka_jars):
    """A real broker whose listener is secured: its protocol, port, epoch, and the settings to reach it."""
    folder = str(tmp_path)
    real_kafka("install", folder, "--jars", str(kafka_jars))
    base = free_ports(2)
    try:
        started = real_kafka(
            "start", folder, "--brokers", "1", "--external-controller", "77", "--security", request.param,
            "--base-port", str(base), "--zk-port", str(base + 1),
        )  # fmt: skip
        settings: dict[str, Any] = {}
        if "SSL" in request.param.split("_"):
            settings["ssl_truststore_location"] = str(Path(folder) / "conf" / "ca.pem")
        if "SASL" in request.param:
            settings |= {"sasl_mechanism": "PLAIN", "sasl_username": "admin", "sasl_password": Password("admin-secret")}
        yield SecurityProtocol[request.param], base, started["brokers"]["0"]["broker_epoch"], settings
    finally:
        real_kafka("stop", folder, "--kill")


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
            assert answered.wait(30)
            assert answers[0].error_code == 0
    with ClusterClient([("127.0.0.1", port)], protocol=protocol, security=security) as client:
        view = client.ask_any()
    assert [(b.id, b.port) for b in view.brokers] == [(0, port)]
    if protocol.uses_sasl:
        wrong = SecurityConfig(**{**settings, "sasl_password": Password("guess")})
        with (
            ClusterClient([("127.0.0.1", port)], protocol=protocol, security=wrong) as client,
            pytest.raises(AuthenticationFailed, match="refused user and password"),
        ):
            client.ask_any()
