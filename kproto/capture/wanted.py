"""The APIs whose frames are wanted."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kproto.api import CONTROL_APIS, ApiKey

if TYPE_CHECKING:
    from collections.abc import Collection


class WantedApis:
    """A set of APIs, or all of them.

    Args:
        apis: API keys; None for all.

    Attributes:
        control: Whether a control request is among them.
        unwanted: (API key, version) of the requests of Kafka 3.9.1 that are not wanted: their frames are passed over
            without a look at their headers.
    """

    def __init__(self, apis: Collection[int] | None) -> None:
        self._apis = None if apis is None else frozenset(map(int, apis))
        self.control = self._apis is None or not self._apis.isdisjoint(CONTROL_APIS)
        self.unwanted = frozenset() if self._apis is None else _unwanted(self._apis)

    def __contains__(self, api_key: int) -> bool:
        return self._apis is None or api_key in self._apis


@lru_cache(maxsize=8)
def _unwanted(apis: frozenset[int]) -> frozenset[tuple[int, int]]:
    return frozenset(
        (int(api), version) for api in ApiKey if api not in apis for version in range(api.info.max_version + 1)
    )
