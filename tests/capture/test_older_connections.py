"""Connections that are older than the capture, and other protocols: what each side says tells what the other said."""

import gzip
import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import packets as make
import pytest
from conftest import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.api import ApiKey, response_body_version
from kproto.capture import CaptureReader, CaptureSummary, Exchange, FrameStatus, exchanges
from kproto.capture.cutter import MOST_PENDING
from kproto.error_codes import ErrorCode

STRANGERS = sorted((DATA / "strangers").glob("*.pcap.gz"))

HEARTBEAT = b"\x06group" + struct.pack(">i", 7) + b"\x07member\0\0"
BODIES = {
    (12, 4): (HEARTBEAT, bytes(7)),  # no codec of kproto reads it
    (18, 0): (b"", bytes(6)),
    (3, 2): (b"\0\0\0\1\0\6orders", bytes(14)),
    (6, 8): (make.UPDATE_METADATA_8, bytes(3)),
    (1, 18): (bytes(21) + b"\1\1\1\0", bytes(10) + b"\1\0"),  # of Kafka 4.1
    (22, 0): (b"\xff\xff\0\0\xea\x60", bytes(16)),
}


def read(packets: Iterable[make.Packet], **options: object) -> tuple[list[Exchange], CaptureSummary]:
    reader = CaptureReader(**{"apis": None, **options})  # type: ignore[arg-type]
    events = [event for packet in packets for event in reader.packet(packet.time_ns, packet.data, make.ETHERNET)]
    return [event for event in [*events, *reader.end()] if isinstance(event, Exchange)], reader.summary


@pytest.mark.parametrize("ports", [None, (9092,)], ids=["found", "named"])
@pytest.mark.parametrize("piece", [1460, 30], ids=["whole", "in pieces"])
@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.parametrize("api", BODIES, ids=str)
def test_the_first_request_is_read_where_its_answer_has_its_id(
    api: tuple[int, int], count: int, piece: int, ports: tuple[int, ...] | None
) -> None:
    talk = make.Talk()
    for number in range(70, 70 + count):
        body, answer = BODIES[api]
        talk.ask(make.request(*api, number, body, "app"), piece).answer(make.response(*api, number, answer))
    found, summary = read(talk.packets, ports=ports)
    assert [(e.correlation_id, e.response is not None) for e in found] == [(70 + n, True) for n in range(count)]
    assert (summary.partial_starts, summary.gaps, summary.requests) == (0, 0, {api: count})


PROXIES: dict[str, list[bytes]] = {  # what client and server say by turns before Kafka's bytes
    "PROXY 1": [b"PROXY TCP4 10.0.0.1 10.0.0.2 50000 9092\r\n"],
    "PROXY 2": [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(8) + b"\xc3\x50\x23\x84"],
    "SOCKS 4": [b"\4\1\x23\x84\x0a\0\0\2\0", b"\0\x5a" + bytes(6)],
    "SOCKS 5": [b"\5\1\0", b"\5\0", b"\5\1\0\1\x0a\0\0\2\x23\x84", b"\5\0\0\1\x0a\0\0\2\x23\x84"],
    "CONNECT": [b"CONNECT b:9092 HTTP/1.1\r\nHost: b:9092\r\n\r\n", b"HTTP/1.1 200 Connection established\r\n\r\n"],
    "three bytes": [b"\5\1\0"],
}


@pytest.mark.parametrize("ports", [None, (9092,)], ids=["found", "named"])
@pytest.mark.parametrize("api", BODIES, ids=str)
@pytest.mark.parametrize("spoken", PROXIES.values(), ids=PROXIES)
def test_what_is_said_to_a_proxy_first_hides_no_request_and_no_answer(
    spoken: list[bytes], api: tuple[int, int], ports: tuple[int, ...] | None
) -> None:
    talk = make.Talk().open()
    for number, said in enumerate(spoken):
        (talk.answer if number % 2 else talk.ask)(said)
    for number in range(3):
        body, answer = BODIES[api]
        talk.ask(make.request(*api, number, body, "app")).answer(make.response(*api, number, answer))
    found, summary = read(talk.close().packets, ports=ports)
    assert [(e.correlation_id, e.response is not None) for e in found] == [(n, True) for n in range(3)]
    assert (summary.connections, summary.kafka_connections, summary.gaps) == (1, 1, 0)


def test_an_answer_with_another_id_makes_no_request_of_a_guess() -> None:
    talk = make.Talk().ask(make.request(12, 4, 70, HEARTBEAT, "app")).answer(make.response(12, 4, 71, bytes(7)))
    assert read(talk.packets)[0] == []


def test_an_answer_to_a_request_before_the_capture_comes_first() -> None:
    talk = make.Talk().answer(make.response(12, 4, 69, bytes(7)))
    for number in (70, 71, 72):
        talk.ask(make.request(12, 4, number, HEARTBEAT, "app")).answer(make.response(12, 4, number, bytes(7)))
    found, _ = read(talk.packets)
    assert [e.correlation_id for e in found if e.request and e.response] == [70, 71, 72]


@pytest.mark.parametrize("handshake", [True, False], ids=["from the opening on", "older"])
@pytest.mark.parametrize("capture", STRANGERS, ids=lambda path: path.name.partition(".")[0])
def test_other_protocols_are_not_kafka(capture: object, handshake: bool) -> None:
    link, packets = make.read_pcap(capture)  # type: ignore[arg-type]
    assert link == make.ETHERNET
    found, summary = read(packets if handshake else packets[3:])
    assert (found, summary.kafka_connections, summary.requests) == ([], 0, {})
    assert summary.connections == 1
    named, _ = read(packets if handshake else packets[3:], ports=[9000, 5432, 27017, 9083, 9042, 2181, 3306, 7000, 445])
    assert named == []


def test_the_first_request_of_a_connection_whose_handshake_alone_is_missing() -> None:
    talk = make.Talk()
    for number in (0, 1):
        talk.ask(make.request(12, 4, number, HEARTBEAT, "app")).answer(make.response(12, 4, number, bytes(7)), 9)
    assert [(e.correlation_id, e.response is not None) for e in read(talk.packets)[0]] == [(0, True), (1, True)]


def test_a_client_that_closes_before_its_only_answer_comes_is_read() -> None:
    """Of a connection older than the capture; an answer to the request before comes first."""
    talk = make.Talk().answer(make.response(1, 4, 6, bytes(40)))
    talk.ask(make.request(12, 4, 7, HEARTBEAT, "app"))
    talk.add(make.tcp(talk.client, talk.server, talk.sent, talk.answered, make.FIN | make.ACK))
    talk.answer(make.response(12, 4, 7, bytes(7))).reset()
    assert [(e.correlation_id, e.response is not None) for e in read(talk.packets)[0] if e.request] == [(7, True)]


def answered(found: Iterable[Exchange]) -> dict[tuple[object, ...], tuple[int, bool]]:
    """The requests: when each was sent, and whether it was answered, the answer being there whole."""
    return {
        (e.client, e.server, e.correlation_id, e.request.content): (
            e.time_ns,
            e.response is not None and e.response.status is FrameStatus.WHOLE,
        )
        for e in found
        if e.request is not None
    }


def check_cuts(path: Path, seed: int, count: int) -> int:
    """Read a capture from any packets on: what was answered behind them is, and nothing else."""
    link, packets = make.read_pcap(path)
    draw = random.Random(seed)
    told = 0

    def read_from(at: int) -> dict[tuple[object, ...], tuple[int, bool]]:
        reader = CaptureReader(apis=None)
        events = [event for each in packets[at:] for event in reader.packet(each.time_ns, each.data, link)]
        return answered(event for event in [*events, *reader.end()] if isinstance(event, Exchange))

    whole = read_from(0)
    for at in sorted(draw.sample(range(1, len(packets)), count)):
        if packets[at - 1].time_ns == packets[at].time_ns:
            continue
        found = read_from(at)
        answers = {key for key, (_, is_answered) in found.items() if is_answered}
        behind = {
            key for key, (sent_ns, is_answered) in whole.items() if is_answered and sent_ns >= packets[at].time_ns
        }
        assert behind <= answers, (path.name, at)
        assert all(key in whole and whole[key][1] == (key in answers) for key in found), (path.name, at)
        told += len(behind)
    return told


def test_from_any_packet_on_each_request_that_was_answered_is_read() -> None:
    assert check_cuts(DATA / "captures" / "ibp-0.9.0-a.pcap.gz", 1, 4) > 200
    assert check_cuts(DATA / "kraft" / "kraft-4.1-c.pcap.gz", 2, 4) > 200


CUT: Final = [
    path
    for path in sorted([*(DATA / "captures").glob("ibp-*.pcap.gz"), *(DATA / "kraft").glob("*.pcap.gz")])
    if path.name.partition(".pcap")[0] not in ("kraft-4.1-b", "ibp-3.9-a-lossy")
]
"""Real captures. kraft-4.1-b has several clocks, and the lossy one lacks bytes."""


@pytest.mark.slow
@pytest.mark.parametrize("path", CUT, ids=lambda path: path.name.partition(".pcap")[0])
def test_from_any_packet_on_all_captures_are_read(path: Path) -> None:
    assert check_cuts(path, 7, 12) > 0


@pytest.mark.parametrize("apis", [None, {ApiKey.CONTROLLED_SHUTDOWN}])
def test_a_controlled_shutdown_that_names_no_client_is_read(apis: set[int] | None) -> None:
    """Version 0 has no client id; brokers of 0.8.2 to 0.10 sent it on a connection of its own."""
    talk = make.Talk()
    for number in (1, 2, 3):
        talk.ask(struct.pack(">ihhii", 12, 7, 0, number, 2))
        talk.answer(struct.pack(">iihi", 10, number, 0, 0))
    found = read(talk.packets, apis=apis)[0]
    assert [(e.correlation_id, e.response is not None) for e in found] == [(n, True) for n in (1, 2, 3)]


def test_bytes_like_a_controlled_shutdown_count_where_its_answer_does() -> None:
    alike = struct.pack(">ihhii", 12, 7, 0, 1, 2)
    assert read(make.Talk().ask(alike).answer(b"ok, " + bytes(12)).packets)[0] == []
    assert read(make.Talk().ask(alike + b"more").answer(struct.pack(">iihi", 10, 1, 0, 0)).packets)[0] == []


def test_what_a_server_says_decides_on_a_doubtful_request() -> None:
    """A version that Kafka does not have, and a body that cannot be read: captures hold such requests, too."""
    odd = make.request(6, 99, 7, b"\xff" * 30)
    asked = make.Talk().open().ask(odd)
    assert [e.correlation_id for e in read(asked.packets)[0]] == [7]
    answered = make.Talk().open().ask(odd).answer(make.response(6, 99, 7, bytes(2)))
    assert [(e.correlation_id, e.response is not None) for e in read(answered.packets)[0]] == [(7, True)]
    denied = make.Talk().open().ask(odd).answer(b"ERROR what?\r\n")
    assert read(denied.packets)[0] == []
    silent = make.Talk().open().ask(odd).close()
    assert [e.correlation_id for e in read(silent.packets)[0]] == [7]


def test_a_server_whose_first_bytes_are_lost_is_not_judged_by_what_follows() -> None:
    odd = make.request(6, 99, 7, b"\xff" * 30)
    answered = make.Talk().open().ask(odd).answer(make.response(6, 99, 7, bytes(9)), 7)
    first = next(at for at, packet in enumerate(answered.packets) if packet.data[-7:-4] == bytes(3))
    assert [e.correlation_id for e in read([*answered.packets[:first], *answered.packets[first + 1 :]])[0]] == [7]


@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=80)), max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_no_kafka(said: list[tuple[bool, bytes]], handshake: bool) -> None:
    talk = make.Talk().open() if handshake else make.Talk()
    for by_server, data in said:
        (talk.answer if by_server else talk.ask)(data)
    found, _ = read(talk.close().packets)
    assert not [e for e in found if e.response is not None]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_broker_without_the_version_of_api_versions_answers_in_version_0(version: int) -> None:
    request = b"" if version < 3 else b"\x0blibrdkafka\x062.3.0\0"[:18] + b"\0"
    answer = struct.pack(">hihhh", ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 3)
    for body in (answer, answer[:2] + bytes(4)):
        assert response_body_version(ApiKey.API_VERSIONS, version, body) == 0
        talk = make.Talk().open().ask(make.request(18, version, 1, request)).answer(make.response(18, version, 1, body))
        (exchange,), _ = read(talk.packets)
        assert exchange.response_message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response_body_version(ApiKey.METADATA, version, answer) == version
    assert response_body_version(ApiKey.API_VERSIONS, version, b"\0\0" + answer[2:]) == version
    assert response_body_version(ApiKey.API_VERSIONS, version, answer + b"\0") == version


def test_a_request_that_is_given_up_as_too_many_wait_is_given_and_counted() -> None:
    talk = make.Talk().open()
    for number in range(MOST_PENDING + 3):
        talk.ask(make.request(18, 0, number, b""))
    found, summary = read(talk.packets)
    given_up = [e.correlation_id for e in found if "gave it up" in (e.unmatched_reason or "")]
    assert given_up == [0, 1, 2]
    assert (summary.given_up["requests"], summary.unmatched_requests) == (3, MOST_PENDING + 3)


def test_the_captures_of_other_protocols_are_small() -> None:
    assert len(STRANGERS) >= 8
    assert sum(path.stat().st_size for path in STRANGERS) < 8000
    assert all(gzip.decompress(path.read_bytes())[:4] == b"\xd4\xc3\xb2\xa1" for path in STRANGERS)
    assert list(exchanges(STRANGERS[0], apis=None)) == []
