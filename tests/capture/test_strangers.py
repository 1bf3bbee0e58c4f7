"""What is no control traffic: never an exception, and one line that says why there is nothing and what to try."""

import gzip
import struct
from pathlib import Path

import packets as make
import pytest
from conftest import DATA

from kproto import CaptureError
from kproto.capture import CaptureSummary, exchanges, frames

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2


def problem(path: Path, packets: list[make.Packet], link: int = make.ETHERNET) -> tuple[str | None, CaptureSummary]:
    path.write_bytes(make.pcap(packets, link))
    summary = CaptureSummary()
    assert list(exchanges(path, summary=summary)) == []
    return summary.problem(), summary


def test_tls(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(HELLO).answer(b"\x16\x03\x03\x00\x7a" + bytes(122))
    why, summary = problem(tmp_path / "tls.pcap", talk.packets)
    assert why is not None
    assert why.startswith(
        "tls.pcap: TLS inside (1 of 1 connections), which cannot be read; capture a PLAINTEXT listener"
    )
    assert summary.tls_connections == 1


def test_tls_byte_by_byte(tmp_path: Path) -> None:
    why, _ = problem(tmp_path / "tls.pcap", make.Talk().open().ask(HELLO, 1).packets)
    assert why is not None
    assert "TLS inside" in why


def test_tls_begun_before_the_capture(tmp_path: Path) -> None:
    record = b"\x17\x03\x03\x01\x00" + bytes(range(256))
    talk = make.Talk().ask(record).ask(record).answer(record)
    why, _ = problem(tmp_path / "tls.pcap", talk.packets)
    assert why is not None
    assert "TLS inside" in why


def test_http(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").answer(b"HTTP/1.1 200 OK\r\n\r\n")
    why, summary = problem(tmp_path / "http.pcap", talk.packets)
    assert why is not None
    assert "no Kafka requests on 1 TCP connections (1 speak HTTP); name the listener ports" in why
    assert summary.http_connections == 1


def test_a_mixed_capture_names_its_listeners(tmp_path: Path) -> None:
    """Kafka in the clear on one port, TLS on another: both are facts of the summary, with their servers."""
    plain = (
        make.Talk().open().ask(make.request(6, 8, 0, make.UPDATE_METADATA_8)).answer(make.response(6, 8, 0, b"0" * 3))
    )
    hidden = [
        make.Talk(client=("10.0.0.1", port), server=("10.0.0.2", 9093)).open().ask(HELLO) for port in (50_001, 50_002)
    ]
    path = tmp_path / "mixed.pcap"
    path.write_bytes(make.pcap([*plain.packets, *(p for talk in hidden for p in talk.packets)]))
    summary = CaptureSummary()
    assert len(list(exchanges(path, summary=summary))) == 1
    assert summary.problem() is None
    assert {str(end): n for end, n in summary.tls_listeners.items()} == {"10.0.0.2:9093": 2}
    assert {str(end): n for end, n in summary.kafka_listeners.items()} == {"10.0.0.2:9092": 1}
    assert summary.kafka_ports == [9092]
    assert not summary.speaks_kraft


def test_zookeeper_is_not_taken_for_kafka(tmp_path: Path) -> None:
    """Its messages begin with a size too; its numbers read as Produce requests of no client."""
    talk = make.Talk(server=("10.0.0.2", 2181)).open()
    talk.ask(make.sized(struct.pack(">iqiqi", 0, 0, 18000, 0, 16) + bytes(17)))
    talk.answer(make.sized(struct.pack(">iiqi", 0, 18000, 0x10000, 16) + bytes(17)))
    for xid in range(1, 6):
        talk.ask(make.sized(struct.pack(">iii", xid, 4, 11) + b"/controller\0"))
        talk.answer(make.sized(struct.pack(">iqi", xid, 99, 0) + bytes(90)))
    why, summary = problem(tmp_path / "zk.pcap", talk.packets)
    assert why is not None
    assert "no Kafka requests" in why
    assert (summary.kafka_connections, summary.bad_inputs) == (0, [])


@pytest.mark.parametrize("first", [b"SSH-2.0-OpenSSH_9.6\r\n", b"220 mail ESMTP\r\n", bytes(400), b"\xff" * 400])
def test_other_protocols(first: bytes, tmp_path: Path) -> None:
    talk = make.Talk().open().answer(first).ask(first).answer(first).close()
    _, summary = problem(tmp_path / "other.pcap", talk.packets)
    assert (summary.kafka_connections, summary.bad_inputs, summary.connections) == (0, [], 1)


def test_kafka_without_control_requests(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(make.request(3, 9, 0, bytes(9))).answer(make.response(3, 9, 0, bytes(30)))
    why, _ = problem(tmp_path / "clients.pcap", talk.packets)
    assert why is not None
    assert why.startswith("clients.pcap: Kafka traffic on 1 connections, but no control request; capture on a broker's")


@pytest.mark.parametrize("api", [(62, 4), (63, 1), (52, 1), (1, 18), (92, 0), (0, 13)], ids=str)
def test_a_kraft_cluster(api: tuple[int, int], tmp_path: Path) -> None:
    """Requests of a KRaft quorum, or of versions and apis that only Kafka 4 has."""
    head = struct.pack(">hhih", *api, 0, 6) + b"node-1\0"
    talk = make.Talk().open().ask(make.sized(head + bytes(30))).answer(make.sized(bytes(20)))
    why, summary = problem(tmp_path / "kraft.pcap", talk.packets)
    assert why is not None
    assert why.startswith("kraft.pcap: a KRaft cluster's traffic: its controllers send no LeaderAndIsr")
    assert summary.requests == {api: 1}
    assert summary.speaks_kraft
    assert summary.is_newer_than_3_9 == (api in ((1, 18), (92, 0), (0, 13)))


def test_no_packets_no_tcp_no_known_link(tmp_path: Path) -> None:
    path = tmp_path / "none.pcap"
    assert problem(path, [])[0] == "none.pcap: a capture without packets; was the capture filter right?"
    udp = make.wrap(b"\x45\0\0\x30" + bytes(5) + b"\x11" + bytes(50), make.ETHERNET)
    why, summary = problem(path, [make.Packet(make.START_NS, udp, len(udp))] * 3)
    assert why is not None
    assert why.startswith("none.pcap: no TCP data in 3 packets; try: tcpdump")
    assert summary.not_tcp == 3
    why, _ = problem(path, [make.Packet(make.START_NS, bytes(80), 80)], link=105)
    assert why == "none.pcap: link type 105 is not read; capture on an Ethernet interface or with -i any"


def test_control_traffic_is_no_problem() -> None:
    summary = CaptureSummary()
    assert list(frames(DATA / "captures" / "ibp-3.9-migration-a.pcap.gz", summary=summary))
    assert summary.problem() is None
    assert summary.control_requests == 53 + 11 + 105


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "an empty file"),
        (b"\xd4\xc3\xb2\xa1\x02", "a pcap file cut off within its header"),
        (b"hello, this is a text\n" * 100, "not a capture"),
        (bytes(100), "not a capture (it begins with 00 00 00 00 00 00 00 00)"),
        (b"PAR1" + bytes(100), "a Parquet file"),
        (b"BZh91AY" + bytes(100), "the file cannot be read on: it is damaged"),
        (b"\xfd7zXZ\0" + bytes(100), "the file cannot be read on: it is damaged"),
        (b"PK\x03\x04" + bytes(100), "a zip archive; unpack it first"),
        (b"\x34\xcd\xb2\xa1" + bytes(100), "editcap -F pcap"),
        (gzip.compress(b"", mtime=0), "an empty file"),
        (gzip.compress(bytes(100), mtime=0), "not a capture"),
        (b"\x1f\x8b\x08\x00", "the compressed file is cut off"),
    ],
)
def test_no_capture_at_all(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "strange"
    path.write_bytes(data)
    with pytest.raises(CaptureError) as error:
        list(frames(path))
    assert str(error.value).startswith("strange: ")
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"missing\.pcap: no such file"):
        list(frames(tmp_path / "missing.pcap"))
    with pytest.raises(CaptureError, match="a directory without a capture"):
        list(frames(tmp_path))


def test_reports_of_damage_do_not_fill_the_memory(tmp_path: Path) -> None:
    talk = make.Talk().open().ask(make.request(6, 8, 0, make.UPDATE_METADATA_8))
    for _ in range(1500):
        talk.ask(b"\xff\xff\xff\xff").ask(make.request(6, 8, 1, make.UPDATE_METADATA_8))
    path = tmp_path / "damaged.pcap"
    path.write_bytes(make.pcap(talk.packets))
    summary = CaptureSummary()
    assert len(list(frames(path, summary=summary))) == 1501
    assert (summary.bad_input_count, len(summary.bad_inputs)) == (1500, 1000)
    assert summary.bad_inputs[0].reason == (
        "10.0.0.1:50000 -> 10.0.0.2:9092: no request where one should begin (size -1)"
    )


def test_tcp_on_other_ports_than_those_named_is_told_as_such() -> None:
    summary = CaptureSummary()
    assert (
        list(frames(make.pcap(make.Talk().open().ask(b"SSH-2.0-x\r\n").packets), ports=[1234], summary=summary)) == []
    )
    problem = summary.problem() or ""
    assert "no TCP data on --ports 1234 in" in problem
    assert "tcpdump" not in problem
