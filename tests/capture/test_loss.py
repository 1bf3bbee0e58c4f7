"""Captures that lack packets: what is lost is marked, what is there is found, nothing is invented."""

import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import packets as make
import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st

from kproto.capture import GAP, WHOLE, CaptureSummary, Connection, Exchange, Frame, exchanges, frames
from kproto.capture.fragments import Fragments
from kproto.capture.link import segment

CAPTURES = DATA / "captures"
SAMPLES = ["ibp-0.10.2-a", "ibp-2.6-a", "ibp-2.8-a", "ibp-3.9-big-a", "ibp-3.9-migration-a", "external-controller-a"]

Lost = dict[tuple[int, int], list[bytes]]


def identity(frame: Frame) -> tuple[object, ...]:
    connection = frame.connection
    return connection.client, connection.server, frame.direction, frame.api_key, frame.api_version, frame.payload


def lost_bytes(link: int, packets: list[make.Packet]) -> Lost:
    """Payloads of the packets that are gone, by sender's and receiver's port."""
    lost: Lost = {}
    for _, data, on_wire in packets:
        summary = CaptureSummary()
        found = segment(0, link, data, 0, len(data), on_wire, Fragments(summary), summary)
        if found is not None and found.begin < found.end:
            ports = int.from_bytes(found.flow[-4:-2]), int.from_bytes(found.flow[-2:])
            lost.setdefault(ports, []).append(data[found.begin : found.end])
    return lost


def is_whole(frame: Frame, lost: Lost) -> bool:
    """Whether all of a request's packets are there."""
    ports = frame.connection.client.port, frame.connection.server.port
    wire = make.sized(frame.payload)
    return not any(piece in wire or wire in piece for piece in lost.get(ports, ()))


def compare(original: Path, link: int, kept: list[make.Packet], gone: list[make.Packet], damaged: Path) -> Counter[str]:
    damaged.write_bytes(make.pcap(kept, link))
    there = [frame for frame in frames(original) if frame.direction == "request" and frame.status == WHOLE]
    lost = lost_bytes(link, gone)
    known = Counter(map(identity, frames(original)))
    found = Counter(identity(frame) for frame in frames(damaged) if frame.status == WHOLE and frame.api_key is not None)
    whole = [frame for frame in there if is_whole(frame, lost)]
    return Counter(
        whole=len(whole), found=sum(identity(frame) in found for frame in whole), wrong=sum((found - known).values())
    )


@pytest.mark.parametrize("lossy", sorted(CAPTURES.glob("*-lossy.pcap.gz")), ids=lambda path: path.name)
def test_nearly_all_requests_of_a_lossy_capture_are_found(lossy: Path, tmp_path: Path) -> None:
    removed = json.loads(Path(str(lossy).replace(".pcap.gz", ".steps.json")).read_text())["removed_frames"]
    original = Path(str(lossy).replace("-lossy", ""))
    link, packets = make.read_pcap(original)
    gone = [packets[number - 1] for number in removed]
    _, kept = make.read_pcap(lossy)
    score = compare(original, link, kept, gone, tmp_path / "lossy.pcap")
    print(f"{lossy.name}: {score['found']} of {score['whole']} requests found of those whose packets are all there")
    assert score["wrong"] == 0
    assert score["found"] >= 0.95 * score["whole"]


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_nothing_is_invented_at_any_rate_of_loss(rate: float, tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for name in SAMPLES:
        original = CAPTURES / f"{name}.pcap.gz"
        link, packets = make.read_pcap(original)
        draw = random.Random(f"{name} {rate}")
        kept, gone = [], []
        for packet in packets:
            (gone if draw.random() < rate else kept).append(packet)
        total += compare(original, link, kept, gone, tmp_path / "lossy.pcap")
    print(f"{rate:.0%} of the packets lost: {total['found']} of {total['whole']} whole requests found")
    assert total["wrong"] == 0
    assert total["found"] >= 0.99 * total["whole"]


def test_a_gap_is_marked_and_counted(tmp_path: Path) -> None:
    """The middle one of a request's three segments is missing: the next request is read at its exact place."""
    body = b"\0\0\0\1\0\0\0\0\1" + bytes(3000)
    talk = make.Talk().open()
    first, second = make.request(6, 8, 0, body), make.request(6, 8, 1, body[:100])
    talk.ask(first).answer(make.response(6, 8, 0, b"\0\0\0")).ask(second).answer(make.response(6, 8, 1, b"\0\0\0"))
    del talk.packets[4]
    path = tmp_path / "gap.pcap"
    path.write_bytes(make.pcap(talk.packets))
    summary = CaptureSummary()
    broken, whole = list(exchanges(path, summary=summary))
    assert broken.request is not None
    assert (broken.request.status, broken.request.length) == (GAP, len(first) - 4)
    assert broken.request.payload == first[4:1460]
    assert str(broken.error) == f"{len(first) - 1460} of {len(first) - 4} bytes are not in the capture"
    assert broken.response is not None
    assert broken.to_json()["request"] is None
    assert whole.request is not None
    assert (whole.request.payload, whole.request.offset) == (second[4:], len(first))
    assert (summary.gaps, summary.gap_bytes) == (1, 1460)


def exchanges_without(packet: int) -> list[Exchange]:
    """Those of three requests, of whose packets one is lost."""
    talk = make.Talk().open()
    for n in range(3):
        talk.ask(make.request(6, 8, n, bytes(40))).answer(make.response(6, 8, n, b"\0\0\0"))
    del talk.packets[packet]
    return list(exchanges(make.pcap(talk.close().packets)))


def test_a_response_whose_request_is_lost_is_kept() -> None:
    found = exchanges_without(5)
    assert [exchange.correlation_id for exchange in found] == [0, 1, 2]
    assert found[1].request is None
    assert found[1].unmatched_reason == "the request is not in the capture"
    assert found[1].to_json()["api_key"] is None


def test_a_request_whose_response_is_lost_is_kept() -> None:
    found = exchanges_without(6)
    assert [exchange.response is not None for exchange in found] == [True, False, True]
    assert found[1].unmatched_reason == "the response is not in the capture: a later request was answered"
    assert found[1].latency_ms is None


def test_a_hole_that_nobody_acknowledged_is_given_up_after_a_while(tmp_path: Path) -> None:
    """Only the client's side was captured: nothing tells whether the missing segment was late or lost."""
    talk = make.Talk()
    for n in range(4):
        talk.ask(make.request(6, 8, n, make.UPDATE_METADATA_8))
    del talk.packets[1]
    talk.now_ns += 60 * 10**9
    talk.ask(make.request(6, 8, 4, make.UPDATE_METADATA_8))
    path = tmp_path / "half.pcap"
    path.write_bytes(make.pcap(talk.packets))
    assert [frame.correlation_id for frame in frames(path, ports=[9092])] == [0, 2, 3, 4]


@pytest.mark.parametrize("milliseconds", [0.1, 1, 5, 34, 300])
def test_the_first_exchange_behind_a_hole_in_both_directions_is_whole(milliseconds: float, tmp_path: Path) -> None:
    """A recorder whose disk was full goes on between two exchanges; requests come once a second."""
    talk = make.Talk(step_ns=int(milliseconds * 1e6)).open()
    for n in range(8):
        talk.ask(make.request(6, 8, n + 1, make.UPDATE_METADATA_8)).answer(make.response(6, 8, n + 1, b"\0\0\0"))
        talk.now_ns += 10**9
    del talk.packets[3 + 2 * 3 : 3 + 2 * 5]
    path = tmp_path / "hole.pcap"
    path.write_bytes(make.pcap(talk.packets))
    found = [(each.frame.correlation_id, each.response is not None) for each in exchanges(path)]
    assert found == [(n, True) for n in (1, 2, 3, 6, 7, 8)]


def answered(path: Path) -> list[tuple[Frame, Frame]]:
    return [(each.request, each.response) for each in exchanges(path) if each.request and each.response]


@given(name=st.sampled_from(SAMPLES), begin=st.floats(0, 1), seconds=st.sampled_from([0.01, 0.1, 0.5, 2.0, 5.0]))
def test_where_a_time_is_missing_what_is_before_and_behind_it_is_told(name: str, begin: float, seconds: float) -> None:
    """An answer may come later than it takes to give up the bytes before it, and earlier than its request's."""
    link, packets = make.read_pcap(CAPTURES / f"{name}.pcap.gz")
    first = packets[round(begin * (len(packets) - 1))][0]
    last = first + round(seconds * 1e9)
    kept = [packet for packet in packets if not first <= packet[0] < last]
    there = {
        (asked.time_ns, asked.connection.client)
        for asked, answer in answered(CAPTURES / f"{name}.pcap.gz")
        if answer.time_last_ns < first or asked.time_ns >= last
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "missing.pcap"
        path.write_bytes(make.pcap(kept, link))
        found = {(asked.time_ns, asked.connection.client) for asked, _answer in answered(path)}
    assert there <= found


@pytest.mark.parametrize("snaplen", [54, 60, 96, 500, 1000])
def test_packets_cut_by_snaplen_are_gaps(snaplen: int, tmp_path: Path) -> None:
    link, packets = make.read_pcap(CAPTURES / "ibp-3.9-a.pcap.gz")
    path = tmp_path / "cut.pcap"
    path.write_bytes(make.pcap((make.Packet(p.time_ns, p.data[:snaplen], p.on_wire) for p in packets), link))
    summary = CaptureSummary()
    got = list(frames(path, summary=summary))
    known = {identity(frame) for frame in frames(CAPTURES / "ibp-3.9-a.pcap.gz")}
    assert all(identity(frame) in known for frame in got if frame.status == WHOLE)
    assert summary.cut_packets > 0
    requests = [frame for frame in got if frame.direction == "request"]
    assert any(frame.status == GAP for frame in requests) or snaplen <= 60
    if snaplen >= 96:  # the headers are there, so each request is at least named
        assert len(requests) == 348


def test_conn_ids_tell_connections_apart() -> None:
    ids = {frame.connection.conn_id for frame in frames(CAPTURES / "ibp-3.9-a.pcap.gz")}
    connections: set[Connection] = {frame.connection for frame in frames(CAPTURES / "ibp-3.9-a.pcap.gz")}
    assert len(ids) == len(connections)
    assert {len(conn_id) for conn_id in ids} == {16}


def talk_of(*requests: bytes) -> list[make.Packet]:
    talk = make.Talk().open()
    for number, request in enumerate(requests):
        talk.ask(request).answer(make.response(6, 8, number, b"\0\0\0"))
    return talk.packets


def summed_up(packets: list[make.Packet], tmp_path: Path) -> CaptureSummary:
    path = tmp_path / "begun.pcap"
    path.write_bytes(make.pcap(packets))
    summary = CaptureSummary()
    for _ in frames(path, summary=summary):
        pass
    return summary


def test_a_capture_that_begins_inside_a_request_lacks_its_beginning(tmp_path: Path) -> None:
    """tcpdump was started while the first of three requests was on its way."""
    large = make.request(6, 8, 0, make.UPDATE_METADATA_8 * 80)
    small = [make.request(6, 8, number, make.UPDATE_METADATA_8) for number in (1, 2)]
    packets = talk_of(large, *small)
    summary = summed_up(packets[4:], tmp_path)
    (loss,) = summary.losses
    assert summary.partial_starts == 1
    assert (loss.direction, loss.kind, loss.time_ns, loss.length) == (
        "request", "partial start", packets[4].time_ns, len(large) - 1460,
    )  # fmt: skip
    assert loss.connection.server.port == 9092


@pytest.mark.parametrize("first", [3, 4])
def test_a_capture_that_begins_between_two_frames_is_complete(first: int, tmp_path: Path) -> None:
    """Before a request; or between a request and its response, which then belongs to no request of the capture."""
    packets = talk_of(*(make.request(6, 8, number, make.UPDATE_METADATA_8) for number in range(3)))
    summary = summed_up(packets[first:], tmp_path)
    assert (summary.partial_starts, summary.losses) == (0, [])
    assert summary.control_requests == (3 if first == 3 else 2)


@pytest.mark.parametrize(("first", "lacking"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)])
def test_a_connection_lacks_its_handshake_if_neither_its_opening_nor_the_answer_is_there(
    first: int, lacking: int, tmp_path: Path
) -> None:
    packets = talk_of(*(make.request(6, 8, number, make.UPDATE_METADATA_8) for number in range(3)))
    summary = summed_up(packets[first:], tmp_path)
    assert (summary.kafka_connections, summary.without_handshake) == (1, lacking)


@pytest.mark.parametrize("name", ["ibp-2.6-a", "ibp-3.9-big-a"])
def test_a_real_capture_is_called_complete_exactly_where_it_begins_between_frames(name: str, tmp_path: Path) -> None:
    """Cut before any packet, each connection's first byte decides; the truth comes from the whole capture's frames."""
    link, packets = make.read_pcap(CAPTURES / f"{name}.pcap.gz")
    whole = CaptureSummary()
    begins: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
    for frame in frames(CAPTURES / f"{name}.pcap.gz", summary=whole):
        ports = frame.connection.client.port, frame.connection.server.port, frame.direction
        begins.setdefault(ports, []).append((frame.time_ns, frame.time_last_ns))
    assert (whole.partial_starts, whole.losses) == (0, [])
    draw = random.Random(name)
    inside = 0
    several = [times for spans in begins.values() for times in spans if times[0] < times[1]]
    moments = [packet.time_ns for packet in draw.sample(packets, 10)]
    moments += [draw.randrange(first + 1, last + 1) for first, last in draw.sample(several, min(10, len(several)))]
    for moment in moments:
        path = tmp_path / "later.pcap"
        path.write_bytes(make.pcap([packet for packet in packets if packet.time_ns >= moment], link))
        summary = CaptureSummary()
        wanted = set()
        for frame in frames(path, summary=summary):
            wanted.add((frame.connection.client.port, frame.connection.server.port))
        expected = {
            ports
            for ports, spans in begins.items()
            if ports[:2] in wanted and any(first < moment <= last for first, last in spans)
        }
        found = {(loss.connection.client.port, loss.connection.server.port, loss.direction) for loss in summary.losses}
        assert expected <= found
        assert found - expected == set()
        assert summary.partial_starts == len(found)
        inside += len(found)
    print(f"{name}: {inside} streams begin inside a frame, in {len(moments)} cuts")
