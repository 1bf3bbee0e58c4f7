"""Topics that are chosen to collide in a hash table cost no more than any others."""

import struct

from wire import array, i32, i64, string, varint

from kproto.columns import ColumnsBuilder

WORD = 2**64 - 1
HEAD = i32(1) + b"\0" + i32(1) + i64(1)  # of an UpdateMetadata request, version 8


def colliding_ids(count: int) -> list[bytes]:
    """Ids that give one value under ``(w0 ^ w0 >> 32) * odd ^ w1``, the mixing of two words without a secret."""
    firsts = range(1, count + 1)
    return [struct.pack("<QQ", w, ((w ^ w >> 32) * 0xD6E8FEB86659FD93 & WORD) ^ 7) for w in firsts]


def collisions(count: int) -> int:
    """Slots of other topics that were looked at while a request of this number of topics was read."""
    row = bytes(16) + b"\1" + i32(0) + b"\1\1\0"
    topics = [string("", flexible=True) + topic_id + varint(2) + row + b"\0" for topic_id in colliding_ids(count)]
    builder = ColumnsBuilder(6)
    assert builder.append(8, HEAD + array(topics, flexible=True) + b"\1\0") == count
    return int(builder._collisions)  # type: ignore[attr-defined]  # for this test alone


def test_twice_as_many_topics_are_twice_the_work() -> None:
    """A table at most half full meets half a foreign topic for each search; colliding topics meet all others."""
    assert collisions(4_000) < 2 * 4_000
    assert collisions(8_000) < 2 * 8_000
