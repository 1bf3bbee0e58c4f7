"""Settings: Kafka's names and defaults, and errors that say what would do."""

import ast
import dataclasses
from pathlib import Path

import pytest

import channel
from channel.config import BrokerConfigs, ChannelConfig
from channel.security import SecurityConfig
from kproto.errors import ConfigurationError

DEFAULTS = {
    "controller.socket.timeout.ms": 30000,
    "request.timeout.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
    "socket.connection.setup.timeout.max.ms": 30000,
    "control.plane.listener.name": None,
    "inter.broker.listener.name": None,
    "authorizer.class.name": None,
    "super.users": None,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "security.inter.broker.protocol": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "inter.broker.protocol.version": "3.9-IV0",
    "connections.max.idle.ms": 600000,
    "socket.request.max.bytes": 104857600,
    "queued.max.request.bytes": -1,
    "unclean.leader.election.enable": False,
    "delete.topic.enable": True,
    "default.replication.factor": 1,
    "num.partitions": 1,
    "zookeeper.session.timeout.ms": 18000,
    "auto.leader.rebalance.enable": True,
    "leader.imbalance.per.broker.percentage": 10,
    "leader.imbalance.check.interval.seconds": 300,
    "max.connections": 2**31 - 1,
    "max.connections.per.ip": 2**31 - 1,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1000,
    "metadata.max.age.ms": 300000,
    "metadata.max.idle.ms": 300000,
    "max.block.ms": 60000,
    "max.in.flight.requests.per.connection": 5,
    "send.buffer.bytes": 131072,
    "receive.buffer.bytes": 32768,
}


OWN = {"receive.max": 104_857_600, "receive.stall.max.ms": 30_000, "send.threads": "1"}
"""What Kafka does not have."""


def test_defaults_are_kafkas():
    assert ChannelConfig().settings() == DEFAULTS | OWN


def test_security_settings_may_stand_anywhere_among_the_others():
    config = ChannelConfig.of({"sasl.mechanism.inter.broker.protocol": "PLAIN", "ssl.keystore.location": "/k.pem",
                               "request.timeout.ms": 5000})  # fmt: skip
    assert (config.request_timeout_ms, config.security.ssl_keystore_location) == (5000, "/k.pem")


def test_settings_come_as_a_properties_file_has_them():
    config = ChannelConfig.of(
        {
            "request.timeout.ms": " 5000 ",
            "inter.broker.protocol.version": "2.8",
            "control.plane.listener.name": "CTRL",
            "unclean.leader.election.enable": "TRUE ",
            "delete.topic.enable": False,
        }
    )
    assert config.unclean_leader_election_enable
    assert not config.delete_topic_enable
    assert config.request_timeout_ms == 5000
    assert config.inter_broker_protocol_version == "2.8"
    assert config.control_plane_listener_name == "CTRL"
    assert ChannelConfig.of(config.settings()) == config


def test_a_text_may_be_empty_if_and_only_if_its_default_is_none() -> None:
    texts = [key for key, value in ChannelConfig().settings().items() if value is None or isinstance(value, str)]
    optional = {key for key in texts if DEFAULTS.get(key, "") is None}
    assert optional == {
        "control.plane.listener.name", "inter.broker.listener.name", "authorizer.class.name", "super.users",
    }  # fmt: skip
    for key in texts:
        for empty in ("", None):
            if key in optional:
                assert ChannelConfig.of({key: empty}) == ChannelConfig()
            else:
                with pytest.raises(ConfigurationError, match=f"{key} is empty"):
                    ChannelConfig.of({key: empty})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"request.timout.ms": 1}, "did you mean 'request.timeout.ms'"),
        ({"zzz": 1}, "no setting 'zzz'"),
        ({"request.timeout.ms": "soon"}, "must be a whole number"),
        ({"request.timeout.ms": True}, "must be a whole number"),
        ({"request.timeout.ms": 1.5}, "must be a whole number"),
        ({"request.timeout.ms": -1}, "request.timeout.ms is -1; it must be 0 to"),
        ({"max.in.flight.requests.per.connection": 0}, "must be 1 to"),
        ({"metadata.max.idle.ms": 4999}, "must be 5000 to"),
        ({"security.inter.broker.protocol": "TLS"}, "there are: PLAINTEXT, SSL"),
        ({"security.inter.broker.protocol": ""}, "is empty"),
        ({"security.inter.broker.protocol": 7}, "must be a text"),
        ({"inter.broker.protocol.version": "4.0"}, "4.0"),
        ({"control.plane.listener.name": "A", "inter.broker.listener.name": "A"}, "two names"),
        ({"listener.security.protocol.map": "INTERNAL=SSL"}, "takes LISTENER:PROTOCOL"),
        ({"listener.security.protocol.map": "INTERNAL:TLS"}, "'INTERNAL:TLS'"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "SASL_SSL"},
            "a listener of PLAINTEXT, but",
        ),
        ({"queued.max.request.bytes": 1000}, "less than one request may have"),
        ({"send.threads": "0"}, "takes a number from 1, or per_broker"),
        ({"send.threads": "per-broker"}, "takes a number from 1, or per_broker"),
        ({"receive.max": -2}, "must be -1 to"),
        ({"delete.topic.enable": "yes"}, "must be true or false"),
        ({"delete.topic.enable": 1}, "must be true or false"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, text):
    with pytest.raises(ConfigurationError, match=text):
        ChannelConfig.of(settings)


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ChannelConfig().request_timeout_ms = 1  # type: ignore[misc]


@pytest.mark.slow
def test_no_setting_is_read_by_nothing():
    """A setting that nothing reads is refused, or has no effect that anybody could notice."""
    root = Path(channel.__file__).parent
    read = set()
    for path in (*root.rglob("*.py"), *(root.parent / "kproto").rglob("*.py")):
        if path == root / "config.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("config"):
                read.add(node.attr)
    by_methods = {"security_inter_broker_protocol", "listener_security_protocol_map"}  # ``protocol_of`` and others
    unread = {each.name for each in dataclasses.fields(ChannelConfig)} - read - by_methods
    assert unread == set()


def test_single_brokers_have_settings_of_their_own():
    configs = BrokerConfigs.of({"num.partitions": 6, "broker.7.num.partitions": "2", "broker.7.request.timeout.ms": 9})
    assert configs.of_broker(1) == ChannelConfig(num_partitions=6)
    assert configs.of_broker(7) == ChannelConfig(num_partitions=2, request_timeout_ms=9)
    secured = configs.secured("SSL", SecurityConfig(ssl_keystore_location="/k.pem"))
    assert {secured.of_broker(i).security_inter_broker_protocol for i in (1, 7)} == {"SSL"}
    assert secured.of_broker(7).num_partitions == 2


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("broker.7.max.connections", "share this setting; write max.connections for all"),
        ("broker.7.ssl.keystore.location", "share this setting"),
        ("broker.7.num.partition", "did you mean 'num.partitions'"),
        ("broker.x.num.partitions", "no setting"),
    ],
)
def test_what_single_brokers_cannot_have_is_refused(key, message):
    with pytest.raises(ConfigurationError, match=message):
        BrokerConfigs.of({key: "1"})
