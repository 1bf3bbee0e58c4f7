"""Types that all of kproto shares."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias

BrokerId: TypeAlias = int
"""A node's id (int32); -1 stands for none."""

Uuid: TypeAlias = bytes
"""A topic id: 16 bytes, most significant first; all zero means none."""

ZERO_UUID: Uuid = bytes(16)

RawTag: TypeAlias = tuple[int, bytes]
"""A tagged field that Kafka 3.9.1 does not define: its tag and its bytes."""

Kind: TypeAlias = Literal["request", "response", "request_header", "response_header"]

Json: TypeAlias = dict[str, object]
"""A message in Kafka's own JSON form, as ``json.loads`` gives it."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Buffer(Protocol):
    """An object with the buffer protocol: bytes, bytearray, memoryview, mmap, a numpy array, a pyarrow buffer."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
