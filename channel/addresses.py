"""Addresses of nodes: as people write them, ``HOST:PORT``, and why one cannot be reached."""

from __future__ import annotations

import socket

from channel.types import Node
from kproto.errors import ConfigurationError


def parse_address(text: str) -> tuple[str, int]:
    """Parse host and port of a text.

    >>> parse_address("[::1]:9092")
    ('::1', 9092)

    Raises:
        ConfigurationError: The text is not ``HOST:PORT``.
    """
    host, _, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not host or (":" in host and not bracketed) or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"{text!r} is no HOST:PORT, e.g. 127.0.0.1:9092 or [::1]:9092")
    return host, int(port)


def parse_voters(text: str) -> list[Node]:
    """Parse the controllers of a quorum, written as in Kafka's ``controller.quorum.voters``.

    >>> [str(each) for each in parse_voters("3000@127.0.0.1:9093")]
    ['127.0.0.1:9093 (id: 3000 rack: None)']

    Raises:
        ConfigurationError: The text is not ``ID@HOST:PORT,...``.
    """
    voters = []
    for each in text.split(","):
        voter_id, _, address = each.strip().partition("@")
        if not voter_id.isdecimal():
            raise ConfigurationError(f"{each!r} is no ID@HOST:PORT, e.g. 3000@127.0.0.1:9093")
        voters.append(Node(int(voter_id), *parse_address(address)))
    return voters


def show_address(address: tuple[str, int]) -> str:
    """Format an address as text.

    >>> show_address(("::1", 9092))
    '[::1]:9092'
    """
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_unreachable(host: str, port: int, timeout: float = 2) -> str | None:
    """Try to connect, and tell in a few words why that fails; None if the connection is accepted.

    Args:
        host: The name or address of the node.
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
