"""TLS and SASL in the simulation: the settings of both ends, and what the product's globals become.

OpenSSL works on memory buffers in the product's TLS transport, so that its ciphertext passes through the simulated
sockets. The certificate and its Ed25519 key are the same in every run, and so are the lengths of all handshakes.
"""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from channel import tls_contexts
from channel.network import authenticator, tls
from channel.security import Password, SecurityConfig
from channel.types import SecurityProtocol

if TYPE_CHECKING:
    from .plan import Plan
    from .scheduler import Process, World

__all__ = ["security_of", "substitutions"]

assert tls_contexts  # the product imports it for the first connection with TLS, when a run has begun


@functools.cache
def _certificate() -> tuple[str, Password]:
    """The certificate of every end, which is its own authority, and its key."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "simulated")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, None)
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), Password(text.decode())


def security_of(plan: Plan) -> tuple[SecurityProtocol, SecurityConfig]:
    """The security protocol of all listeners, and the settings of both ends."""
    protocol, settings = SecurityProtocol[plan.security], dict[str, Any]()
    if protocol.uses_tls:
        chain, key = _certificate()
        settings |= {
            "ssl_keystore_certificate_chain": chain,
            "ssl_keystore_key": key,
            "ssl_truststore_certificates": chain,
            "ssl_endpoint_identification_algorithm": "",
            "ssl_client_auth": ("none", "required")[plan.seed % 2],
        }
    if protocol.uses_sasl:
        settings |= {
            "sasl_mechanism": plan.mechanism,
            "sasl_enabled_mechanisms": (plan.mechanism,),
            "sasl_username": "kproto",
            "sasl_password": Password("secret"),
            "users": {"kproto": Password("secret")},
            "connections_max_reauth_ms": (0, 4_000, 10_000)[plan.seed % 3],
        }
    return protocol, SecurityConfig(**settings)


class _Computations:
    """The threads that compute tokens: those of each simulated process are its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._make = type(authenticator._computations)
        self._of: dict[Process, Any] = {}

    def submit(self, function: Any) -> Any:
        """Compute a token on a thread of the present process."""
        task = self._world.current
        assert task is not None
        if task.process not in self._of:
            self._of[task.process] = self._make("sasl-computation-thread", 2)
        return self._of[task.process].submit(function)


class _ReadTransport(tls.TlsTransport):
    """A TLS transport that shows what it decrypts to the simulated socket."""

    __slots__ = ()

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt what has arrived."""
        count = super().read_into(buffer)
        tap = self._sock.tap_of_plaintext
        if count and tap is not None:
            tap(bytes(buffer[:count]))
        return count


def substitutions(world: World) -> dict[int, Any]:
    """What stands in place of the product's own, by ``id``."""
    return {id(authenticator._computations): _Computations(world), id(tls.TlsTransport): _ReadTransport}
