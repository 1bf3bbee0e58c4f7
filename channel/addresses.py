"""Addresses as people write them: ``HOST:PORT``, an IPv6 address in brackets."""

from __future__ import annotations

from kproto.errors import ConfigurationError

__all__ = ["parse_address", "show_address"]


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


def show_address(address: tuple[str, int]) -> str:
    """Format an address as text.

    >>> show_address(("::1", 9092))
    '[::1]:9092'
    """
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
