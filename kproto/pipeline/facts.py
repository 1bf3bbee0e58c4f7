"""What stored recordings of a cluster tell of its brokers, for the runs that add others."""

from __future__ import annotations

import json
from array import array
from functools import partial
from typing import TYPE_CHECKING, Any

from kproto.errors import ConfigurationError
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.places import read_whole

if TYPE_CHECKING:
    from kproto.tables.filters import Filters
    from kproto.tables.places import Place

_ids = partial(array, "i")  # brokers have numbers of 32 bits: others are an OverflowError


def stored_facts(run: Place, name: str | None) -> BrokerFacts:
    """Return the facts that a file beside tables holds; none without a file.

    Raises:
        ConfigurationError: It cannot be read.
    """
    found = BrokerFacts()
    if name is None:
        return found
    try:
        said = json.loads(read_whole(run / name))
        lists = [tuple((_ids([n])[0], str(host), int(port)) for n, host, port in listed) for listed in said["lists"]]
        for time_ns, capture, listed in said["listeners"]:
            found.learn_listeners(int(time_ns), str(capture), lists[listed])
        for capture, (ip, port), ids in said["replicas"]:
            found.learn_replicas(str(capture), (str(ip), int(port)), _ids(ids))
        found.addresses.update((str(capture), str(ip), int(port)) for capture, ip, port in said["addresses"])
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as e:
        raise ConfigurationError(
            f"{run / name} is damaged ({type(e).__name__}: {e}), so nothing can be added: choose another directory "
            "with --out, or give up these tables and make new ones with --overwrite"
        ) from None
    return found


def facts_as_bytes(facts: BrokerFacts) -> bytes:
    """Return the content of the file that holds facts."""
    lists = {listed: n for n, listed in enumerate(dict.fromkeys(listed for _, _, listed in facts.listeners))}
    said: dict[str, Any] = {
        "lists": list(lists),
        "listeners": [(time_ns, capture, lists[listed]) for time_ns, capture, listed in facts.listeners],
        "replicas": [[*key, sorted(ids)] for key, ids in facts.replicas.items()],
        "addresses": sorted(facts.addresses),
    }
    return json.dumps(said).encode()


def changes_ids(facts: BrokerFacts, directory: BrokerDirectory, filters: Filters) -> bool:
    """Whether a directory that knows more tells other ids for the addresses of stored requests."""
    alone = BrokerDirectory(filters.broker_ids)
    facts.teach(alone)
    return any(
        alone.history_of((ip, port), capture) != directory.history_of((ip, port), capture)
        for capture, ip, port in facts.addresses
    )
