"""The machine's facts in every result."""

from __future__ import annotations

import os
from typing import Any

import pytest
from measure import machine


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Name the machine by its parts; a figure without them is worth nothing."""
    machine_info.update(machine())


@pytest.fixture(autouse=True)
def _load(benchmark: Any) -> None:
    """The load of the machine while this benchmark ran."""
    benchmark.extra_info["load"] = os.getloadavg()[0]
