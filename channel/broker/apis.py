"""The APIs that an embedded broker serves, and the longest request body of each."""

from __future__ import annotations

from typing import Final

from kproto.api import CONTROL_APIS, ApiKey

LARGEST_BODY: Final = {
    ApiKey.METADATA: 256 * 1024,  # the names of about 8,000 topics; a client with more topics requests all topics
    ApiKey.CONTROLLED_SHUTDOWN: 1024,
    ApiKey.API_VERSIONS: 4 * 1024,
    ApiKey.DESCRIBE_CONFIGS: 256 * 1024,
}
"""The longest body in bytes by API; the control requests are limited by ``socket.request.max.bytes`` alone."""

LARGEST_CONTROLLER_BODY: Final = 1024 * 1024
"""The longest body in bytes of a request to the controller: AlterPartition for about 20,000 partitions."""

LARGEST_RECORD_BODY: Final = {
    ApiKey.PRODUCE: 16 * 1024 * 1024,
    ApiKey.FETCH: 256 * 1024,
    ApiKey.LIST_OFFSETS: 256 * 1024,
    ApiKey.INIT_PRODUCER_ID: 4 * 1024,
}
"""The longest body in bytes by API of a broker that serves records."""

RECORD_VERSIONS: Final = {
    ApiKey.PRODUCE: (0, 9),  # some clients look for version 0; its message formats are refused
    ApiKey.FETCH: (4, 10),  # from version 11 on a follower would have to answer, too
    ApiKey.LIST_OFFSETS: (1, 6),
}
"""The versions of these APIs that a broker with records serves: no topic ids, no records of format 0 or 1."""

SERVED: Final = frozenset((*LARGEST_BODY, *CONTROL_APIS))
"""The keys that ApiVersions announces."""

SLOW: Final = frozenset({ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS, *LARGEST_RECORD_BODY})
"""APIs whose messages the reference codec reads and writes, several microseconds for each byte, and that can be large.

They are served on another thread than the network thread, which serves all the other brokers.
"""
