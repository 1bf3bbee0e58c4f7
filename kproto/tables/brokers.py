"""Finds the broker ids of addresses in a capture, by the same rule for ``inspect``, ``summary`` and the tables."""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, TypeAlias

from kproto.api import ApiKey
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kproto.tables.bodies import ControlBody
    from kproto.types import BrokerId

Listeners: TypeAlias = "tuple[tuple[BrokerId, str, int], ...]"
"""Id, host and port of each listener of the live brokers."""

_LOGGED: Final = re.compile(r"broker-([0-9]{1,10})")
"""The address, with port 0, of a broker whose own log told of a request, as ``kproto.capture.log_reader`` gives it."""

_EVERY: Final = ""
"""The key of all capture points together."""


def address_of(host: str) -> str | None:
    """A host as captures print its address; None if it is a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def id_at(history: Sequence[tuple[int, BrokerId]], time_ns: int | None) -> BrokerId | None:
    """The id of an address at a time, by its ``BrokerDirectory.history_of``; None: at the end."""
    if not history:
        return None
    if time_ns is None or len(history) == 1:
        return history[-1][1]
    return history[max(bisect_right(history, time_ns, key=lambda claim: claim[0]) - 1, 0)][1]


class _Listing:
    """The live brokers that an UpdateMetadata lists.

    Attributes:
        at: The ids that it lists at an address, in order.
        at_port: The ids that it lists at a port of hosts that are names.
        is_unique: Whether it lists each address once.
    """

    __slots__ = ("at", "at_port", "is_unique")

    def __init__(self, listeners: Listeners) -> None:
        self.at: dict[tuple[str, int], list[BrokerId]] = {}
        self.at_port: dict[int, set[BrokerId]] = {}
        for broker, host, port in listeners:
            ip = address_of(host)
            if ip is None:
                self.at_port.setdefault(port, set()).add(broker)
            else:
                self.at.setdefault((ip, port), []).append(broker)
        self.is_unique = all(len(brokers) == 1 for brokers in self.at.values())


class _AddressHistory:
    """What the listings of a capture point say of an address, as far as they were looked at.

    Attributes:
        seen: The number of listings that were looked at.
        claims: The ids at the address, each with the time in ns since 1970 from which it holds.
        at_port: The ids at its port, of hosts that are names.
    """

    __slots__ = ("at_port", "claims", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.claims: list[tuple[int, BrokerId]] = []
        self.at_port: set[BrokerId] = set()

    def look(self, listings: Sequence[tuple[int, _Listing]], address: tuple[str, int]) -> None:
        """Look at the listings that came since."""
        for time_ns, listing in listings[self.seen :]:
            for broker in listing.at.get(address, ()):
                if not self.claims or (self.claims[-1][1] != broker and self.claims[-1][0] <= time_ns):
                    self.claims.append((time_ns, broker))
            self.at_port.update(listing.at_port.get(address[1], ()))
        self.seen = len(listings)


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
        self._known: dict[Listeners, _Listing] = {}  # captures of many hosts hold the same listings
        self._listings: dict[str, list[tuple[int, _Listing]]] = {}  # by capture point, in the order learnt
        self._histories: dict[tuple[str, str, int], _AddressHistory] = {}
        self._common: dict[tuple[str, str, int], frozenset[BrokerId]] = {}
        self._listed: dict[str, object] = {}

    def id_of(self, address: tuple[str, int], time_ns: int | None = None, capture: str = _EVERY) -> BrokerId | None:
        """The id of the broker that listens at an address, None if it is unknown.

        Args:
            address: IP address and port.
            time_ns: The time of a request to the address, ns since 1970; None for the end of the capture.
            capture: The capture point that saw the request.
        """
        return id_at(self.history_of(address, capture), time_ns)

    def history_of(self, address: tuple[str, int], capture: str = _EVERY) -> list[tuple[int, BrokerId]]:
        """The ids of an address, each with the time in ns since 1970 from which it holds, oldest first.

        The first id holds for requests before its time too.
        """
        if (given := self._given.get(address)) is not None:
            return [(0, given)]
        ip, port = address
        if port == 0 and (logged := _LOGGED.fullmatch(ip)):
            return [(0, int(logged[1]))]
        for point in dict.fromkeys((capture, _EVERY)):
            history = self._histories.get((point, ip, port))
            if history is None:
                history = self._histories[point, ip, port] = _AddressHistory()
            history.look(self._listings.get(point, ()), address)
            if history.claims:
                return history.claims
            if len(history.at_port) == 1:
                return [(0, next(iter(history.at_port)))]
            common = self._common.get((point, ip, port), frozenset())
            if len(common) == 1:
                return [(0, next(iter(common)))]
        return []

    def learn(self, time_ns: int, capture: str, server: tuple[str, int], body: ControlBody) -> None:
        """Learn the broker ids in a control request.

        Args:
            time_ns: The time at which it passed, ns since 1970.
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
        listed = tuple(listeners)
        listing = self._known.get(listed)
        if listing is None:
            listing = _Listing(listed)
            self._check(listing)
            self._known[listed] = listing
        for point in {capture, _EVERY}:
            listings = self._listings.setdefault(point, [])
            if not listings or listings[-1][1] is not listing or not listing.is_unique:
                listings.append((time_ns, listing))

    def _check(self, listing: _Listing) -> None:
        """Raise if the user gave one id to two brokers of a listing."""
        renamed: dict[BrokerId, BrokerId] = {}
        for address, brokers in listing.at.items():
            given = self._given.get(address)
            if given is None:
                continue
            for broker in brokers:
                other = renamed.setdefault(given, broker)
                if other != broker:
                    raise ConfigurationError(
                        f"--brokers gives id {given} to two brokers, {other} and {broker} as the traffic names them"
                    )

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
        addresses: Capture point, IP and port of the receivers of requests, of what is stored.
    """

    def __init__(self) -> None:
        self.listeners: list[tuple[int, str, Listeners]] = []
        self.replicas: dict[tuple[str, tuple[str, int]], frozenset[BrokerId]] = {}
        self.addresses: set[tuple[str, str, int]] = set()
        self._listed: dict[str, Listeners] = {}
        self._known: dict[Listeners, Listeners] = {}  # equal lists are one object, also where facts are pickled

    def learn_listeners(self, time_ns: int, capture: str, listeners: Iterable[tuple[BrokerId, str, int]]) -> None:
        """See ``BrokerDirectory.learn_listeners``."""
        listed = tuple(listeners)
        listed = self._known.setdefault(listed, listed)
        if self._listed.get(capture) is not listed:
            self._listed[capture] = listed
            self.listeners.append((time_ns, capture, listed))

    def learn_replicas(self, capture: str, address: tuple[str, int], common: Collection[BrokerId]) -> None:
        """See ``BrokerDirectory.learn_replicas``."""
        known = self.replicas.get((capture, address))
        self.replicas[capture, address] = frozenset(common) if known is None else known & frozenset(common)

    def history_of(self, _address: tuple[str, int], _capture: str = _EVERY) -> list[tuple[int, BrokerId]]:
        """Return none: a part of the captures is not enough to know the ids."""
        return []

    @classmethod
    def joined(cls, parts: Iterable[BrokerFacts]) -> BrokerFacts:
        """Return the facts of all parts."""
        every = cls()
        for part in parts:
            every.listeners += part.listeners
            every.addresses |= part.addresses
            for (capture, address), common in part.replicas.items():
                every.learn_replicas(capture, address, common)
        every.listeners = [*dict.fromkeys(every.listeners)]
        return every

    def teach(self, directory: BrokerDirectory) -> None:
        """Let a directory learn them, in the order of time."""
        for fact in sorted(self.listeners, key=lambda fact: fact[:2]):
            directory.learn_listeners(*fact)
        for (capture, address), common in self.replicas.items():
            directory.learn_replicas(capture, address, common)
