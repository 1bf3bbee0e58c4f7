"""The channel's settings under Kafka's own names, typed and checked once."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from channel.security import SecurityConfig, one_of
from channel.types import SecurityProtocol
from kproto.api import control_versions
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT32: Final = 2**31 - 1
_PROTOCOLS: Final = tuple(SecurityProtocol.__members__)


_SINGLE: Final = re.compile(r"broker\.(?P<id>\d+)\.(?P<key>.+)")
_SHARED: Final = (
    "connections.", "control.plane.", "inter.broker.listener.", "listener.", "max.connections", "queued.", "receive.",
    "sasl.", "security.", "socket.request.",
)  # fmt: skip
"""Beginnings of keys that the brokers of a process share: those of listeners and of the network thread."""


def _number(default: int, least: int = 0, most: int = _INT32) -> Any:
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelConfig:
    """The channel's settings. A field's name is Kafka's key with dots as underscores; times are in ms.

    >>> ChannelConfig.of({"request.timeout.ms": "5000"}).request_timeout_ms
    5000
    >>> ChannelConfig.of({"ssl.client.auth": "required"}).security.ssl_client_auth
    'required'
    >>> ChannelConfig.of({"request.timout.ms": 1})
    Traceback (most recent call last):
    kproto.errors.ConfigurationError: no setting 'request.timout.ms'; did you mean 'request.timeout.ms'?

    Three keys are kproto's own: ``receive.max`` bounds the bytes of a response, ``receive.stall.max.ms`` the time in
    which each 64th of a frame must arrive, and in which an accepted connection must complete TLS handshake and
    authentication, and ``send.threads`` is a number of send threads, or ``per_broker``.

    Defaults are those of a Kafka 3.9 broker; where only clients have the setting, of a client. -1 bytes means "as the
    system has it" for socket buffers and "no limit" for the others.

    Raises:
        ConfigurationError: A value is out of its range, or two contradict each other.
    """

    controller_socket_timeout_ms: int = _number(30_000)
    request_timeout_ms: int = _number(30_000)
    socket_connection_setup_timeout_ms: int = _number(10_000)
    socket_connection_setup_timeout_max_ms: int = _number(30_000)
    control_plane_listener_name: str | None = None
    inter_broker_listener_name: str | None = None
    listener_security_protocol_map: str = ",".join(f"{each}:{each}" for each in _PROTOCOLS)
    security_inter_broker_protocol: str = "PLAINTEXT"
    sasl_mechanism_inter_broker_protocol: str = "GSSAPI"
    inter_broker_protocol_version: str = "3.9-IV0"
    connections_max_idle_ms: int = _number(600_000, -1, 2**63 - 1)
    socket_request_max_bytes: int = _number(104_857_600, 1)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    queued_max_request_bytes: int = _number(-1, -1, 2**63 - 1)
    receive_max: int = _number(104_857_600, -1)
    receive_stall_max_ms: int = _number(30_000, -1)
    send_threads: str = "1"
    authorizer_class_name: str | None = None
    super_users: str | None = None
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    default_replication_factor: int = _number(1, 1, 32_767)
    num_partitions: int = _number(1, 1)
    zookeeper_session_timeout_ms: int = _number(18_000, 1)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = _number(10)
    leader_imbalance_check_interval_seconds: int = _number(300, 1)
    max_connections: int = _number(_INT32)
    max_connections_per_ip: int = _number(_INT32)
    reconnect_backoff_ms: int = _number(50)
    reconnect_backoff_max_ms: int = _number(1_000)
    retry_backoff_ms: int = _number(100)
    retry_backoff_max_ms: int = _number(1_000)
    metadata_max_age_ms: int = _number(300_000)
    metadata_max_idle_ms: int = _number(300_000, 5_000)
    max_block_ms: int = _number(60_000, 0, 2**63 - 1)
    max_in_flight_requests_per_connection: int = _number(5, 1)
    send_buffer_bytes: int = _number(131_072, -1)
    receive_buffer_bytes: int = _number(32_768, -1)

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value, limits = getattr(self, each.name), each.metadata
            if limits and not limits["least"] <= value <= limits["most"]:
                raise ConfigurationError(
                    f"{_key(each.name)} is {value}; it must be {limits['least']} to {limits['most']}"
                )
        one_of("security.inter.broker.protocol", self.security_inter_broker_protocol, _PROTOCOLS)
        if self.send_threads != "per_broker" and not (self.send_threads.isdecimal() and int(self.send_threads) > 0):
            raise ConfigurationError(f"send.threads is {self.send_threads!r}; it takes a number from 1, or per_broker")
        control = self.control_plane_listener_name
        if control is not None and control == self.inter_broker_listener_name:
            raise ConfigurationError(
                f"control.plane.listener.name and inter.broker.listener.name are both {control!r}; give them two names"
            )
        inter_broker, protocol = self.inter_broker_listener_name, self.security_inter_broker_protocol
        mapped = self._protocols().get(inter_broker or protocol, protocol)
        if inter_broker is not None and protocol not in ("PLAINTEXT", mapped):
            raise ConfigurationError(
                f"inter.broker.listener.name is {inter_broker}, a listener of {mapped}, but "
                f"security.inter.broker.protocol is {protocol}; leave one of the two out"
            )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigurationError(
                f"queued.max.request.bytes is {self.queued_max_request_bytes}, less than one request may have "
                f"(socket.request.max.bytes is {self.socket_request_max_bytes})"
            )
        control_versions(self.inter_broker_protocol_version)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among each other: by default its protocol's name."""
        return self.inter_broker_listener_name or self.security_inter_broker_protocol

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the security protocol of the brokers' listener of this name.

        It is that of ``listener.security.protocol.map``; a listener that the map does not name has
        ``security.inter.broker.protocol``.
        """
        return SecurityProtocol[self._protocols().get(listener, self.security_inter_broker_protocol)]

    def _protocols(self) -> dict[str, str]:
        protocols = {}
        for entry in filter(None, map(str.strip, self.listener_security_protocol_map.split(","))):
            listener, separator, protocol = (part.strip() for part in entry.rpartition(":"))
            if not separator or not listener or protocol not in _PROTOCOLS:
                raise ConfigurationError(
                    f"listener.security.protocol.map has {entry!r}; it takes LISTENER:PROTOCOL with commas between "
                    f"them, where PROTOCOL is one of {', '.join(_PROTOCOLS)}"
                )
            protocols[listener] = protocol
        return protocols

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Read settings from a mapping of Kafka's keys to numbers or texts, as a properties file has them.

        Raises:
            ConfigurationError: An unknown key, or a value that is none of its kind.
        """
        known = {_key(each.name): each for each in dataclasses.fields(cls) if each.name != "security"}
        values: dict[str, Any] = {}
        security = {key: value for key, value in settings.items() if SecurityConfig.has(key)}
        if security:
            values["security"] = SecurityConfig.of(security)
        for key, value in settings.items():
            if key in security:
                continue
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else "see the documentation of channel.config"
                raise ConfigurationError(f"no setting {key!r}; {hint}")
            values[known[key].name] = _read(key, value, known[key])
        return cls(**values)

    def secured(self, protocol: str, security: SecurityConfig) -> Self:
        """Copy these settings with another inter-broker protocol, and its certificates, users and SASL mechanism."""
        mechanism = security.sasl_mechanism or self.sasl_mechanism_inter_broker_protocol
        return dataclasses.replace(
            self,
            security=security,
            security_inter_broker_protocol=protocol,
            sasl_mechanism_inter_broker_protocol=mechanism,
        )

    def settings(self) -> dict[str, object]:
        """All settings but ``security`` under Kafka's keys, a mapping that ``of`` reads."""
        names = (each.name for each in dataclasses.fields(self) if each.name != "security")
        return {_key(name): getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class BrokerConfigs:
    """The settings of several brokers: those that all have, and those of single brokers.

    >>> configs = BrokerConfigs.of({"default.replication.factor": 3, "broker.2.default.replication.factor": 1})
    >>> [configs.of_broker(i).default_replication_factor for i in (1, 2)]
    [3, 1]

    Attributes:
        common: The settings of brokers without any of their own.
        single: The whole settings of the other brokers, by broker id.
    """

    common: ChannelConfig = field(default_factory=ChannelConfig)
    single: Mapping[int, ChannelConfig] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Read settings as ``ChannelConfig.of`` does; ``broker.ID.KEY`` is the key of one broker.

        Raises:
            ConfigurationError: As ``ChannelConfig.of``, or a setting of one broker that all of a process share.
        """
        common: dict[str, object] = {}
        single: dict[int, dict[str, object]] = {}
        for key, value in settings.items():
            found = _SINGLE.fullmatch(key)
            if found is None:
                common[key] = value
                continue
            own = found["key"]
            if own.startswith(_SHARED) or SecurityConfig.has(own):
                raise ConfigurationError(
                    f"{key}: the brokers of a process share this setting; write {own} for all of them"
                )
            single.setdefault(int(found["id"]), {})[own] = value
        return cls(ChannelConfig.of(common), {i: ChannelConfig.of({**common, **own}) for i, own in single.items()})

    def of_broker(self, broker_id: int) -> ChannelConfig:
        """Return the settings of a broker."""
        return self.single.get(broker_id, self.common)

    def secured(self, protocol: str, security: SecurityConfig) -> BrokerConfigs:
        """Copy these settings as ``ChannelConfig.secured`` does."""
        single = {i: config.secured(protocol, security) for i, config in self.single.items()}
        return BrokerConfigs(self.common.secured(protocol, security), single)


def _key(name: str) -> str:
    return name.replace("_", ".")


def _read(key: str, value: object, setting: dataclasses.Field[Any]) -> object:
    """Read a value as what the setting's default is: a flag, a number or a text."""
    if isinstance(setting.default, bool):
        flag = str(value).strip().lower()
        if flag not in ("true", "false"):
            raise ConfigurationError(f"{key} is {value!r}; it must be true or false")
        return flag == "true"
    if setting.metadata:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                return int(value)
        raise ConfigurationError(f"{key} is {value!r}; it must be a whole number")
    if value is None or value == "":
        if setting.default is None:
            return None
        raise ConfigurationError(f"{key} is empty; leave it out to take the default")
    if not isinstance(value, str):
        raise ConfigurationError(f"{key} is {value!r}; it must be a text")
    return value.strip()
