"""The mapping of a tap's listening address to the node that it relays to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from channel.addresses import parse_address, show_address
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from channel.network.transport import Address

__all__ = ["Mapping"]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A listening address of the tap, and the node that it relays to.

    >>> Mapping.of("127.0.0.1:19092=kafka-1:9092")
    Mapping(listen=('127.0.0.1', 19092), upstream=('kafka-1', 9092))

    Attributes:
        listen: The tap's own host and port; port 0 for any free one, no host for all addresses of the machine.
        upstream: The node's host and port.
    """

    listen: Address
    upstream: Address

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a mapping ``LISTEN=UPSTREAM``, each ``HOST:PORT`` (``[::1]:9092`` for IPv6).

        Raises:
            ConfigurationError: The text is not ``LISTEN=UPSTREAM``.
        """
        listen, separator, upstream = text.partition("=")
        if not separator:
            raise ConfigurationError(f"no mapping: {text!r}; write LISTEN=UPSTREAM, as 127.0.0.1:19092=kafka-1:9092")
        if listen.strip().startswith(":"):
            listen = f"0.0.0.0{listen.strip()}"  # noqa: S104 - every address of the machine, as the user asked
        return cls(parse_address(listen), parse_address(upstream))

    def __str__(self) -> str:
        return f"{show_address(self.listen)}={show_address(self.upstream)}"
