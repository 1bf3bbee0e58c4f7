"""Every control request that a broker logged is in the tables, with its partitions and errors, field by field."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from table_truth import WITH_TRUTH, expected_errors, expected_request, expected_states, name_of, truth_by_key

if TYPE_CHECKING:
    from table_truth import Analyzed

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def recorded(name: str) -> str:
    """The capture whose packets a file holds: a packet that several files hold has one row, of any of them."""
    return name.removesuffix(".pcap").removesuffix("-cut").removesuffix("-lossy")


class Tables:
    """Rows of the tables by what joins them."""

    def __init__(self, analyzed: Analyzed) -> None:
        self.frames = {frame["frame_id"]: frame for frame in analyzed.rows("frames")}
        self.requests: dict[str, dict[tuple[Any, ...], list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in sorted(analyzed.rows("requests"), key=lambda row: row["ts"]):
            frame = self.frames[row["frame_id"]]
            flow = frame["flow"]
            key = (flow["dst_ip"], flow["dst_port"], flow["src_port"], row["api_key"], row["api_version"])
            self.requests[recorded(frame["capture"])][*key, row["correlation_id"]].append(row)
        self.states = self._grouped(analyzed.rows("partition_states"), "body_id")
        self.errors = self._grouped(analyzed.rows("partition_errors"), "frame_id", "response_frame_id", "cluster", "ts")
        self.responses = {row["frame_id"]: row for row in analyzed.rows("responses")}

    @staticmethod
    def _grouped(rows: list[Row], key: str, *others: str) -> dict[bytes, list[Row]]:
        groups: dict[bytes, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row[key]].append({name: value for name, value in row.items() if name not in (key, *others)})
        return groups


@pytest.fixture(scope="module")
def tables(analyzed: Analyzed) -> Tables:
    return Tables(analyzed)


def by_partition(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], repr(row)))


@pytest.mark.parametrize("name", [name_of(path) for path in WITH_TRUTH])
def test_what_brokers_logged_is_in_the_tables(tables: Tables, name: str) -> None:
    found = tables.requests[recorded(name)]
    seen = 0
    for key, logged in truth_by_key(name).items():
        # Brokers log a request when it is answered; a port used again is told apart by time.
        logged.sort(key=lambda row: row["time"])
        assert len(found.get(key, ())) >= len(logged), key
        rows = iter(found[key])
        for truth in logged:
            expected = expected_request(truth)
            # Java logs a null client id as an empty one; the tables hold what was sent.
            row = next(r for r in rows if {n: r[n] for n in expected} | {"client_id": r["client_id"] or ""} == expected)
            assert by_partition(tables.states[row["body_id"]]) == by_partition(expected_states(truth)), key
            asked, answer = row["frame_id"], row["response_frame_id"]
            assert by_partition(tables.errors[asked]) == by_partition(expected_errors(truth)), key
            assert tables.responses[asked]["n_partition_errors"] == len(expected_errors(truth))
            assert tables.responses[asked]["response_frame_id"] == answer
            assert tables.responses[asked]["error_code"] == truth["response"]["errorCode"]
            assert tables.frames[answer]["direction"] == "response"
            # The broker's own measure lies between the request's last byte and the answer's first.
            assert row["latency_us"] >= 0
            seen += 1
    assert seen == sum(map(len, truth_by_key(name).values())) > 60


def test_errors_of_partitions_have_the_cluster_and_the_time_of_their_responses(analyzed: Analyzed) -> None:
    responses = {row["frame_id"]: (row["cluster"], row["ts"]) for row in analyzed.rows("responses")}
    errors = analyzed.rows("partition_errors")
    assert errors
    assert all((row["cluster"], row["ts"]) == responses[row["frame_id"]] for row in errors)
    assert {cluster for cluster, _ts in responses.values()} == {"default"}
