"""Control requests: which addresses each version of UpdateMetadata takes, and what is no control request."""

from typing import Any

import pytest

from channel.send.encoded_requests import ListenerNotExpressible, SingleRequest
from kproto import ApiKey, UnsupportedVersion, UpdateMetadataResponse
from kproto.codec import decode_request, get_codec

PLAINTEXT, SSL = ("PLAINTEXT", 9092, 0), ("SSL", 9093, 1)


@pytest.fixture(params=["cython", "construct"])
def update(request: pytest.FixtureRequest) -> Any:
    """Makes an UpdateMetadata request with one broker of these (listener, port, protocol), in either codec."""
    codec: Any = get_codec(request.param)
    names = ("request", "UpdateMetadataBroker", "UpdateMetadataEndpoint")
    message, broker, endpoint = (
        codec.message_class(ApiKey.UPDATE_METADATA, n) if n == "request" else getattr(codec, n) for n in names
    )

    def make(*endpoints: tuple[str, int, int], **more: Any) -> Any:
        made = [
            endpoint(host="h", port=p, listener=name, security_protocol=protocol) for name, p, protocol in endpoints
        ]
        return message(controller_id=1, live_brokers=[broker(id=7, endpoints=made, **more)])

    return make


def read(message: Any, version: int) -> Any:
    body = b"".join(SingleRequest(message, version).build(version))
    return decode_request(ApiKey.UPDATE_METADATA, version, body).live_brokers[0]


def test_version_0_takes_the_host_and_port_of_the_only_endpoint(update: Any) -> None:
    message = update(PLAINTEXT)
    broker = read(message, 0)
    assert (broker.id, broker.v0_host, broker.v0_port) == (7, "h", 9092)
    assert message.live_brokers[0].v0_host == ""  # the caller's own message stays as it was


def test_version_0_keeps_an_address_that_is_in_its_own_fields(update: Any) -> None:
    broker = read(update(v0_host="mine", v0_port=5), 0)
    assert (broker.v0_host, broker.v0_port) == ("mine", 5)


@pytest.mark.parametrize("endpoints", [(), (PLAINTEXT, SSL), (SSL,), (("X", 1, 7),)])
def test_version_0_refuses_what_it_has_no_field_for(update: Any, endpoints: Any) -> None:
    with pytest.raises(ListenerNotExpressible, match="one PLAINTEXT address of each broker, broker 7 has"):
        SingleRequest(update(*endpoints), 0)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("listener", ["REPLICATION", "SSL"])
def test_versions_1_and_2_refuse_a_listener_of_another_name(update: Any, version: int, listener: str) -> None:
    with pytest.raises(ListenerNotExpressible, match=f"listener {listener} of broker 7"):
        SingleRequest(update(PLAINTEXT, (listener, 1, 0)), version)


@pytest.mark.parametrize("version", [1, 2])
def test_versions_1_and_2_take_listeners_called_as_their_protocol_or_not_at_all(update: Any, version: int) -> None:
    broker = read(update(PLAINTEXT, SSL, ("", 5, 0)), version)
    assert [(e.port, e.security_protocol) for e in broker.endpoints] == [(9092, 0), (9093, 1), (5, 0)]


@pytest.mark.parametrize("version", range(3, 9))
def test_later_versions_take_any_listener(update: Any, version: int) -> None:
    broker = read(update(PLAINTEXT, ("REPLICATION", 1, 0)), version)
    assert [e.listener for e in broker.endpoints] == ["PLAINTEXT", "REPLICATION"]


def test_the_addresses_hold_for_every_broker_that_shares_the_request(update: Any) -> None:
    first = SingleRequest(update(PLAINTEXT), 0)
    before = first.for_broker(5).build(0)
    bodies = {b"".join(pieces) for pieces in (before, first.build(0), first.for_broker(6).build(0))}
    assert len(bodies) == 1
    assert b"\x00\x01h" in bodies.pop()


@pytest.mark.parametrize("what", [UpdateMetadataResponse(), b"bytes", None, {"controllerId": 1}])
def test_what_is_no_control_request_is_refused(what: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(what).__name__} is no control request; give a LeaderAndIsrRequest"):
        SingleRequest(what, 8)


def test_an_unknown_version_is_refused(update: Any) -> None:
    with pytest.raises(UnsupportedVersion):
        SingleRequest(update(PLAINTEXT), 9)
