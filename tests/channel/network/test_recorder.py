"""A recording holds every frame that passed, for any reader of captures, also when it ends in the middle."""

import errno
import os
import socket
import struct
import sys
import threading

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from network_peers import frame, until

from channel.broker.cluster import EmbeddedCluster
from channel.network.recorder import PcapngRecorder
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint
from kproto.api import ApiKey, request_header_version, response_header_version
from kproto.capture import GAP, WHOLE, CaptureSummary, frames
from kproto.capture.pcapng import CRC_OPTION, CRC_PEN, CRC_TAG
from kproto.codec import encode, message_class
from kproto.errors import CaptureError
from kproto.headers import encode_request_header, encode_response_header, request_header, response_header
from kproto.messages import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState

CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 9092)
CLIENT6, SERVER6 = ("::1", 40001), ("fd00::2", 9092)
NOW = 1_700_000_000_123_456_789


def request(correlation_id, partitions=0):
    """A whole frame of an UpdateMetadata request: length, header, body."""
    states = [UpdateMetadataPartitionState(partition_index=number, isr=[1, 2, 3]) for number in range(partitions)]
    topics = [UpdateMetadataTopicState(topic_name="topic", topic_id=b"\1" * 16, partition_states=states)]
    body = encode(UpdateMetadataRequest(controller_id=1001, topic_states=topics if states else []), 8)
    return frame(struct.pack(">hhih4sB", 6, 8, correlation_id, 4, b"1001", 0) + body)


def response(correlation_id):
    return frame(struct.pack(">iB", correlation_id, 0) + b"\0\0\0")


def blocks(data):
    """(type, body) of each block, checked against the lengths at both ends."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        assert size % 4 == 0
        assert struct.unpack_from("<I", data, at + size - 4) == (size,)
        yield kind, data[at + 8 : at + size - 4]
        at += size


def read_back(path):
    return [(f.direction, bytes(f.payload), f.status) for f in frames(path, ports=[9092])]


def test_a_connection_that_uses_ports_again_at_once_is_read_back(tmp_path):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        for number in range(3):
            recorder.opened(CLIENT, SERVER, NOW + number * 20_000)
            recorder.record("sent", CLIENT, SERVER, NOW + number * 20_000 + 1, [request(0)])
            recorder.closed(CLIENT, SERVER, NOW + number * 20_000 + 2)
    assert len(read_back(path)) == 3


@pytest.mark.parametrize(("client", "server"), [(CLIENT, SERVER), (CLIENT6, SERVER6)])
def test_what_was_recorded_is_read_back(tmp_path, client, server):
    path = tmp_path / "recording.pcapng"
    large = request(2, 6000)
    assert len(large) > 3 * 65536
    with PcapngRecorder(path) as recorder:
        recorder.opened(client, server, NOW)
        recorder.record("sent", client, server, NOW + 1, [request(1)])
        recorder.record("received", client, server, NOW + 2, [response(1)])
        recorder.record("sent", client, server, NOW + 3, [large[:10], memoryview(large)[10:]])
        recorder.record("received", client, server, NOW + 4, [response(2)])
        recorder.closed(client, server, NOW + 5)
    assert recorder.frames == 4
    assert recorder.error is None
    assert read_back(path) == [
        ("request", request(1)[4:], 0),
        ("response", response(1)[4:], 0),
        ("request", large[4:], 0),
        ("response", response(2)[4:], 0),
    ]
    first = next(iter(frames(path, ports=[9092])))
    assert (str(first.connection.client.ip), first.connection.client.port) == client
    assert (str(first.connection.server.ip), first.connection.server.port) == server
    assert first.connection.opened_ns == NOW
    assert first.time_ns == NOW + 1


def test_the_accepting_end_records_the_same_conversation(tmp_path):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        recorder.opened(SERVER, CLIENT, NOW, initiator=False)
        recorder.record("received", SERVER, CLIENT, NOW, [request(1)])
        recorder.record("sent", SERVER, CLIENT, NOW, [response(1)])
        recorder.closed(SERVER, CLIENT, NOW)
    found = list(frames(path))
    assert [f.direction for f in found] == ["request", "response"]
    assert found[0].connection.server.port == 9092


@pytest.mark.parametrize("ends", [(CLIENT, SERVER), (SERVER, CLIENT)], ids=["client first", "server first"])
def test_a_connection_recorded_at_both_ends_is_read_once_however_often_its_ports_are_used(tmp_path, ends):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        for number in range(3):
            now = NOW + number * 2_000_000_000
            for local, remote in (ends, ends[::-1]):
                recorder.opened(local, remote, now, initiator=local == CLIENT)
                now += 70_000
            for correlation_id in 1, 2:
                recorder.record("sent", CLIENT, SERVER, now + 1, [request(correlation_id)])
                recorder.record("received", SERVER, CLIENT, now + 2, [request(correlation_id)])
                recorder.record("sent", SERVER, CLIENT, now + 3, [response(correlation_id)])
                recorder.record("received", CLIENT, SERVER, now + 4, [response(correlation_id)])
            recorder.closed(CLIENT, SERVER, now + 5)
            recorder.closed(SERVER, CLIENT, now + 6)
    asked = [("request", request(1)[4:], 0), ("response", response(1)[4:], 0)]
    asked += [("request", request(2)[4:], 0), ("response", response(2)[4:], 0)]
    assert read_back(path) == asked * 3


def test_a_connection_that_was_open_before_is_recorded_from_where_it_is(tmp_path):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        recorder.record("sent", CLIENT, SERVER, NOW, [request(1)])
        recorder.record("received", CLIENT, SERVER, NOW, [response(1)])
        recorder.closed(CLIENT, SERVER, NOW)
        recorder.closed(CLIENT, SERVER, NOW)
    assert [payload for _, payload, _ in read_back(path)] == [request(1)[4:], response(1)[4:]]


def test_every_block_carries_the_checksum_of_its_packet(tmp_path):
    path = tmp_path / "recording.pcapng"
    payload = os.urandom(150_000)
    with PcapngRecorder(path) as recorder:
        recorder.record("sent", CLIENT, SERVER, NOW, [payload[:7], payload[7:]])
    found = b""
    for kind, body in blocks(path.read_bytes()):
        if kind != 6:
            continue
        captured = struct.unpack_from("<I", body, 12)[0]
        segment = body[20 + 54 : 20 + captured]
        options = body[20 + captured + -captured % 4 :]
        code, length, enterprise, tag, checksum = struct.unpack_from("<HHI4sI", options)
        assert (code, length, enterprise, tag) == (CRC_OPTION, 12, CRC_PEN, CRC_TAG)
        assert checksum == crc32c(body[20 : 20 + captured])
        total = sum(struct.unpack_from(">10H", body, 20 + 14))
        assert (total & 0xFFFF) + (total >> 16) in (0xFFFF, 0x1FFFE - 0xFFFF)  # the IP header sums up
        found += segment
    assert found == payload


def test_a_torn_recording_is_readable_up_to_its_last_byte(tmp_path):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        for number in range(10):
            recorder.record("sent", CLIENT, SERVER, NOW + number, [request(number)])
        # Nothing is held back: what was recorded is in the file before the recorder is closed.
        assert len(read_back(path)) == 10
    data = path.read_bytes()
    requests = [("request", request(n)[4:], WHOLE) for n in range(10)]
    path.write_bytes(data[:-17])  # in the checksum behind the last packet
    assert read_back(path) == requests
    path.write_bytes(data[:-30])  # in the packet
    direction, payload, status = read_back(path)[-1]
    assert (direction, status) == ("request", GAP)
    assert 0 < len(payload) < len(request(9)) - 4
    assert request(9)[4:].startswith(payload)
    assert read_back(path)[:-1] == requests[:-1]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Ten requests, each in a block of its own, with their answers."""
    path = tmp_path_factory.mktemp("recording") / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        recorder.opened(CLIENT, SERVER, NOW)
        for number in range(10):
            recorder.record("sent", CLIENT, SERVER, NOW + 2 * number, [request(number, 1)])
            recorder.record("received", CLIENT, SERVER, NOW + 2 * number + 1, [response(number)])
        recorder.closed(CLIENT, SERVER, NOW + 100)
    return path.read_bytes()


def test_a_packet_that_was_changed_is_told_and_never_decoded(recording, tmp_path):
    """Whichever byte it is, of a header or of the payload; all other frames are read as ever."""
    path = tmp_path / "changed.pcapng"
    path.write_bytes(recording)
    whole = read_back(path)
    at = recording.index(request(5, 1))
    for offset in range(at - 54, at + len(request(5, 1)), 5):
        changed = bytearray(recording)
        changed[offset] ^= 0x10
        path.write_bytes(changed)
        summary = CaptureSummary()
        found = [(f.direction, f.payload, f.status) for f in frames(path, ports=[9092], summary=summary)]
        assert sorted(found) == sorted(row for row in whole if row[1] != request(5, 1)[4:]), offset
        assert summary.bad_checksums == 1
        assert [(bad.reason, bad.offset) for bad in summary.bad_inputs] == [
            ("a packet that does not match the checksum recorded with it", at - 54 - 28)
        ]


@given(st.data())
def test_no_change_of_a_byte_makes_a_message_that_nobody_sent(recording, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "changed.pcapng"
    path.write_bytes(recording)
    sent = read_back(path)
    offset = data.draw(st.integers(0, len(recording) - 1))
    changed = bytearray(recording)
    changed[offset] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    try:
        found = read_back(path)
    except CaptureError:
        assert offset < 12  # not even a capture any more
    else:
        assert [row for row in found if row[2] == WHOLE and row not in sent] == []


def test_a_packet_that_was_cut_short_since_is_no_damaged_one(recording, tmp_path):
    """``editcap -s`` shortens packets and keeps what it does not know: there is nothing to hold the sum against."""
    out, at = bytearray(), 0
    while at < len(recording):
        kind, size = struct.unpack_from("<II", recording, at)
        block = recording[at : at + size]
        if kind == 6 and size > 200:
            fixed, options = block[8:24], block[-28:-4]
            body = fixed[:12] + struct.pack("<II", 100, *struct.unpack("<I", fixed[12:])) + block[28:128] + options
            block = struct.pack("<II", 6, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
        out += block
        at += size
    path = tmp_path / "short.pcapng"
    path.write_bytes(out)
    summary = CaptureSummary()
    assert {f.status for f in frames(path, ports=[9092], summary=summary) if f.direction == "request"} == {GAP}
    assert (summary.bad_checksums, summary.cut_packets) == (0, 10)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 70_000), max_size=3)), max_size=5))
def test_both_streams_are_kept_byte_for_byte(tmp_path_factory, script):
    path = tmp_path_factory.mktemp("recording") / "recording.pcapng"
    streams = {True: b"", False: b""}
    with PcapngRecorder(path, keep_secrets=True) as recorder:
        for number, (sent, sizes) in enumerate(script):
            pieces = [bytes([number * 3 + at + 1]) * size for at, size in enumerate(sizes)]
            recorder.record("sent" if sent else "received", CLIENT, SERVER, NOW, pieces)
            streams[sent] += b"".join(pieces)
    found = {True: b"", False: b""}
    for kind, body in blocks(path.read_bytes()):
        if kind == 6:
            captured = struct.unpack_from("<I", body, 12)[0]
            packet = body[20 : 20 + captured]
            assert struct.unpack_from(">H", packet, 16)[0] == len(packet) - 14
            sent = struct.unpack_from(">H", packet, 34)[0] == CLIENT[1]
            assert struct.unpack_from(">I", packet, 38)[0] == len(found[sent])
            found[sent] += packet[54:]
    assert found == streams


def test_threads_do_not_tear_each_others_blocks(tmp_path):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path) as recorder:

        def work(port):
            for number in range(50):
                recorder.record("sent", ("127.0.0.1", port), SERVER, NOW, [request(number, port % 7)])

        threads = [threading.Thread(target=work, args=(40000 + number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert recorder.frames == 200
    assert len(read_back(path)) == 200


def test_the_frames_of_a_round_are_written_together_and_copied_before(tmp_path, monkeypatch):
    calls, writev = [], os.writev
    monkeypatch.setattr(os, "writev", lambda fd, pieces: calls.append(fd) or writev(fd, pieces))
    with PcapngRecorder(tmp_path / "recording.pcapng") as recorder:
        calls.clear()
        for number in range(20):
            memory = bytearray(request(number))
            recorder.record("sent", CLIENT, SERVER, NOW, (memory,), True)
            memory[:] = bytes(len(memory))  # another frame is read into it
        assert not calls
        recorder.flush()
        assert len(calls) == 1
        assert [payload for _, payload, _ in read_back(recorder.path)] == [request(n)[4:] for n in range(20)]
        recorder.flush()
        recorder.record("sent", CLIENT, SERVER, NOW, [request(20, 500)], True)  # large: not copied, so written now
        assert len(calls) == 2
        for number in range(200):
            recorder.record("sent", CLIENT, SERVER, NOW, [request(number)], True)
        assert len(calls) == 5


def test_a_request_is_in_the_recording_though_its_answer_has_not_come(tmp_path):
    with (
        PcapngRecorder(tmp_path / "recording.pcapng") as recorder,
        socket.create_server(("127.0.0.1", 0)) as silent,
        ControllerChannelManager(9, lambda: 1, recorder=recorder) as manager,
    ):
        manager.add_broker(Broker(1, (EndPoint("127.0.0.1", silent.getsockname()[1]),)))
        manager.send_request(1, SingleRequest(UpdateMetadataRequest(controller_id=9), 8))
        sock = silent.accept()[0]
        sock.settimeout(30)
        with sock, sock.makefile("rb") as stream:
            sent = stream.read(4)
            sent += stream.read(int.from_bytes(sent, "big"))
            until(lambda: sent in recorder.path.read_bytes())


def test_a_file_that_cannot_be_written_any_more_ends_the_recording_and_not_the_traffic(tmp_path, caplog):
    recorder = PcapngRecorder("/dev/full") if os.path.exists("/dev/full") else None  # noqa: PTH110
    assert recorder is not None, "Linux has it"
    recorder.record("sent", CLIENT, SERVER, NOW, [request(1)])
    recorder.record("sent", CLIENT, SERVER, NOW, [request(2)])
    assert recorder.error is not None
    assert len([r for r in caplog.records if "has ended" in r.message]) == 1
    recorder.close()
    recorder.record("sent", CLIENT, SERVER, NOW, [request(3)])


def test_a_full_disk_leaves_whole_frames_and_the_rest_is_counted_until_the_next_file(tmp_path, monkeypatch, caplog):
    writev, room = os.writev, [sys.maxsize]

    def written(fd, pieces):
        taken = b"".join(pieces)[: room[0]]
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(taken)
        return writev(fd, [taken])

    monkeypatch.setattr(os, "writev", written)
    full = tmp_path / "full.pcapng"
    with PcapngRecorder(full) as recorder:
        recorder.opened(CLIENT, SERVER, NOW)
        for number in range(3):
            recorder.record("sent", CLIENT, SERVER, NOW, [request(number)])
        size = full.stat().st_size
        room[0] = 30  # less than a block
        for number in range(3, 5):
            recorder.record("sent", CLIENT, SERVER, NOW, [request(number)])
        recorder.record("sent", CLIENT, SERVER, NOW, [request(5)], True)
        recorder.flush()
        assert (recorder.frames, recorder.lost) == (3, 3)
        assert recorder.error.errno == errno.ENOSPC
        assert full.stat().st_size == size == recorder.written
        recorder.switch(tmp_path / "none.pcapng")  # there is still no room
        recorder.record("sent", CLIENT, SERVER, NOW, [request(6)])
        assert (recorder.frames, recorder.lost) == (3, 4)
        room[0] = sys.maxsize
        recorder.switch(tmp_path / "next.pcapng")
        assert recorder.error is None
        recorder.record("sent", CLIENT, SERVER, NOW, [request(7)])
        assert (recorder.frames, recorder.lost) == (4, 4)
    assert (tmp_path / "none.pcapng").read_bytes() == b""
    payloads = [payload for path in (full, tmp_path / "next.pcapng") for _, payload, _ in read_back(path)]
    assert payloads == [request(number)[4:] for number in (0, 1, 2, 7)]
    dropped = []
    for path in (full, tmp_path / "next.pcapng"):
        summary = CaptureSummary()
        assert list(frames(path, ports=[9092], summary=summary))
        dropped.append(summary.dropped_packets)
    assert dropped == [0, 4]  # statistics of the interface, as dumpcap writes them too
    ended, goes_on = (record.getMessage() for record in caplog.records)
    assert ended == f"recording to {full} has ended: [Errno 28] No space left on device"
    assert goes_on == f"the recording goes on in {tmp_path / 'next.pcapng'}; so far 4 frames are missing"


API_VERSIONS = frame(struct.pack(">hhih", 18, 0, 9, -1))
SECRETS = {
    "SCRAM credentials": b"\0\x33\0\0\0\0\0\7\0\1ahunter2",
    "settings": b"\0\x2c\0\0\0\0\0\7\0\1ahunter2",
    "credentials in an envelope": b"\0\x3a\0\0\0\0\0\7\0\1a\0\x14\0\x33\0\0\0\0\0\x08\0\1ahunter2\1\1\0",
    "a token": b"\0\x24\0\0\0\0\0\7\0\1a\0\0\0\7hunter2",
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_the_recording_of_a_listener_has_no_secrets_of_its_clients(tmp_path, secret, keep):
    path = tmp_path / "recording.pcapng"
    with PcapngRecorder(path, keep_secrets=keep) as recorder, EmbeddedCluster(1, recorder=recorder) as cluster:
        for each in (API_VERSIONS, frame(secret)):
            with socket.create_connection(("127.0.0.1", cluster[0].port), 30) as sock:
                sock.sendall(each)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65_536):
                    pass
    recorded = path.read_bytes()
    assert (b"hunter2" in recorded, API_VERSIONS in recorded, frame(secret)[:12] in recorded) == (keep, True, True)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_masked_at_either_end_however_its_frame_lies_in_memory(tmp_path, secret):
    script = (API_VERSIONS, frame(secret), API_VERSIONS)
    for initiator, direction in ((True, "sent"), (False, "received")):
        for split in range(14):
            with PcapngRecorder(tmp_path / f"{initiator}-{split}.pcapng") as recorder:
                recorder.opened(CLIENT, SERVER, NOW, initiator=initiator)
                for each in script:
                    recorder.record(direction, CLIENT, SERVER, NOW, [each[:split], each[split:]])
            stream = b""
            for kind, body in blocks(recorder.path.read_bytes()):
                if kind == 6:
                    stream += body[20 + 54 : 20 + struct.unpack_from("<I", body, 12)[0]]
            assert len(stream) == sum(map(len, script))
            assert stream.startswith(API_VERSIONS + script[1][:12])
            assert stream.endswith(API_VERSIONS)
            assert b"hunter2" not in stream


@pytest.mark.parametrize("version", [0, 1, 2])
def test_of_an_authentication_the_recording_lacks_the_secret_alone(tmp_path, version):
    """Its request and its answer can be read: whether and why it failed, and how long the session lasts."""
    key = ApiKey.SASL_AUTHENTICATE
    header = request_header(key, version, 7, "client")
    ask = message_class(key, "request")(auth_bytes=b"hunter2")
    lifetime = {"session_lifetime_ms": 60_000} if version else {}
    answer = message_class(key, "response")(error_code=58, error_message="no", auth_bytes=b"hunter2", **lifetime)
    sent = encode_request_header(header, request_header_version(key, version)) + encode(ask, version)
    got = encode_response_header(response_header(7), response_header_version(key, version)) + encode(answer, version)
    with PcapngRecorder(tmp_path / "recording.pcapng") as recorder:
        recorder.opened(CLIENT, SERVER, NOW)
        recorder.record("sent", CLIENT, SERVER, NOW, [frame(sent)])
        recorder.record("received", CLIENT, SERVER, NOW, [frame(got)])
    recorded = [bytes(each.payload) for each in frames(recorder.path, ports=[9092], apis=None)]
    assert recorded == [each.replace(b"hunter2", bytes(7)) for each in (sent, got)]


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "folder"])
def test_a_recording_takes_the_place_of_nothing(tmp_path, kind, caplog):
    path, other = tmp_path / "control.pcapng", tmp_path / "other"
    match kind:
        case "file":
            path.write_bytes(b"kept")
        case "link":
            other.write_bytes(b"kept")
            path.symlink_to(other)
        case "dangling link":
            path.symlink_to(other)
        case _:
            path.mkdir()
    with PcapngRecorder(path) as first, PcapngRecorder(path) as second:
        assert [made.path.name for made in (first, second)] == ["control.pcapng.1", "control.pcapng.2"]
    assert f"{path} is there already: the recording goes to {path}.1" in caplog.text
    if kind != "folder":
        assert path.is_symlink() == (kind != "file")
        assert (not other.exists()) if kind == "dangling link" else path.read_bytes() == b"kept"
    assert read_back(first.path) == []


def test_a_recording_into_a_pipe_goes_on(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with PcapngRecorder(path) as recorder:
        assert recorder.path == path
    reader.join(60)
    assert [kind for kind, _ in blocks(read[0])] == [0x0A0D0D0A, 1]
