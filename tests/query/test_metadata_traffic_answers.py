"""What captures of a KRaft cluster tell of brokers, the quorum and administrators, against the steps of a real run.

In kraft-4.1-b broker 2 is stopped (SIGSTOP) and goes on; the active controller is stopped, then two of the three
controllers; a second process of broker 2 registers while the first is stopped; administrators move partitions.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from conftest import DATA, few
from kraft_runs import HEALTHY, capture, metadata

from kproto.query import open_tables
from kproto.query.questions import Answer, ask, ask_sql
from kproto.tables import read
from kproto.tables.filters import Filters
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings
from tests.hosts import by_host, recorded

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import duckdb

RUN = "kraft-4.1-b"
STEPS = json.loads((DATA / "kraft" / f"{RUN}.steps.json").read_text())


@cache
def tables(run: str = RUN, *, log_alone: bool = False) -> duckdb.DuckDBPyConnection:
    return open_tables(read(str(metadata(run, 1000) if log_alone else capture(run))))


def rows_of(found: Answer) -> list[dict[str, Any]]:
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def sql(text: str, **more: Any) -> list[dict[str, Any]]:
    return rows_of(ask_sql(tables(**more), text))


def whole(question: str, filters: Filters | None = None, **more: Any) -> list[dict[str, Any]]:
    return rows_of(ask(tables(**more), question, filters))


def seconds(time: datetime) -> float:
    return time.timestamp()


def steps(what: str, **wanted: Any) -> list[float]:
    return [s["at"] for s in STEPS if s["step"] == what and all(s.get(k) == v for k, v in wanted.items())]


def test_a_broker_that_was_stopped_is_fenced_though_alive() -> None:
    first, second = steps("signal", node=2, signal="SIGSTOP")
    fenced = [row for row in whole("brokers") if row["broker"] == 2 and "no controlled shutdown" in row["why"]]
    for row, stopped in zip(fenced, (first, second), strict=True):
        assert 5 < seconds(row["valid_from"]) - stopped < 9  # the session's timeout is 6 s
        assert row["evidence"].startswith("session timed out: no heartbeat for 6.")
        assert "though alive" in row["evidence"]
    assert fenced[1]["evidence"].endswith("replaced")  # by the second process


def test_a_shutdown_and_a_start_are_told_by_heartbeats() -> None:
    rows = [row for row in whole("brokers") if row["broker"] == 1]
    (fenced,) = [row for row in rows if row["why"] == "fenced after its controlled shutdown"]
    assert fenced["evidence"] == "its heartbeats asked to shut down"
    registered = [row for row in whole("brokers") if row["why"].startswith("registered") and row["evidence"]]
    assert registered
    assert all("asked to stay fenced" in row["evidence"] for row in registered)


def test_each_change_of_the_controller_has_its_reason() -> None:
    rows = whole("elections")
    assert [row["controller_id"] for row in rows[1:]] == [1001, 1002, 1001]
    cut_off, again, killed = rows[1:]
    assert "1002 fell silent, hung or cut off: the same process is back" in cut_off["why"]
    assert "1001 fell silent, hung or cut off: the same process is back" in again["why"]
    assert "1002 fell silent, and does not come back" in killed["why"]
    assert cut_off["failed_elections"] == 1  # both others stood for epoch 2
    assert again["late_ts"] is not None  # it answered fetches before it knew of the newer epoch
    assert [row["why"] for row in whole("controllers")] == [row["why"] for row in rows]


def test_a_controller_that_others_did_not_hear_is_not_called_silent() -> None:
    """It went on, and was started again only a minute later."""
    rows = whole("controllers", run=HEALTHY)
    assert [row["why"] for row in rows] == [
        None, "the others had no answer from controller 1000, which lived",
        "controller 1001 resigned: it shut down (EndQuorumEpoch)",
    ]  # fmt: skip


def test_a_controller_that_shuts_down_resigns() -> None:
    rows = whole("elections", run="kraft-4.1-a")
    assert "1000 fell silent" in rows[1]["why"]
    assert all(row["without_leader_us"] < 10_000_000 for row in rows if row["without_leader_us"] is not None)


def test_the_quorum_without_a_leader() -> None:
    stops = [s["at"] for s in STEPS if s.get("signal") in ("SIGSTOP", "SIGKILL") and s["node"] >= 1000]
    rows = whole("quorum-outages")
    for stopped in stops:
        assert any(abs(seconds(row["valid_from"]) - stopped) < 1 for row in rows)
    longest = max(
        rows, key=lambda row: 0 if row["valid_to"] is None else seconds(row["valid_to"]) - seconds(row["valid_from"])
    )
    assert 9 < seconds(longest["valid_to"]) - seconds(longest["valid_from"]) < 12
    assert {0, 1, 2} < set(longest["nodes"])
    assert longest["votes"] > 0


def test_who_asked_and_which_record_came_of_it() -> None:
    rows = whole("asked", Filters(partitions=frozenset({("orders", 0), ("orders", 1)})))
    asked = [(row["client_id"], row["topic"], row["partition"], row["what"]) for row in rows]
    assert asked == [
        ("rebalancer", "orders", 0, "move to replicas [1, 2]"),
        ("capacity-bot", "orders", 0, "move to replicas [0, 1]"),
        ("rebalancer", "orders", 1, "move to replicas [0, 2]"),
        ("rebalancer", "orders", 1, "move to replicas [2, 1]"),
        ("capacity-bot", "orders", 1, "cancel the reassignment"),
    ]
    assert {(row["client_address"], row["principal"]) for row in rows} == {("127.0.0.1", "User:ANONYMOUS")}
    assert all(row["records"] == 1 and row["error_code"] == 0 for row in rows)
    refused = [row for row in whole("asked") if row["error_code"]]
    assert [(row["what"], row["error_code"], row["records"]) for row in refused] == [
        ("create the topic, 2 partitions", 36, 0)
    ]
    done = [step["at"] for step in STEPS if "by" in step]
    assert len(done) == len({row["ts"] for row in whole("asked")})
    for row, at in zip(sorted({row["ts"] for row in whole("asked")}), done, strict=True):
        assert -0.01 < at - seconds(row) < 5


def test_rules_credentials_quotas_and_voters() -> None:
    """A client of librdkafka writes bytes after a request that the broker's Envelope lacks: it is one request."""
    rows = whole("asked", run="kraft-4.1-c")
    assert [(row["client_id"], row["what"], row["records"]) for row in rows] == [
        ("security", "add the rule: allow User:alice read on topic 7V", 1),
        ("security", "remove the rule: allow User:alice read on topic 7V", 1),
        ("security", "set the SCRAM-SHA-256 credential of user alice", 1),
        ("security", "remove the SCRAM-SHA-256 credential of user alice", 1),
        ("adminclient-1", "quota of client-id loader: producer_byte_rate=1048576", 1),
        ("adminclient-1", "remove the voter 1000 of the quorum", 1),
        ("adminclient-1", "add the voter 1000 of the quorum", 1),
    ]
    records = {row["log_offset"]: row["type"] for row in sql("FROM metadata_records", run="kraft-4.1-c")}
    assert [records[row["log_offset"]] for row in rows] == [
        "ACCESS_CONTROL_ENTRY_RECORD", "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", "USER_SCRAM_CREDENTIAL_RECORD",
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", "CLIENT_QUOTA_RECORD", "KRaftVoters", "KRaftVoters",
    ]  # fmt: skip


def test_one_host_of_three_says_nothing_of_what_passed_elsewhere(tmp_path: Path) -> None:
    """Its controller led for 22 ms, and again 70 s later; between them another led, which that host does not show."""
    ports = [19291, 19292, 19293]
    host, *_others = by_host(recorded(capture(HEALTHY)), [("127.0.0.1", port) for port in ports]).values()
    cut = host._replace(packets=[p for p in host.packets if p.time_ns < host.packets[0].time_ns + 85_000_000_000])
    shown = read(str(cut.write(tmp_path / "one.pcap")))
    assert not ask(open_tables(shown), "quorum-outages").rows
    assert not [one for one in findings(Facts([shown]), {}) if one.severity != "note"]
    changes = rows_of(ask(open_tables(shown), "elections"))
    assert [(row["controller_epoch"], row["without_leader_us"], row["why"]) for row in changes] == [
        (2, None, None), (4, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(("run", "end_s"), few([("kraft-3.9-m", 76.28), (HEALTHY, 34.86)]))
def test_silence_behind_the_end_of_a_capture_is_none(run: str, end_s: float, tmp_path: Path) -> None:
    """The log goes on, and tells of brokers that were fenced: whether their heartbeats went on no capture shows."""
    seen, log = recorded(capture(run)), str(metadata(run, 0))
    cut = seen._replace(packets=[p for p in seen.packets if p.time_ns < seen.packets[0].time_ns + int(end_s * 1e9)])
    states = "SELECT broker_id, log_offset, evidence FROM broker_states WHERE state = 'fenced' AND evidence IS NOT NULL"
    every = {tuple(row) for row in ask_sql(open_tables(read(str(capture(run)), log)), states).rows}
    assert {
        tuple(row) for row in ask_sql(open_tables(read(str(cut.write(tmp_path / "cut.pcap")), log)), states).rows
    } <= every


def test_what_was_committed_before_a_capture_begins_has_no_time_in_it(tmp_path: Path) -> None:
    """A replica that comes late is told old batches: the first high watermark that is shown is beyond them."""
    seen = recorded(capture("kraft-3.9-a"))
    times = "SELECT body_id, node_id, committed_ts FROM metadata_deliveries"
    every = {tuple(row[:2]): row[2] for row in ask_sql(tables("kraft-3.9-a"), times).rows}
    late = seen._replace(packets=[p for p in seen.packets if p.time_ns > seen.packets[0].time_ns + 54_000_000_000])
    found = ask_sql(open_tables(read(str(late.write(tmp_path / "late.pcap")))), times).rows
    assert len(found) > 50
    assert all(committed in (None, every[body, node]) for body, node, committed in found)


@pytest.mark.slow
@pytest.mark.parametrize("shifts", [(0, 0, 0), (0, 37.5, -12)], ids=["same clocks", "other clocks"])
def test_hosts_with_clocks_of_their_own_tell_what_one_capture_tells(shifts: tuple[float, ...], tmp_path: Path) -> None:
    """Each controller's host saw its own connections, and those that it made to the others."""
    seen = recorded(capture("kraft-4.1-c"))
    ports = [19291, 19292, 19293]
    hosts = by_host(seen, [("127.0.0.1", port) for port in ports])
    one = seen.write(tmp_path / "19294.pcap", ahead_ns=5_000_000_000)
    paths = [
        host.write(tmp_path / f"{port}.pcap", ahead_ns=round(shift * 1e9))
        for (port, host), shift in zip(zip(ports, hosts.values(), strict=True), shifts, strict=True)
    ]
    alone = open_tables(read(str(capture("kraft-4.1-c"))))
    for files in (paths, [*paths, one]):  # the last host saw all that the others saw
        together = open_tables(read(*map(str, files)))
        for question in ("asked", "quorum-outages", "brokers"):
            found, expected = (without_times(rows_of(ask(tables, question))) for tables in (together, alone))
            assert found == expected
        counts = "SELECT broker_id, sum(heartbeats) FROM broker_heartbeats GROUP BY ALL ORDER BY ALL"
        assert ask_sql(together, counts).rows == ask_sql(alone, counts).rows


@pytest.mark.slow
def test_hosts_that_share_nothing_are_put_on_the_clock_of_the_log(tmp_path: Path) -> None:
    """Two controllers led in turn, and each host saw the fetches that its own served; no time of the third counts."""
    hosts = by_host(recorded(capture("kraft-4.1-a")), [("127.0.0.1", port) for port in (19291, 19292, 19293)])
    paths = [
        host.write(tmp_path / f"{place}.pcap", ahead_ns=round(shift * 1e9))
        for place, (host, shift) in enumerate(zip(hosts.values(), (0, 37.5, 0), strict=True))
    ]
    together = rows_of(ask(open_tables(read(*map(str, paths))), "quorum-outages"))
    for row, every in zip(together, whole("quorum-outages", run="kraft-4.1-a"), strict=True):
        assert every["refused"] // 2 < row["refused"] <= every["refused"]
    lengths = [seconds(row["valid_to"]) - seconds(row["valid_from"]) for row in together if row["valid_to"]]
    assert max(lengths, default=0) < 10


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.endswith(("ts", "valid_from", "valid_to"))}
            for row in rows]  # fmt: skip


def test_the_records_that_are_named_are_those_that_were_asked_for() -> None:
    records = {row["log_offset"]: row for row in sql("SELECT log_offset, type, data FROM metadata_records")}
    made = {row["what"]: records[row["log_offset"]] for row in whole("asked") if row["log_offset"] is not None}
    assert made["topic orders: retention.ms=86400000"]["type"] == "CONFIG_RECORD"
    assert json.loads(made["move to replicas [1, 2]"]["data"])["replicas"] == [1, 2]
    assert json.loads(made["cancel the reassignment"]["data"])["addingReplicas"] == []
    assert made["delete the topic"]["type"] == "REMOVE_TOPIC_RECORD"


def test_told_committed_and_applied_are_never_one() -> None:
    rows = whole("metadata-lag")
    assert [row["broker"] for row in rows] == [0, 1, 2]
    stopped = rows[2]
    assert stopped["worst_lag_us"] > 10_000_000 > max(row["worst_lag_us"] for row in rows[:2])
    progress = sql("SELECT told_offset, committed_offset, applied_offset, lag_us FROM broker_progress ORDER BY ts")
    assert any(row["told_offset"] > row["committed_offset"] for row in progress if row["told_offset"] is not None)
    assert all(row["lag_us"] == 0 for row in progress if row["applied_offset"] >= row["committed_offset"])


@pytest.mark.parametrize("question", ["elections", "quorum-outages", "asked", "brokers"])
def test_a_log_alone_leaves_open_what_only_captures_show(question: str) -> None:
    rows = whole(question, log_alone=True)
    assert bool(rows) == (question in ("elections", "brokers"))
    assert all(row["why"] is None for row in rows if question == "elections")
    assert all(row["evidence"] is None for row in rows if question == "brokers")
