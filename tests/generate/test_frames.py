"""The ids of generated frames join responses to requests, and no connection carries one twice."""

from expected_tables import expected_tables

from kproto.generate import PlannedFleet

SMALL = PlannedFleet(brokers=4, topics=3, partitions=30, isr_changes=20, elections=5, failovers=2, loss=0.1)


def test_ids_join_responses_to_requests() -> None:
    tables = expected_tables(SMALL)
    requests = {row["frame_id"]: row for row in tables["requests"].to_pylist()}
    responses = tables["responses"].to_pylist()
    assert len(responses) > 100
    for row in responses:
        request = requests[row["frame_id"]]
        assert (request["conn_id"], request["correlation_id"]) == (row["conn_id"], row["correlation_id"])


def test_a_connection_never_carries_two_requests_with_one_id() -> None:
    found = expected_tables(SMALL)["requests"].to_pylist()
    assert len({(row["conn_id"], row["correlation_id"]) for row in found}) == len(found) > 100
