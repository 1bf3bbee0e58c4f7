"""Finds the broker ids of addresses in a capture, by the same rule for ``inspect``, ``summary`` and the tables."""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from kproto.api import ApiKey
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kproto.tables.bodies import ControlBody
    from kproto.types import BrokerId

__all__ = ["BrokerDirectory", "BrokerFacts", "address_of"]

_EVERY: Final = ""
"""The key of all capture points together."""


def address_of(host: str) -> str | None:
    """A host as captures print its address; None if it is a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


class BrokerDirectory:
    """Learns broker ids from control requests and returns the id at an address.

    Sources, the first that knows the address wins:

    1. ids that the user gave (``--brokers``);
    2. the live brokers of UpdateMetadata that listen at the address, as listed last before the request, else first
       after it: as the request's own capture shows them, else as any other capture does;
    3. the same by port alone, where a port belongs to one broker (brokers advertise names, packets show addresses);
    4. LeaderAndIsr, which goes only to brokers with a replica of the partition: the one id that the replicas of all
       partitions sent to an address have in common.

    Facts are learnt in the order of their times.

    Args:
        given: ``(ip, port)`` -> id, as ``--brokers`` says.
    """

    def __init__(self, given: Mapping[tuple[str, int], BrokerId] | None = None) -> None:
        self._given = dict(given or {})
        self._claims: dict[tuple[str, str, int], list[tuple[int, BrokerId]]] = {}
        self._at_port: dict[tuple[str, int], BrokerId | None] = {}  # None: several brokers have the port
        self._common: dict[tuple[str, str, int], frozenset[BrokerId]] = {}
        self._listed: dict[str, object] = {}

    def id_of(self, address: tuple[str, int], time_ns: int | None = None, capture: str = _EVERY) -> BrokerId | None:
        """The id of the broker that listens at an address, None if it is unknown.

        Args:
            address: IP address and port.
            time_ns: When a request went there, ns since 1970; None for the end of the capture.
            capture: The capture point that saw the request.
        """
        claims = self.history_of(address, capture)
        if not claims:
            return None
        if time_ns is None or len(claims) == 1:
            return claims[-1][1]
        return claims[max(bisect_right(claims, time_ns, key=lambda claim: claim[0]) - 1, 0)][1]

    def history_of(self, address: tuple[str, int], capture: str = _EVERY) -> list[tuple[int, BrokerId]]:
        """The ids of an address, each with the time in ns since 1970 from which it holds, oldest first.

        The first id holds for requests before its time too.
        """
        if (given := self._given.get(address)) is not None:
            return [(0, given)]
        ip, port = address
        for point in dict.fromkeys((capture, _EVERY)):
            if claims := self._claims.get((point, ip, port)):
                return claims
            if (alone := self._at_port.get((point, port))) is not None:
                return [(0, alone)]
            common = self._common.get((point, ip, port), frozenset())
            if len(common) == 1:
                return [(0, next(iter(common)))]
        return []

    def learn(self, time_ns: int, capture: str, server: tuple[str, int], body: ControlBody) -> None:
        """Learn the broker ids in a control request.

        Args:
            time_ns: When it passed, ns since 1970.
            capture: The capture point that saw it.
            server: The address that it was sent to.
            body: Its decoded body.
        """
        if body.api_key == ApiKey.UPDATE_METADATA:
            if self._listed.get(capture) is not body.listeners:
                self._listed[capture] = body.listeners
                self.learn_listeners(time_ns, capture, body.listeners)
        elif body.api_key == ApiKey.LEADER_AND_ISR and body.states and self.id_of(server, time_ns, capture) is None:
            self.learn_replicas(capture, server, body.common_replicas)

    def learn_listeners(self, time_ns: int, capture: str, listeners: Iterable[tuple[BrokerId, str, int]]) -> None:
        """Take the live brokers that an UpdateMetadata lists: id, host and port of each listener.

        Raises:
            ConfigurationError: The user gave one id to addresses of two brokers in this list.
        """
        renamed: dict[BrokerId, BrokerId] = {}
        for broker, host, port in listeners:
            ip = address_of(host)
            if ip is not None and (given := self._given.get((ip, port))) is not None:
                other = renamed.setdefault(given, broker)
                if other != broker:
                    raise ConfigurationError(
                        f"--brokers gives id {given} to two brokers, {other} and {broker} as the traffic names them"
                    )
            for point in {capture, _EVERY}:
                if ip is None:
                    if self._at_port.setdefault((point, port), broker) != broker:
                        self._at_port[point, port] = None
                    continue
                claims = self._claims.setdefault((point, ip, port), [])
                if not claims or (claims[-1][1] != broker and claims[-1][0] <= time_ns):
                    claims.append((time_ns, broker))

    def learn_replicas(self, capture: str, address: tuple[str, int], common: Collection[BrokerId]) -> None:
        """Take a LeaderAndIsr to an address: the replicas that all its partitions have in common."""
        for point in {capture, _EVERY}:
            key = (point, *address)
            known = self._common.get(key)
            self._common[key] = frozenset(common) if known is None else known & frozenset(common)


class BrokerFacts:
    """The broker addresses in a part of the captures, for a directory that learns all parts together.

    Attributes:
        listeners: When which capture listed which live brokers, each list where it differs from the one before.
        replicas: For each capture and address the replicas that all partitions sent there have in common.
    """

    def __init__(self) -> None:
        self.listeners: list[tuple[int, str, tuple[tuple[BrokerId, str, int], ...]]] = []
        self.replicas: dict[tuple[str, tuple[str, int]], frozenset[BrokerId]] = {}
        self._listed: dict[str, tuple[tuple[BrokerId, str, int], ...]] = {}

    def learn_listeners(self, time_ns: int, capture: str, listeners: Iterable[tuple[BrokerId, str, int]]) -> None:
        """As ``BrokerDirectory.learn_listeners``."""
        listed = tuple(listeners)
        if self._listed.get(capture) != listed:
            self._listed[capture] = listed
            self.listeners.append((time_ns, capture, listed))

    def learn_replicas(self, capture: str, address: tuple[str, int], common: Collection[BrokerId]) -> None:
        """As ``BrokerDirectory.learn_replicas``."""
        known = self.replicas.get((capture, address))
        self.replicas[capture, address] = frozenset(common) if known is None else known & frozenset(common)

    def id_of(self, _address: tuple[str, int], _time_ns: int | None = None, _capture: str = _EVERY) -> BrokerId | None:
        """Return None: a part of the captures is not enough to know the id."""
        return None

    @staticmethod
    def teach(directory: BrokerDirectory, parts: Iterable[BrokerFacts]) -> None:
        """Let a directory learn all parts, in the order of time."""
        parts = list(parts)
        for fact in sorted((fact for part in parts for fact in part.listeners), key=lambda fact: fact[:2]):
            directory.learn_listeners(*fact)
        for part in parts:
            for (capture, address), common in part.replicas.items():
                directory.learn_replicas(capture, address, common)
