"""Security settings: Kafka's names, what contradicts, and that secrets stay hidden."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

import pytest
from tls_certificates import certificates

from channel.config import ChannelConfig
from channel.security import Credentials, Password, SecurityConfig, read_security
from channel.tls_contexts import CurrentContext, client_context, server_context
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Properties = Callable[[str], Path]


@pytest.fixture
def properties(tmp_path: Path) -> Properties:
    """Writes a file of settings."""

    def written(text: str) -> Path:
        (tmp_path / "broker.properties").write_text(text)
        return tmp_path / "broker.properties"

    return written


@pytest.mark.parametrize(
    ("name", "tls", "sasl"),
    [("PLAINTEXT", False, False), ("ssl", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_protocol_is_known_by_its_name(name: str, tls: bool, sasl: bool, properties: Properties) -> None:
    protocol, _ = read_security(properties(f"security.protocol={name}\n"))
    assert (protocol.uses_tls, protocol.uses_sasl) == (tls, sasl)


def test_an_unknown_protocol_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=TLS\n")
    with pytest.raises(
        ConfigurationError, match=r"security\.protocol is 'TLS'.*PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
    ):
        read_security(tmp_path / "client.properties")


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="admin-secret";',
            "admin",
            "admin-secret",
        ),
        (
            'org.apache.kafka.common.security.scram.ScramLoginModule required\n username="a b" password="x\\"y\\\\z;";',
            "a b",
            'x"y\\z;',
        ),
        ("x.PlainLoginModule required username=bare password=word;", "bare", "word"),
    ],
)
def test_a_jaas_line_names_the_user(login: str, user: str, password: str) -> None:
    security = SecurityConfig.of({"sasl.jaas.config": login})
    assert security.credentials == Credentials(user, Password(password))


def test_a_jaas_line_names_the_users_that_a_server_accepts() -> None:
    login = 'x.PlainLoginModule required username="admin" password="p" user_admin="p" user_bob="q";'
    assert dict(SecurityConfig.of({"sasl.jaas.config": login}).users) == {"admin": "p", "bob": "q"}


@pytest.mark.parametrize("login", ["", "secret", "com.example.KerberosLoginModule required keyTab=secret;"])
def test_a_jaas_line_that_is_not_understood_is_not_repeated(login: str) -> None:
    with pytest.raises(ConfigurationError, match="PlainLoginModule required") as caught:
        SecurityConfig.of({"sasl.jaas.config": login})
    assert "secret" not in str(caught.value).replace("sasl.", "")


def test_no_secret_is_shown() -> None:
    security = SecurityConfig.of(
        {
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "hunter2-key",
            "ssl.key.password": "hunter2-phrase",
            "sasl.jaas.config": 'x.PlainLoginModule required username="u" password="hunter2-a" user_u="hunter2-b";',
        }
    )
    assert "hunter2" not in repr(security)
    assert "hunter2" not in repr(security.credentials)
    assert "hunter2" not in repr(security.users)
    with pytest.raises(ConfigurationError) as caught:
        server_context(security)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl.truststore.loction": "x"}, "no security setting 'ssl.truststore.loction'"),
        ({"ssl.client.auth": "perhaps"}, "none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
        ({"ssl.enabled.protocols": ""}, "is empty"),
        ({"ssl.keystore.type": "JKS"}, "openssl pkcs12"),
        ({"sasl.mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"ssl.keystore.key": "k"}, "go together"),
        ({"ssl.keystore.location": "a", "ssl.keystore.certificate.chain": "b", "ssl.keystore.key": "c"}, "keep one"),
        ({"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "keep one"),
        ({"connections.max.reauth.ms": "-1"}, r"connections\.max\.reauth\.ms is '-1'; it must be a whole number"),
        ({"connection.failed.authentication.delay.ms": "soon"}, r"delay\.ms is 'soon'; it must be a whole number"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "empty, https"),
    ],
)
def test_wrong_settings_say_what_to_change(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        SecurityConfig.of(settings)


def test_times_are_kafkas_by_default_and_come_from_a_brokers_file() -> None:
    names = {"connections.max.reauth.ms": 0, "connection.failed.authentication.delay.ms": 100}
    given = ChannelConfig.of({name: f" {value + 7} " for name, value in names.items()}).security
    for name, value in names.items():
        field = name.replace(".", "_")
        assert getattr(SecurityConfig(), field) == value
        assert getattr(given, field) == value + 7
        with pytest.raises(ConfigurationError, match=f"{name} is -1; it must be 0 or more"):
            SecurityConfig(**{field: -1})  # type: ignore[arg-type]


def test_files_that_are_missing_or_no_certificates_are_named(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    with pytest.raises(ConfigurationError, match=r"ssl\.truststore\.location: there is no file .*nothing\.pem"):
        client_context(SecurityConfig(ssl_truststore_location=str(nothing)))
    nothing.write_text("no certificate")
    with pytest.raises(ConfigurationError, match=r"nothing\.pem: no usable PEM"):
        client_context(SecurityConfig(ssl_truststore_location=str(nothing)))
    with pytest.raises(ConfigurationError, match=r"nothing\.pem: no usable PEM"):
        server_context(SecurityConfig(ssl_keystore_location=str(nothing)))
    with pytest.raises(ConfigurationError, match=r"set ssl\.keystore\.location"):
        server_context(SecurityConfig())


def test_contexts_verify_by_default(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text(certificates().server)
    security = SecurityConfig(ssl_keystore_location=str(pem), ssl_truststore_certificates=certificates().authority)
    client, server = client_context(security), server_context(security)
    assert (client.verify_mode, client.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert server.verify_mode == ssl.CERT_NONE
    assert client.minimum_version == ssl.TLSVersion.TLSv1_2
    assert client.options & ssl.OP_NO_RENEGOTIATION


def test_sasl_without_a_user_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl\.username and sasl\.password"):
        _ = SecurityConfig(sasl_mechanism="PLAIN").credentials


OWN = "security.protocol=SSL\nssl.keystore.location=own.pem\n"


@pytest.mark.parametrize(
    ("text", "listener", "expected"),
    [
        ("listener.name.ssl.ssl.client.auth=required\n", None, "required"),
        ("ssl.client.auth=none\nlistener.name.ssl.ssl.client.auth=required\n", None, "required"),
        ("inter.broker.listener.name=Internal\nlistener.name.internal.ssl.client.auth=required\n", None, "required"),
        ("listener.name.internal.ssl.client.auth=required\n", "INTERNAL", "required"),
        ("ssl.client.auth=requested\nlog.dirs=/data\nlisteners=SSL://:9093\n", None, "requested"),
        ("zookeeper.set.acl=false\nauthorizer.class.name=\n", None, "none"),
    ],
)
def test_a_key_of_the_own_listener_is_obeyed(
    text: str, listener: str | None, expected: str, properties: Properties
) -> None:
    protocol, security = read_security(properties(OWN + text), serves=True, listener=listener)
    assert (protocol.name, security.ssl_client_auth) == ("SSL", expected)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("listener.name.external.ssl.client.auth=required", "is for the listener external, and this one is SSL"),
        ("listener.name.ssl.max.connections=10", "listener.name.ssl.max.connections is not supported"),
        ("listener.name.ssl.ssl.principal.mapping.rules=DEFAULT", "no security setting 'ssl.principal.mapping.rules'"),
        ("listener.name.ssl.gssapi.sasl.jaas.config=x", "'GSSAPI'; there are: PLAIN"),
        ("ssl.client.auhh=required", "no security setting 'ssl.client.auhh'"),
        ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "the file of --config"),
        ("super.users=User:admin", "the file of --config"),
        ("zookeeper.set.acl=true", "znodes are made without ACLs"),
        ("zookeeper.ssl.client.enable=true", "is not supported"),
        ("max.connections.per.ip=10", "is not supported"),
        ("principal.builder.class=x.Builder", "is not supported"),
        ("security.inter.broker.protocol=PLAINTEXT", "SSL and security.inter.broker.protocol PLAINTEXT differ"),
        ("listener.security.protocol.map=PUBLIC:SSL,SSL:SASL_SSL", "listener.security.protocol.map SASL_SSL differ"),
        ("ssl.client.auth : required = yes", "line 3 is no KEY=VALUE"),
    ],
)
def test_a_key_that_would_make_a_listener_stricter_is_never_ignored(
    line: str, says: str, properties: Properties
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        read_security(properties(OWN + line + "\n"), serves=True)


def test_what_concerns_listeners_alone_is_passed_over_by_clients(properties: Properties) -> None:
    text = "listener.name.external.ssl.client.auth=required\nauthorizer.class.name=x.Authorizer\n"
    assert read_security(properties(OWN + text))[0].name == "SSL"


@pytest.mark.parametrize(
    ("text", "protocol"),
    [
        ("security.inter.broker.protocol=SASL_SSL\n", "SASL_SSL"),
        ("inter.broker.listener.name=CLUSTER\nlistener.security.protocol.map=CLUSTER:SSL,PUBLIC:PLAINTEXT\n", "SSL"),
        ("listener.security.protocol.map=PLAINTEXT:SSL\n", "SSL"),
        ("security.protocol=SSL\nlistener.security.protocol.map=SSL:SSL,PUBLIC:PLAINTEXT\n", "SSL"),
        ("security.protocol=PLAINTEXT\nssl.keystore.location=own.pem\n", "PLAINTEXT"),
        ("log.dirs=/data\n", "PLAINTEXT"),
    ],
)
def test_a_listener_has_the_protocol_that_a_brokers_own_file_names(
    text: str, protocol: str, properties: Properties
) -> None:
    assert read_security(properties(text), serves=True)[0].name == protocol


def test_certificates_without_a_protocol_make_no_plaintext_listener(properties: Properties) -> None:
    file = properties("ssl.keystore.location=own.pem\nssl.client.auth=required\n")
    with pytest.raises(ConfigurationError, match=r"no security\.protocol: the listener would be PLAINTEXT"):
        read_security(file, serves=True)


def test_the_users_of_a_listeners_mechanism_are_those_of_the_listener(properties: Properties) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    file = properties(
        f"security.protocol=SASL_PLAINTEXT\nsasl.enabled.mechanisms=PLAIN\n"
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={login}\n"
    )
    assert read_security(file, serves=True)[1].users == {"alice": "secret"}
    with file.open("a") as more:
        more.write(f"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={login}\n")
    with pytest.raises(ConfigurationError, match=r"contradicts another sasl\.jaas\.config"):
        read_security(file, serves=True)


def test_one_protocol_named_twice_is_no_contradiction(properties: Properties) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsecurity.inter.broker.protocol="
    assert read_security(properties(f"{text}SASL_PLAINTEXT\n"), serves=True)[0].name == "SASL_PLAINTEXT"
    with pytest.raises(ConfigurationError, match="differ; keep one"):
        read_security(properties(f"{text}SASL_SSL\n"), serves=True)


def test_certificates_that_vanish_leave_the_former_ones_in_use(tmp_path: Path) -> None:
    file = tmp_path / "own.pem"
    file.write_text("first")
    made = []

    def make(security: SecurityConfig) -> ssl.SSLContext:
        if not file.exists():
            raise ConfigurationError("own.pem: no such file")
        made.append(file.read_text())
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    current = CurrentContext(make, SecurityConfig(ssl_keystore_location=str(file)))
    first = current()
    file.unlink()
    assert current() is first
    file.write_text("second")
    assert current() is not first
    assert made == ["first", "second"]
