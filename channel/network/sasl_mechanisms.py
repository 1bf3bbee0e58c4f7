"""The SASL mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 without I/O: token in, token out, for both sides."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final, Protocol

from channel.errors import AuthenticationFailed
from kproto.errors import ConfigurationError
from kproto.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel.security import Credentials, Password

__all__ = ["ClientMechanism", "ServerMechanism", "client_mechanism", "server_mechanism"]

_SCRAM_ITERATIONS: Final = 4_096
"""The iterations that a server demands, and the fewest that a client accepts, as Kafka's."""

_MOST_ITERATIONS: Final = 262_144
"""The most iterations that a client computes: 16 times what Kafka lets an administrator set, 0.2 s of CPU time."""


class ClientMechanism(Protocol):
    """The client's side of a mechanism.

    Attributes:
        complete: Whether both sides are authenticated.
        computation: Computes the next token on any thread, as that takes long; None if the answers have it already.
    """

    complete: bool
    computation: Callable[[], bytes] | None

    def first(self) -> bytes:
        """The first token."""

    def respond(self, token: bytes) -> bytes | None:
        """Take a token; returns the next one, None if it is to be computed or the server is authenticated too.

        Raises:
            AuthenticationFailed: The server is not accepted.
        """


class _PlainClient:
    """PLAIN sends name and password in clear text, so use it over TLS only."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.complete = False
        self.computation: Callable[[], bytes] | None = None

    def first(self) -> bytes:
        return f"\0{self._credentials.username}\0{self._credentials.password!s}".encode()

    def respond(self, token: bytes) -> bytes | None:
        self.complete = True
        return None


def _scramp() -> Any:
    """Import the package that computes SCRAM.

    Raises:
        ConfigurationError: The package is not installed.
    """
    try:
        import scramp
    except ImportError:
        raise ConfigurationError(f"SCRAM needs the package scramp: {install_command('sasl')}") from None
    return scramp


class _ScramClient:
    """SCRAM: both sides prove that they know the password, and neither sends it."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        self._refused = _scramp().ScramException
        self._scram = _scramp().ScramClient([mechanism], credentials.username, str(credentials.password))
        self._answered = False
        self.complete = False
        self.computation: Callable[[], bytes] | None = None

    def first(self) -> bytes:
        return str(self._scram.get_client_first()).encode()

    def respond(self, token: bytes) -> bytes | None:
        try:
            text = token.decode()
            if not self._answered:
                self._answered = True
                self._scram.set_server_first(text)
                iterations = int(self._scram.iterations)
            else:
                self._scram.set_server_final(text)
                self.complete = True
                return None
        except (self._refused, ValueError) as e:
            raise AuthenticationFailed(f"the server could not prove that it knows the password: {e}") from None
        if not _SCRAM_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise AuthenticationFailed(
                f"the server demands {iterations} iterations of SCRAM; {_SCRAM_ITERATIONS} to {_MOST_ITERATIONS} are "
                "computed: set the user's password anew with a number of iterations in this range"
            )
        self.computation = self._final
        return None

    def _final(self) -> bytes:
        try:
            return str(self._scram.get_client_final()).encode()
        except (self._refused, ValueError) as e:
            raise AuthenticationFailed(f"the answer to the server's challenge cannot be computed: {e}") from None


class ServerMechanism(Protocol):
    """The server's side of one mechanism.

    Attributes:
        complete: Whether the client is authenticated.
        user: The user name in the client's token; empty before its token.
    """

    complete: bool
    user: str

    def respond(self, token: bytes) -> bytes:
        """Return the answer to a token. Raises ``AuthenticationFailed``."""


class _PlainServer:
    def __init__(self, users: Mapping[str, Password]) -> None:
        self._users = users
        self.complete = False
        self.user = ""

    def respond(self, token: bytes) -> bytes:
        try:
            authorization, name, password = token.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed("a PLAIN token must be three texts between two zero bytes") from None
        expected = self._users.get(name)
        known = hmac.compare_digest(password.encode(), str(expected or "").encode())
        if not name or not password or expected is None or not known or authorization not in ("", name):
            raise AuthenticationFailed("invalid username or password")
        self.user = name
        self.complete = True
        return b""


class _ScramServer:
    def __init__(self, mechanism: str, users: Mapping[str, Password]) -> None:
        self._refused = _scramp().ScramException
        self._mechanism = _scramp().ScramMechanism(mechanism)
        self._users = users
        self._scram = self._mechanism.make_server(self._stored)
        self._challenged = False
        self.complete = False
        self.user = ""

    def _stored(self, name: str) -> Any:
        self.user = name
        return self._mechanism.make_auth_info(str(self._users[name]), iteration_count=_SCRAM_ITERATIONS)

    def respond(self, token: bytes) -> bytes:
        try:
            text = token.decode()
            if not self._challenged:
                self._challenged = True
                self._scram.set_client_first(text)
                return str(self._scram.get_server_first()).encode()
            self._scram.set_client_final(text)
            final = str(self._scram.get_server_final()).encode()
        except (self._refused, ValueError, KeyError):
            raise AuthenticationFailed("invalid username or password") from None
        self.complete = True
        return final


def client_mechanism(name: str, credentials: Credentials) -> ClientMechanism:
    """Make the client's side of the mechanism of this name."""
    return _PlainClient(credentials) if name == "PLAIN" else _ScramClient(name, credentials)


def server_mechanism(name: str, users: Mapping[str, Password]) -> ServerMechanism:
    """Make the server's side of the mechanism of this name."""
    return _PlainServer(users) if name == "PLAIN" else _ScramServer(name, users)
