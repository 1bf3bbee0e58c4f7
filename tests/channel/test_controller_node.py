"""The controller's listener lets clients go that ask it nothing."""

from __future__ import annotations

import pytest

from channel.config import ChannelConfig
from channel.node import controller_node


@pytest.mark.parametrize(("configured", "used"), [(600_000, 10_000), (-1, 10_000), (10_001, 10_000), (500, 500)])
def test_a_silent_connection_ends_after_ten_seconds_at_the_latest(configured: int, used: int) -> None:
    config = controller_node._with_short_idle(ChannelConfig(connections_max_idle_ms=configured))
    assert config.connections_max_idle_ms == used
