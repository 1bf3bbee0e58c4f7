"""Which response answers which request; which side asks."""

import struct
from pathlib import Path

import packets as make
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproto import Truncated
from kproto.api import ApiKey
from kproto.capture import CaptureSummary, Exchange, exchanges, frames

BODY = make.UPDATE_METADATA_8
DONE = b"\0\0\0"


def ask(correlation_id: int, client_id: str | None = "1") -> bytes:
    return make.request(6, 8, correlation_id, BODY, client_id)


def done(correlation_id: int) -> bytes:
    return make.response(6, 8, correlation_id, DONE)


def read(path: Path, talk: make.Talk, **options: object) -> list[Exchange]:
    path.write_bytes(make.pcap(talk.packets))
    return list(exchanges(path, **options))  # type: ignore[arg-type]


def ids(found: list[Exchange]) -> list[tuple[int | None, int | None]]:
    """Stream offsets of request and response."""
    return [(e.request and e.request.offset, e.response and e.response.offset) for e in found]


def test_pipelined_requests_with_one_id_are_answered_in_order(tmp_path: Path) -> None:
    one, answer = len(ask(0)), len(done(0))
    talk = make.Talk().open().ask(ask(0) * 3).answer(done(0) * 3)
    assert ids(read(tmp_path / "a.pcap", talk)) == [(0, 0), (one, answer), (2 * one, 2 * answer)]


def test_after_a_lost_response_the_newest_request_with_that_id_is_meant(tmp_path: Path) -> None:
    """Ids wrap and are used again: the first request with id 0 lost its answer long ago."""
    one, answer = len(ask(0)), len(done(0))
    talk = make.Talk().open().ask(ask(0))
    talk.answered += answer  # the capture lacks this
    talk.ask(ask(0)).answer(done(0))
    assert ids(read(tmp_path / "a.pcap", talk)) == [(0, None), (one, answer)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    numbers=st.lists(st.sampled_from([2**31 - 1, -(2**31), -1, 0, 7]), min_size=1, max_size=12),
    depth=st.integers(1, 12),
)
def test_any_ids_pipelined_to_any_depth(numbers: list[int], depth: int, tmp_path: Path) -> None:
    talk = make.Talk().open()
    for at in range(0, len(numbers), depth):
        for number in numbers[at : at + depth]:
            talk.ask(ask(number))
        for number in numbers[at : at + depth]:
            talk.answer(done(number))
    found = read(tmp_path / "a.pcap", talk)
    assert [e.correlation_id for e in found] == numbers
    assert ids(found) == [(n * len(ask(0)), n * len(done(0))) for n in range(len(numbers))]


def test_a_response_tells_that_earlier_requests_got_none(tmp_path: Path) -> None:
    """As after Produce with acks=0."""
    talk = make.Talk().open()
    talk.ask(make.request(0, 9, 1, bytes(50))).ask(ask(2)).answer(done(2))
    (found,) = read(tmp_path / "a.pcap", talk)
    assert (found.correlation_id, found.response is not None) == (2, True)
    every = read(tmp_path / "a.pcap", talk, apis=None)
    assert [(e.api_key, e.response is not None) for e in every] == [(0, False), (6, True)]


def test_a_response_that_overtakes_its_late_request_in_the_capture(tmp_path: Path) -> None:
    """Queues of one network card: the response was captured before the request's last segment."""
    talk = make.Talk(step_ns=100_000).open()
    talk.ask(make.request(6, 8, 3, bytes(2000))).answer(done(3)).ask(ask(4)).answer(done(4))
    packets = talk.packets
    packets[4], packets[5] = packets[5], packets[4]
    assert [e.response is not None for e in read(tmp_path / "a.pcap", talk)] == [True, True]


def test_why_a_request_has_no_response(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    open_end = make.Talk().open().ask(ask(0))
    assert read(path, open_end)[0].unmatched_reason == "the capture ends before a response"
    closed = make.Talk().open().ask(ask(0)).close()
    assert read(path, closed)[0].unmatched_reason == "the connection ended without a response"
    summary = CaptureSummary()
    reset = make.Talk().open().ask(ask(0)).reset()
    (found,) = read(path, reset, summary=summary)
    assert found.unmatched_reason == "the connection ended without a response"
    assert found.to_json()["unmatched_reason"] == found.unmatched_reason
    assert found.to_json()["response"] is None
    assert (summary.unmatched_requests, summary.unmatched_responses) == (1, 0)


def test_a_request_captured_behind_the_servers_end_is_told_to_have_no_response(tmp_path: Path) -> None:
    packets = make.Talk().open().ask(ask(0)).close().packets
    talk = make.Talk(packets=[*packets[:3], packets[5], packets[3], packets[4], *packets[6:]])
    assert [e.unmatched_reason for e in read(tmp_path / "a.pcap", talk)] == ["the connection ended without a response"]


@pytest.mark.parametrize("handshake", [True, False])
def test_a_request_behind_its_servers_reset_is_read_once(tmp_path: Path, handshake: bool) -> None:
    """It was on its way; a copy of it, or one that is sent with the request before, is no other request."""
    talk = make.Talk().open().ask(ask(0)).answer(done(0)).ask(ask(1)).reset()
    talk.packets = talk.packets if handshake else talk.packets[3:]
    last = talk.sent
    talk.ask(ask(2))
    talk.sent = last - len(ask(1))
    talk.ask(ask(1)).ask(ask(2))
    talk.sent = last - len(ask(1))
    talk.ask(ask(1) + ask(2))
    summary = CaptureSummary()
    found = read(tmp_path / "a.pcap", talk, summary=summary)
    assert [(each.correlation_id, each.response is None) for each in found] == [(0, False), (1, True), (2, True)]
    assert (summary.requests.total(), summary.unmatched_requests) == (3, 2)


def test_one_hopeless_request_does_not_hold_back_all_others(tmp_path: Path) -> None:
    """Its broker hangs, its connection stays open: after a minute others come out without it."""
    hung = make.Talk().open().ask(ask(0))
    busy = make.Talk(client=("10.0.0.1", 50001), step_ns=10**9).open()
    for n in range(1, 200):
        busy.ask(ask(n)).answer(done(n))
    path = tmp_path / "a.pcap"
    path.write_bytes(make.pcap(hung.packets + busy.packets))
    found = [(exchange.correlation_id, exchange.response is not None) for exchange in exchanges(path)]
    assert found[0] == (1, True)
    assert (0, False) in found


def test_a_null_client_id_stays_null(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(ask(0, None)).answer(done(0)).ask(ask(1, "")).answer(done(1))
    found = read(tmp_path / "a.pcap", talk)
    assert [e.client_id for e in found] == [None, ""]
    assert found[0].to_json()["client_id"] is None


def test_tagged_fields_in_the_headers(tmp_path: Path) -> None:
    head = struct.pack(">hhih", 6, 8, 5, 1) + b"1" + b"\x02\x00\x01a\x05\x02bc"
    answer = struct.pack(">i", 5) + b"\x01\x07\x01z"
    talk = make.Talk().open().ask(make.sized(head + BODY)).answer(make.sized(answer + b"\0\x0b\0"))
    (found,) = read(tmp_path / "a.pcap", talk)
    assert found.request_message.controller_epoch == 2
    assert found.response_message.error_code == 11
    assert found.error is None


def test_bodies_that_do_not_decode_are_told(tmp_path: Path) -> None:
    talk = make.Talk().open()
    talk.ask(make.request(6, 8, 0, b"\0\1")).answer(make.response(6, 8, 0, b""))
    talk.ask(struct.pack(">ihhih", 12, 4, 99, 1, 1) + b"1\0")
    path = tmp_path / "a.pcap"
    broken, newer = read(path, talk)
    assert broken.request_message is None
    assert isinstance(broken.error, Truncated)
    assert broken.error.offset is not None
    assert broken.to_json()["error"] == str(broken.error)
    assert str(newer.error) == "LeaderAndIsr (4) has no version 99; it has 0 to 7"


def test_controlled_shutdown_0_has_no_client_id(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(struct.pack(">ihhii", 12, 7, 0, 9, 3)).answer(make.response(7, 0, 9, bytes(6)))
    (found,) = read(tmp_path / "a.pcap", talk, apis=[ApiKey.CONTROLLED_SHUTDOWN])
    assert found.request is not None
    assert (found.client_id, bytes(found.request.body)) == (None, b"\0\0\0\3")


def test_authentication_tokens_without_a_header_are_passed_over(tmp_path: Path) -> None:
    """SaslHandshake 0: what follows are bare tokens of the mechanism, both ways, until requests begin."""
    talk = make.Talk().open()
    talk.ask(make.request(17, 0, 0, b"\0\5PLAIN")).answer(make.response(17, 0, 0, bytes(6)))
    talk.ask(make.sized(b"\0admin\0secret")).answer(make.sized(b""))
    talk.ask(ask(1)).answer(done(1)).ask(ask(2)).answer(done(2))
    summary = CaptureSummary()
    found = read(tmp_path / "a.pcap", talk, summary=summary)
    assert [(e.correlation_id, e.response is not None) for e in found] == [(1, True), (2, True)]
    assert summary.bad_inputs == []


def test_other_apis_on_request(tmp_path: Path) -> None:
    talk = make.Talk().open()
    talk.ask(make.request(18, 3, 0, b"\1\1\0")).answer(make.response(18, 3, 0, bytes(7)))
    talk.ask(ask(1)).answer(done(1))
    talk.ask(make.request(1, 13, 2, bytes(60))).answer(make.response(1, 13, 2, bytes(900)))
    path = tmp_path / "a.pcap"
    assert [e.api_key for e in read(path, talk)] == [6]
    assert [e.api_key for e in read(path, talk, apis=[1, 6])] == [6, 1]
    every = read(path, talk, apis=None)
    assert [e.api_key for e in every] == [18, 6, 1]
    assert all(e.response is not None for e in every)
    assert every[0].response is not None
    assert every[0].response.body_at == 4  # an ApiVersions response has the oldest header in every version


# ---- which side is the server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [9092, 60000])
def test_the_server_is_who_is_asked_whatever_the_ports(port: int, tmp_path: Path) -> None:
    """No handshake, and the server's port may be the higher one."""
    talk = make.Talk(server=("10.0.0.2", port))
    for n in range(3):
        talk.ask(ask(n)).answer(done(n))
    found = read(tmp_path / "a.pcap", talk)
    assert [str(e.server) for e in found] == [f"10.0.0.2:{port}"] * 3
    assert all(e.response is not None for e in found)


def test_a_capture_that_begins_with_a_response(tmp_path: Path) -> None:
    talk = make.Talk().answer(done(8)).ask(ask(9)).answer(done(9))
    found = read(tmp_path / "a.pcap", talk)
    assert [(e.correlation_id, e.response is not None) for e in found] == [(9, True)]


def test_named_ports_leave_out_all_others(tmp_path: Path) -> None:
    one, two = make.Talk().open(), make.Talk(server=("10.0.0.2", 9093)).open()
    for talk in (one, two):
        talk.ask(ask(0)).answer(done(0))
    one.packets += two.packets
    assert len(read(tmp_path / "a.pcap", one)) == 2
    summary = CaptureSummary()
    (found,) = read(tmp_path / "a.pcap", one, ports=[9093], summary=summary)
    assert found.server.port == 9093
    assert summary.connections == 1


def test_addresses_print_as_people_write_them(tmp_path: Path) -> None:
    talk = make.Talk(client=("2001:db8::7", 50000), server=("::1", 9092)).open().ask(ask(0)).answer(done(0))
    (found,) = read(tmp_path / "a.pcap", talk)
    assert (found.to_json()["client"], found.to_json()["server"]) == ("[2001:db8::7]:50000", "[::1]:9092")


def test_a_connection_has_one_id_whatever_is_read_of_it(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(ask(0)).answer(done(0))
    path = tmp_path / "a.pcap"
    path.write_bytes(make.pcap(talk.packets))
    first = {frame.connection.conn_id for frame in frames(path)}
    second = {frame.connection.conn_id for frame in frames(path, ports=[9092], apis=None)}
    assert first == second
    assert first != {frame.connection.conn_id for frame in frames(path, capture="elsewhere")}
    (connection,) = {frame.connection for frame in frames(path)}
    assert connection.saw_open
    assert connection.opened_ns == make.START_NS
