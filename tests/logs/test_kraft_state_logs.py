"""State-change logs of KRaft's brokers tell the leaders that the metadata log of the same run holds, and no other.

Those of a migration and its metadata log are one history: the leaders are those that a capture of the whole run shows.
"""

import json
from base64 import urlsafe_b64decode
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from commands import kproto_rows, run_kproto
from conftest import few
from state_runs import files_of, logs_of

import kproto.tables
from kproto.tables.resolved import resolved_tables

RUNS = ["kraft-3.9.1", "kraft-4.1.0"]


@pytest.fixture(params=few(RUNS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[list[Any]], Path]:
    """Topic id, partition, leader epoch, partition epoch, leader and ISR of each record; the brokers' logs."""
    for name, data in logs_of(request.param, "INFO").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return json.loads(files_of(request.param)["truth.json"]), tmp_path


def test_leaders_are_those_of_the_metadata_log_and_no_isr_is_wrong(run: tuple[list[list[Any]], Path]) -> None:
    truth, folder = run
    leaders: dict[Any, set[int]] = defaultdict(set)
    isrs: dict[Any, list[int]] = {}
    for row in resolved_tables(kproto.tables.read(folder))["partition_states"].to_pylist():
        key = row["topic_id"], row["partition"], row["leader_epoch"]
        leaders[key].add(row["leader"])
        if row["isr"] is not None:
            assert isrs.setdefault((*key, row["partition_epoch"]), sorted(row["isr"])) == sorted(row["isr"])
    keys = [(urlsafe_b64decode(row[0] + "=="), *row[1:3]) for row in truth]
    assert dict(leaders) == {key: {row[4]} for key, row in zip(keys, truth, strict=True)}
    told = {(*key, row[3]): row[5] for key, row in zip(keys, truth, strict=True)}
    assert isrs.items() <= told.items()
    assert len(isrs) > len(told) / 2


def test_no_controller_is_invented(run: tuple[list[list[Any]], Path]) -> None:
    _truth, folder = run
    for words in (["query", str(folder), "controllers"], ["query", str(folder), "restarts"]):
        result = run_kproto(*words, "--format", "json", "--log-zone", "UTC")
        assert (result.exit_code, result.stdout.strip()) == (0, ""), result.stderr
    summary = json.loads(run_kproto("summary", folder, "--format", "json").stdout)
    assert (summary["controllers"], summary["zombies"], summary["migration"]) == ([], [], None)
    found = kproto_rows("doctor", folder)
    rules = {row["rule"] for row in found if row["severity"] in ("warning", "trouble")}
    assert rules <= {"KP010", "KP016", "KP022"}  # brokers were killed all the time
    assert [row["cannot_tell"] for row in found if row["rule"] == "KP035"] == ["these logs tell no broker epochs"]
    assert not [row["text"] for row in found if row["rule"] == "KP063" and "corrects" in row["text"]]  # of one machine


@pytest.fixture(params=["INFO", "TRACE"])
def migration(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The logs of ZooKeeper's brokers, which end in KRaft mode, at a level, beside the metadata log."""
    of_log = {name: data for name, data in files_of("kraft-3.9-migration").items() if name.startswith("node3000/")}
    for name, data in (logs_of("kraft-3.9-migration", request.param) | of_log).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def asked(place: Path, *words: str) -> list[dict[str, Any]]:
    return kproto_rows("query", place, *words, "--log-zone", "UTC")


def test_a_migration_is_one_story(migration: Path) -> None:
    truth: dict[Any, list[Any]] = defaultdict(list)
    for topic, partition, *led in json.loads(files_of("kraft-3.9-migration")["truth.json"])["leaders"]:
        truth[topic, partition].append(led)
    leaders: dict[Any, list[Any]] = defaultdict(list)
    for row in asked(migration, "leader"):
        of = row["topic"], row["partition"]
        leaders[of].append([row[name] for name in ("leader", "leader_epoch", "controller_id", "controller_epoch")])
    del truth["short", 0], leaders["short", 0]  # deleted while ZooKeeper led, by a controller that INFO tells little of
    assert leaders == truth
    rows = asked(migration, "controllers")
    ruled = [(row["mode"], row["controller_id"], row["controller_epoch"]) for row in rows]
    assert ruled == [("ZooKeeper", 2, 1), ("ZooKeeper", 0, 2), ("KRaft", 3000, 1), ("KRaft", 3000, 2)]
    assert [row["valid_to"] for row in rows[:-1]] == [row["valid_from"] for row in rows[1:]]
    assert rows[2]["why"] == "took over from ZooKeeper; tells its brokers as epoch 3"
    events = asked(migration, "events")
    assert [row["text"] for row in events if row["event"] == "controller"] == [
        "Controller 2 with epoch 1 is the first in the capture",
        "Controller 0 with epoch 2 takes over from 2",
        "Controller 3000 with epoch 1 takes over from 0",
        "Controller 3000 with epoch 2 takes over from 3000",
    ]
    killed = "killed, hung or cut off (no controlled shutdown)"
    assert [row["text"].split(" leaves the live brokers: ") for row in events if row["event"] == "broker left"] == [
        ["Broker 2", killed], ["Broker 2", killed],
        *([f"Broker {broker}", "a controlled shutdown"] for broker in (0, 1, 2, 0, 1, 2)),
    ]  # fmt: skip


def test_logs_alone_tell_who_leads_in_a_migration(migration: Path) -> None:
    for broker in range(3):
        rows = asked(migration / f"broker-{broker}", "controllers")
        assert {row["mode"] for row in rows if row["controller_id"] == 3000} == {"KRaft"}
        assert "KRaft" not in {row["mode"] for row in rows if row["controller_id"] < 3000}


def test_a_broker_that_goes_over_to_kraft_accepts_no_zombie_and_its_lines_are_in_order(migration: Path) -> None:
    for broker in range(3):
        log = migration / f"broker-{broker}" / "state-change.log"
        rules = {row["rule"] for row in kproto_rows("doctor", log, "--log-zone", "UTC")}
        assert rules.isdisjoint({"KP001", "KP065"}), broker


def test_a_topic_whose_partitions_only_an_earlier_controller_named_is_deleted(migration: Path) -> None:
    """Without it, its partition would have no leader to the end."""
    brokers = [migration / f"broker-{broker}" for broker in range(3)]
    rows = kproto_rows("doctor", *brokers, "--log-zone", "UTC", "--limit", "offline=0")
    assert [row for row in rows if row["rule"] == "KP010"] == []
