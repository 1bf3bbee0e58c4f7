"""What tells clusters apart, where two controllers have the same epoch."""

from typing import Any

import pyarrow as pa
import pytest

from kproto.tables.clusters import CLUSTER_COLUMNS, ClusterEvidence
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.schemas import BROKERS, CAPTURES, REQUESTS


def names(*updates: tuple[int, int | None], declared: str | None = None) -> list[str]:
    """The clusters of two brokers under a controller each, with these further updates of one list."""
    base: dict[str, Any] = dict.fromkeys(CLUSTER_COLUMNS)
    rows = [
        base | {"capture": "a", "server_ip": f"10.0.0.{broker}", "server_port": 9092, "ts": 0, "api_key": 4}
        | {"controller_id": broker, "controller_epoch": 5, "error_code": 0, "n_partitions": 1}
        for broker in (1, 2)
    ]  # fmt: skip
    rows += [
        base | {"capture": "a", "server_ip": f"10.0.0.{broker}", "server_port": 9092, "ts": 1, "api_key": 6}
        | {"controller_id": broker, "controller_epoch": 5, "error_code": error, "n_partitions": 0}
        | {"live_brokers_id": b"list"}
        for broker, error in updates
    ]  # fmt: skip
    captures = pa.Table.from_pylist([{"capture": "a", "cluster": declared}])
    evidence = ClusterEvidence(captures, BROKERS.empty_table())
    evidence.add(pa.Table.from_pylist(rows, pa.schema([REQUESTS.field(name) for name in CLUSTER_COLUMNS])))
    return sorted(set(evidence.clusters(dict, lambda _point, _ts: 0, {}).values()))


@pytest.mark.parametrize(
    ("updates", "found"),
    [([], 2), ([(1, 0), (2, 0)], 1), ([(1, 0), (2, None)], 1), ([(1, 0), (2, 11)], 2), ([(1, 11), (2, 11)], 2)],
)
def test_a_list_of_brokers_joins_those_that_did_not_refuse_it(
    updates: list[tuple[int, int | None]], found: int
) -> None:
    assert len(names(*updates)) == found


def test_a_capture_that_somebody_named_is_of_that_cluster_and_the_default_is_no_name() -> None:
    assert names(declared="blue") == ["blue"]
    assert len(names(declared=DEFAULT_CLUSTER)) == len(names(declared=None)) == 2


@pytest.mark.parametrize(("port", "found"), [(0, 1), (9093, 2)])
def test_a_log_that_lacks_the_listeners_is_of_no_other_cluster(port: int, found: int) -> None:
    """Two captures of one controller: their listeners differ, unless one has ports of none."""
    base: dict[str, Any] = dict.fromkeys(CLUSTER_COLUMNS)
    rows = [
        base | {"capture": capture, "server_ip": f"10.0.0.{broker}", "server_port": 9092, "ts": 0, "api_key": 4}
        | {"controller_id": 1, "controller_epoch": 5, "error_code": 0, "n_partitions": 1}
        for capture, broker in (("packets", 1), ("log", 2))
    ]  # fmt: skip
    brokers = [
        {"capture": "packets", "broker_id": 1, "host": "10.0.0.1", "port": 9092},
        {"capture": "log", "broker_id": 2, "host": "10.0.0.2", "port": port},
    ]
    evidence = ClusterEvidence(CAPTURES.empty_table(), pa.Table.from_pylist(brokers))
    evidence.add(pa.Table.from_pylist(rows, pa.schema([REQUESTS.field(name) for name in CLUSTER_COLUMNS])))
    assert len(set(evidence.clusters(dict, lambda _point, _ts: 0, {}).values())) == found
