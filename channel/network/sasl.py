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

import hmac
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Final

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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel.security import Credentials, Password

    from .transport import Bytes

_SCRAM_ITERATIONS: Final = 4_096
"""The iterations that a server demands, and the fewest that a client accepts, as Kafka's."""

_MOST_ITERATIONS: Final = 262_144
"""The most iterations that a client computes: 16 times what Kafka lets an administrator set, 0.2 s of CPU time."""


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


def client_mechanism(name: str, credentials: Credentials) -> _PlainClient | _ScramClient:
    """Make the client's side of the mechanism of this name.

    ``respond`` takes a token and returns the next one, None if ``computation`` computes it, on any thread as that takes
    long, or the server is authenticated too: then the side is ``complete``.
    """
    return _PlainClient(credentials) if name == "PLAIN" else _ScramClient(name, credentials)


def server_mechanism(name: str, users: Mapping[str, Password]) -> _PlainServer | _ScramServer:
    """Make the server's side of the mechanism of this name; ``respond`` returns the answer to a token."""
    return _PlainServer(users) if name == "PLAIN" else _ScramServer(name, users)


MOST_TOKEN_BYTES: Final = 65_536
"""The longest frame from a peer that is not authenticated yet."""

_SASL_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


# ---- client ----------------------------------------------------------------------------------------------------------


class SaslClient:
    """The client's side of the authentications of one connection.

    Args:
        mechanism: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        credentials: The client's user and password.
        client_id: Goes into every header.
        server: Names the server in errors.

    Attributes:
        complete: Whether the server has accepted the client, and has authenticated itself if the mechanism demands it.
        session_lifetime_ms: The session's lifetime unless it is renewed, as the server announced it; 0 for no limit.
        failure: Always None, as a client's failure is raised.
    """

    is_server: ClassVar = False
    failure: ClassVar[AuthenticationFailed | None] = None

    def __init__(
        self, mechanism: str, credentials: Credentials, client_id: str | None, server: str = "the server"
    ) -> None:
        self.complete = False
        self.session_lifetime_ms = 0
        self._name = mechanism
        self._credentials = credentials
        self._mechanism = client_mechanism(mechanism, credentials)
        self._client_id = client_id
        self._server = server
        self._ids = itertools.count()
        self._expected: tuple[ApiKey, int, int] | None = None
        self._handshake_version = 0
        self._authenticate_version = 0

    def start(self) -> list[bytes]:
        """Return the first payload to send."""
        return [self._request(message_class(ApiKey.API_VERSIONS, "request")(), 0)]

    def renew(self) -> list[bytes]:
        """Begin to authenticate again, with the versions known from the first time; returns the payload to send."""
        self.complete = False
        self._mechanism = client_mechanism(self._name, self._credentials)
        return self._ask_for_mechanism()

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
        try:
            if self._expected is None:
                return self._token(bytes(payload))
            return self._answer(payload)
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            raise AuthenticationFailed(f"{self._server} sent no SASL answer: {e}") from e

    @property
    def computation(self) -> Callable[[], bytes] | None:
        """Computes the next token, on any thread, as that takes long; ``computed`` takes it. None if none is due."""
        return self._mechanism.computation

    def computed(self, token: bytes) -> list[bytes]:
        """Take the result of ``computation``; returns the payloads to send next."""
        self._mechanism.computation = None
        return [self._wrapped(token)]

    def _request(self, message: Any, version: int) -> bytes:
        api_key = ApiKey(message.api_key)
        correlation_id = FIRST_SASL_CORRELATION_ID + next(self._ids) % 8
        self._expected = (api_key, version, correlation_id)
        header = request_header(api_key, version, correlation_id, self._client_id)
        return encode_request_header(header, request_header_version(api_key, version)) + encode(message, version)

    def _answer(self, payload: Bytes) -> list[bytes]:
        assert self._expected is not None
        api_key, version, correlation_id = self._expected
        header, at = decode_response_header_from(payload, response_header_version(api_key, version))
        if header.correlation_id != correlation_id:
            raise AuthenticationFailed(f"{self._server} answered another request than {api_name(api_key)}")
        answer = decode_response(api_key, version, memoryview(payload)[at:])
        if api_key == ApiKey.API_VERSIONS:
            return self._versions(answer)
        if api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(answer)
        if answer.error_code != ErrorCode.NONE:
            reason = answer.error_message or error_name(answer.error_code)
            raise AuthenticationFailed(f"{self._server} refused user and password ({self._name}): {reason}")
        self.session_lifetime_ms = answer.session_lifetime_ms if version >= 1 else 0
        return self._token(bytes(answer.auth_bytes))

    def _versions(self, answer: Any) -> list[bytes]:
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(f"{self._server} does not tell its versions: {error_name(answer.error_code)}")
        highest = {each.api_key: each.max_version for each in answer.api_keys}
        if ApiKey.SASL_HANDSHAKE not in highest:
            raise AuthenticationFailed(f"{self._server} does not authenticate by SASL")
        self._handshake_version = min(1, highest[ApiKey.SASL_HANDSHAKE])
        self._authenticate_version = min(2, highest.get(ApiKey.SASL_AUTHENTICATE, 0))
        return self._ask_for_mechanism()

    def _ask_for_mechanism(self) -> list[bytes]:
        request = message_class(ApiKey.SASL_HANDSHAKE, "request")(mechanism=self._name)
        return [self._request(request, self._handshake_version)]

    def _handshake(self, answer: Any) -> list[bytes]:
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(f"{self._server} does not offer {self._name}; it offers {offered}")
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationFailed(f"{self._server} refused the SASL handshake: {error_name(answer.error_code)}")
        return [self._wrapped(self._mechanism.first())]

    def _token(self, token: bytes) -> list[bytes]:
        following = self._mechanism.respond(token)
        self.complete = self._mechanism.complete
        return [] if following is None else [self._wrapped(following)]

    def _wrapped(self, token: bytes) -> bytes:
        if self._handshake_version == 0:
            self._expected = None
            return token
        request = message_class(ApiKey.SASL_AUTHENTICATE, "request")(auth_bytes=token)
        return self._request(request, self._authenticate_version)


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

    Attributes:
        complete: Whether the client has been accepted.
        failure: The reason of its refusal, None if it was not refused.
        session_lifetime_ms: ``session_ms``.
        renewable: Whether the client can renew its session, by SaslAuthenticate v1 or newer.

    Raises:
        ConfigurationError: No mechanism is offered.
    """

    is_server: ClassVar = True
    computation: ClassVar[None] = None

    def __init__(
        self,
        mechanisms: Sequence[str],
        users: Mapping[str, Password],
        api_versions: Callable[[int], Any],
        session_ms: int = 0,
    ) -> None:
        if not mechanisms:
            raise ConfigurationError("a SASL listener needs sasl.enabled.mechanisms, for example SCRAM-SHA-512")
        self.complete = False
        self.failure: AuthenticationFailed | None = None
        self._offered = tuple(mechanisms)
        self._users = users
        self._api_versions = api_versions
        self.session_lifetime_ms = session_ms
        self.renewable = False
        self._mechanism: _PlainServer | _ScramServer | _AnotherMechanism | None = None
        self._mechanism_name = ""
        self._user: str | None = None
        self._bare = False

    def start(self) -> list[bytes]:
        """Return no payload: the client begins."""
        return []

    @property
    def user(self) -> str | None:
        """The user of the session, None before it."""
        return self._user

    def renew(self) -> list[bytes]:
        """Let the client authenticate again. Returns no payload: the client begins."""
        self.complete = False
        self._mechanism = None
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
        if len(payload) > MOST_TOKEN_BYTES:
            self.failure = AuthenticationFailed(f"a frame of {len(payload)} bytes before the authentication is over")
            return []
        try:
            return list(self._answers(payload))
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            self.failure = AuthenticationFailed(f"no SASL request: {e}")
            return []

    def _answers(self, payload: Bytes) -> Iterator[bytes]:
        if self._bare:
            try:
                yield self._respond(bytes(payload))
            except AuthenticationFailed as e:  # the old handshake cannot carry a reason
                self.failure = e
            return
        header, at = decode_request_header_from(payload)
        api_key, version = header.request_api_key, header.request_api_version
        if api_key == ApiKey.API_VERSIONS and self._mechanism is None:
            if version > ApiKey.API_VERSIONS.info.max_version:
                version = 0  # an answer that any client can read
            yield self._response(header.correlation_id, self._api_versions(header.request_api_version), version)
            return
        body = memoryview(payload)[at:]
        if api_key == ApiKey.SASL_HANDSHAKE and self._mechanism is None:
            yield self._handshake(header.correlation_id, version, decode_request(api_key, version, body))
        elif api_key == ApiKey.SASL_AUTHENTICATE and self._mechanism is not None:
            yield self._authenticate(header.correlation_id, version, decode_request(api_key, version, body))
        else:
            self.failure = AuthenticationFailed(f"{api_name(api_key)} before the authentication is over")

    def _handshake(self, correlation_id: int, version: int, request: Any) -> bytes:
        response = message_class(ApiKey.SASL_HANDSHAKE, "response")
        if request.mechanism not in self._offered:
            self.failure = AuthenticationFailed(f"the client asked for {request.mechanism!r}, which is not offered")
            answer = response(error_code=int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), mechanisms=list(self._offered))
            return self._response(correlation_id, answer, version)
        if self._user is not None and version == 0:
            self.failure = AuthenticationFailed("a session can be renewed by SaslHandshake v1 or newer alone")
            answer = response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
            return self._response(correlation_id, answer, version)
        self._bare = version == 0
        self._mechanism = server_mechanism(request.mechanism, self._users)
        if self._user is None:
            self._mechanism_name = request.mechanism
        elif request.mechanism != self._mechanism_name:  # the answer to the token carries the reason
            self._mechanism = _AnotherMechanism(self._mechanism_name, request.mechanism)
        return self._response(correlation_id, response(error_code=0, mechanisms=list(self._offered)), version)

    def _authenticate(self, correlation_id: int, version: int, request: Any) -> bytes:
        response = message_class(ApiKey.SASL_AUTHENTICATE, "response")
        try:
            token = self._respond(bytes(request.auth_bytes))
        except AuthenticationFailed as e:
            self.failure = e
            answer = response(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                error_message=f"Authentication failed: {e}",
                auth_bytes=b"",
            )
        else:
            self.renewable = version >= 1
            lifetime = self.session_lifetime_ms if self.complete and self.renewable else 0
            answer = response(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime)
        return self._response(correlation_id, answer, version)

    def _respond(self, token: bytes) -> bytes:
        assert self._mechanism is not None
        answer = self._mechanism.respond(token)
        if self._mechanism.complete:
            if self._user not in (None, self._mechanism.user):
                raise AuthenticationFailed(
                    f"the session is that of user {self._user!r}; user {self._mechanism.user!r} cannot renew it"
                )
            self._user = self._mechanism.user
            self.complete = True
        return answer

    def _response(self, correlation_id: int, message: Any, version: int) -> bytes:
        header = response_header(correlation_id)
        return encode_response_header(header, response_header_version(message.api_key, version)) + encode(
            message, version
        )


class _AnotherMechanism:
    """A mechanism that refuses a client which renews its session by another mechanism than before."""

    complete = False
    user = ""

    def __init__(self, before: str, now: str) -> None:
        self._error = AuthenticationFailed(f"the session began with {before}; {now} cannot renew it")

    def respond(self, token: bytes) -> bytes:
        raise self._error
