"""Recorded traffic -> frames -> exchanges. No Spark, no pyarrow.

    for exchange in exchanges("broker-1.pcap.gz"):
        print(exchange.time, exchange.server, exchange.request_message, exchange.response_message)

What can be read: classic pcap and pcapng, of Ethernet (also with VLAN tags), Linux cooked, null, loopback, raw IP, PPP
and NFLOG links, IPv4 and IPv6, also inside tunnels (VXLAN, Geneve, GRE ..., see ``tunnels``); Kafka's own logs
(``kproto.logs``); each plain or packed. A path, the bytes of a file, an open binary file; several files, or a
directory of them; or packets from anywhere:

    exchanges((packet.time, bytes(packet), 1) for packet in scapy.utils.PcapReader("broker-1.pcap"))  # 1: Ethernet

Inside it is a pipe in one direction, each stage a plain object that knows none of those behind it: ``source`` (bytes of
a file) -> ``pcap``, ``pcapng`` (packets) -> ``link``, ``tunnels``, ``fragments`` (TCP segments) -> ``reassembly`` (byte
streams) -> ``cutter``, which resynchronises by ``resync`` (requests and responses, and which answers which) ->
``collector`` (the conversations of all connections). ``payloads`` holds what large requests to many brokers have in
common once. ``kproto.logs`` makes frames straight from lines.
``CaptureReader`` is all that without the files.
"""

from __future__ import annotations

from kproto.api import CONTROL_APIS

from .capture_points import CapturePoint, capture_points
from .model import GAP, WHOLE, Connection, Direction, Endpoint, Exchange, Frame, FrameStatus
from .read import Captures, exchanges, frames
from .reader import CaptureReader
from .summary import BadInput, CaptureSummary

__all__ = [
    "CONTROL_APIS",
    "GAP",
    "WHOLE",
    "BadInput",
    "CapturePoint",
    "CaptureReader",
    "CaptureSummary",
    "Captures",
    "Connection",
    "Direction",
    "Endpoint",
    "Exchange",
    "Frame",
    "FrameStatus",
    "capture_points",
    "exchanges",
    "frames",
]
