"""A network of nodes behind real TLS for tests of the client: sockets and OpenSSL at both ends, in one thread."""

import contextlib
import dataclasses
import socket
from typing import Any

from network_peers import SECURITY, ObservedSelector, frame

from channel.errors import AuthenticationFailed
from channel.network.tls import TlsTransport
from channel.tls_contexts import client_context, server_context


class _NearTransport(TlsTransport):
    """The client's end; its connection fails or never completes where the test says so."""

    def __init__(self, sock, context, peer, network):
        super().__init__(sock, context, server_side=False, server_hostname=peer.host)
        self._network = network
        self._node_id = network.dialling

    def finish_connect(self):
        return self._node_id not in self._network.blocked and super().finish_connect()

    def handshake(self):
        if self._node_id in self._network.failing:
            raise self._network.failing[self._node_id]
        return super().handshake()


class TlsSelector(ObservedSelector):
    """The selector over TLS. The nodes' ends go on with every poll; the bytes of requests are passed over.

    Both ends of a connection are sockets of this process, connected by the system without a network between: bytes
    that one end has sent are there for the other at once, so that a test may count polls.
    """

    def __init__(self, clock: Any, version: str) -> None:
        security = dataclasses.replace(SECURITY, ssl_enabled_protocols=(version,))
        self._client, self._server = client_context(security), server_context(security)
        self._nodes: dict[str, TlsTransport] = {}
        self._scratch = memoryview(bytearray(65_536))

        def builder(sock, peer):
            return _NearTransport(sock, self._client, peer, self), None

        super().__init__(clock, channel_builder=builder)

    def new_connection(self):
        near, far = socket.socketpair()
        for sock in (near, far):
            sock.setblocking(False)
        self.drops(self.dialling)
        self._nodes[self.dialling] = TlsTransport(far, self._server, server_side=True, connected=True)
        return near

    def poll(self, timeout_ms, for_sends=True):
        self._go_on()
        super().poll(timeout_ms, for_sends=for_sends)
        self._go_on()

    def _go_on(self) -> None:
        for node_id, node in list(self._nodes.items()):
            with contextlib.suppress(AuthenticationFailed, OSError):
                try:
                    if node.ready or not node.handshake():
                        while node.read_into(self._scratch):
                            pass
                except EOFError:
                    self.drops(node_id)

    def receives(self, node_id: str, payload: bytes) -> None:
        self._go_on()
        node = self._nodes[node_id]
        assert node.write([frame(payload)]) == 4 + len(payload)
        assert not node.has_pending_writes

    def drops(self, node_id: str) -> None:
        node = self._nodes.pop(node_id, None)
        if node is not None:
            node.close()

    def close(self):
        super().close()
        for node_id in list(self._nodes):
            self.drops(node_id)
