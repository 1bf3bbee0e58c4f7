"""The brokers' own state-change and controller logs tell what the capture of the same run shows.

The logs of runs of three brokers, with kills, restarts, unclean elections, deletions and reassignments, lie beside their
captures in ``tests/data/state_logs``: two of Kafka 3.9.1, and one of each of five older releases, made by
``tools/real_kafka/scenario.py --small --logs`` (seed 11). Of those, packets of other clients, most of the controllers'
lines at TRACE and DEBUG, and the depths of stack traces are left out, and other brokers' request logs. Lines that no run
shows are written by hand.
"""

# ruff: noqa: E501  log lines are as long as they are

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows, run_kproto
from hosts import by_host, recorded
from state_runs import files_of, logs_of

from kproto import tables
from kproto.capture import CaptureReader, CaptureSummary, Exchange, exchanges
from kproto.query import open_tables
from kproto.tables.bodies import BodyCache
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

RUNS = ["ibp-3.9-a", "ibp-2.4-IV1-a"]
OLD_RUNS = ["kafka-2.8.2", "kafka-2.0.1", "kafka-1.0.2", "kafka-0.11.0.3", "kafka-0.10.2.2"]
LEVELS = ["TRACE", "INFO"]
ISR_CHANGES = """
SELECT topic, partition, (former_leader_epoch, former_partition_epoch), (leader_epoch, partition_epoch), removed, added
FROM isr_events ORDER BY ALL
"""
ALL = [*((run, level) for run in [*RUNS, "kafka-2.8.2"] for level in LEVELS), *((run, "TRACE") for run in OLD_RUNS[1:])]
"""Each run, and at INFO those whose lines at INFO tell leaders."""


def ahead(data: bytes, seconds: int) -> bytes:
    """A log by a clock that is ahead."""

    def later(found: re.Match[bytes]) -> bytes:
        at = datetime.strptime(found[1].decode(), "%Y-%m-%d %H:%M:%S") + timedelta(seconds=seconds)
        return b"[" + at.isoformat(" ").encode()

    return re.sub(rb"(?m)^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", later, data)


def told(found: Iterable[Exchange]) -> tuple[dict[Any, set[Any]], dict[Any, set[Any]]]:
    """The leaders by partition and leader epoch, and the ISRs, as far as they are told, by partition and epochs."""
    bodies = BodyCache()
    leaders, isrs = defaultdict(set), defaultdict(set)
    for exchange in found:
        body = bodies.of(exchange.request) if exchange.api_key in (4, 6) else None
        for state, wire in zip(body.states, body.message.partition_states, strict=True) if body else ():
            if state.leader == -2:
                continue
            leaders[state.topic, state.partition, state.leader_epoch].add(state.leader)
            if state.isr:
                epoch = wire.partition_epoch if body and body.api_key == 4 else wire.zk_version
                isrs[state.topic, state.partition, state.leader_epoch, epoch].add(frozenset(state.isr))
    return leaders, isrs


@pytest.mark.parametrize(("run", "level"), ALL)
def test_leaders_and_isrs_are_those_of_the_capture(run: str, level: str) -> None:
    leaders, isrs = told(exchanges(files_of(run)["control.pcap"]))
    summary = CaptureSummary()
    found = [each for data in logs_of(run, level).values() for each in exchanges(data, summary=summary)]
    logged_leaders, logged_isrs = told(found)
    assert summary.bad_inputs == []
    assert {key: logged_leaders[key] for key in leaders} == leaders
    assert all(len(each) == 1 for each in logged_leaders.values())
    assert {key: logged_isrs[key] for key in isrs if key in logged_isrs} == {
        k: v for k, v in isrs.items() if k in logged_isrs
    }
    if level == "TRACE":
        assert logged_isrs.keys() <= isrs.keys()
        untold = 6 if "-0.1" in run else 0  # that only an UpdateMetadata told: it is logged without partition epoch
        assert len(isrs) - len(logged_isrs) == untold
        assert logged_leaders.keys() == leaders.keys()


@pytest.mark.parametrize("run", [*RUNS, *OLD_RUNS])
def test_requests_at_trace_are_those_of_the_capture(run: str) -> None:
    """By broker, controller epoch, API and partitions; a log begins before the capture, and ends after it.

    Before 2.6 a broker does not log which StopReplica it handles, so that each partition of it counts.
    """
    names_stops = run not in OLD_RUNS[1:]

    def facts(found: Iterable[Exchange], *, by_address: bool) -> set[Any]:
        bodies, rows = BodyCache(), set()
        for each in found:
            body = bodies.of(each.request)
            if body is not None and body.states:
                broker = each.server.port - 19092 if by_address else int(each.server.ip.removeprefix("broker-"))
                parts = frozenset((s.topic, s.partition, s.leader, s.leader_epoch, s.delete) for s in body.states)
                if each.api_key != 5 or names_stops:
                    rows.add((broker, body.message.controller_epoch, each.api_key, each.correlation_id, parts))
                else:
                    rows.update((broker, body.message.controller_epoch, part) for part in parts)
        return rows

    logs = {name: data for name, data in logs_of(run, "TRACE").items() if "state-change" in name}
    logged = facts((each for data in logs.values() for each in exchanges(data)), by_address=False)
    captured = facts(
        (each for each in exchanges(files_of(run)["control.pcap"]) if each.response is not None), by_address=True
    )
    assert captured - logged <= {row for row in captured if not names_stops and len(row) == 3}
    assert (
        len(captured - logged) < 3
    )  # a broker was killed as it deleted a partition: after its answer, before its line
    assert len(logged - captured) < 5  # a broker was killed before it answered


@pytest.mark.parametrize("run", [*RUNS, *OLD_RUNS])
def test_what_brokers_refused_is_what_the_capture_shows(run: str) -> None:
    def refused(found: Iterable[Exchange], *, by_address: bool) -> dict[Any, Any]:
        rows = {}
        for each in found:
            if each.api_key in (4, 6) and each.response is not None:
                broker = each.server.port - 19092 if by_address else int(each.server.ip.removeprefix("broker-"))
                form = each.to_json()["response"]
                errors = form.get("partitionErrors") or [
                    e for t in form.get("topics", ()) for e in t["partitionErrors"]
                ]
                places = sorted((e["partitionIndex"], e["errorCode"]) for e in errors if e["errorCode"])
                epoch = each.to_json()["request"]["controllerEpoch"]
                rows[broker, epoch, each.api_key, each.correlation_id] = form["errorCode"], places
        return rows

    logs = [data for name, data in logs_of(run, "TRACE").items() if "state-change" in name]
    logged = refused((each for data in logs for each in exchanges(data)), by_address=False)
    captured = refused(exchanges(files_of(run)["control.pcap"]), by_address=True)
    both = captured.keys() & logged.keys()
    assert any(captured[key][1] for key in both)
    assert {key: logged[key] for key in both} == {key: captured[key] for key in both}


@pytest.mark.parametrize("run", OLD_RUNS[:-1])
def test_request_logs_of_old_releases_are_the_capture(run: str) -> None:
    """As text of structs before 2.8. Brokers log the partitions and live brokers of older ones in an order of theirs."""

    def content(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: content(each) for name, each in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return sorted(map(content, value), key=str)
        return value

    captured = {
        (e.client, e.server, e.api_key, e.correlation_id): e
        for e in exchanges(files_of(run)["control.pcap"], apis=[4, 5, 6, 7])
    }
    logs = [data for name, data in files_of(run).items() if name.endswith("request.log")]
    summary = CaptureSummary()
    found = [each for data in logs for each in exchanges(data, apis=None, summary=summary)]
    control = [each for each in found if each.api_key in (4, 5, 6, 7)]
    assert summary.bad_inputs == []
    assert len(control) > 80
    assert {each.api_key for each in control} == {4, 5, 6, 7}
    assert {1, 18} < {each.api_key for each in found}  # the others are rows too
    for each in control:
        wire = captured[each.client, each.server, each.api_key, each.correlation_id]
        assert (each.api_version, each.client_id) == (wire.api_version, wire.client_id)
        form, sent = each.to_json(), wire.to_json()
        assert content(form["request"]) == content(sent["request"])
        assert 0 <= each.time_ns - wire.time_ns + 2_000_000 < 2_000_000_000  # when it was taken up, in whole ms
        if run.startswith("kafka-0.11"):  # which logs no answers
            assert each.response is not None
            assert each.api_key == 7 or form["response"]["errorCode"] == sent["response"]["errorCode"]
        else:
            assert content(form["response"]) == content(sent["response"])


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    run, level = request.param
    path = tmp_path_factory.mktemp("logs")
    for name, data in logs_of(run, level).items():
        (path / name.replace("/", "-")).write_bytes(data)
    return run, level, path


def doctor(*paths: object) -> list[dict[str, Any]]:
    result = run_kproto("doctor", *paths, "--format", "json")
    assert result.exit_code in (0, 1, 3), result.stderr
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_the_doctor_finds_what_it_finds_in_the_capture(directory: tuple[str, str, Path], tmp_path: Path) -> None:
    run, _level, path = directory
    capture = tmp_path / "control.pcap"
    capture.write_bytes(files_of(run)["control.pcap"])

    def troubles(found: list[dict[str, Any]]) -> set[Any]:
        return {(f["rule"], f.get("topic"), f.get("partition")) for f in found if f["severity"] != "note"}

    def registered(found: list[dict[str, Any]]) -> set[Any]:
        return {f["broker_id"] for f in found if f["rule"] == "KP035"}

    of_logs, of_capture = doctor(path), doctor(capture)
    assert of_capture
    assert troubles(of_logs) == troubles(of_capture)
    assert registered(of_logs) == registered(of_capture)
    assert not [f for f in of_logs if "bytes" in (f["cannot_tell"] or "")]  # a log has lines


def test_brokers_come_and_go_as_in_the_capture(directory: tuple[str, str, Path], tmp_path: Path) -> None:
    run, _level, path = directory
    capture = tmp_path / "control.pcap"
    capture.write_bytes(files_of(run)["control.pcap"])

    def went_and_came(*paths: Path) -> tuple[list[Any], list[str]]:
        events = kproto_rows("query", *paths, "events", "--log-zone", "UTC")
        brokers = [row for row in events if row["event"].startswith("broker ")]
        how = [row["text"].partition(" leaves the live brokers")[2] for row in brokers]
        return [(row["event"], row["broker_id"]) for row in brokers], how

    of_capture, how = went_and_came(capture)
    of_logs, logged = went_and_came(path)
    of_both, _how = went_and_came(capture, path)
    assert of_capture
    assert of_logs[: len(of_capture)] == of_both[: len(of_capture)] == of_capture  # the logs go on
    assert all(one in (other, "; how, cannot be told") for one, other in zip(logged, how, strict=False))


def test_what_a_log_does_not_tell_is_null(tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    path.write_bytes(logs_of("ibp-3.9-a", "INFO")["broker-1/state-change.log"])
    found = tables.read(path)
    states = found["partition_states"].to_pylist()
    followed = [state for state in states if state["api_key"] == 4 and state["isr"] is None]
    led = [state for state in states if state["api_key"] == 4 and state["isr"] is not None]
    assert followed
    assert led
    assert all(state["replicas"] is None for state in states if state["api_key"] == 4)
    assert {request["broker_id"] for request in found["requests"].to_pylist()} == {1}
    result = run_kproto("inspect", path, "--format", "json")
    assert "-2147483648" not in result.stdout
    assert '"isr": null' in result.stdout or '"isr":null' in result.stdout


def read(*lines: str) -> list[Exchange]:
    data = "".join(line + "\n" for line in lines).encode()
    found = []
    for step in (len(data), 100):
        reader = CaptureReader()
        events = [event for at in range(0, len(data), step) for event in reader.feed(data[at : at + step])]
        events += reader.end()
        found.append([event for event in events if isinstance(event, Exchange)])
    assert [str(each.to_json()) for each in found[0]] == [str(each.to_json()) for each in found[1]]
    return found[0]


def states(found: list[Exchange]) -> list[Any]:
    return [
        (
            str(each.server),
            topic["topicName"],
            state["partitionIndex"],
            state.get("leader"),
            state["leaderEpoch"],
            state.get("isr"),
        )
        for each in found
        for topic in each.to_json()["request"]["topicStates"]
        for state in topic["partitionStates"]
    ]


LOGGER = "(state.change.logger)"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            (
                "TRACE [Broker id=7] Received LeaderAndIsr request PartitionState(controllerEpoch=3, leader=7, leaderEpoch=4, "
                "isr=7,8, zkVersion=6, replicas=7,8, isNew=true) correlation id 12 from controller 9 epoch 3 for partition a-b-0",
                "TRACE [Broker id=7] Handling LeaderAndIsr request correlationId 12 from controller 9 epoch 3 starting the "
                "become-leader transition for partition a-b-0",
                "TRACE [Broker id=7] Completed LeaderAndIsr request correlationId 12 from controller 9 epoch 3 for the "
                "become-leader transition for partition a-b-0",
                "TRACE [Broker id=7] Cached leader info PartitionState(controllerEpoch=3, leader=7, leaderEpoch=4, isr=[7, 8], "
                "zkVersion=6, replicas=[7, 8], offlineReplicas=[]) for partition a-b-0 in response to UpdateMetadata request "
                "sent by controller 9 epoch 3 with correlation id 13",
            ),
            [("broker-7:0", "a-b", 0, 7, 4, [7, 8])] * 2,
            id="1.0 to 2.3",
        ),
        pytest.param(
            (
                "TRACE [Broker id=0] Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='c', partitionIndex=15, "
                "controllerEpoch=1, leader=0, leaderEpoch=0, isr=[0, 1, 2], zkVersion=0, replicas=[0, 1, 2], "
                "addingReplicas=[], removingReplicas=[], isNew=true) correlation id 2 from controller 2 epoch 1",
            ),
            [("broker-0:0", "c", 15, 0, 0, [0, 1, 2])],
            id="2.4 to 2.8",
        ),
        pytest.param(
            (
                "TRACE Broker 7 received LeaderAndIsr request PartitionState(controllerEpoch=3, leader=7, leaderEpoch=4, "
                "isr=7,8, zkVersion=6, replicas=7,8) correlation id 12 from controller 9 epoch 3 for partition [a,0]",
            ),
            [("broker-7:0", "a", 0, 7, 4, [7, 8])],
            id="before 1.0",
        ),
        pytest.param(
            (
                "INFO [Broker id=1] Handling LeaderAndIsr request correlationId 5 from controller 2 for 2 partitions",
                "INFO [Broker id=1] Stopped fetchers as part of LeaderAndIsr request correlationId 5 from controller 2 epoch 8 as "
                "part of the become-leader transition for 1 partitions",
                "INFO [Broker id=1] Leader t-0 starts at leader epoch 6 from offset 0 with high watermark 0 ISR [1,3,2] "
                "addingReplicas [] removingReplicas []. Previous leader epoch was 5.",
                "INFO [Broker id=1] Follower t-1 starts at leader epoch 2 from offset 9 with partition epoch 3 and high watermark "
                "9. Current leader is 3. Previous leader epoch was 1.",
                "INFO [Broker id=1] Finished LeaderAndIsr request in 4ms correlationId 5 from controller 2 for 2 partitions",
            ),
            [("broker-1:0", "t", 0, 1, 6, [1, 3, 2]), ("broker-1:0", "t", 1, 3, 2, None)],
            id="3.0 to 3.9 at INFO",
        ),
        pytest.param(
            (
                "INFO [Controller id=2 epoch=8] Changed partition t-0 from OfflinePartition to OnlinePartition with state "
                "LeaderAndIsr(leader=3, leaderEpoch=7, isr=List(3, 4), zkVersion=11)",
                "INFO [Controller id=2 epoch=8] Partition t-1 state changed to (Leader:-1,ISR:4,LeaderEpoch:9,ZkVersion:2,"
                "ControllerEpoch:8) after removing replica 4 from the ISR as part of transition to OfflineReplica",
            ),
            [("broker-2:0", "t", 0, 3, 7, [3, 4]), ("broker-2:0", "t", 1, -1, 9, [4])],
            id="a controller of 1.1 to 2.8",
        ),
        pytest.param(
            (
                "TRACE [Broker id=4] Received StopReplica request StopReplicaPartitionState(partitionIndex=1, leaderEpoch=-2, "
                "deletePartition=true) correlation id 3 from controller 2 epoch 1 for partition x-1",
                "TRACE [Broker id=4] Deleted partition x-1 from metadata cache in response to UpdateMetadata request sent by "
                "controller 2 epoch 1 with correlation id 4",
            ),
            [("broker-4:0", "x", 1, None, -2, None), ("broker-4:0", "x", 1, -2, 0, None)],
            id="a deletion",
        ),
    ],
)
def test_lines_of_each_release(lines: tuple[str, ...], expected: list[Any]) -> None:
    found = read(*(f"[2024-05-06 07:08:0{n},000] {line} {LOGGER}" for n, line in enumerate(lines)))
    assert states(found) == expected
    assert found[0].time_ns == 1_714_979_280_000_000_000


def test_answers_are_told() -> None:
    stamp = "[2024-05-06 07:08:09,000] "
    found = read(
        stamp
        + "INFO [Broker id=1] Handling LeaderAndIsr request correlationId 5 from controller 2 for 2 partitions (l)",
        stamp
        + "INFO [Broker id=1] Ignoring LeaderAndIsr request from controller 2 with correlation id 5 epoch 8 for partition "
        "t-0 since its associated leader epoch 6 matches the current leader epoch (l)",
        stamp
        + "INFO [Broker id=1] Finished LeaderAndIsr request in 4ms correlationId 5 from controller 2 for 2 partitions (l)",
        stamp
        + "WARN [Broker id=1] Ignoring LeaderAndIsr request from controller 3 with correlation id 9 since its controller "
        "epoch 7 is old. Latest known controller epoch is 8 (l)",
    )
    first, second = (each.to_json() for each in found)
    assert first["response"]["partitionErrors"] == [{"topicName": "t", "partitionIndex": 0, "errorCode": 11}]
    assert first["request"]["controllerEpoch"] == 8
    assert (second["response"]["errorCode"], second["request"]["controllerEpoch"]) == (11, 7)


@pytest.mark.parametrize("run", ["kafka-2.8.2", "kafka-1.0.2", "kafka-0.11.0.3"])
def test_a_controllers_log_tells_of_more_than_requests(run: str, tmp_path: Path) -> None:
    """Brokers that cannot be reached, resignations, deletions that wait, reassignments: what the steps of the run did."""
    for name, data in logs_of(run, "TRACE").items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    rows = kproto_rows("query", tmp_path, "events")
    kinds = {kind: [row for row in rows if row["event"] == kind] for kind in {row["event"] for row in rows}}
    failed, resigned = kinds["connection failed"], kinds["resigned"]
    assert {row["broker_id"] for row in failed} <= {0, 1, 2}
    assert all("cannot reach broker" in row["text"] for row in failed)
    left = [row["ts"] for row in kinds["broker left"]]
    assert any(min(left) <= row["ts"] for row in failed)
    assert len(resigned) == len({row["broker_id"] for row in resigned})  # each controller that ended did once
    if run != "kafka-0.11.0.3":
        assert {row["topic"] for row in kinds["deletion waits"]} == {"L"}  # one holder was dead
    if run == "kafka-1.0.2":
        taken = {(row["topic"], row["partition"]) for row in kinds["reassignment taken up"]}
        assert taken == {(row["topic"], row["partition"]) for row in kinds["reassignment begins"]}


def test_before_1_0_an_answer_is_not_logged() -> None:
    """It was accepted, but for that of an older controller than the broker had heard."""
    text = (
        "[2017-05-06 07:08:09,{n}00] DEBUG Completed request:{{api_key=6,api_version=3,correlation_id={n},client_id=9}} -- "
        "{{controller_id=9,controller_epoch={epoch},partition_states=[],live_brokers=[]}} from connection "
        "10.0.0.1:9092-10.0.0.9:4000;totalTime:2.5,requestQueueTime:1.0 (kafka.request.logger)"
    )
    found = read(*(text.format(n=n, epoch=epoch) for n, epoch in enumerate((4, 5, 4))))
    assert [each.to_json()["response"]["errorCode"] for each in found] == [0, 0, 11]


def test_an_exception_below_a_line_is_no_line() -> None:
    stamp = "[2017-05-06 07:08:09,000] "
    summary = CaptureSummary()
    lines = [
        f"{stamp}ERROR [Controller id=1 epoch=2] Initiated state change for partition z-0 failed (state.change.logger)",
        "kafka.common.StateChangeFailedException: [Controller id=1 epoch=2] Encountered error while electing a leader",
        "Caused by: kafka.common.StateChangeFailedException: [Controller id=1 epoch=2] No other replicas in the ISR",
    ]
    assert list(exchanges("\n".join(lines).encode(), summary=summary)) == []
    assert summary.bad_inputs == []


def test_a_controllers_log_tells_who_became_controller_and_which_brokers_came() -> None:
    stamp = "[2024-05-06 07:08:09,000] INFO [Controller id=2] "
    found = read(
        stamp
        + "2 successfully elected as the controller. Epoch incremented to 4 and epoch zk version is now 4 (KafkaController)",
        stamp + "Newly added brokers: 1, deleted brokers: , bounced brokers: , all live brokers: 1,2 (KafkaController)",
        stamp + "Updated broker epochs cache: HashMap(1 -> 77, 2 -> 65) (KafkaController)",
    )
    forms = [each.to_json()["request"] for each in found]
    assert {form["controllerEpoch"] for form in forms} == {4}
    assert {(str(each.server), form["brokerEpoch"]) for each, form in zip(found, forms, strict=True)} >= {
        ("broker-1:0", 77),
        ("broker-2:0", 65),
    }
    assert [broker["id"] for broker in forms[-1]["liveBrokers"]] == [1, 2]


def test_any_bytes_among_the_lines_do_no_harm() -> None:
    data = logs_of("ibp-3.9-a", "TRACE")["broker-0/state-change.log"]
    whole = len(list(exchanges(data)))
    lines = data.splitlines(keepends=True)
    for number in range(0, len(lines), 7):
        lines[number] = lines[number][: number % 200] + bytes([number % 256]) * (number % 50) + b"\n"
    summary = CaptureSummary()
    assert 0 < len(list(exchanges(b"".join(lines), summary=summary))) <= whole + len(lines) // 7
    assert not any("Error" in bad.reason for bad in summary.bad_inputs)


def test_one_host_does_not_show_when_its_own_broker_was_away(tmp_path: Path) -> None:
    """Others' logs tell of ISRs that it left and came back to: it was killed, which no list of live brokers shows."""
    whole = tmp_path / "whole.pcap.gz"
    whole.write_bytes(gzip.compress(files_of("kafka-1.0.2")["control.pcap"], 1))
    of_host = by_host(recorded(whole), {(exchange.server.ip, exchange.server.port) for exchange in exchanges(whole)})
    (name,) = [name for name in of_host if "19094" in name]
    of_host[name].write(tmp_path / "broker-2.pcap")
    whole.unlink()
    for name, data in logs_of("kafka-1.0.2", "TRACE").items():
        if name in ("broker-0/state-change.log", "broker-1/state-change.log"):
            (tmp_path / name.replace("/", "-")).write_bytes(data)
    assert [f for f in doctor(tmp_path) if f["rule"] in ("KP016", "KP022")] == []


@pytest.mark.parametrize(("run", "level"), [("kafka-2.8.2", "TRACE"), ("kafka-2.8.2", "INFO"), ("ibp-3.9-a", "INFO")])
def test_logs_of_some_brokers_and_a_capture_of_another_are_one_history(run: str, level: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole.pcap.gz"
    whole.write_bytes(gzip.compress(files_of(run)["control.pcap"], 1))
    servers = {(exchange.server.ip, exchange.server.port) for exchange in exchanges(whole)}
    of_host = by_host(recorded(whole), servers)
    (tmp_path / "mixed").mkdir()
    (name,) = [name for name in of_host if "19093" in name]
    of_host[name].write(tmp_path / "mixed" / "broker-1.pcap")
    for name, data in logs_of(run, level).items():
        if not name.startswith("broker-1/"):
            path = tmp_path / "mixed" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)

    def troubles(path: Path) -> set[Any]:
        return {(f["rule"], f.get("topic"), f.get("partition")) for f in doctor(path) if f["severity"] != "note"}

    def controllers(path: Path) -> list[Any]:
        result = run_kproto("query", path, "controllers", "--format", "json")
        rows = map(json.loads, result.stdout.splitlines())
        return [(row["cluster"], row["controller_id"], row["controller_epoch"]) for row in rows]

    assert controllers(tmp_path / "mixed") == controllers(whole)
    assert troubles(tmp_path / "mixed") == troubles(whole)


@pytest.mark.parametrize(("run", "level"), ALL)
def test_logs_of_which_others_are_not_there_accuse_nobody_of_more(run: str, level: str, tmp_path: Path) -> None:
    """A broker's own log does not say which brokers were alive: what follows from a coming or going looks like a fault."""

    def accused(files: Iterable[Path]) -> set[Any]:
        found = (f for f in doctor(*files, "--log-zone", "UTC") if f["severity"] != "note")
        return {(f["rule"], f.get("topic"), f.get("partition")) for f in found}

    capture = tmp_path / "control.pcap"
    capture.write_bytes(files_of(run)["control.pcap"])
    whole = accused([capture])
    logs = logs_of(run, level)
    for name, data in logs.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    brokers = sorted({name.partition("/")[0] for name in logs})
    shares = {f"without {broker}": [name for name in logs if not name.startswith(broker)] for broker in brokers}
    shares |= {broker: [name for name in logs if name.startswith(broker)] for broker in brokers}
    shares["state-change.log"] = [name for name in logs if name.endswith("state-change.log")]
    shares["controller.log ends early"] = [
        name if name.endswith("state-change.log") else f"early/{name}" for name in logs
    ]
    for name in shares["controller.log ends early"]:
        lines = logs[name.removeprefix("early/")].splitlines(keepends=True)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"".join(lines[: len(lines) // 10 if name.startswith("early/") else None]))
    found = {share: accused(tmp_path / name for name in names) - whole for share, names in shares.items()}
    assert {share: more for share, more in found.items() if more} == {}


@pytest.mark.parametrize(("run", "level"), [("ibp-3.9-a", "INFO"), ("kafka-2.8.2", "TRACE")])
def test_what_a_broker_decided_as_controller_is_on_its_clock(run: str, level: str, tmp_path: Path) -> None:
    """Its log names other brokers, too; on another clock than the rest of its host it accused them."""
    found = []
    for hosts in ((), ("broker-1", "broker-2")):
        for name, data in logs_of(run, level).items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(ahead(data, 120) if name.partition("/")[0] in hosts else data)
        rows = kproto_rows("doctor", *sorted(tmp_path.iterdir()), "--log-zone", "UTC")
        found.append({(row["rule"], row["severity"], row.get("topic"), row.get("partition")) for row in rows})
    assert {each for each in found[1] if each[0] != "KP063"} == {each for each in found[0] if each[0] != "KP063"}
    told = [row["text"].split(" of broker-") for row in rows if row["rule"] == "KP063"]
    assert {len(parts) for parts in told} == {3}  # each clock by its host


def test_a_clock_that_cannot_be_compared_tells_no_order(tmp_path: Path) -> None:
    """The other clock's states, of five minutes before, have higher epochs than the first ones of the capture."""
    (tmp_path / "control.pcap").write_bytes(files_of("kafka-1.0.2")["control.pcap"])
    for name, data in logs_of("kafka-1.0.2", "TRACE").items():
        if name.startswith("broker-2/"):
            some = [line for line in data.splitlines(keepends=True) if b"20:30:05,536" <= line[12:24] < b"20:30:18,984"]
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(ahead(b"".join(some), -300))
    found = doctor(*sorted(tmp_path.iterdir()), "--log-zone", "UTC")
    told = {(row["severity"], row.get("cannot_tell")) for row in found if row["rule"] == "KP012"}
    assert told == {("note", "the clocks of its captures cannot be compared")}


def test_isrs_at_info_are_those_of_the_capture_whatever_the_clocks_are(tmp_path: Path) -> None:
    """Followers' lines print no ISR: they hid what the controller and the leaders print of the same states."""
    run = "ibp-2.4-IV1-a"
    _leaders, isrs = told(exchanges(files_of(run)["control.pcap"]))
    found = []
    for seconds in ({}, {"broker-1": 20, "broker-2": -300}):
        for name, data in logs_of(run, "INFO").items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(ahead(data, seconds.get(name.partition("/")[0], 0)))
        with open_tables(tables.read(tmp_path)) as sql:
            found.append(sql.execute(ISR_CHANGES).fetchall())
            (most,) = sql.execute("SELECT max(abs(offset_us)) FROM clocks").fetchone() or (None,)
            assert most // 1_000_000 in (0, 319, 320)
    assert found[0] == found[1]
    captured = 0
    for topic, partition, before, epoch, removed, added in found[0]:
        old, new = (isrs.get((topic, partition, *each)) for each in (before, epoch))
        if old and new:
            captured += 1
            assert new == {each - set(removed) | set(added) for each in old}
    assert (len(found[0]), captured) == (184, 144)


@pytest.mark.parametrize(
    ("run", "begin"), [("kafka-2.8.2", "20:31:36"), ("kafka-1.0.2", "20:30:05"), ("kafka-0.10.2.2", "20:39:32")]
)
def test_logs_from_some_line_on_accuse_nobody_of_more(run: str, begin: str, tmp_path: Path) -> None:
    """A controller logs who is alive when that changes: until the first such line nothing tells it."""
    logs = logs_of(run, "TRACE")
    for path, is_cut in ((tmp_path / "whole", False), (tmp_path / "late", True)):
        for name, data in logs.items():
            lines = data.splitlines(keepends=True)
            first = next((n for n, line in enumerate(lines) if line[12:20] >= begin.encode() and line[:1] == b"["), 0)
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(b"".join(lines[first * is_cut :]))
    rules = ("KP014", "KP015", "KP016", "KP022")
    whole, late = (
        [f for f in doctor(tmp_path / part, "--log-zone", "UTC") if f["rule"] in rules] for part in ("whole", "late")
    )
    assert whole == late == []


@pytest.mark.parametrize(("run", "level"), ALL)
def test_what_logs_and_the_capture_of_the_same_run_tell_is_counted_and_judged_once(
    run: str, level: str, tmp_path: Path
) -> None:
    """At INFO what a controller decided is dated by its decision: beside the packets it would be told again, late."""
    packets, others = tmp_path / "control.pcap", tmp_path / "logs"
    packets.write_bytes(files_of(run)["control.pcap"])
    logs = logs_of(run, level) | {name: data for name, data in files_of(run).items() if "request.log" in name}
    for name, data in logs.items():
        (others / name).parent.mkdir(parents=True, exist_ok=True)
        (others / name).write_bytes(data)
    alone, beside = (Facts(resolved_pieces([*map(str, paths)])) for paths in ([packets], [packets, others]))
    unsent = [request for request in beside.requests if request.is_logged]
    assert len(beside.requests) - len(unsent) == len(alone.requests)
    assert all(request.ts > alone.end for request in unsent)  # the logs go on
    found, wanted = (
        [(each.rule, each.severity, each.broker, each.topic, each.partition) for each in findings(facts)]
        for facts in (beside, alone)
    )
    assert [each for each in found if each[1] != "note"] == [each for each in wanted if each[1] != "note"]


def test_a_broker_that_has_just_come_back_is_yet_to_be_told_of_a_deletion(tmp_path: Path) -> None:
    """It was killed before it had deleted two of three partitions, and came back 0.25 s before the logs end."""
    for name, data in logs_of("kafka-2.0.1", "TRACE").items():
        lines = [line for line in data.splitlines(keepends=True) if b"20:30:33" < line[12:24] < b"20:30:59,255"]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"".join(lines))
    found = doctor(tmp_path, "--log-zone", "UTC")
    assert found
    assert "KP041" not in {row["rule"] for row in found}


@pytest.mark.parametrize(
    ("run", "rule", "ends"),
    [
        ("kafka-0.11.0.3", "KP030", {"": "20:41:30,321"}),  # what UpdateMetadata tells has no partition epoch there
        ("kafka-0.11.0.3", "KP023", {"controller.log": "20:41:14,606"}),  # a broker comes back after that
        ("kafka-2.0.1", "KP041", {"broker-1/controller": "20:30:39,690", "broker-0/": "20:30:59,263"}),
    ],
)  # in the last nothing tells that broker 0 was away for ten seconds
def test_logs_that_end_each_at_its_line_accuse_nobody_of_more(
    run: str, rule: str, ends: dict[str, str], tmp_path: Path
) -> None:
    for name, data in logs_of(run, "TRACE").items():
        end = next((end for part, end in ends.items() if part in name), "99").encode()
        lines = [line for line in data.splitlines(keepends=True) if line[12:24] <= end]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"".join(lines))
    found = doctor(tmp_path, "--log-zone", "UTC")
    assert found
    assert rule not in {row["rule"] for row in found if row["severity"] != "note"}
