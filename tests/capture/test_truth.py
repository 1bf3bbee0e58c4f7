"""Every control request that a broker logged comes out of its capture, equal to what the broker logged."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, read_jsonl

from kproto.api import CONTROL_APIS
from kproto.capture import WHOLE, CaptureSummary, Exchange, exchanges

CAPTURES = sorted((DATA / "captures").glob("*.pcap.gz"))
LOGGED = [path for path in CAPTURES if "-lossy" not in path.name]

Key = tuple[int, int, int, int, int]


def name_of(path: Path) -> str:
    return path.name.removesuffix(".pcap.gz")


def logged(name: str) -> dict[Key, dict[str, Any]]:
    """The brokers' log of the requests that a capture holds, by server port, client port, api, version and id."""
    rows = {}
    for row in read_jsonl(DATA / "captures" / f"{name}.truth.jsonl.gz"):
        if row["in_capture"] and row["api_key"] in CONTROL_APIS:
            ports = re.fullmatch(r".*:(\d+)-.*:(\d+)-\d+", row["connection"])
            assert ports
            key = (int(ports[1]), int(ports[2]), row["api_key"], row["version"], row["correlation_id"])
            assert key not in rows
            rows[key] = row
    return rows


def key_of(exchange: Exchange) -> Key:
    assert exchange.api_key is not None
    assert exchange.api_version is not None
    ports = exchange.server.port, exchange.client.port
    return (*ports, exchange.api_key, exchange.api_version, exchange.correlation_id)


def read(path: Path) -> tuple[dict[Key, Exchange], CaptureSummary]:
    summary = CaptureSummary()
    found = {key_of(exchange): exchange for exchange in exchanges(path, summary=summary) if exchange.request}
    return found, summary


@pytest.mark.parametrize("path", LOGGED, ids=name_of)
def test_every_logged_request_comes_out_equal(path: Path) -> None:
    found, summary = read(path)
    rows = logged(name_of(path))
    assert rows
    for key, row in rows.items():
        got = found[key].to_json()
        # the brokers log a null client id as the empty one
        assert (got["client_id"] or "", got["request"], got["response"]) == (
            row["client_id"],
            row["request"],
            row["response"],
        )
        assert "error" not in got
    assert summary.gaps == 0
    assert summary.problem() is None


ONLY_ON_THE_WIRE: dict[str, dict[tuple[int, int], str]] = {}


@pytest.mark.parametrize("path", LOGGED, ids=name_of)
def test_requests_that_no_broker_logged_have_their_reason(path: Path) -> None:
    found, _ = read(path)
    rows = logged(name_of(path))
    for key in found.keys() - rows.keys():
        exchange = found[key]
        print(name_of(path), key, exchange.unmatched_reason, exchange.error, exchange.time)
