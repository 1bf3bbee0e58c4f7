"""Finds out which broker stands behind an address that no listing names: brokers may advertise names.

Evidence, for each address of a cluster whose broker is not known otherwise:

- brokers' own requests, such as AlterPartition, ControlledShutdown or a follower's Fetch, name their sender, and come
  from its IP address;
- a controller sends metadata updates to live brokers alone: the broker is in each list that it was sent;
- LeaderAndIsr goes to replicas alone: it is a replica of each partition that it was told of;
- two addresses that were sent requests at the same time are two brokers;
- where a partition's state went to as many brokers as its ISR has, and not to all replicas, it went to the ISR. This is
  weaker: it counts unless something speaks against it, and not near begin or end: others are told outside.

An id that is the same in every assignment that fits all of it is the broker's. Else the id stays unknown; the
assignments that are possible are kept, so that what holds in all of them can be said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import CONTROL_APIS, ApiKey
from kproto.tables.arrays import rows_of
from kproto.tables.schemas import INTS, column, described

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

IDENTITIES: Final = described(
    "Addresses of brokers that no listing names, and which brokers they may be.",
    column("cluster", pa.string(), "Cluster."),
    column("server_ip", pa.string(), "Address."),
    column("server_port", pa.int32(), "TCP port."),
    column("broker_id", pa.int32(), "Broker, if only one is possible; else null."),
    column("possible", INTS, "In each assignment of brokers to addresses that fits, this address's broker, in order."),
)

Address = tuple[str, int]

IDENTITY_COLUMNS: Final = (
    "cluster", "server_ip", "server_port", "broker_id", "ts", "api_key", "body_id", "live_brokers_id", "error_code",
)  # fmt: skip
"""The columns of ``requests`` that identities are found from, resolved."""

IDENTITY_STATES: Final = (
    "body_id", "api_key", "topic", "partition", "leader_epoch", "partition_epoch", "isr", "replicas",
)  # fmt: skip

_MOST_ADDRESSES: Final = 12
"""Of more unknown addresses in a cluster none is guessed."""

_LATE_US: Final = 10_000_000
"""How long it may take until a live broker is told what others were told."""

_MOST_FITS: Final = 24
_MOST_STEPS: Final = 20_000

Fit = dict[Address, int]
"""A broker for each unknown address."""


class Identity(NamedTuple):
    """A row of ``IDENTITIES``."""

    cluster: str
    server_ip: str
    server_port: int
    broker_id: int | None
    possible: list[int]


class _SentTo(NamedTuple):
    """The requests to an address.

    Attributes:
        first, last: The times of the first and the last, us since 1970.
        bodies: Their bodies, each with the answer.
        lists: The lists of live brokers that it was sent.
    """

    first: int
    last: int
    bodies: frozenset[tuple[bytes, int | None]]
    lists: frozenset[bytes]


def identities(
    requests: pa.Table,
    live_brokers: pa.Table,
    states: Callable[[], Iterable[pa.Table]],
    senders: Mapping[str, Collection[int]],
) -> list[Identity]:
    """Return what is known of addresses without a broker.

    Args:
        requests: Resolved rows, with the columns ``IDENTITY_COLUMNS``.
        live_brokers: The whole table.
        states: Returns rows of ``partition_states`` with the columns ``IDENTITY_STATES``; asked only where there are
            such addresses.
        senders: The brokers whose own requests came from an IP address.
    """
    apis = pa.array(sorted(CONTROL_APIS), pa.int16())
    requests = requests.filter(pc.is_in(requests["api_key"], value_set=apis))
    unknown = requests.filter(pc.is_null(requests["broker_id"]))
    found: list[Identity] = []
    if not unknown.num_rows:
        return found
    live: dict[bytes, set[int]] = defaultdict(set)
    for listed, broker in rows_of(live_brokers, ("live_brokers_id", "broker_id")):
        live[listed].add(broker)
    told = _told_states(states())
    for cluster in pc.unique(unknown["cluster"]).to_pylist():
        mine = requests.filter(pc.equal(requests["cluster"], cluster))
        found += _of_cluster(cluster, mine, live, told, senders)
    return found


def _told_states(states: Iterable[pa.Table]) -> dict[bytes, list[tuple[Any, ...]]]:
    """Return the states in each LeaderAndIsr body: their names and epochs, ISR and replicas."""
    found: dict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
    for table in states:
        some = table.filter(pc.equal(table["api_key"], int(ApiKey.LEADER_AND_ISR)))
        for body, _api, *name, isr, replicas in rows_of(some, IDENTITY_STATES):
            found[body].append((tuple(name), frozenset(isr or ()), frozenset(replicas or ())))
    return found


def _of_cluster(
    cluster: str,
    requests: pa.Table,
    live: Mapping[bytes, set[int]],
    told: Mapping[bytes, list[tuple[Any, ...]]],
    senders: Mapping[str, Collection[int]],
) -> list[Identity]:
    known: dict[Address, int] = {}
    bodies: dict[Address, set[tuple[bytes, int | None]]] = defaultdict(set)
    begins: dict[bytes, int] = {}
    lists: dict[Address, set[bytes]] = defaultdict(set)
    spans: dict[Address, tuple[int, int]] = {}
    of = ("server_ip", "server_port", "broker_id", "body_id", "live_brokers_id", "error_code")
    times = requests.select(of).append_column("ts", requests["ts"].cast(pa.int64()))
    groups = times.group_by([*of], use_threads=False).aggregate([("ts", "min"), ("ts", "max")])
    for ip, port, broker, body, listed, error, first, last in rows_of(groups, (*of, "ts_min", "ts_max")):
        address = ip, port
        if broker is not None:
            known[address] = broker
        if body is not None:
            bodies[address].add((body, error))
            begins[body] = min(first, begins.get(body, first))
        if listed is not None:
            lists[address].add(listed)
        before = spans.get(address, (first, last))
        spans[address] = min(first, before[0]), max(last, before[1])
    shown = {
        address: _SentTo(*span, frozenset(bodies[address]), frozenset(lists[address]))
        for address, span in spans.items()
    }
    unknown = sorted(address for address in shown if address not in known)
    if not 0 < len(unknown) <= _MOST_ADDRESSES:
        return [Identity(cluster, *address, None, []) for address in unknown]
    possible = {address: _possible(shown[address], live, told) for address in unknown}
    hosts = Counter(ip for ip, _port in shown)
    for ip, port in unknown:
        named = frozenset(senders.get(ip, ()))
        if len(named) == 1 == hosts[ip] and (named <= possible[ip, port] or not possible[ip, port]):
            possible[ip, port] = named
    since, until = min(begins.values(), default=0) + _LATE_US, max(last for _first, last in spans.values()) - _LATE_US
    weak = _in_isr(shown, told, {body for body, first in begins.items() if since <= first <= until})
    narrowed = {address: ids & weak[address] if address in weak else ids for address, ids in possible.items()}
    fits = _fits(unknown, narrowed, shown, known)
    if not fits:
        narrowed = possible
        fits = _fits(unknown, possible, shown, known)
    found = []
    for address in unknown:
        brokers = {fit[address] for fit in fits}
        alike = [
            other
            for other in unknown
            if other != address and narrowed[other] == narrowed[address] and _are_alike(shown[other], shown[address])
        ]  # which could be exchanged
        broker = next(iter(brokers)) if len(brokers) == 1 and not alike else None
        found.append(Identity(cluster, *address, broker, [fit[address] for fit in fits]))
    return found


def _possible(
    told: _SentTo, live: Mapping[bytes, set[int]], states: Mapping[bytes, list[tuple[Any, ...]]]
) -> frozenset[int]:
    """Return the brokers that may have been told this."""
    sets = [live[listed] for listed in told.lists if listed in live]
    for body, error in told.bodies:
        if error == 0:
            sets += [replicas for _name, _isr, replicas in states.get(body, ())]
    return frozenset(set.intersection(*map(set, sets))) if sets else frozenset()


def _in_isr(
    shown: Mapping[Address, _SentTo], states: Mapping[bytes, list[tuple[Any, ...]]], settled: Collection[bytes]
) -> dict[Address, frozenset[int]]:
    """Return addresses that were told a state of a settled body as one of its ISR, with the brokers in all these."""
    counted: set[Any] = set()
    recipients: dict[Any, set[Address]] = defaultdict(set)
    for address, told in shown.items():
        for body, error in told.bodies:
            if error == 0:
                for state in states.get(body, ()):
                    recipients[state].add(address)
                    if body in settled:
                        counted.add(state)
    found: dict[Address, frozenset[int]] = {}
    for state in counted:
        addresses, (_name, isr, replicas) = recipients[state], state
        if len(addresses) == len(isr) < len(replicas):
            for address in addresses:
                found[address] = found.get(address, isr) & isr
    return found


def _fits(
    unknown: Sequence[Address],
    possible: Mapping[Address, frozenset[int]],
    shown: Mapping[Address, _SentTo],
    known: Mapping[Address, int],
) -> list[Fit]:
    """Return the assignments that fit, without those that differ only in addresses that were told the same.

    None are returned if an address may be any broker, or if there are too many.
    """
    if not all(possible.values()):
        return []
    overlapping = {
        one: [
            other for other in shown
            if other != one and shown[other].first <= shown[one].last and shown[one].first <= shown[other].last
        ]
        for one in unknown
    }  # fmt: skip
    found: list[Fit] = []
    steps = 0

    def assign(place: int, fit: Fit) -> bool:
        """Assign the addresses from a place on; False: there is too much to try."""
        nonlocal steps
        steps += 1
        if steps > _MOST_STEPS or len(found) > _MOST_FITS:
            return False
        if place == len(unknown):
            found.append(dict(fit))
            return True
        address = unknown[place]
        taken = {fit.get(other, known.get(other)) for other in overlapping[address]}
        alike = [other for other in unknown[:place] if _are_alike(shown[other], shown[address])]
        for broker in sorted(possible[address] - taken):
            if not alike or possible[alike[-1]] != possible[address] or fit[alike[-1]] < broker:
                fit[address] = broker
                if not assign(place + 1, fit):
                    return False
                del fit[address]
        return True

    return found if assign(0, {}) and len(found) <= _MOST_FITS else []


def _are_alike(one: _SentTo, other: _SentTo) -> bool:
    return one.bodies == other.bodies and one.lists == other.lists
