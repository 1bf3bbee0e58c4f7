"""What a report says of tables: sentences, figures, cuts, and the request behind each mark."""

import json
from pathlib import Path
from typing import Any

import pytest
from report_tables import BEGIN, Cluster, fleet, state

from kproto.error_codes import ErrorCode
from kproto.errors import ConfigurationError
from kproto.generate import PlannedFleet, write_captures
from kproto.query import ask, open_tables
from kproto.report import Limits, report_facts
from kproto.tables import read

CAPTURES = Path(__file__).parent.parent / "data" / "captures"


def at(seconds: float) -> int:
    return round(BEGIN.timestamp() * 1e6 + seconds * 1e6)


def test_what_stands_out_is_said_in_sentences_the_worst_first(incident: Cluster) -> None:
    found = report_facts(incident.tables())["findings"]
    assert [(row["severity"], row["section"], row["text"]) for row in found] == [
        (
            "note",
            "controllers",
            "Broker 0 refused 1 request of controller 99 with epoch 1, which had been replaced.",
        ),
        ("note", "timeline", "payments-0 has no leader; its ISR is [1]; for 10 s so far."),
        ("note", "brokers", "Broker 2 left 1 request unanswered."),
    ]


def test_of_a_healthy_cluster_nothing_stands_out() -> None:
    cluster = Cluster()
    for broker in (0, 1, 2):
        cluster.send(broker, broker, [state("orders", 0)])
    assert report_facts(cluster.tables())["findings"] == []


def test_requests_of_a_capture_that_the_tables_do_not_know_are_an_error_of_one_line(incident: Cluster) -> None:
    tables = dict(incident.tables())
    with pytest.raises(ConfigurationError, match="the table captures lacks '") as caught:
        report_facts(tables | {"captures": tables["captures"].slice(0, 0)})
    assert "\n" not in str(caught.value)


def test_states_follow_each_other_with_the_request_that_told_them(incident: Cluster) -> None:
    facts = report_facts(incident.tables())
    timeline, requests = facts["timeline"], facts["requests"]
    names = [
        f"{timeline['topics'][topic]}-{partition}"
        for topic, partition in zip(timeline["partitions"]["topic"], timeline["partitions"]["partition"], strict=True)
    ]
    assert names == ["orders-0", "orders-1", "payments-0"]
    rows = [
        dict(zip(timeline["states"], values, strict=True)) for values in zip(*timeline["states"].values(), strict=True)
    ]
    told = [
        (names[row["row"]], row["ts"], row["leader"], timeline["brokers"][row["isr"]], requests["ts"][row["request"]])
        for row in rows
    ]
    assert told == [
        ("orders-0", at(0), 1, (0, 1, 2), at(0)),
        ("orders-0", at(10), 2, (0, 2), at(10)),
        ("orders-1", at(0), 2, (0, 1, 2), at(0)),
        ("payments-0", at(0), 1, (0, 1, 2), at(0)),
        ("payments-0", at(10), -1, (1,), at(10)),
    ]


def test_a_request_has_its_body_in_kafkas_json_form(incident: Cluster) -> None:
    facts = report_facts(incident.tables())
    (stale,) = facts["stale"]
    requests = facts["requests"]
    body = requests["bodies"][requests["request"][stale["request"]]]
    assert (body["controllerId"], body["controllerEpoch"]) == (99, 1)
    assert [topic["topicName"] for topic in body["topicStates"]] == ["orders"]
    assert requests["error_code"][stale["request"]] == ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_large_body_is_cut_to_the_partitions_that_marks_name() -> None:
    facts = report_facts(fleet(300).tables())
    for body in facts["requests"]["bodies"]:
        assert body["(kproto)"] == "100 of 300 partitions; the command shows all"
        assert sum(len(topic["partitionStates"]) for topic in body["topicStates"]) == 100


def test_limits_cut_the_least_interesting_and_say_so() -> None:
    cluster = fleet(100)
    cluster.send(300, 0, [state("topic-00001", 7, -1, 9, ())])
    facts = report_facts(cluster.tables(), Limits(partitions=5, states=50, rows=1, body_bytes=300))
    shown = facts["timeline"]["partitions"]
    assert len(shown["topic"]) == 5
    assert "topic-00001-7" in [
        f"{facts['timeline']['topics'][topic]}-{partition}"
        for topic, partition in zip(shown["topic"], shown["partition"], strict=True)
    ]
    assert facts["timeline"]["all_partitions"] == 100
    assert any("5 of 100 partitions" in text for text in facts["cut"])
    assert any(text.startswith("Bodies of ") for text in facts["cut"])
    assert sum(len(json.dumps(body)) for body in facts["requests"]["bodies"]) <= 300


def test_a_bound_on_states_cuts_partitions_too() -> None:
    facts = report_facts(fleet(100).tables(), Limits(states=30))
    assert len(facts["timeline"]["partitions"]["topic"]) == 10
    assert len(facts["timeline"]["states"]["row"]) == 30


@pytest.mark.slow
def test_krafts_outages_and_lag_are_those_of_the_questions() -> None:
    tables = read(str(CAPTURES.parent / "kraft" / "kraft-4.1-b.pcap.gz"))
    quorum = report_facts(tables)["quorum"]
    asked = ask(open_tables(tables), "quorum-outages")
    rows = [dict(zip(asked.columns, row, strict=True)) for row in asked.rows]
    assert [(row["lasts"], row["votes"], row["nodes"]) for row in quorum["outages"]] == [
        (row["valid_to"] is None, row["votes"], row["nodes"]) for row in rows
    ]
    assert all(row["first"] < row["last"] for row in quorum["outages"])
    assert [row["broker_id"] for row in quorum["lag"]] == [2, 2]  # it was stopped twice
    assert all(row["last"] - row["first"] == row["lag_us"] > 1_000_000 for row in quorum["lag"])


@pytest.mark.parametrize(
    "name", ["ibp-0.8.2-a", "ibp-3.9-a", "ibp-3.9-a-cut", "ibp-3.9-migration-a", "external-controller-a"]
)
def test_real_captures_make_facts_whose_requests_are_all_there(name: str) -> None:
    tables = read(str(CAPTURES / f"{name}.pcap.gz"))
    facts = report_facts(tables)
    json.dumps(facts)
    requests = facts["requests"]
    for mark in _marks(facts):
        assert -1 <= mark < len(requests["ts"])
    assert facts["timeline"]["all_partitions"] > 0
    assert sum(row["requests"] for row in facts["brokers"]) == tables["requests"].num_rows
    for place, body in zip(requests["request"], requests["decode_error"], strict=True):
        assert place >= 0 or (place == -1 and body is not None)


def _marks(facts: dict[str, Any]) -> list[int]:
    rows = [*facts["stale"], *facts["errors"], *facts["brokers"], *facts["lag"]["brokers"]]
    return [row["request"] for row in rows] + facts["timeline"]["states"]["request"]


def test_a_broker_is_slow_beside_the_others_only_with_enough_answers() -> None:
    cluster = Cluster()
    for number in range(100):
        for broker in range(5):
            cluster.send(number + broker / 10, broker, [state("orders", 0)])
            cluster.rows["requests"][-1]["latency_us"] = 400_000 if broker == 3 else 1_000
    (finding,) = report_facts(cluster.tables())["findings"]
    assert finding["text"].startswith("Broker 3 answers slowly: half of its answers took over 400.0 ms")
    for row in cluster.rows["requests"][-5:]:
        row["latency_us"] = None
    assert report_facts(cluster.tables())["findings"] == []


@pytest.mark.slow
def test_the_lag_of_captures_on_each_host_is_that_of_one_capture_of_all(tmp_path: Path) -> None:
    whole, hosts = (_lag_of_generated(tmp_path / name, per_host=name == "hosts") for name in ("one", "hosts"))
    columns = ("broker_id", "updates", "missing", "lag_us")
    assert [[row[name] for name in columns] for row in hosts] == [[row[name] for name in columns] for row in whole]
    assert {row["cluster"] for row in hosts} == {0}
    assert max(row["lag_us"][-1] for row in hosts) > 0


def _lag_of_generated(directory: Path, *, per_host: bool) -> list[dict[str, Any]]:
    directory.mkdir()
    write_captures(
        PlannedFleet(brokers=4, topics=2, partitions=20, elections=20, loss=0.1), directory, per_host=per_host
    )
    rows: list[dict[str, Any]] = report_facts(read(directory))["lag"]["brokers"]
    return rows
