"""Conformance rows AVR: what a node says it speaks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import array, i16, i32, tags

from channel.broker.embedded import EmbeddedBroker
from channel.broker.handlers import handle
from channel.broker.hooks import RequestContext
from kproto.api import ApiKey
from kproto.codec import get_codec, message_class
from kproto.errors import DecodeError, UnsupportedVersion
from kproto.node_versions import NodeApiVersions, VersionRange, decode_api_versions_response

conformance = pytest.mark.conformance
PRODUCE = ApiKey.PRODUCE


@conformance("AVR-02")
def test_avr_02_an_unknown_api_in_the_text() -> None:
    """AVR-02: its number stands in for the name."""
    assert str(NodeApiVersions.of([(337, 0, 1)])).endswith("UNKNOWN(337): 0 to 1)")


def test_the_text_says_what_can_be_used() -> None:
    text = str(NodeApiVersions.of([(0, 1, 3), (1, 300, 300), (2, 0, 0)]))
    assert text.startswith("(Produce(0): 1 to 3 [usable: 3], Fetch(1): 300 [unusable: node too new], ListOffsets(2): 0")
    assert "LeaderAndIsr(4): UNSUPPORTED, " in text
    assert "Vote(52)" not in text  # only controllers have it
    assert str(NodeApiVersions.of([(4, -3, -1)])).count("LeaderAndIsr(4): -3 to -1 [unusable: node too old]") == 1


@conformance("AVR-04")
@pytest.mark.parametrize(
    ("own", "latest"),
    [
        ((None, None), 3),
        ((0, 1), 1),
        ((1, 1), 1),
        ((1, 2), 2),
        ((1, 3), 3),
        ((2, 2), 2),
        ((2, 3), 3),
        ((3, 3), 3),
        ((3, 4), 3),
    ],
)
def test_avr_04_the_latest_version_that_both_speak(own: tuple[int | None, int | None], latest: int) -> None:
    """AVR-04: the node takes Produce 1 to 3."""
    assert NodeApiVersions.of([(0, 1, 3)]).latest_usable(PRODUCE, *own) == latest


@pytest.mark.parametrize(
    ("node", "own"),
    [
        pytest.param((2, 3), (0, 1), marks=conformance("AVR-06"), id="AVR-06-node-too-new-for-the-range"),
        pytest.param((1, 2), (3, 4), id="node-too-old-for-the-range"),
        pytest.param((300, 300), (None, None), marks=conformance("AVR-08"), id="AVR-08-node-far-too-new"),
        pytest.param(None, (None, None), id="not-announced"),
    ],
)
def test_avr_06_and_08_ranges_that_do_not_meet(node: tuple[int, int] | None, own: tuple[Any, Any]) -> None:
    """AVR-06, AVR-08: an error, never a guess."""
    versions = NodeApiVersions.of([] if node is None else [(0, *node)])
    with pytest.raises(UnsupportedVersion, match="Produce"):
        versions.latest_usable(PRODUCE, *own)


RANGES = st.builds(lambda low, size: VersionRange(low, low + size), st.integers(-3, 12), st.integers(-2, 12))


@given(RANGES, RANGES)
def test_an_intersection_holds_the_versions_of_both_ranges_and_no_other(one: VersionRange, two: VersionRange) -> None:
    both = one.intersection(two)
    versions = {v for v in range(-10, 40) if one.lowest <= v <= one.highest and two.lowest <= v <= two.highest}
    assert versions == (set() if both is None else set(range(both.lowest, both.highest + 1)))
    assert both == two.intersection(one)


def test_what_two_nodes_both_speak() -> None:
    ours = NodeApiVersions.of_kafka_3_9()
    old = NodeApiVersions.of([(4, 0, 2), (6, 0, 5), (18, 0, 3), (337, 0, 1)])
    common = ours.intersection(old)
    assert common.ranges == {4: (0, 2), 6: (0, 5), 18: (0, 3)}
    assert common == old.intersection(ours)
    assert ours.intersection(ours) == ours
    assert common.latest_usable(ApiKey.UPDATE_METADATA) == old.latest_usable(ApiKey.UPDATE_METADATA) == 5
    assert ours.intersection(NodeApiVersions.of([(4, 8, 9)])).ranges == {}


@conformance("AVR-10")
@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("listener", ["Z", "B", "C"])
def test_avr_10_every_key_keeps_its_range(listener: str, version: int) -> None:
    """AVR-10: the default response of a ZooKeeper-mode broker, a KRaft broker and a controller, over the wire."""
    announced = {
        int(key): VersionRange(0, key.info.max_version)
        for key in ApiKey
        if listener in key.info.listeners and key.info.stable
    }
    form: dict[str, Any] = {
        "errorCode": 0,
        "apiKeys": [{"apiKey": k, "minVersion": r.lowest, "maxVersion": r.highest} for k, r in announced.items()],
    }
    if version >= 1:
        form["throttleTimeMs"] = 0
    codec = get_codec("construct")
    response = codec.message_class(ApiKey.API_VERSIONS, "response").from_json(form, version)
    read = decode_api_versions_response(version, codec.encode(response, version))
    assert NodeApiVersions.from_response(read).ranges == announced
    assert (ApiKey.LEADER_AND_ISR in announced) == (listener == "Z")


@conformance("AVR-13")
def test_avr_13_a_zookeeper_mode_broker_takes_no_part_in_a_quorum() -> None:
    """AVR-13: neither by the table of listeners, nor in what an embedded broker answers."""
    quorum = {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.DESCRIBE_QUORUM}
    assert quorum.isdisjoint(key for key in ApiKey if "Z" in key.info.listeners)
    assert all("C" in key.info.listeners for key in quorum)
    request = message_class(ApiKey.API_VERSIONS, "request")(client_software_name="a", client_software_version="1")
    answer = handle(EmbeddedBroker(0), RequestContext(ApiKey.API_VERSIONS, 4, 0, "0", "PLAINTEXT"), request)
    announced = {each.api_key for each in answer.api_keys}
    assert ApiKey.LEADER_AND_ISR in announced
    assert quorum.isdisjoint(announced)


@conformance("AVR-15")
def test_avr_15_an_old_brokers_refusal() -> None:
    """AVR-15: asked at version 4, answered in the form of version 0."""
    body = i16(35) + array([i16(18) + i16(0) + i16(3)], flexible=False)
    response = decode_api_versions_response(4, body)
    assert response.error_code == 35
    assert NodeApiVersions.from_response(response).ranges == {18: (0, 3)}


@conformance("AVR-15")
def test_avr_15_older_ones_name_no_range() -> None:
    """AVR-15: before Kafka 2.4 the list of the refusal was empty."""
    response = decode_api_versions_response(3, i16(35) + i32(0))
    assert (response.error_code, list(response.api_keys)) == (35, [])


def test_what_is_neither_form_is_an_error() -> None:
    with pytest.raises(DecodeError):
        decode_api_versions_response(4, b"\x00")
    with pytest.raises(DecodeError):
        decode_api_versions_response(0, tags())
