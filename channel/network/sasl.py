"""SASL without I/O: a client authenticates over any ordered stream of frames, before its first request.

Both sides take the payload of one frame and give back the payloads to send. A client goes this way::

    ApiVersions v0  ->  SaslHandshake  ->  token, token, ...  ->  complete | failed
                              ^                                      |
                              +---- renew, while the session lasts --+

Where the server knows SaslHandshake v1, tokens travel in SaslAuthenticate requests; else each token is a bare frame.
The client's correlation ids are from the range reserved for authenticators, so that no response is taken for that
of another request.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from channel.errors import AuthenticationFailed
from kproto.api import ApiKey, api_name, request_header_version, response_header_version
from kproto.codec import decode_request, decode_response, encode, message_class
from kproto.error_codes import ErrorCode, error_name
from kproto.errors import ConfigurationError, DecodeError, UnsupportedApi, UnsupportedVersion
from kproto.extras import install_command
from kproto.headers import (
    decode_request_header_from,
    decode_response_header_from,
    encode_request_header,
    encode_response_header,
    request_header,
    response_header,
)

from .request import FIRST_SASL_CORRELATION_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from channel.security import Credentials, Password

    from .transport import Bytes

_SCRAM_ITERATIONS: Final = 4_096
"""The iterations that a server demands, and the fewest that a client accepts, as Kafka's."""

_MOST_ITERATIONS: Final = 262_144
"""The most iterations that a client computes: 16 times what Kafka lets an administrator set, 0.2 s of CPU time."""


Computation: TypeAlias = "Callable[[], bytes]"
ClientTokens: TypeAlias = "Generator[bytes | Computation, bytes, None]"
"""Yields the client's tokens, or functions that compute them, and takes the server's; ends as the server is accepted.

A function may run on any thread, as it takes long; its result is the token.
"""
ServerTokens: TypeAlias = "Generator[bytes | tuple[bytes, str], bytes, None]"
"""Takes the client's tokens, from its second step on, and yields the answers, the last with the user it accepts."""


def client_tokens(mechanism: str, credentials: Credentials) -> ClientTokens:
    """Make the client's side of this mechanism."""
    if mechanism == "PLAIN":
        return _plain_client_tokens(credentials)
    return _scram_client_tokens(mechanism, credentials)


def server_tokens(mechanism: str, users: Mapping[str, Password], scram: ScramUsers | None = None) -> ServerTokens:
    """Make the server's side of this mechanism, which takes the client's first token next."""
    if mechanism == "PLAIN":
        tokens = _plain_server_tokens(users)
    else:
        tokens = _scram_server_tokens(scram or ScramUsers(mechanism, users))
    next(tokens)
    return tokens


def _plain_client_tokens(credentials: Credentials) -> ClientTokens:
    """PLAIN sends name and password in clear text, so use it over TLS only."""
    yield f"\0{credentials.username}\0{credentials.password!s}".encode()


def _plain_server_tokens(users: Mapping[str, Password]) -> ServerTokens:
    token = yield b""
    try:
        authorization, name, password = token.decode().split("\0")
    except ValueError:
        raise AuthenticationFailed("a PLAIN token must be three texts between two zero bytes") from None
    expected = users.get(name)
    known = hmac.compare_digest(password.encode(), str(expected or "").encode())
    if not name or not password or expected is None or not known or authorization not in ("", name):
        raise AuthenticationFailed("invalid username or password")
    yield b"", name


def _scramp() -> Any:
    """Import the package that computes SCRAM, by which both sides prove that they know the password.

    Raises:
        ConfigurationError: The package is not installed.
    """
    try:
        import scramp
    except ImportError:
        raise ConfigurationError(f"SCRAM needs the package scramp: {install_command('sasl')}") from None
    return scramp


@contextlib.contextmanager
def _failing_as(text: str, *, tells_why: bool) -> Iterator[None]:
    """Raise the errors of SCRAM as ``AuthenticationFailed`` with this text, and perhaps theirs."""
    try:
        yield
    except (_scramp().ScramException, ValueError, KeyError) as e:
        raise AuthenticationFailed(f"{text}: {e}" if tells_why else text) from None


def _scram_client_tokens(mechanism: str, credentials: Credentials) -> ClientTokens:
    scram = _scramp().ScramClient([mechanism], credentials.username, str(credentials.password))
    challenge = yield str(scram.get_client_first()).encode()
    with _failing_as(_UNPROVEN, tells_why=True):
        scram.set_server_first(challenge.decode())
        iterations = int(scram.iterations)
    if not _SCRAM_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise AuthenticationFailed(
            f"the server demands {iterations} iterations of SCRAM; {_SCRAM_ITERATIONS} to {_MOST_ITERATIONS} are "
            "computed: set the user's password anew with a number of iterations in this range"
        )
    proof = yield partial(_scram_client_final, scram)
    with _failing_as(_UNPROVEN, tells_why=True):
        scram.set_server_final(proof.decode())


_UNPROVEN: Final = "the server could not prove that it knows the password"


def _scram_client_final(scram: Any) -> bytes:
    with _failing_as("the answer to the server's challenge cannot be computed", tells_why=True):
        return str(scram.get_client_final()).encode()


class ScramUsers:
    """What a listener stores of its users for SCRAM, as brokers do: salt and keys, computed once for each password.

    Computing them takes milliseconds, which the network thread should not spend for each client, and which would tell
    that a user exists. A user who does not gets a salt too, always the same, and is refused with the last token.

    Args:
        users: The users, name to password.
    """

    def __init__(self, mechanism: str, users: Mapping[str, Password]) -> None:
        self.scheme = _scramp().ScramMechanism(mechanism)
        self._users = users
        self._secret = secrets.token_bytes(32)
        self._known: dict[str, tuple[str, Any]] = {}

    def prepare(self) -> Self:
        """Compute the keys of all users."""
        for name in self._users:
            self.stored(name)
        return self

    def stored(self, name: str) -> Any:
        """Return salt, keys and iterations of a user."""
        password = self._users.get(name)
        if password is None:
            made = [self._drawn(name, use) for use in ("salt", "stored key", "server key")]
            return (*made, _SCRAM_ITERATIONS)
        known = self._known.get(name)
        if known is None or known[0] != password:
            salt = self._drawn(name, "salt")
            info = self.scheme.make_auth_info(str(password), iteration_count=_SCRAM_ITERATIONS, salt=salt)
            known = self._known[name] = str(password), info
        return known[1]

    def _drawn(self, name: str, use: str) -> bytes:
        return hmac.digest(self._secret, f"{use} {name}".encode(), self.scheme.hf)


def _scram_server_tokens(users: ScramUsers) -> ServerTokens:
    user = ""

    def stored(name: str) -> Any:
        nonlocal user
        user = name
        return users.stored(name)

    scram = users.scheme.make_server(stored)
    first = yield b""
    with _failing_as("invalid username or password", tells_why=False):
        scram.set_client_first(first.decode())
        challenge = str(scram.get_server_first()).encode()
    final = yield challenge
    with _failing_as("invalid username or password", tells_why=False):
        scram.set_client_final(final.decode())
        proof = str(scram.get_server_final()).encode()
    yield proof, user


MOST_TOKEN_BYTES: Final = 65_536
"""The longest frame from a peer that is not authenticated yet."""

_SASL_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


# ---- client ----------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")
_Exchange: TypeAlias = "Generator[bytes | Computation, Any, _T]"
"""Yields payloads to send, and functions that compute tokens; takes the server's payloads, and the tokens."""


class SaslClient:
    """The client's side of the authentications of one connection.

    Args:
        mechanism: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        credentials: The client's user and password.
        client_id: Goes into every header.
        server: Names the server in errors.

    Raises:
        ConfigurationError: The mechanism needs a package that is not installed.

    Attributes:
        complete: Whether the server has accepted the client, and has authenticated itself if the mechanism demands it.
        session_lifetime_ms: The session's lifetime unless it is renewed, as the server announced it; 0 for no limit.
        computation: Computes the next token, on any thread, as that takes long; ``computed`` takes it. None if none is
            due.
    """

    def __init__(
        self, mechanism: str, credentials: Credentials, client_id: str | None, server: str = "the server"
    ) -> None:
        self.complete = False
        self.session_lifetime_ms = 0
        self.computation: Computation | None = None
        self._mechanism = mechanism
        self._credentials = credentials
        self._client_id = client_id
        self._server = server
        self._ids = itertools.count()
        self._versions: tuple[int, int] | None = None
        self._exchange = self._authenticate()
        if mechanism != "PLAIN":
            _scramp()  # a missing package is told before anything is sent

    def start(self) -> list[bytes]:
        """Begin to authenticate, or do so again in a session; returns the payload to send."""
        self.complete, self.computation = False, None
        self._exchange = self._authenticate()
        return self._go_on(None)

    def owns(self, payload: Bytes) -> bool:
        """Whether a frame answers a SASL request of this client."""
        return int.from_bytes(payload[:4], "big", signed=True) >= FIRST_SASL_CORRELATION_ID

    def receive(self, payload: Bytes) -> list[bytes]:
        """Take a frame from the server, and go on.

        Returns:
            The payloads to send next; none once ``complete``, or if ``computation`` is due first.

        Raises:
            AuthenticationFailed: The server rejected the client, cannot authenticate itself, or sent an invalid
                response.
        """
        if self.computation is not None:
            raise AuthenticationFailed(f"{self._server} sent a frame while an answer to its challenge was computed")
        try:
            return self._go_on(payload)
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            raise AuthenticationFailed(f"{self._server} sent no SASL answer: {e}") from e

    def computed(self, token: bytes) -> list[bytes]:
        """Take the result of ``computation``; returns the payloads to send next."""
        self.computation = None
        return self._go_on(token)

    def _go_on(self, taken: Bytes | None) -> list[bytes]:
        try:
            following = self._exchange.send(taken)
        except StopIteration:
            if not self.complete:
                raise AuthenticationFailed(f"{self._server} goes on after the authentication has failed") from None
            return []
        if callable(following):
            self.computation = following
            return []
        return [following]

    def _authenticate(self) -> _Exchange[None]:
        """The whole exchange; the versions of the first time hold for renewals too."""
        if self._versions is None:
            self._versions = yield from self._ask_versions()
        handshake_version, authenticate_version = self._versions
        request = message_class(ApiKey.SASL_HANDSHAKE, "request")(mechanism=self._mechanism)
        answer = yield from self._ask(request, handshake_version)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(f"{self._server} does not offer {self._mechanism}; it offers {offered}")
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(f"{self._server} refused the SASL handshake: {error_name(answer.error_code)}")
        tokens = client_tokens(self._mechanism, self._credentials)
        following = next(tokens)
        while True:
            token = following if isinstance(following, bytes) else bytes((yield following))
            if handshake_version == 0:
                answered = bytes((yield token))
            else:
                answered = yield from self._ask_by_token(token, authenticate_version)
            try:
                following = tokens.send(answered)
            except StopIteration:
                self.complete = True
                return

    def _ask_versions(self) -> _Exchange[tuple[int, int]]:
        answer = yield from self._ask(message_class(ApiKey.API_VERSIONS, "request")(), 0)
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(f"{self._server} does not tell its versions: {error_name(answer.error_code)}")
        highest = {each.api_key: each.max_version for each in answer.api_keys}
        if ApiKey.SASL_HANDSHAKE not in highest:
            raise AuthenticationFailed(f"{self._server} does not authenticate by SASL")
        return min(1, highest[ApiKey.SASL_HANDSHAKE]), min(2, highest.get(ApiKey.SASL_AUTHENTICATE, 0))

    def _ask_by_token(self, token: bytes, version: int) -> _Exchange[bytes]:
        answer = yield from self._ask(message_class(ApiKey.SASL_AUTHENTICATE, "request")(auth_bytes=token), version)
        if answer.error_code != ErrorCode.NONE:
            reason = answer.error_message or error_name(answer.error_code)
            raise AuthenticationFailed(f"{self._server} refused user and password ({self._mechanism}): {reason}")
        self.session_lifetime_ms = answer.session_lifetime_ms if version >= 1 else 0
        return bytes(answer.auth_bytes)

    def _ask(self, message: Any, version: int) -> _Exchange[Any]:
        """Send a request, and return its answer."""
        api_key = ApiKey(message.api_key)
        correlation_id = FIRST_SASL_CORRELATION_ID + next(self._ids) % 8
        request = request_header(api_key, version, correlation_id, self._client_id)
        payload = yield (
            encode_request_header(request, request_header_version(api_key, version)) + encode(message, version)
        )
        header, at = decode_response_header_from(payload, response_header_version(api_key, version))
        if header.correlation_id != correlation_id:
            raise AuthenticationFailed(f"{self._server} answered another request than {api_name(api_key)}")
        return decode_response(api_key, version, memoryview(payload)[at:])


# ---- server ----------------------------------------------------------------------------------------------------------


class SaslServer:
    """The server's side of the authentications of one connection.

    A refused client gets an answer: ``receive`` returns the last payload to send, and ``failure`` holds the reason. The
    owner waits ``connection.failed.authentication.delay.ms``, sends the payload and closes the connection.

    Only the user and the mechanism that began a session may renew it.

    Args:
        mechanisms: The mechanisms to offer.
        users: The users to accept, name to password.
        api_versions: Returns the response to an ApiVersions request of this version.
        session_ms: The lifetime of a session, 0 for no limit.
        scram: What the connections of a listener share for each mechanism of SCRAM.

    Attributes:
        complete: Whether the client has been accepted.
        failure: The reason of its refusal, None if it was not refused.
        user: The user of the session, None before it.
        renewable: Whether the client can renew its session, by SaslAuthenticate v1 or newer.
    """

    def __init__(
        self,
        mechanisms: Sequence[str],
        users: Mapping[str, Password],
        api_versions: Callable[[int], Any],
        session_ms: int = 0,
        scram: Mapping[str, ScramUsers] | None = None,
    ) -> None:
        self.complete = False
        self.failure: AuthenticationFailed | None = None
        self._offered = tuple(mechanisms)
        self._users = users
        self._scram = scram or {}
        self._api_versions = api_versions
        self.session_lifetime_ms = session_ms
        self.renewable = False
        self.user: str | None = None
        self._tokens: ServerTokens | None = None
        self._mechanism = ""
        self._session_mechanism = ""
        self._bare = False

    def start(self) -> list[bytes]:
        """Let the client authenticate, or do so again in a session. Returns no payload: the client begins."""
        self.complete = self._bare = False
        self._tokens = None
        return []

    def owns(self, payload: Bytes) -> bool:
        """Whether a frame is a SASL request."""
        return int.from_bytes(payload[:2], "big") in _SASL_APIS

    def begins(self, payload: Bytes) -> bool:
        """Whether a frame begins an authentication."""
        return int.from_bytes(payload[:2], "big") == ApiKey.SASL_HANDSHAKE

    def reject(self, payload: Bytes) -> list[bytes]:
        """Answer a SASL request that is not allowed now; the session goes on.

        Raises:
            AuthenticationFailed: The frame is no SASL request.
        """
        try:
            header, at = decode_request_header_from(payload)
            api_key, version = ApiKey(header.request_api_key), header.request_api_version
            decode_request(api_key, version, memoryview(payload)[at:])
            answer = message_class(api_key, "response")(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
            return [self._response(header.correlation_id, answer, version)]
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            raise AuthenticationFailed(f"no SASL request: {e}") from e

    def receive(self, payload: Bytes) -> list[bytes]:
        """Take a frame from the client; returns the payloads to send, none if the old handshake refuses it."""
        if self.failure is not None:
            return []
        try:
            return [self._answer(payload)]
        except AuthenticationFailed as e:
            self.failure = e
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            self.failure = AuthenticationFailed(f"no SASL request: {e}")
        return []

    def _answer(self, payload: Bytes) -> bytes:
        if len(payload) > MOST_TOKEN_BYTES:
            raise AuthenticationFailed(f"a frame of {len(payload)} bytes before the authentication is over")
        if self._bare:  # the old handshake cannot carry the reason of a failure
            return self._respond(bytes(payload))
        header, at = decode_request_header_from(payload)
        api_key, version = header.request_api_key, header.request_api_version
        body = memoryview(payload)[at:]
        if api_key == ApiKey.API_VERSIONS and self._tokens is None:
            answer = self._api_versions(version)
            if version > ApiKey.API_VERSIONS.info.max_version:
                version = 0  # an answer that any client can read
        elif api_key == ApiKey.SASL_HANDSHAKE and self._tokens is None:
            answer = self._handshake(version, decode_request(api_key, version, body))
        elif api_key == ApiKey.SASL_AUTHENTICATE and self._tokens is not None:
            answer = self._authenticate(version, decode_request(api_key, version, body))
        else:
            raise AuthenticationFailed(f"{api_name(api_key)} before the authentication is over")
        return self._response(header.correlation_id, answer, version)

    def _handshake(self, version: int, request: Any) -> Any:
        answer = message_class(ApiKey.SASL_HANDSHAKE, "response")(error_code=0, mechanisms=list(self._offered))
        if request.mechanism not in self._offered:
            self.failure = AuthenticationFailed(f"the client asked for {request.mechanism!r}, which is not offered")
            answer.error_code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        elif self.user is not None and version == 0:
            self.failure = AuthenticationFailed("a session can be renewed by SaslHandshake v1 or newer alone")
            answer.error_code, answer.mechanisms = int(ErrorCode.ILLEGAL_SASL_STATE), ()
        else:
            self._bare = version == 0
            self._mechanism = request.mechanism
            self._tokens = server_tokens(request.mechanism, self._users, self._scram.get(request.mechanism))
        return answer

    def _authenticate(self, version: int, request: Any) -> Any:
        response = message_class(ApiKey.SASL_AUTHENTICATE, "response")
        try:
            token = self._respond(bytes(request.auth_bytes))
        except AuthenticationFailed as e:
            self.failure = e
            code, text = int(ErrorCode.SASL_AUTHENTICATION_FAILED), f"Authentication failed: {e}"
            return response(error_code=code, error_message=text, auth_bytes=b"")
        self.renewable = version >= 1
        lifetime = self.session_lifetime_ms if self.complete and self.renewable else 0
        return response(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime)

    def _respond(self, token: bytes) -> bytes:
        assert self._tokens is not None
        if self.complete:
            raise AuthenticationFailed("the authentication is over; no other token is expected")
        if self.user is not None and self._mechanism != self._session_mechanism:
            raise AuthenticationFailed(
                f"the session began with {self._session_mechanism}; {self._mechanism} cannot renew it"
            )
        answered = self._tokens.send(token)
        if isinstance(answered, bytes):
            return answered
        answer, user = answered
        if self.user not in (None, user):
            raise AuthenticationFailed(f"the session is that of user {self.user!r}; user {user!r} cannot renew it")
        self.user, self._session_mechanism = user, self._mechanism
        self.complete = True
        return answer

    def _response(self, correlation_id: int, message: Any, version: int) -> bytes:
        header = response_header(correlation_id)
        return encode_response_header(header, response_header_version(message.api_key, version)) + encode(
            message, version
        )
