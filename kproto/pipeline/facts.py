"""What stored recordings of a cluster tell of its brokers, for the runs that add others."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kproto.errors import ConfigurationError
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.places import read_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

_ids = partial(array, "i")  # brokers have numbers of 32 bits: others are an OverflowError

Address = tuple[str, str, int]
"""Capture point, IP and port of a broker."""


@dataclass(slots=True)
class BrokersOfCluster:
    """The facts about a cluster's brokers.

    Attributes:
        facts: Of its recordings.
        addresses: The receivers' addresses of the requests in them.
    """

    facts: BrokerFacts = field(default_factory=BrokerFacts)
    addresses: set[Address] = field(default_factory=set)

    @classmethod
    def stored(cls, run: Place, name: str | None) -> BrokersOfCluster:
        """Return the facts that a file beside tables holds; none without a file.

        Raises:
            ConfigurationError: It cannot be read.
        """
        found = cls()
        if name is None:
            return found
        try:
            said = json.loads(read_whole(run / name))
            lists = [
                tuple((_ids([n])[0], str(host), int(port)) for n, host, port in listed) for listed in said["lists"]
            ]
            for time_ns, capture, listed in said["listeners"]:
                found.facts.learn_listeners(int(time_ns), str(capture), lists[listed])
            for capture, (ip, port), ids in said["replicas"]:
                found.facts.learn_replicas(str(capture), (str(ip), int(port)), _ids(ids))
            found.addresses.update((str(capture), str(ip), int(port)) for capture, ip, port in said["addresses"])
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as e:
            raise ConfigurationError(
                f"{run / name} is damaged ({type(e).__name__}: {e}), so nothing can be added: choose another directory "
                "with --out, or give up these tables and make new ones with --overwrite"
            ) from None
        return found

    def with_all(self, parts: Iterable[BrokerFacts], addresses: Collection[Address]) -> BrokersOfCluster:
        """Return these facts and those of further recordings."""
        every = BrokerFacts()
        for part in (self.facts, *parts):
            every.listeners += part.listeners
            for (capture, address), common in part.replicas.items():
                every.learn_replicas(capture, address, common)
        every.listeners = [*dict.fromkeys(every.listeners)]
        return BrokersOfCluster(every, self.addresses | set(addresses))

    def to_bytes(self) -> bytes:
        """Return the content of the file that holds these facts."""
        lists = {listed: n for n, listed in enumerate(dict.fromkeys(listed for _, _, listed in self.facts.listeners))}
        facts: dict[str, Any] = {
            "lists": list(lists),
            "listeners": [(time_ns, capture, lists[listed]) for time_ns, capture, listed in self.facts.listeners],
            "replicas": [[*key, sorted(ids)] for key, ids in self.facts.replicas.items()],
            "addresses": sorted(self.addresses),
        }
        return json.dumps(facts).encode()

    def changed_by(self, directory: BrokerDirectory, filters: Filters) -> bool:
        """Whether a directory that knows more tells other ids for the addresses of stored requests."""
        alone = BrokerDirectory(filters.broker_ids)
        BrokerFacts.teach(alone, [self.facts])
        return any(
            alone.history_of((ip, port), capture) != directory.history_of((ip, port), capture)
            for capture, ip, port in self.addresses
        )
