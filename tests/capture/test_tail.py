"""The last part of a pcapng that grows: the packets that begin at a byte of it or behind."""

import struct
from functools import partial
from pathlib import Path

import packets as make

from kproto.capture import CaptureSummary
from kproto.capture.tail import Tail, read_tail


def test_a_part_has_each_packet_that_begins_in_it(tmp_path: Path) -> None:
    talk = make.Talk().open()
    for number in range(3):
        talk.ask(make.request(6, 8, number, make.UPDATE_METADATA_8)).answer(make.response(6, 8, number, b"\0\0\0"))
    data = make.pcapng(talk.packets)
    path = tmp_path / "a.pcapng"
    path.write_bytes(data)

    def times(begin: int) -> list[int]:
        pieces = read_tail(Tail(str(path), begin, len(data)), partial(open, mode="rb"), CaptureSummary())
        return [packet[0] for piece in pieces for packet in piece]

    places, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        places += [at] if kind == 6 else []
        at += length
    begun = list(zip(places, (packet.time_ns for packet in talk.packets), strict=True))
    for begin in range(0, len(data), 11):
        assert times(begin) == [time_ns for place, time_ns in begun if place >= begin], begin
