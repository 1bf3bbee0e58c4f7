"""Principals in Kafka's words: the subject of a certificate as RFC 2253 has it, and the form inside an Envelope."""

from types import SimpleNamespace
from typing import Any

import pytest

from channel.network.server import principal_of, serialized_principal


@pytest.mark.parametrize(
    ("subject", "principal"),
    [
        ((), "User:"),
        (((("organizationName", "Acme, Inc."),), (("commonName", "kafka"),)), r"User:CN=kafka,O=Acme\, Inc."),
        (((("commonName", "#1 <a+b>"),),), r"User:CN=\#1 \<a\+b\>"),
        (((("commonName", " x "),),), r"User:CN=\ x\ "),
        (((("commonName", "a"), ("userId", "7")),), "User:CN=a+UID=7"),
    ],
)
def test_a_subject_is_written_as_kafka_writes_it(subject: Any, principal: str) -> None:
    channel: Any = SimpleNamespace(
        authenticator=None, transport=SimpleNamespace(peer_certificate={"subject": subject, "version": 3})
    )
    assert principal_of(channel) == principal


@pytest.mark.parametrize(("length", "size"), [(1, b"\x02"), (126, b"\x7f"), (127, b"\x80\x01"), (300, b"\xad\x02")])
def test_a_principal_is_serialized_with_compact_strings(length: int, size: bytes) -> None:
    name = "n" * length
    assert serialized_principal(f"User:{name}") == b"\0\0\x05User" + size + name.encode() + b"\0\0"
