"""Kafka's use of ZooKeeper: registrations of brokers and controllers, and writes fenced by the controller epoch."""

from __future__ import annotations

import contextlib
import itertools
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from channel.errors import BadVersion, ControllerMoved, NodeExists, NoNode, NotEmpty
from channel.logs import bounded, get_logger
from channel.types import random_uuid
from kproto.errors import ConfigurationError
from kproto.json_form import uuid_to_json

from .session import Check, Create, Delete, SetData, Stat, Transaction
from .znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_IDS,
    CLUSTER_ID,
    CONFIG_CHANGES,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PERSISTENT,
    TOPICS,
    ControllerRegistration,
    Decoding,
    broker_path,
    decode_config,
    decode_controller,
    decode_topic,
    decoded_or_none,
    encode_config,
    encode_config_change,
    encode_controller,
    json_bytes,
    json_object,
    topic_path,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .session import Operation, ZooKeeperSession

_log = get_logger(__name__)

_BUNDLE: Final = 100
"""The most groups of operations in one transaction."""

_BUNDLE_BYTES: Final = 256 << 10
"""The most data in one transaction, in bytes, unless a group alone has more: ZooKeeper takes 1 MiB by default."""


class WonElection(NamedTuple):
    """A won election: the controller epoch, and the version of its znode, which fences every write."""

    epoch: int
    epoch_zk_version: int


# ---- a cluster's first steps -----------------------------------------------------------------------------------------


def create_persistent_nodes(session: ZooKeeperSession) -> None:
    """Create the permanent znodes of a cluster that are missing."""
    for path in PERSISTENT:
        session.ensure(path)


def cluster_id(session: ZooKeeperSession) -> str:
    """Read the cluster's id; a cluster without an id gets a new one."""
    while (found := session.get_many([CLUSTER_ID])[0]) is None:
        with contextlib.suppress(NodeExists):  # another process has written the cluster's id first
            session.create(CLUSTER_ID, json_bytes({"version": "1", "id": uuid_to_json(random_uuid())}))
    with Decoding(CLUSTER_ID):
        return str(json_object(found[0])["id"])


# ---- brokers ---------------------------------------------------------------------------------------------------------


def register_broker(session: ZooKeeperSession, broker_id: int, data: bytes) -> int:
    """Register a broker for as long as the session lives; ``data`` is ``znodes.encode_broker``'s.

    Returns:
        The broker epoch of this registration.

    Raises:
        NodeExists: Another process has registered this id.
    """
    path = broker_path(broker_id)
    while True:
        outcome = session.transaction([Create(path, b"", ephemeral=True), SetData(path, data, 0)])
        match outcome.error:
            case None:
                stat: Stat = outcome.results[1]
                _log.info("registered broker %d at %s with broker epoch %d", broker_id, path, stat.czxid)
                return stat.czxid
            case NoNode():
                session.ensure(path.rpartition("/")[0])
                continue
            case NodeExists():
                pass
            case error:
                raise error
        found = session.exists(path)
        if found is None:
            continue  # deleted meanwhile
        if found.owner == session.id:
            return found.czxid
        if found.owner not in session.previous_ids:
            raise NodeExists(
                f"broker id {broker_id} is registered in ZooKeeper by another process; stop it, wait for its session "
                "to expire, or choose another id"
            )
        _log.info("broker %d: deleting the registration of the expired session 0x%x", broker_id, found.owner)
        with contextlib.suppress(NoNode):
            session.delete(path)


def controller_status(session: ZooKeeperSession) -> dict[str, Any]:
    """The controller, the time of its election, and the operations in progress, as an object for ``json``.

    Raises:
        ConfigurationError: There is no cluster.
    """
    found, epoch = read_controller(session), read_controller_epoch(session)
    try:
        names = session.children(TOPICS)
    except NoNode as e:
        raise ConfigurationError(
            f"no cluster of Kafka is at {session.hosts}: there is no {TOPICS}; see whether its path is missing or "
            "wrong, as in HOST:PORT/kafka (zookeeper.connect of a broker)"
        ) from e
    topics = {
        name: decoded_or_none(decode_topic, name, each[0])
        for name, each in zip(names, session.get_many([topic_path(name) for name in names]), strict=True)
        if each is not None
    }
    return {
        "controller": None if found is None else found[0].broker_id,
        "kraft": found is not None and found[0].kraft_epoch >= 0,
        "since": None if found is None or found[0].timestamp_ms < 0 else _time_text(found[0].timestamp_ms),
        "controller_epoch": None if epoch is None else epoch[0],
        "brokers": sorted(int(name) for name in session.children(BROKER_IDS) if name.isdigit()),
        "topics": len(names),
        "reassignments": [
            f"{name}-{partition}"
            for name, topic in sorted(topics.items())
            if topic is not None
            for partition, assignment in sorted(topic.partitions.items())
            if assignment.is_being_reassigned
        ],
        "deletions": sorted(session.children(ADMIN_DELETE_TOPICS)),
    }


def _time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- settings --------------------------------------------------------------------------------------------------------


def read_settings(session: ZooKeeperSession, entity: str, timeout_s: float | None = None) -> dict[str, str]:
    """The settings of an entity, such as "topics/orders" or "brokers/1", that differ from the defaults.

    Raises:
        RequestTimeout: ZooKeeper has not answered within ``timeout_s``.
    """
    path = f"/config/{entity}"
    found = session.get_many([path], timeout_s)[0]
    return (found and decoded_or_none(decode_config, path, found[0])) or {}


def write_settings(session: ZooKeeperSession, entity: str, settings: Mapping[str, str]) -> None:
    """Replace the settings of an entity, and notify the brokers, as any of Kafka's brokers does.

    The znode of a user without settings is deleted, unless clients of the user have settings.
    """
    path = f"/config/{entity}"
    is_deleted = False
    if not settings and entity.startswith("users/"):
        with contextlib.suppress(NotEmpty):
            with contextlib.suppress(NoNode):
                session.delete(path)
            is_deleted = True
    if not is_deleted:
        contents = encode_config(settings)
        try:
            session.set(path, contents)
        except NoNode:
            session.ensure(path)
            session.set(path, contents)
    session.create(f"{CONFIG_CHANGES}/config_change_", encode_config_change(entity), sequence=True)


# ---- the controller --------------------------------------------------------------------------------------------------


def read_controller(session: ZooKeeperSession) -> tuple[ControllerRegistration, Stat] | None:
    """The registration of the active controller, None if there is none."""
    found = session.get_many([CONTROLLER])[0]
    return None if found is None else (decode_controller(found[0]), found[1])


_LAST_EPOCH: Final = (1 << 31) - 1
_EPOCH_DIGITS: Final = 11


def read_controller_epoch(session: ZooKeeperSession) -> tuple[int, int] | None:
    """The controller epoch and the version of its znode, None before the first election.

    Each election writes the next number, so that the version of the znode is the epoch; a znode whose contents are no
    number, or none that another can follow in 32 bits, holds this one.
    """
    found = session.get_many([CONTROLLER_EPOCH])[0]
    if found is None:
        return None
    data, version = found[0], found[1].version
    if data.isdigit() and len(data) < _EPOCH_DIGITS and int(data) < _LAST_EPOCH:
        return int(data), version
    _log.error(
        "znode %s holds %r, which is no controller epoch; the version of the znode, %d, is taken instead, and the next "
        "election writes the next number",
        CONTROLLER_EPOCH, bounded(data), version,
    )  # fmt: skip
    return version, version


def register_controller(session: ZooKeeperSession, controller_id: int) -> WonElection:
    """Become the controller, with the next controller epoch, in one transaction.

    Args:
        session: The session that will own the ephemeral node ``/controller``.
        controller_id: The broker id to register.

    Raises:
        ControllerMoved: There is a controller, or another broker was elected first.
    """
    known = read_controller_epoch(session)
    if known is None:
        with contextlib.suppress(NodeExists):
            session.create(CONTROLLER_EPOCH, b"0")
        known = read_controller_epoch(session)
        assert known is not None
    epoch, version = known[0] + 1, known[1]
    registration = Create(CONTROLLER, encode_controller(controller_id, time.time_ns() // 1_000_000), ephemeral=True)
    outcome = session.transaction([registration, SetData(CONTROLLER_EPOCH, str(epoch).encode(), version)])
    if outcome.error is None:
        return WonElection(epoch, outcome.results[1].version)
    if not isinstance(outcome.error, (NodeExists, BadVersion)):
        raise outcome.error
    active, after = read_controller(session), read_controller_epoch(session)
    if active is None:
        raise ControllerMoved("/controller was created and has gone again while this controller stood for election")
    is_ours = active[0].broker_id == controller_id and active[1].owner == session.id
    if is_ours and after is not None and after[0] == epoch:
        return WonElection(*after)  # the transaction was applied, but its answer was lost with the connection
    raise ControllerMoved(f"broker {active[0].broker_id} is the controller")


def fenced(session: ZooKeeperSession, fence: int, operations: Sequence[Operation]) -> Transaction:
    """Apply operations if no other controller was elected since; ``fence`` is the version of ``/controller_epoch``.

    Raises:
        ControllerMoved: Another controller was elected; nothing is changed.
    """
    return fenced_all(session, fence, [operations])[0]


def fenced_all(session: ZooKeeperSession, fence: int, many: Sequence[Sequence[Operation]]) -> list[Transaction]:
    """Apply many groups of operations, pipelined, each group by itself; results are without the fence's.

    Raises:
        ControllerMoved: Another controller was elected; operations after its election change nothing.
    """
    check = Check(CONTROLLER_EPOCH, fence)
    outcomes = []
    for results, failed, error in session.transactions([(check, *operations) for operations in many]):
        if failed == 0:
            raise ControllerMoved(
                f"the version of {CONTROLLER_EPOCH} is not {fence} any more: another controller was elected"
            )
        outcomes.append(Transaction(results[1:], None if failed is None else failed - 1, error))
    return outcomes


def fenced_together(session: ZooKeeperSession, fence: int, many: Sequence[Sequence[Operation]]) -> list[Transaction]:
    """Apply many groups of operations as ``fenced_all`` does, but several in one transaction first: they seldom fail.

    The groups of a transaction that fails are applied each by itself. The outcomes may lack the operations' results.

    Raises:
        ControllerMoved: Another controller was elected; operations after its election change nothing.
    """
    bundles: list[list[Sequence[Operation]]] = []
    size = 0
    for operations in many:
        of_group = sum(len(getattr(each, "data", b"") or b"") for each in operations)
        if not bundles or len(bundles[-1]) == _BUNDLE or size + of_group > _BUNDLE_BYTES:
            bundles.append([])
            size = 0
        bundles[-1].append(operations)
        size += of_group
    outcomes: list[Transaction] = []
    together = [list(itertools.chain.from_iterable(bundle)) for bundle in bundles]
    for bundle, whole in zip(bundles, fenced_all(session, fence, together), strict=True):
        if whole.error is None or len(bundle) == 1:
            outcomes += [Transaction([], whole.failed, whole.error)] * len(bundle)
        else:
            outcomes += fenced_all(session, fence, bundle)
    return outcomes


def delete_controller(session: ZooKeeperSession, fence: int) -> None:
    """Resign: delete ``/controller``, so that any broker may stand for election.

    Raises:
        ControllerMoved: This controller has resigned already, or another was elected.
    """
    outcome = fenced(session, fence, [Delete(CONTROLLER)])
    if isinstance(outcome.error, NoNode):
        raise ControllerMoved("there is no /controller any more")
    if outcome.error is not None:
        raise outcome.error
