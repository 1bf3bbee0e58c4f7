"""Every control request that a broker logged comes out of its capture, equal to what the broker logged."""

import json
import re
from collections import Counter
from functools import cache
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


@cache
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


def steps(name: str) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = json.loads((DATA / "captures" / f"{name}.steps.json").read_text())["steps"]
    return recorded


def why_not_logged(name: str, exchange: Exchange) -> str | None:
    """Why a broker logged no such request, as far as the exchange and the recorded steps tell."""
    if exchange.error is not None:
        return "no version of 3.9" if "has no version" in str(exchange.error) else "a broken body"
    broker = (exchange.server.port - 92) % 100
    for step in steps(name):
        if not -0.5 < exchange.time - step["t"] < 2:
            continue
        if step["step"] == "kill -9" and step["broker"] == broker:
            return "killed before it could log"
        if step["step"].startswith("controlled shutdown") and step["broker"] == broker:
            return "shutting down"
        if step["step"] == "stop all":
            return "shutting down, as all brokers"
    rows = read_jsonl(DATA / "captures" / f"{name}.truth.jsonl.gz")
    key = (exchange.api_key, exchange.correlation_id, exchange.client.port)
    for row in rows:
        port = int(row["connection"].rsplit("-", 1)[0].rsplit(":", 1)[1])
        if not row["in_capture"] and (row["api_key"], row["correlation_id"], port) == key:
            return "logged at the moment when the capture began"
    return None


@pytest.mark.parametrize("path", LOGGED, ids=name_of)
def test_a_request_that_no_broker_logged_has_its_reason(path: Path) -> None:
    found, _ = read(path)
    rows = logged(name_of(path))
    for key in sorted(found.keys() - rows.keys()):
        exchange = found[key]
        reason = why_not_logged(name_of(path), exchange)
        print(f"{name_of(path)}: {exchange.request} to {exchange.server}: {reason}; {exchange.unmatched_reason}")
        assert reason is not None
        assert exchange.request is not None
        assert exchange.request.status == WHOLE


def test_there_are_such_requests() -> None:
    """The test above has something to explain: brokers killed, versions refused, bodies broken."""
    reasons = Counter()
    for path in LOGGED:
        found, _ = read(path)
        reasons.update(why_not_logged(name_of(path), found[key]) for key in found.keys() - logged(name_of(path)).keys())
    print(dict(reasons))
    assert reasons == {
        "no version of 3.9": 5,
        "a broken body": 3,
        "killed before it could log": 5,
        "shutting down": 8,
        "shutting down, as all brokers": 9,
        "logged at the moment when the capture began": 1,
    }


def test_the_counts_are_those_on_the_wire() -> None:
    """Requests and responses by api and version, as a separate reassembly counted them (it missed four in ``-cut``)."""
    requests: Counter[tuple[int, int]] = Counter()
    answered: Counter[tuple[int, int]] = Counter()
    for path in LOGGED:
        for exchange in read(path)[0].values():
            assert exchange.api_key is not None
            assert exchange.api_version is not None
            api = exchange.api_key, exchange.api_version
            requests[api] += 1
            answered[api] += exchange.response is not None
    assert {api: (n, answered[api]) for api, n in requests.items()} == {
        (4, 0): (357, 356),
        (4, 1): (91, 90),
        (4, 2): (92, 92),
        (4, 3): (91, 91),
        (4, 4): (179, 177),
        (4, 5): (93, 93),
        (4, 6): (89, 88),
        (4, 7): (241, 240),
        (4, 8): (1, 0),
        (4, 99): (1, 0),
        (5, 0): (145, 140),
        (5, 1): (59, 55),
        (5, 2): (30, 29),
        (5, 3): (75, 71),
        (5, 4): (95, 95),
        (5, 5): (1, 0),
        (6, -1): (1, 0),
        (6, 0): (169, 169),
        (6, 1): (172, 172),
        (6, 2): (175, 175),
        (6, 3): (177, 177),
        (6, 4): (174, 174),
        (6, 5): (358, 358),
        (6, 6): (338, 337),
        (6, 7): (434, 433),
        (6, 8): (596, 594),
        (6, 9): (1, 0),
    }


def test_a_file_that_begins_within_a_request_lacks_that_one_alone() -> None:
    cut, _ = read(DATA / "captures" / "ibp-3.9-a-cut.pcap.gz")
    whole, _ = read(DATA / "captures" / "ibp-3.9-a.pcap.gz")
    assert cut.keys() <= whole.keys()
    for key, exchange in cut.items():
        assert exchange.request is not None
        request = whole[key].request
        assert request is not None
        assert exchange.request.payload == request.payload


def test_exchanges_come_in_the_order_of_their_requests() -> None:
    for path in CAPTURES:
        times = [exchange.time_ns for exchange in exchanges(path)]
        assert times == sorted(times)


def test_what_to_json_gives() -> None:
    exchange = next(iter(exchanges(DATA / "captures" / "ibp-2.8-a.pcap.gz")))
    got = exchange.to_json()
    assert json.loads(json.dumps(got)) == got
    assert list(got) == [
        "time",
        "server",
        "client",
        "api_key",
        "api_version",
        "correlation_id",
        "client_id",
        "request",
        "response",
        "latency_ms",
    ]
    assert got["server"] == "[::1]:19092"
    assert got["time"] == exchange.time_ns / 10**9
    assert round(exchange.time * 10**6) * 1000 == exchange.time_ns
    assert 0 < exchange.latency_ms < 1000
