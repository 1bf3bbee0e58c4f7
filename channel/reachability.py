"""Finds out why no connection to a node came about, for the error that a person reads."""

from __future__ import annotations

import socket

__all__ = ["why_unreachable"]


def why_unreachable(host: str, port: int, timeout: float = 2) -> str | None:
    """Try to connect, and tell in a few words why that fails; None if the connection is accepted.

    Args:
        host: The name or address of the node.
        port: Its port.
        timeout: Seconds that each of its addresses may take.
    """
    try:
        socket.create_connection((host, port), timeout).close()
    except (socket.gaierror, UnicodeError):
        return f"the name {host} cannot be resolved"
    except ConnectionRefusedError:
        return "the connection is refused: nothing listens there"
    except TimeoutError:
        return f"no answer within {timeout:g} s: a firewall, or a host that is down"
    except OSError as e:
        return (e.strerror or str(e)).lower()
    return None
