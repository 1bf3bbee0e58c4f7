"""The APIs whose frames are wanted."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kproto.api import CONTROL_APIS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Collection


NAMING: Final = frozenset(
    {
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""The requests of brokers to the controller that begin with the sender's id, in every version."""

REPLICA_FETCHES: Final = 14
"""Up to this version Fetch begins with the id of the follower, -1 of a consumer."""


class WantedApis:
    """A set of APIs, or all of them.

    Args:
        apis: API keys; None for all.
        fetch_client: Of Fetch, only requests whose client id begins so; None: all. A broker's listener carries its
            users' records in Fetch: what is not wanted is never copied.

    Attributes:
        control: Whether a control request is among them.
        unwanted: (API key, version) of the requests up to Kafka 4.1 that are not wanted and name no sender: their
            frames are passed over without a look at their headers.
    """

    def __init__(self, apis: Collection[int] | None, fetch_client: str | None = None) -> None:
        self._fetch_client = fetch_client
        self._apis = None if apis is None else frozenset(map(int, apis))
        self.control: bool = self._apis is None or not self._apis.isdisjoint(CONTROL_APIS)
        self.unwanted: frozenset[tuple[int, int]] = frozenset() if self._apis is None else _unwanted(self._apis)

    def __contains__(self, api_key: int) -> bool:
        return self._apis is None or api_key in self._apis

    def takes(self, api_key: int, client_id: str | None) -> bool:
        """Whether a request of an API and of a client is wanted."""
        if self._apis is not None and api_key not in self._apis:
            return False
        if self._fetch_client is None or api_key != ApiKey.FETCH:
            return True
        return client_id is not None and client_id.startswith(self._fetch_client)


@lru_cache(maxsize=8)
def _unwanted(apis: frozenset[int]) -> frozenset[tuple[int, int]]:
    return frozenset(
        (int(api), version)
        for api in ApiKey
        if api not in apis and api not in NAMING
        for version in range(api.info.newest_version + 1)
    )
