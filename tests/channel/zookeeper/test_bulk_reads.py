"""ZooKeeper's bulk read as bytes; ``tests/kafka/test_zookeeper.py`` asks a real server."""

import struct

import pytest

from channel.zookeeper.session import NO_NODE, ReadMany, Stat, serves_bulk_reads


def test_a_request_names_each_znode_and_starts_no_watch() -> None:
    begin, end = struct.pack(">i?i", 4, False, -1), struct.pack(">i?i", -1, True, -1)
    expected = begin + b"\0\0\0\2/a\0" + begin + b"\0\0\0\3/\xc3\xa4\0" + end
    assert ReadMany(["/a", "/\u00e4"]).serialize() == expected


def test_results_are_data_and_stat_or_an_error_each() -> None:
    stat = struct.pack(">qqqqiiiqiiq", 7, 8, 1, 2, 3, 4, 5, 9, 0, 6, 8)
    answer = b"".join(
        (
            struct.pack(">i?i", 4, False, 0), struct.pack(">i", 3), b"abc", stat,
            struct.pack(">i?i", -1, False, NO_NODE), struct.pack(">i", NO_NODE),
            struct.pack(">i?i", 4, False, 0), struct.pack(">i", -1), stat,
            struct.pack(">i?i", -1, True, -1),
        )
    )  # fmt: skip
    assert ReadMany.deserialize(b"header" + answer, 6) == [(b"abc", Stat(7, 3, 9)), NO_NODE, (b"", Stat(7, 3, 9))]


@pytest.mark.parametrize(
    ("answer", "serves"),
    [
        ("Zookeeper version: 3.8.4-9316c2a7, built on 2024-02-12 22:16 UTC\nLatency", True),
        ("Zookeeper version: 3.6.0--b4c89dc7, built on 02/25/2020 14:38 GMT", True),
        ("Zookeeper version: 3.10.0", True),
        ("Zookeeper version: 3.5.9-83df9301, built on 01/06/2021 20:03 GMT", False),
        ("srvr is not executed because it is not in the whitelist.", False),
        ("", False),
    ],
)
def test_bulk_reads_are_asked_of_servers_that_tell_a_version_that_has_them(answer: str, serves: bool) -> None:
    assert serves_bulk_reads(answer) is serves
