"""SASL without sockets: client and server hand each other payloads."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
import scramp
from network_peers import sasl_answers

from channel.errors import AuthenticationFailed
from channel.network.request import FIRST_SASL_CORRELATION_ID
from channel.network.sasl import SaslClient, SaslServer, ScramUsers, server_tokens
from channel.network.secured import server_channels
from channel.security import MECHANISMS, Credentials, Password, SecurityConfig
from channel.types import SecurityProtocol
from kproto.api import ApiKey
from kproto.codec import decode_response, encode, message_class
from kproto.errors import ConfigurationError
from kproto.headers import decode_request_header_from, encode_request_header, request_header

USERS = {"admin": Password("admin-secret"), "alice": Password("wonder, land=ü")}


def versions(handshake: int = 1, authenticate: int | None = 2) -> Any:
    """An ApiVersions answer of a server that knows these versions."""
    response = message_class(ApiKey.API_VERSIONS, "response")
    ranges = [(ApiKey.SASL_HANDSHAKE, handshake), (ApiKey.API_VERSIONS, 3)]
    if authenticate is not None:
        ranges.append((ApiKey.SASL_AUTHENTICATE, authenticate))
    api = type(
        response.from_json({"errorCode": 0, "apiKeys": [{"apiKey": 1, "minVersion": 0, "maxVersion": 0}]}, 0).api_keys[
            0
        ]
    )
    return response(error_code=0, api_keys=[api(api_key=int(k), min_version=0, max_version=v) for k, v in ranges])


def a_server(mechanisms: Sequence[str] = MECHANISMS, *, session_ms: int = 0, **known: Any) -> SaslServer:
    return SaslServer(mechanisms, USERS, lambda _: versions(**known), session_ms)


def a_client(mechanism: str, name: str = "admin", password: str | None = None) -> SaslClient:
    secret = USERS[name] if password is None else Password(password)
    return SaslClient(mechanism, Credentials(name, secret), "1", "broker 1")


def converse(client: SaslClient, server: SaslServer) -> list[bytes]:
    """Let both talk until neither has more to say; gives what the client sent."""
    sent = list(outgoing := client.start())
    while outgoing:
        answers = [answer for payload in outgoing for answer in server.receive(payload)]
        outgoing = [payload for answer in answers for payload in sasl_answers(client, answer)]
        sent += outgoing
    return sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("name", USERS)
def test_a_known_user_is_accepted_by_both_sides(mechanism: str, handshake: int, name: str) -> None:
    client, server = a_client(mechanism, name), a_server(handshake=handshake)
    converse(client, server)
    assert client.complete
    assert server.complete
    assert server.failure is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["admin", "nobody"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(mechanism: str, name: str) -> None:
    client = SaslClient(mechanism, Credentials(name, Password("guess")), "1", "broker 1")
    server = a_server()
    with pytest.raises(AuthenticationFailed, match=r"broker 1 refused .*invalid username or password") as caught:
        converse(client, server)
    assert "guess" not in str(caught.value)
    assert not client.complete
    assert not server.complete
    assert server.failure is not None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_with_the_old_handshake_a_refused_client_gets_no_answer(mechanism: str) -> None:
    client, server = a_client(mechanism, password="guess"), a_server(handshake=0)
    converse(client, server)
    assert not client.complete
    assert "invalid username or password" in str(server.failure)


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    server = a_server(["SCRAM-SHA-256", "SCRAM-SHA-512"])
    with pytest.raises(AuthenticationFailed, match="does not offer PLAIN; it offers SCRAM-SHA-256, SCRAM-SHA-512"):
        converse(a_client("PLAIN"), server)
    assert "PLAIN" in str(server.failure)


def test_correlation_ids_are_of_the_reserved_range() -> None:
    sent = converse(a_client("SCRAM-SHA-512"), a_server())
    ids = [decode_request_header_from(payload)[0].correlation_id for payload in sent]
    assert ids == list(range(FIRST_SASL_CORRELATION_ID, FIRST_SASL_CORRELATION_ID + 4))


def test_the_old_handshake_is_followed_by_bare_tokens() -> None:
    sent = converse(a_client("PLAIN"), a_server(handshake=0))
    assert sent[2] == b"\0admin\0admin-secret"


@pytest.mark.parametrize("handshake", [0, 1])
def test_a_session_that_the_old_handshake_began_is_renewed_by_the_new_alone(handshake: int) -> None:
    server = a_server(handshake=0)
    converse(a_client("PLAIN"), server)
    server.start()
    client = a_client("PLAIN")
    (asked,) = client.start()
    (request,) = sasl_answers(client, a_server(handshake=handshake).receive(asked)[0])
    (answer,) = server.receive(request)
    assert (server.failure is None) == (handshake == 1)
    if handshake == 1:
        (token,) = sasl_answers(client, answer)
        server.receive(token)
        assert server.complete


def test_the_highest_version_that_both_sides_know_carries_the_tokens() -> None:
    sent = converse(a_client("PLAIN"), a_server(authenticate=1))
    header, _ = decode_request_header_from(sent[2])
    assert (header.request_api_key, header.request_api_version) == (ApiKey.SASL_AUTHENTICATE, 1)


def test_the_client_learns_how_long_its_session_may_last() -> None:
    client = a_client("SCRAM-SHA-256")
    converse(client, a_server(session_ms=60_000))
    assert client.session_lifetime_ms == 60_000


def test_a_server_that_cannot_prove_that_it_knows_the_password_is_refused() -> None:
    """A man in the middle who answers SCRAM without knowing the password."""
    client = a_client("SCRAM-SHA-256")
    imposter = SaslServer(MECHANISMS, {"admin": Password("another")}, lambda _: versions())
    (first,) = client.start()
    (handshake,) = sasl_answers(client, imposter.receive(first)[0])
    (token,) = sasl_answers(client, imposter.receive(handshake)[0])
    (final,) = sasl_answers(client, imposter.receive(token)[0])
    imposter.receive(final)
    response = message_class(ApiKey.SASL_AUTHENTICATE, "response")
    forged = response(error_code=0, error_message=None, auth_bytes=b"v=" + b"A" * 43 + b"=", session_lifetime_ms=0)
    header, _ = decode_request_header_from(final)
    with pytest.raises(AuthenticationFailed, match="could not prove"):
        sasl_answers(client, header.correlation_id.to_bytes(4, "big") + b"\0" + encode(forged, 2))
    assert not client.complete


def test_a_server_without_sasl_is_no_place_to_send_a_password_to() -> None:
    response = message_class(ApiKey.API_VERSIONS, "response")
    client = a_client("PLAIN")
    (first,) = client.start()
    header, _ = decode_request_header_from(first)
    answer = header.correlation_id.to_bytes(4, "big") + encode(response(error_code=0, api_keys=[]), 0)
    with pytest.raises(AuthenticationFailed, match="does not authenticate by SASL"):
        sasl_answers(client, answer)


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.SASL_AUTHENTICATE])
def test_another_request_before_the_handshake_ends_the_authentication(api_key: ApiKey) -> None:
    server = a_server()
    body = encode(message_class(api_key, "request")(), 0)
    answers = server.receive(encode_request_header(request_header(api_key, 0, 1, None), 1) + body)
    assert answers == []
    assert "before the authentication is over" in str(server.failure)


def test_versions_may_be_asked_for_in_a_version_that_the_server_lacks() -> None:
    server = a_server()
    header = encode_request_header(request_header(ApiKey.API_VERSIONS, 3, 7, None), 2)
    newer = header[:2] + (99).to_bytes(2, "big") + header[4:]
    (answer,) = server.receive(newer)
    assert int.from_bytes(answer[:4], "big") == 7
    assert decode_response(ApiKey.API_VERSIONS, 0, answer[4:]).api_keys
    assert server.failure is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_side_that_has_failed_accepts_nobody_any_more(mechanism: str) -> None:
    client, server = a_client(mechanism, password="guess"), a_server()
    with pytest.raises(AuthenticationFailed, match="refused user and password"):
        converse(client, server)
    with pytest.raises(AuthenticationFailed, match="has failed"):
        client.receive(b"")
    failure = server.failure
    assert server.receive(b"") == []
    assert server.failure is failure
    assert not client.complete
    assert not server.complete


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_behind_the_last_is_refused(mechanism: str) -> None:
    server = a_server()
    sent = converse(a_client(mechanism), server)
    assert server.complete
    server.receive(sent[-1])
    assert "no other token is expected" in str(server.failure)


@pytest.mark.parametrize("payload", [b"", b"\0", b"\xff" * 40, bytes(70_000)], ids=["empty", "short", "ones", "huge"])
def test_any_bytes_end_in_a_refusal(payload: bytes) -> None:
    server = a_server()
    assert server.receive(payload) == []
    assert server.failure is not None
    client = a_client("PLAIN")
    client.start()
    with pytest.raises(AuthenticationFailed):
        sasl_answers(client, payload)


@pytest.mark.parametrize(
    "token", [b"", b"admin", b"\0admin\0", b"a\0b\0c\0d", b"other\0admin\0admin-secret", b"\xff\0\0"]
)
def test_a_malformed_plain_token_is_refused(token: bytes) -> None:
    server = a_server(handshake=0)
    client = a_client("PLAIN")
    (first,) = client.start()
    (handshake,) = sasl_answers(client, server.receive(first)[0])
    server.receive(handshake)
    assert server.receive(token) == []
    assert server.failure is not None
    assert not server.complete


@pytest.mark.parametrize("settings", [{"users": USERS}, {"sasl_enabled_mechanisms": MECHANISMS}])
def test_a_listener_without_mechanisms_or_users_is_a_mistake_of_its_owner(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"needs sasl\.enabled\.mechanisms and users"):
        server_channels(SecurityProtocol.SASL_PLAINTEXT, SecurityConfig(**settings), versions)


def challenged(iterations: str) -> SaslClient:
    """A client whose server demands this number of iterations of SCRAM."""
    client, server = SaslClient("SCRAM-SHA-256", Credentials("admin", Password("secret")), "1"), a_server(handshake=0)
    (asked,) = client.start()
    (handshake,) = client.receive(server.receive(asked)[0])
    (first,) = client.receive(server.receive(handshake)[0])
    nonce = first.partition(b"r=")[2].decode()
    client.receive(f"r={nonce}x,s=c2FsdHNhbHRzYWx0c2FsdA==,i={iterations}".encode())
    return client


@pytest.mark.parametrize("iterations", ["1", "4095", "262145", "10000000", "9" * 5000, "0", "-1", ""])
def test_a_number_of_iterations_beyond_the_limits_is_refused_before_anything_is_computed(iterations):
    with pytest.raises(AuthenticationFailed, match=r"teration|must not be < 4096|server first message"):
        challenged(iterations)


def test_a_server_that_does_not_wait_for_the_computation_is_refused():
    client = challenged("4096")
    with pytest.raises(AuthenticationFailed, match="while an answer to its challenge was computed"):
        client.receive(b"a token of the server's choice")
    assert client.computation is not None


def test_a_package_that_is_missing_is_told_before_anything_is_sent(monkeypatch):
    monkeypatch.setitem(sys.modules, "scramp", None)
    with pytest.raises(ConfigurationError, match="SCRAM needs the package scramp"):
        a_client("SCRAM-SHA-256")


@pytest.mark.parametrize("iterations", ["4096", "16384"])
def test_what_kafka_allows_is_computed_apart(iterations):
    client = challenged(iterations)
    assert client.computation is not None
    (final,) = client.computed(client.computation())
    assert final.startswith(b"c=biws,r=")
    assert client.computation is None


class Computed:
    """Counts the computations of salted passwords."""

    def __init__(self, monkeypatch) -> None:
        self.times = 0
        found = scramp.ScramMechanism.make_auth_info

        def counted(scheme, *args, **options):
            self.times += 1
            return found(scheme, *args, **options)

        monkeypatch.setattr(scramp.ScramMechanism, "make_auth_info", counted)


def test_a_first_message_of_scram_costs_no_computation_and_does_not_tell_whether_the_user_exists(monkeypatch):
    computed = Computed(monkeypatch)
    users = {"alice": Password("one"), "bob": Password("two")}
    stored = ScramUsers("SCRAM-SHA-256", users).prepare()
    assert computed.times == 2

    def challenge(name):
        tokens = server_tokens("SCRAM-SHA-256", users, stored)
        answer = tokens.send(f"n,,n={name},r=nonce".encode()).decode()
        fields = dict(field.split("=", 1) for field in answer.split(","))
        with pytest.raises(AuthenticationFailed, match="invalid username or password"):
            tokens.send(f"c=biws,r={fields['r']},p=AAAA".encode())
        return fields["s"], fields["i"]

    known, unknown = challenge("alice"), challenge("nobody")
    assert computed.times == 2
    assert (known, unknown) == (challenge("alice"), challenge("nobody"))
    assert known[1] == unknown[1]
    assert len(known[0]) == len(unknown[0])
    assert known[0] != unknown[0]


def test_a_password_that_is_changed_is_computed_anew(monkeypatch):
    computed = Computed(monkeypatch)
    users = {"alice": Password("one")}
    stored = ScramUsers("SCRAM-SHA-512", users)
    before = stored.stored("alice")
    assert stored.stored("alice") is before
    users["alice"] = Password("two")
    assert stored.stored("alice")[1] != before[1]
    assert computed.times == 2
