"""Operations in kazoo's form, and kazoo's answers as results and errors of the channel package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kazoo import exceptions as kazoo_errors

from channel.errors import BadVersion, NodeExists, NoNode, NotEmpty, SessionExpired, ZooKeeperError

from .operations import Check, Create, Delete, Operation, SetData, Stat, Transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ERRORS", "begin_transaction", "stat_of", "transaction_of"]

ERRORS: Final[dict[type[Exception], type[ZooKeeperError]]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.SessionExpiredError: SessionExpired,
}
_NOT_TRIED: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


def stat_of(stat: Any) -> Stat:
    """Return what the channel package needs of a node's stat."""
    return Stat(stat.czxid, stat.version, stat.ephemeralOwner)


def begin_transaction(client: Any, operations: Sequence[Operation]) -> Any:
    """Send operations as one transaction; returns kazoo's pending answer."""
    transaction = client.transaction()
    for each in operations:
        match each:
            case Create(path, data, ephemeral, sequence):
                transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    return transaction.commit_async()


def transaction_of(operations: Sequence[Operation], results: list[Any]) -> Transaction:
    """Return the outcome of a transaction: its results, or its first operation that ZooKeeper refused."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, _NOT_TRIED):
            kind = ERRORS.get(type(result), ZooKeeperError)
            operation = operations[index]
            error = kind(f"{type(operation).__name__} {operation.path}: {type(result).__name__}")
            return Transaction([], index, error)
    if any(isinstance(result, Exception) for result in results):
        return Transaction([], 0, ZooKeeperError(f"a transaction failed for no reason that ZooKeeper gave: {results}"))
    return Transaction([stat_of(r) if hasattr(r, "czxid") else r for r in results])
