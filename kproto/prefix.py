"""The first fields of a control request's body, before the part that is the same for all brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .api import ApiKey


@dataclass(frozen=True, slots=True)
class Prefix:
    """The offsets of the fields that open a control request, in bytes from the start of its body.

    Every version begins with the controller id (int32); then come, where the version has them, one byte that says
    whether it is a KRaft controller, the controller epoch (int32) and the broker epoch (int64).
    """

    kraft_at: int | None
    controller_epoch_at: int
    broker_epoch_at: int | None

    @property
    def size(self) -> int:
        """The offset behind the broker epoch: from there on the body is the same for each broker."""
        return self.controller_epoch_at + 4 if self.broker_epoch_at is None else self.broker_epoch_at + 8

    def cut(self, body: bytes | memoryview) -> tuple[bytes, int | None, memoryview]:
        """Cut a body where brokers differ.

        Returns:
            The bytes before the broker epoch, the broker epoch, and a view of the rest, which is the same for all
            brokers. In a version without broker epoch: the first fields, None, and the rest.
        """
        at, rest = self.broker_epoch_at, memoryview(body)[self.size :]
        if at is None:
            return bytes(body[: self.size]), None, rest
        return bytes(body[:at]), int.from_bytes(body[at : at + 8], signed=True), rest


_SINCE: Final[dict[int, tuple[int, int]]] = {
    # api: (first version with isKRaftController, first version with brokerEpoch)
    ApiKey.LEADER_AND_ISR: (7, 2),
    ApiKey.STOP_REPLICA: (4, 1),
    ApiKey.UPDATE_METADATA: (8, 5),
}


def _prefix(api_key: int, version: int) -> Prefix:
    kraft_since, epoch_since = _SINCE[api_key]
    kraft = version >= kraft_since
    epoch_at = 5 if kraft else 4
    return Prefix(4 if kraft else None, epoch_at, epoch_at + 4 if version >= epoch_since else None)


_PREFIXES: Final = {
    (key, version): _prefix(key, version) for key in _SINCE for version in range(ApiKey(key).info.max_version + 1)
}


def prefix_of(api_key: int, version: int) -> Prefix | None:
    """The layout of a control request's first fields; None for an API or version that has none known."""
    return _PREFIXES.get((api_key, version))
