"""Security settings under Kafka's own names: certificates and trust for TLS, mechanisms and passwords for SASL.

Certificates and keys are PEM, as files (``ssl.keystore.location``, ``ssl.truststore.location``) or as text
(``ssl.keystore.certificate.chain``, ``ssl.keystore.key``, ``ssl.truststore.certificates``). No secret appears in a log,
an error or a repr.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from channel.types import SecurityProtocol
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms that both ends of the channel speak."""

_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_LOGIN_MODULE: Final = re.compile(r"\s*[\w.]*\.(?P<module>\w+LoginModule)\s+required(?P<options>.*?);?\s*\Z", re.DOTALL)
_LOGIN_OPTION: Final = re.compile(r"""\s*(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s;"]+))""")


_KEY: Final = re.compile(r"[\w.-]+")


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the settings of a properties file: ``key=value`` lines, ``#`` comments, ``\\`` before a line's continuation.

    Raises:
        ConfigurationError: The file cannot be read, or a line is no setting.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigurationError(f"cannot read {path}: {getattr(e, 'strerror', None) or 'it is no text'}") from e
    settings = {}
    for number, line in enumerate(re.sub(r"\\\r?\n[ \t]*", "", text).splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, separator, value = stripped.partition("=")
        if not separator or not _KEY.fullmatch(key.strip()):
            raise ConfigurationError(f"{path}: line {number} is no KEY=VALUE")
        settings[key.strip()] = value.strip().replace("\\n", "\n")
    return settings


def read_security(
    path: str | os.PathLike[str] | None, *, serves: bool = False, listener: str | None = None
) -> tuple[SecurityProtocol, SecurityConfig]:
    """Read the security protocol and settings of a properties file; plaintext without a file.

    The file may be a Kafka client's or broker's own: keys that have nothing to do with security are ignored. For a
    listener, ``listener.name.<listener>.`` before a key makes it count for this listener alone, and a key that would
    make it stricter than it is made here is an error, never ignored.

    Args:
        serves: Whether the settings are those of a listener; a client passes over what concerns listeners alone.
        listener: The listener's name, by default the file's ``inter.broker.listener.name`` or the protocol's name.

    Raises:
        ConfigurationError: The file cannot be read, or a setting is wrong or not supported.
    """
    if path is None:
        return SecurityProtocol.PLAINTEXT, SecurityConfig()
    settings = read_properties(path)
    protocol = _protocol(path, settings, serves=serves)
    if serves:
        settings = _of_listener(path, settings, listener or settings.get("inter.broker.listener.name") or protocol.name)
        for key, value in settings.items():
            if _tightens(key, value):
                raise ConfigurationError(
                    f"{path}: {key} is not supported in a file of security settings, and the listener would be less "
                    f"strict without it; {_INSTEAD.get(key, 'remove it, if that is what you want')}"
                )
    ours = {key: value for key, value in settings.items() if SecurityConfig.has(key)}
    named = settings.keys() & {"security.protocol", "security.inter.broker.protocol", "listener.security.protocol.map"}
    if serves and ours and not named:
        raise ConfigurationError(
            f"{path} has {next(iter(ours))}, but no security.protocol: the listener would be PLAINTEXT; "
            "name SSL, SASL_PLAINTEXT, SASL_SSL, or PLAINTEXT"
        )
    return protocol, SecurityConfig.of(ours)


_LISTENERS: Final = re.compile(
    r"listener\.name\.(?P<listener>[^.]+)\.(?P<key>(?:[\w-]+\.)?(?:ssl|sasl|connections)\..+)"
)
_OF_MECHANISM: Final = re.compile(r"(?P<mechanism>[\w-]+)\.(?P<key>(?:sasl|connections\.max\.reauth)\..+)")
_STRICT: Final = (
    "allow.everyone.", "authorizer.", "connections.max.reauth.", "delegation.token.", "early.start.listeners",
    "listener.name.", "max.connection", "principal.builder.", "security.providers", "super.users", "zookeeper.set.acl",
    "zookeeper.ssl.",
)  # fmt: skip
"""Beginnings of Kafka's keys that restrict who may do what."""

_INSTEAD: Final = {
    "authorizer.class.name": "kproto controller takes it from the file of --config, embedded brokers have none",
    "super.users": "kproto controller takes it from the file of --config, embedded brokers have none",
    "zookeeper.set.acl": "znodes are made without ACLs",
}


def _protocol(path: object, settings: Mapping[str, str], *, serves: bool) -> SecurityProtocol:
    """Return the protocol of a file: ``security.protocol``, for a listener also ``security.inter.broker.protocol``."""
    names = tuple(SecurityProtocol.__members__)
    given = {"security.protocol": settings.get("security.protocol", "").upper()}
    if serves:
        given["security.inter.broker.protocol"] = settings.get("security.inter.broker.protocol", "").upper()
    found = {key: name for key, name in given.items() if name}
    for key, name in found.items():
        one_of(key, name, names)
    own = settings.get("inter.broker.listener.name") or next(iter(found.values()), "PLAINTEXT")
    mapped = dict(
        entry.strip().rpartition(":")[::2] for entry in settings.get("listener.security.protocol.map", "").split(",")
    ).get(own)
    if serves and mapped:
        found["listener.security.protocol.map"] = mapped.strip().upper()
        one_of("listener.security.protocol.map", found["listener.security.protocol.map"], names)
    if len(set(found.values())) > 1:
        raise ConfigurationError(f"{path}: {' and '.join(f'{k} {v}' for k, v in found.items())} differ; keep one")
    return SecurityProtocol[next(iter(found.values()), "PLAINTEXT")]


def _of_listener(path: object, settings: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the settings that count for a listener: its own take the place of the common ones.

    Raises:
        ConfigurationError: A key names another listener.
    """
    common, own = {}, {}
    for key, value in settings.items():
        found = _LISTENERS.fullmatch(key)
        if found is None:
            common[key] = value
        elif found["listener"].lower() == listener.lower():
            own[found["key"]] = value
        else:
            raise ConfigurationError(
                f"{path}: {key} is for the listener {found['listener']}, and this one is {listener}; remove it, or "
                "name the listener with inter.broker.listener.name"
            )
    chosen = common | own
    for key in list(chosen):
        of_mechanism = _OF_MECHANISM.fullmatch(key)
        if of_mechanism is None or key.startswith("listener.name."):
            continue
        value, plain = chosen.pop(key), of_mechanism["key"]
        one_of(key, of_mechanism["mechanism"].upper(), MECHANISMS)
        if plain in own:
            raise ConfigurationError(f"{path}: {key} contradicts another {plain}; keep one")
        own[plain] = chosen[plain] = value
    return chosen


def _tightens(key: str, value: str) -> bool:
    """Whether ignoring a setting would make a listener less strict than the file says."""
    if SecurityConfig.has(key) or value.strip().lower() in ("", "false"):
        return False
    return key.startswith(_STRICT) or ".ssl." in key or ".sasl." in key


class Password(str):
    """A secret text that its repr does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and the password.

    >>> Credentials("admin", Password("secret"))
    Credentials(username='admin', password=[hidden])
    """

    username: str
    password: Password


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """TLS and SASL settings. A field's name is Kafka's key with dots as underscores.

    >>> SecurityConfig.of({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}).credentials
    Credentials(username='a', password=[hidden])

    Attributes:
        ssl_keystore_location, ssl_keystore_certificate_chain, ssl_keystore_key, ssl_key_password: This end's
            certificate and key: a PEM file with both, or their texts; and the password of an encrypted key.
        ssl_truststore_location, ssl_truststore_certificates: Trusted certificate authorities: a PEM file or its text;
            None for the system's.
        ssl_endpoint_identification_algorithm: ``https`` checks that the server's certificate names the host of the
            connection; empty does not.
        ssl_enabled_protocols: TLS versions, of ``TLSv1.2`` and ``TLSv1.3``.
        ssl_cipher_suites: OpenSSL's cipher list for TLS 1.2; None for the default.
        ssl_client_auth: Whether a server wants certificates of its clients: ``none``, ``requested``, ``required``.
        sasl_mechanism: The mechanism by which a client authenticates.
        sasl_mechanism_controller_protocol: The mechanism at a KRaft controller; None for ``sasl.mechanism``.
        sasl_enabled_mechanisms: The mechanisms that a server offers.
        sasl_username, sasl_password: A client's user and password. ``sasl.jaas.config`` may hold both instead.
        users: The users that a server accepts, name to password.
        connections_max_reauth_ms: Time after which a client must renew its SASL session with a server; 0 for no limit.
        connection_failed_authentication_delay_ms: Time after a failed SASL authentication at which a server answers the
            client and closes the connection.

    Raises:
        ConfigurationError: Two settings contradict each other, a value is unknown, or a file cannot be read.
    """

    ssl_keystore_location: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: Password | None = None
    ssl_key_password: Password | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: str | None = None
    ssl_client_auth: str = "none"
    sasl_mechanism: str | None = None
    sasl_mechanism_controller_protocol: str | None = None
    sasl_enabled_mechanisms: tuple[str, ...] = ()
    sasl_username: str | None = None
    sasl_password: Password | None = None
    users: Mapping[str, Password] = field(default_factory=dict, repr=False)
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100

    def __post_init__(self) -> None:
        one_of("ssl.client.auth", self.ssl_client_auth, ("none", "requested", "required"))
        one_of("ssl.endpoint.identification.algorithm", self.ssl_endpoint_identification_algorithm, ("", "https"))
        if not self.ssl_enabled_protocols:
            raise ConfigurationError("ssl.enabled.protocols is empty; name TLSv1.2, TLSv1.3 or both")
        for version in self.ssl_enabled_protocols:
            one_of("ssl.enabled.protocols", version, _VERSIONS)
        own = filter(None, [self.sasl_mechanism, self.sasl_mechanism_controller_protocol])
        for mechanism in (*own, *self.sasl_enabled_mechanisms):
            one_of("a SASL mechanism", mechanism, MECHANISMS)
        if self.ssl_keystore_location and self.ssl_keystore_certificate_chain:
            raise ConfigurationError("ssl.keystore.location and ssl.keystore.certificate.chain are both set; keep one")
        if (self.ssl_keystore_certificate_chain is None) != (self.ssl_keystore_key is None):
            raise ConfigurationError("ssl.keystore.certificate.chain and ssl.keystore.key go together; set both")
        if self.ssl_truststore_location and self.ssl_truststore_certificates:
            raise ConfigurationError("ssl.truststore.location and ssl.truststore.certificates are both set; keep one")
        for name in _MILLISECONDS:
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name.replace('_', '.')} is {getattr(self, name)}; it must be 0 or more")

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> SecurityConfig:
        """Read security settings from a mapping of Kafka's keys to texts, as a properties file has them.

        ``sasl.jaas.config`` with PlainLoginModule or ScramLoginModule gives user and password; its ``user_NAME="..."``
        options are the users that a server accepts.

        Raises:
            ConfigurationError: An unknown key, or a value that is none of its kind.
        """
        values: dict[str, Any] = {}
        for key, value in settings.items():
            _take(values, key, str(value))
        return cls(**values)

    @staticmethod
    def has(key: str) -> bool:
        """Whether a key of Kafka's is a security setting, which ``of`` reads or refuses."""
        if key.replace(".", "_") in _MILLISECONDS:
            return True
        return key.startswith(("ssl.", "sasl.")) and key != "sasl.mechanism.inter.broker.protocol"

    # ---- TLS ---------------------------------------------------------------------------------------------------------

    @property
    def has_certificate(self) -> bool:
        """Whether this end has a certificate of its own."""
        return bool(self.ssl_keystore_location or self.ssl_keystore_certificate_chain)

    # ---- SASL --------------------------------------------------------------------------------------------------------

    @property
    def quorum_mechanism(self) -> str | None:
        """The SASL mechanism at a KRaft controller."""
        return self.sasl_mechanism_controller_protocol or self.sasl_mechanism

    @property
    def credentials(self) -> Credentials:
        """A client's user and password.

        Raises:
            ConfigurationError: Neither ``sasl.username`` and ``sasl.password`` nor ``sasl.jaas.config`` is set.
        """
        if self.sasl_username is None or self.sasl_password is None:
            raise ConfigurationError("SASL needs a user: set sasl.username and sasl.password, or sasl.jaas.config")
        return Credentials(self.sasl_username, self.sasl_password)


def _take(values: dict[str, Any], key: str, value: str) -> None:
    name = key.replace(".", "_")
    kind = None if name == "users" else SecurityConfig.__annotations__.get(name)
    match key, kind:
        case "sasl.jaas.config", _:
            _take_login(values, value)
        case (("ssl.keystore.type" | "ssl.truststore.type"), _):
            if value.upper() != "PEM":
                raise ConfigurationError(
                    f"{key} is {value!r}; only PEM is read: `openssl pkcs12 -in STORE -nodes -out store.pem` converts"
                )
        case _, "tuple[str, ...]":
            values[name] = tuple(part.strip() for part in value.split(",") if part.strip())
        case _, "Password | None":
            values[name] = Password(value)
        case _, "int":
            if not value.strip().isdigit():
                raise ConfigurationError(f"{key} is {value!r}; it must be a whole number of milliseconds")
            values[name] = int(value)
        case _, None:
            raise ConfigurationError(f"no security setting {key!r}; see the documentation of channel.security")
        case _:
            values[name] = value.strip()


_MILLISECONDS: Final = ("connections_max_reauth_ms", "connection_failed_authentication_delay_ms")


def _take_login(values: dict[str, Any], text: str) -> None:
    """Read user and password out of a JAAS login line; errors show nothing of the line."""
    found = _LOGIN_MODULE.match(text)
    if found is None or found["module"] not in ("PlainLoginModule", "ScramLoginModule"):
        raise ConfigurationError(
            'sasl.jaas.config is not understood; write \'...PlainLoginModule required username="..." password="...";\' '
            "(or ScramLoginModule)"
        )
    users: dict[str, Password] = {}
    for option in _LOGIN_OPTION.finditer(found["options"]):
        bare = option["bare"]
        value = bare if bare is not None else re.sub(r"\\(.)", r"\1", option["quoted"])
        name = option["name"]
        if name == "username":
            values["sasl_username"] = value
        elif name == "password":
            values["sasl_password"] = Password(value)
        elif name.startswith("user_"):
            users[name.removeprefix("user_")] = Password(value)
    if users:
        values["users"] = users


def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that has none of the allowed values."""
    if value not in allowed:
        raise ConfigurationError(f"{key} is {value!r}; there are: {', '.join(each or 'empty' for each in allowed)}")
