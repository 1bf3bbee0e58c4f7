"""SASL without I/O: a client proves who it is, over any ordered stream of frames, before its first request.

Both sides take the payload of one frame and give back the payloads to send. A client goes this way::

    ApiVersions v0  ->  SaslHandshake  ->  token, token, ...  ->  complete | failed

Where the server knows SaslHandshake v1, tokens travel in SaslAuthenticate requests; else each token is a bare frame.
The client's correlation ids are from the range reserved for authenticators, so that no answer is taken for another
request's.
"""

from __future__ import annotations

import hmac
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from channel.errors import AuthenticationFailed
from kproto.api import ApiKey, api_name, request_header_version, response_header_version
from kproto.codec import decode_request, decode_response, encode, message_class
from kproto.error_codes import ErrorCode, error_name
from kproto.errors import ConfigurationError, DecodeError, UnsupportedApi, UnsupportedVersion
from kproto.headers import (
    decode_request_header_from,
    decode_response_header_from,
    encode_request_header,
    encode_response_header,
    request_header,
    response_header,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel.security import Credentials, Password

    from .transport import Bytes

__all__ = ["FIRST_CORRELATION_ID", "SaslClient", "SaslServer"]

FIRST_CORRELATION_ID: Final = 0x7FFFFFF8
"""Correlation ids from here on to the greatest int32 belong to authenticators."""

_SCRAM_ITERATIONS: Final = 4_096
_MOST_TOKEN_BYTES: Final = 65_536
"""A client that is not known yet may send no more than this in one frame."""


# ---- mechanisms ------------------------------------------------------------------------------------------------------


class _ClientMechanism(Protocol):
    """The client's side of one mechanism."""

    complete: bool

    def first(self) -> bytes:
        """The first token."""

    def respond(self, token: bytes) -> bytes | None:
        """The next token; None when the server has proven itself too. Raises ``AuthenticationFailed``."""


class _PlainClient:
    """PLAIN: name and password in clear, so only sensible over TLS."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.complete = False

    def first(self) -> bytes:
        return f"\0{self._credentials.username}\0{self._credentials.password!s}".encode()

    def respond(self, token: bytes) -> bytes | None:
        self.complete = True
        return None


def _scramp() -> Any:
    """The package that computes SCRAM.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import scramp
    except ImportError:
        raise ConfigurationError("SCRAM needs the package scramp: pip install 'kproto[sasl]'") from None
    return scramp


class _ScramClient:
    """SCRAM: both sides prove that they know the password, and neither sends it."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        self._refused = _scramp().ScramException
        self._scram = _scramp().ScramClient([mechanism], credentials.username, str(credentials.password))
        self._answered = False
        self.complete = False

    def first(self) -> bytes:
        return str(self._scram.get_client_first()).encode()

    def respond(self, token: bytes) -> bytes | None:
        try:
            text = token.decode()
            if not self._answered:
                self._answered = True
                self._scram.set_server_first(text)
                return str(self._scram.get_client_final()).encode()
            self._scram.set_server_final(text)
        except (self._refused, ValueError) as e:
            raise AuthenticationFailed(f"the server could not prove that it knows the password: {e}") from None
        self.complete = True
        return None


class _ServerMechanism(Protocol):
    """The server's side of one mechanism."""

    complete: bool

    def respond(self, token: bytes) -> bytes:
        """The answer to a token. Raises ``AuthenticationFailed``."""


class _PlainServer:
    def __init__(self, users: Mapping[str, Password]) -> None:
        self._users = users
        self.complete = False

    def respond(self, token: bytes) -> bytes:
        try:
            authorization, name, password = token.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed("a PLAIN token must be three texts between two zero bytes") from None
        expected = self._users.get(name)
        known = hmac.compare_digest(password.encode(), str(expected or "").encode())
        if not name or not password or expected is None or not known or authorization not in ("", name):
            raise AuthenticationFailed("invalid username or password")
        self.complete = True
        return b""


class _ScramServer:
    def __init__(self, mechanism: str, users: Mapping[str, Password]) -> None:
        self._refused = _scramp().ScramException
        self._mechanism = _scramp().ScramMechanism(mechanism)
        self._users = users
        self._scram = self._mechanism.make_server(self._stored)
        self._asked = False
        self.complete = False

    def _stored(self, name: str) -> Any:
        return self._mechanism.make_auth_info(str(self._users[name]), iteration_count=_SCRAM_ITERATIONS)

    def respond(self, token: bytes) -> bytes:
        try:
            text = token.decode()
            if not self._asked:
                self._asked = True
                self._scram.set_client_first(text)
                return str(self._scram.get_server_first()).encode()
            self._scram.set_client_final(text)
            final = str(self._scram.get_server_final()).encode()
        except (self._refused, ValueError, KeyError):
            raise AuthenticationFailed("invalid username or password") from None
        self.complete = True
        return final


# ---- client ----------------------------------------------------------------------------------------------------------


class SaslClient:
    """The client's side of one authentication.

    Args:
        mechanism: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        credentials: Who this end is.
        client_id: Goes into every header.
        server: Names the server in errors.

    Attributes:
        complete: Whether the server has accepted the client, and proven itself where the mechanism asks for that.
        session_lifetime_ms: How long the server lets the session live before it must be proven anew; 0 for ever.
    """

    def __init__(
        self, mechanism: str, credentials: Credentials, client_id: str | None, server: str = "the server"
    ) -> None:
        self.complete = False
        self.session_lifetime_ms = 0
        self._name = mechanism
        self._mechanism: _ClientMechanism = (
            _PlainClient(credentials) if mechanism == "PLAIN" else _ScramClient(mechanism, credentials)
        )
        self._client_id = client_id
        self._server = server
        self._ids = itertools.count()
        self._expected: tuple[ApiKey, int, int] | None = None
        self._handshake_version = 0
        self._authenticate_version = 0

    def start(self) -> list[bytes]:
        """The first payload to send."""
        return [self._request(message_class(ApiKey.API_VERSIONS, "request")(), 0)]

    def receive(self, payload: Bytes) -> list[bytes]:
        """Go on with what the server answered.

        Returns:
            The payloads to send next; none once ``complete``.

        Raises:
            AuthenticationFailed: The server does not accept the client, cannot prove itself, or answers what is no
                answer here.
        """
        try:
            if self._expected is None:
                return self._token(bytes(payload))
            return self._answer(payload)
        except (DecodeError, UnsupportedApi, UnsupportedVersion) as e:
            raise AuthenticationFailed(f"{self._server} sent no SASL answer: {e}") from e

    def _request(self, message: Any, version: int) -> bytes:
        api_key = ApiKey(message.api_key)
        correlation_id = FIRST_CORRELATION_ID + next(self._ids) % 8
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
    """The server's side of one authentication.

    A refused client is told so: ``receive`` gives the last payload to send, and ``failure`` says why. The owner sends
    the payload, waits ``connection.failed.authentication.delay.ms`` and closes the connection.

    Args:
        mechanisms: What is offered.
        users: Whom to accept, name to password.
        api_versions: Answers an ApiVersions request of a version with the response's message.
        session_ms: How long a session may last, 0 for ever.

    Attributes:
        complete: Whether the client has been accepted.
        failure: Why it was refused, None if it was not.

    Raises:
        ConfigurationError: No mechanism is offered.
    """

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
        self._session_ms = session_ms
        self._mechanism: _ServerMechanism | None = None
        self._bare = False

    def receive(self, payload: Bytes) -> list[bytes]:
        """Go on with what the client sent: the payloads to send back; none if it is refused by the old handshake."""
        if len(payload) > _MOST_TOKEN_BYTES:
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
            except AuthenticationFailed as e:  # the old handshake has no way to say why
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
        self._bare = version == 0
        self._mechanism = (
            _PlainServer(self._users) if request.mechanism == "PLAIN" else _ScramServer(request.mechanism, self._users)
        )
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
            lifetime = self._session_ms if self.complete and version >= 1 else 0
            answer = response(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime)
        return self._response(correlation_id, answer, version)

    def _respond(self, token: bytes) -> bytes:
        assert self._mechanism is not None
        answer = self._mechanism.respond(token)
        self.complete = self._mechanism.complete
        return answer

    def _response(self, correlation_id: int, message: Any, version: int) -> bytes:
        header = response_header(correlation_id)
        return encode_response_header(header, response_header_version(message.api_key, version)) + encode(
            message, version
        )
