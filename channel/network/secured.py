"""Channel builders for every security protocol: TLS below, SASL above it.

Modules of TLS are imported for the first connection that needs them: with OpenSSL they take 4 MiB of memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel.types import SecurityProtocol
from kproto.errors import ConfigurationError

from .authenticator import SaslAuthenticator
from .sasl import SaslClient, SaslServer, ScramUsers
from .transport import PlaintextTransport

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from channel.security import SecurityConfig

    from .request import ClientId
    from .sockets import ChannelBuilder, Peer
    from .tls import Transport


def client_channels(protocol: SecurityProtocol, security: SecurityConfig, client_id: ClientId) -> ChannelBuilder:
    """Make the builder of connections to nodes.

    Args:
        protocol: The security protocol of the nodes' listener.
        security: The trusted authorities, and this end's certificate and credentials.
        client_id: Goes into the headers of the SASL exchange; see ``ClientId``.

    Raises:
        ConfigurationError: A setting that the protocol needs is missing.
    """
    transport_of = _transports(protocol, security, server_side=False)
    mechanism, credentials = security.sasl_mechanism, None
    if protocol.uses_sasl:
        credentials = security.credentials
        if mechanism is None:
            raise ConfigurationError(f"{protocol.name} needs sasl.mechanism, for example SCRAM-SHA-512")

    def build(sock: socket.socket, peer: Peer) -> tuple[Transport, SaslAuthenticator | None]:
        transport = transport_of(sock, peer)
        if credentials is None or mechanism is None:
            return transport, None
        name = client_id(peer.node_id) if callable(client_id) else client_id
        side = SaslClient(mechanism, credentials, name, f"{peer.host}:{peer.port}")
        return transport, SaslAuthenticator(transport, side)

    return build


def server_channels(
    protocol: SecurityProtocol, security: SecurityConfig, api_versions: Callable[[int], Any]
) -> ChannelBuilder:
    """Make the builder of accepted connections.

    Args:
        security: This end's certificate, and the users and authorities to accept.
        api_versions: Returns the response to an ApiVersions request of this version, which clients send before they
            authenticate.

    Raises:
        ConfigurationError: A setting that the protocol needs is missing.
    """
    transport_of = _transports(protocol, security, server_side=True)
    if protocol.uses_sasl and not (security.sasl_enabled_mechanisms and security.users):
        raise ConfigurationError(
            f"a {protocol.name} listener needs sasl.enabled.mechanisms and users "
            "(sasl.jaas.config with user_NAME=PASSWORD)"
        )

    mechanisms = security.sasl_enabled_mechanisms if protocol.uses_sasl else ()
    scram = {name: ScramUsers(name, security.users).prepare() for name in mechanisms if name != "PLAIN"}

    def build(sock: socket.socket, peer: Peer) -> tuple[Transport, SaslAuthenticator | None]:
        transport = transport_of(sock, peer)
        if not protocol.uses_sasl:
            return transport, None
        side = SaslServer(
            security.sasl_enabled_mechanisms, security.users, api_versions, security.connections_max_reauth_ms, scram
        )
        return transport, SaslAuthenticator(transport, side)

    return build


def _transports(
    protocol: SecurityProtocol, security: SecurityConfig, *, server_side: bool
) -> Callable[[socket.socket, Peer], Transport]:
    """Return the function that makes the transport of a connection to a node, or of an accepted one."""
    if not protocol.uses_tls:
        return lambda sock, _: PlaintextTransport(sock, connected=server_side)
    from channel.tls_contexts import CurrentContext, client_context, server_context

    from .tls import TlsTransport

    context = CurrentContext(server_context if server_side else client_context, security)
    return lambda sock, peer: TlsTransport(
        sock, context(), server_side=server_side, server_hostname=None if server_side else peer.host,
        connected=server_side,
    )  # fmt: skip
