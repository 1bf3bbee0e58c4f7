"""Security settings: Kafka's names, what contradicts, and that secrets stay hidden."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from tls_certificates import certificates

from channel.config import ChannelConfig
from channel.security import Credentials, Password, SecurityConfig, read_security
from channel.tls_contexts import client_context, server_context
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "tls", "sasl"),
    [("PLAINTEXT", False, False), ("ssl", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_protocol_is_known_by_its_name(name: str, tls: bool, sasl: bool, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(f"security.protocol={name}\n")
    protocol, _ = read_security(tmp_path / "client.properties")
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
