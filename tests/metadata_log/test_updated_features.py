"""A real run in which the features of 4.0 were updated to 4.1, and broker 2 was unregistered, as Kafka's dump says."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from kraft_runs import capture, metadata, truth

from kproto.query import ask_sql, open_tables
from kproto.tables import read

if TYPE_CHECKING:
    import duckdb

RUN = "kraft-4.1-d"


@cache
def shown() -> duckdb.DuckDBPyConnection:
    return open_tables(read(str(capture(RUN))))


def test_features_are_at_the_level_that_was_written_last() -> None:
    levels = {
        row["data"]["name"]: row["data"]["featureLevel"] for row in truth(RUN) if row["type"] == "FEATURE_LEVEL_RECORD"
    }
    sql = "SELECT data FROM metadata_records WHERE type = 'FEATURE_LEVEL_RECORD' ORDER BY log_offset"
    rows = [json.loads(row[0]) for row in ask_sql(open_tables(read(str(metadata(RUN, 1000)))), sql).rows]
    assert {row["name"]: row["featureLevel"] for row in rows} == levels
    assert levels["metadata.version"] == 27


def test_who_asked_for_the_features_is_joined_with_their_records() -> None:
    written = {
        f"set the feature {row['data']['name']} to {row['data']['featureLevel']}": row["offset"]
        for row in truth(RUN)
        if row["type"] == "FEATURE_LEVEL_RECORD" and row["offset"] > 10  # those before came with the format
    }
    (version,) = (row for row in truth(RUN) if row["type"] == "KRaftVersion")
    written["set the feature kraft.version to 1"] = version["offset"]
    rows = ask_sql(shown(), "SELECT what, log_offset, error_code FROM admin_changes WHERE what LIKE '%feature%'").rows
    assert {what: offset for what, offset, _error in rows} == written
    assert {error for _what, _offset, error in rows} == {0}


def test_a_broker_that_was_unregistered_is_no_member_from_that_record_on() -> None:
    (record,) = (row for row in truth(RUN) if row["type"] == "UNREGISTER_BROKER_RECORD")
    states = ask_sql(
        shown(), "SELECT state, epoch_ms(valid_from), log_offset FROM broker_states WHERE broker_id = 2"
    ).rows
    assert states[-1] == ("unregistered", record["time_ms"], record["offset"])
    members = ask_sql(shown(), "SELECT role, epoch_ms(valid_to) FROM quorum_members WHERE node_id = 2").rows
    assert members == [("observer", record["time_ms"])]
    asked = ask_sql(shown(), "SELECT what, log_offset FROM admin_changes WHERE what LIKE 'unregister%'").rows
    assert asked == [("unregister broker 2", record["offset"])]
    sql = "SELECT l.broker_id, max(epoch_ms(ts)) FROM requests JOIN live_brokers l USING (live_brokers_id) GROUP BY ALL"
    live = dict(ask_sql(open_tables(read(str(metadata(RUN, 1000)))), sql).rows)
    assert live[2] < record["time_ms"] <= live[0]
