"""Ports for servers that are started later, as other programs, and cannot choose a port themselves."""

from __future__ import annotations

import contextlib
import itertools
import socket
from pathlib import Path

__all__ = ["free_ports"]

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PLACES = range(10_000, 65_000, 20)
_reservations: list[int] = []
_place = itertools.count()


def free_ports(count: int) -> int:
    """Reserve consecutive ports on loopback, and return the first.

    None of them is ephemeral, where there are others: the system gives an ephemeral port to any connection or socket
    before the server is up. No other call gives them again, in this process or in another that runs at the same time.

    Args:
        count: The number of ports, 20 at most.

    Raises:
        RuntimeError: All ports are taken.
    """
    if count > _PLACES.step:
        raise ValueError(f"{count} ports in a row are too many; {_PLACES.step} is the most")
    lowest, highest = _ephemeral()
    places = sorted(_PLACES, key=lambda first: lowest <= first + count - 1 and first <= highest)  # ephemeral ones last
    for number in _place:
        if number == len(places):
            break
        first = places[number]
        if _is_free(first, count) and _reserve(first):
            return first
    raise RuntimeError("no free ports")


def _ephemeral() -> tuple[int, int]:
    try:
        lowest, highest = map(int, _EPHEMERAL.read_text(encoding="ascii").split())
    except OSError:  # no Linux: the range that IANA has set aside
        return 49_152, 65_535
    return lowest, highest


def _is_free(first: int, count: int) -> bool:
    with contextlib.ExitStack() as sockets:
        try:
            for port in range(first, first + count):
                sockets.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True


def _reserve(first: int) -> bool:
    """Take a name for the ports that one process can have, as long as it lives."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0kproto-ports-{first}")  # an abstract name: no file is left behind
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation.detach())
    return True
