"""Finds out which brokers, as captures show them, belong to one cluster.

A broker is shown as an address at a capture point: two hosts may use the same private addresses. Addresses belong to
one cluster if it is declared so; or if they were sent the same metadata update of one controller, or at one capture
point updates that list the same live brokers; or if logs of one broker tell of them. What is left belongs together
unless something speaks against it:

- topics of one name have other ids, and no topic has the same id;
- updates in their captures list no listener in common;
- one controller epoch is that of two controllers, or brokers accept a lower one long after others a higher one;
- both were sent updates about partitions while the other was, and never the same one, unless updates in the captures of
  both list a broker of one id and address, and one controller led both in one epoch. State-change logs do not show the
  bytes of an update, so that theirs are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kproto.api import CONTROL_APIS, ApiKey
from kproto.tables.arrays import rows_of
from kproto.tables.hosts import Kin
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.schemas import NO_EPOCH, column, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

CLUSTERS: Final = described(
    "Which broker's address, as a capture point shows it, belongs to which cluster.",
    column("capture", pa.string(), "Capture point."),
    column("server_ip", pa.string(), "Address that requests were sent to."),
    column("server_port", pa.int32(), "TCP port that requests were sent to."),
    column("cluster", pa.string(), "The cluster as declared; default: the only one, or that with the most requests."),
)

NODE: Final = ("capture", "server_ip", "server_port")
"""The columns of ``requests`` that name a broker's address at a capture point."""

CLUSTER_COLUMNS: Final = (
    *NODE, "ts", "api_key", "error_code", "n_partitions", "controller_id", "controller_epoch", "body_id",
    "live_brokers_id",
)  # fmt: skip
"""The columns of ``requests`` that clusters are found from."""

Node = tuple[str, str, int]
Listener = tuple[int, str, int]

_UPDATE: Final = ("body_id", "controller_id", "controller_epoch")
"""The columns that tell that two updates are one."""

_ENOUGH: Final = 3
"""Where two brokers were sent this many updates each while the other was, and none was the same, they are strangers."""

_NO_ID: Final = bytes(16)


_FAILOVER_US: Final = 60_000_000
"""Longer than a controller that was replaced goes on, without one update that others see too."""

_COMPARED: Final = 64
"""The most sets of addresses that are compared with each other; the smallest beyond count to the largest cluster."""


class _Shown(NamedTuple):
    """Addresses that belong together.

    Attributes:
        nodes: The addresses.
        bodies: The updates about partitions that they were sent, and when first, on the common clock.
        requests: How many requests they were sent.
        ids: The topics in these updates that have ids, with them.
        listeners: Those that updates in their captures list, with the broker's id; empty if the captures show others'
            updates too.
        reigns: The controllers of each epoch that they accepted.
        is_logged: Whether state-change logs alone show them: what these tell of an update is not its body.
    """

    nodes: frozenset[Node]
    bodies: dict[bytes, int]
    requests: int
    ids: set[tuple[str, bytes]]
    listeners: set[Listener]
    reigns: dict[int, _Reign]
    is_logged: bool


class _Reign(NamedTuple):
    """The requests of one controller epoch that were accepted: of whom, and from when to when."""

    controllers: frozenset[int]
    first: int
    last: int

    def __or__(self, other: _Reign) -> _Reign:
        return _Reign(self.controllers | other.controllers, min(self.first, other.first), max(self.last, other.last))


class ClusterEvidence:
    """What tells clusters apart, from pieces of ``requests``.

    Args:
        captures: Rows of ``captures``: they name the clusters that were declared.
        brokers: Rows of ``brokers``.
    """

    def __init__(self, captures: pa.Table, brokers: pa.Table) -> None:
        rows = rows_of(captures, ("capture", "cluster"))
        self._declared: dict[str, str] = {name: of for name, of in rows if of not in (None, DEFAULT_CLUSTER)}
        self._listeners: dict[str, set[Listener]] = defaultdict(set)
        for capture, broker, host, port in rows_of(brokers, ("capture", "broker_id", "host", "port")):
            if port:  # a state-change log lacks the listeners
                self._listeners[capture].add((broker, host, port))
        self._nodes: Counter[Node] = Counter()
        self._lists: dict[tuple[str, bytes], set[Node]] = defaultdict(set)
        self._updates: list[pa.Table] = []
        self._reigns: dict[Node, dict[int, _Reign]] = defaultdict(dict)

    def add(self, requests: pa.Table) -> None:
        """Add rows of ``requests``, with the columns ``CLUSTER_COLUMNS``."""
        groups = requests.group_by([*NODE], use_threads=False).aggregate([("ts", "count")])
        for *node, count in rows_of(groups, (*NODE, "ts_count")):
            self._nodes[_node(node)] += count
        is_update = pc.and_(
            pc.equal(requests["api_key"], int(ApiKey.UPDATE_METADATA)),
            pc.equal(pc.fill_null(requests["error_code"], 0), 0),
        )
        updates = requests.filter(pc.and_kleene(is_update, pc.is_valid(requests["controller_id"])))
        lists = updates.group_by([*NODE, "live_brokers_id"], use_threads=False).aggregate([])
        for *node, listed in rows_of(lists, (*NODE, "live_brokers_id")):
            if listed is not None:
                self._lists[node[0], listed].add(_node(node))
        is_control = pc.is_in(requests["api_key"], value_set=pa.array(sorted(CONTROL_APIS), pa.int16()))
        is_accepted = pc.and_(pc.equal(requests["error_code"], 0), is_control)
        is_told = pc.greater(requests["controller_epoch"], NO_EPOCH)
        accepted = requests.filter(
            pc.and_kleene(is_accepted, pc.and_kleene(is_told, pc.is_valid(requests["controller_id"])))
        )
        keys = [*NODE, "controller_epoch", "controller_id"]
        times = accepted.select(keys).append_column("ts", accepted["ts"].cast(pa.int64()))
        spans = times.group_by(keys, use_threads=False).aggregate([("ts", "min"), ("ts", "max")])
        for *node, epoch, controller, first, last in rows_of(spans, (*keys, "ts_min", "ts_max")):
            _add_reign(self._reigns[_node(node)], epoch, _Reign(frozenset([controller]), first, last))
        named = updates.filter(pc.greater(updates["n_partitions"], 0)).select([*_UPDATE, *NODE, "ts"])
        self._updates.append(named.set_column(len(_UPDATE) + len(NODE), "ts", named["ts"].cast(pa.int64())))

    def clusters(
        self,
        topics: Callable[[], Mapping[bytes, set[tuple[str, bytes]]]],
        clock: Callable[[str, int], int],
        hosts: Mapping[str, str],
    ) -> dict[Node, str]:
        """Return the name of each address's cluster.

        Args:
            topics: Returns the topics with their ids that each body names; asked only where clusters may differ.
            clock: Returns by how many us a capture point's clock is ahead at a time.
            hosts: For each capture point the one that stands for its host.
        """
        declared = {node: self._declared[node[0]] for node in self._nodes if node[0] in self._declared}
        kin = Kin(node for node in self._nodes if node not in declared)
        for nodes in self._lists.values():
            some = [node for node in nodes if node not in declared]
            for node in some[1:]:
                kin.join(some[0], node)
        logs: dict[str, Node] = {}
        for node in self._nodes:
            if node[2] == 0 and node not in declared:  # an address that a log lacks
                kin.join(logs.setdefault(hosts[node[0]], node), node)
        shown: dict[tuple[Any, ...], Node] = {}
        for *update, node, _ts in self._sent() if kin.count > 1 else ():
            kin.join(shown.setdefault(tuple(update), node), node)
            if kin.count == 1:
                break
        parts = {first: self._part(frozenset(nodes), clock) for first, nodes in kin.groups().items()}
        for *update, node, ts in self._sent() if len(parts) > 1 else ():
            parts[kin.first(node)].bodies.setdefault(update[0], ts - clock(node[0], ts))
        named = dict(declared)
        by_size = sorted(parts.values(), key=lambda part: (-part.requests, sorted(part.nodes)))
        for number, members in enumerate(_of_one_cluster(by_size, topics)):
            ip, port = min(node[1:] for node in members)
            where = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
            name = DEFAULT_CLUSTER if not number else f"at {where}"
            if number and name in named.values():
                name = f"{name} in {min(members)[0]}"
            named.update(dict.fromkeys(members, name))
        return named

    def _part(self, nodes: frozenset[Node], clock: Callable[[str, int], int]) -> _Shown:
        captures = {node[0] for node in nodes}
        others = {node[0] for node in self._nodes if node not in nodes}
        listeners = set() if captures & others else {each for name in captures for each in self._listeners[name]}
        reigns: dict[int, _Reign] = {}
        for node in nodes:
            for epoch, (controllers, first, last) in self._reigns.get(node, {}).items():
                ahead = clock(node[0], first)
                _add_reign(reigns, epoch, _Reign(controllers, first - ahead, last - ahead))
        is_logged = all(port == 0 for _capture, _ip, port in nodes)
        return _Shown(nodes, {}, sum(self._nodes[node] for node in nodes), set(), listeners, reigns, is_logged)

    def _sent(self) -> Iterator[tuple[Any, ...]]:
        """Yield the updates about partitions, each to each undeclared address."""
        for table in self._updates:
            for *update, capture, ip, port, ts in rows_of(table):
                if capture not in self._declared:
                    yield *update, (capture, ip, port), ts


def _node(values: Iterable[Any]) -> Node:
    capture, ip, port = values
    return capture, ip, port


def _of_one_cluster(
    parts: list[_Shown], topics: Callable[[], Mapping[bytes, set[tuple[str, bytes]]]]
) -> Iterable[frozenset[Node]]:
    """Put the parts that may be of one cluster together, beginning with the largest."""
    if len(parts) < 2:
        return [part.nodes for part in parts]
    named = topics()
    found: list[_Shown] = []
    for number, each in enumerate(parts):
        ids = {pair for body in each.bodies for pair in named.get(body, ())}
        part = each._replace(ids=ids)
        for place, kin in enumerate(found):
            if number >= _COMPARED or not _are_strangers(kin, part):
                reigns = dict(kin.reigns)
                for epoch, reign in part.reigns.items():
                    _add_reign(reigns, epoch, reign)
                found[place] = _Shown(
                    kin.nodes | part.nodes, kin.bodies | part.bodies, kin.requests + part.requests, kin.ids | ids,
                    kin.listeners | part.listeners, reigns, kin.is_logged and part.is_logged,
                )  # fmt: skip
                break
        else:
            found.append(part)
    return [kin.nodes for kin in found]


def _are_strangers(one: _Shown, other: _Shown) -> bool:
    """Whether two sets of brokers, which share no update, are of two clusters."""
    if one.ids & other.ids:
        return False
    if {topic for topic, _id in one.ids} & {topic for topic, _id in other.ids}:
        return True
    if one.listeners and other.listeners and _addresses(one).isdisjoint(_addresses(other)):
        return True
    if _are_two_chains(one.reigns, other.reigns) or _are_two_chains(other.reigns, one.reigns):
        return True
    if not one.bodies or not other.bodies or one.is_logged or other.is_logged:
        return False
    if one.listeners & other.listeners and one.reigns.keys() & other.reigns.keys():
        return False  # each epoch's controllers are the same, as asked above
    begin = max(min(one.bodies.values()), min(other.bodies.values()))
    end = min(max(one.bodies.values()), max(other.bodies.values()))
    return all(sum(begin <= ts <= end for ts in part.bodies.values()) >= _ENOUGH for part in (one, other))


def _addresses(part: _Shown) -> set[tuple[str, int]]:
    return {(host, port) for _broker, host, port in part.listeners}


def _are_two_chains(one: Mapping[int, _Reign], other: Mapping[int, _Reign]) -> bool:
    """Whether controllers are of two elections: epochs of one cluster grow, and each has one controller."""
    if any(epoch in other and reign.controllers.isdisjoint(other[epoch].controllers) for epoch, reign in one.items()):
        return True
    highest = max(one, default=-1)
    return highest >= 0 and any(
        epoch < highest and reign.last > one[highest].first + _FAILOVER_US for epoch, reign in other.items()
    )


def _add_reign(reigns: dict[int, _Reign], epoch: int, reign: _Reign) -> None:
    known = reigns.get(epoch)
    reigns[epoch] = reign if known is None else known | reign


def topic_ids_of(states: Iterable[pa.Table]) -> dict[bytes, set[tuple[str, bytes]]]:
    """Return the topics with their ids that each body names, from rows of ``partition_states``."""
    found: dict[bytes, set[tuple[str, bytes]]] = defaultdict(set)
    for table in states:
        rows = table.select(["body_id", "topic", "topic_id"]).group_by(
            ["body_id", "topic", "topic_id"], use_threads=False
        )
        for body, topic, topic_id in rows_of(rows.aggregate([])):
            if topic_id is not None and topic_id != _NO_ID:
                found[body].add((topic, topic_id))
    return found


def cluster_names(clusters: Iterable[str]) -> list[str]:
    """Return the names of clusters, each once: the one that was not declared first."""
    return sorted(set(clusters), key=lambda name: (name != DEFAULT_CLUSTER, name))
