"""Brokers that advertise names: what is said rests on who may stand behind an address, never on an unknown id."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import run_kproto
from conftest import DATA
from windows import Window

import kproto.tables
from kproto.tables.reading import chunks
from kproto.tables.resolved import resolved_pieces, resolved_tables
from kproto.tables.schemas import TABLES
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings
from tests.hosts import Recorded, by_host, without_listings

CAPTURES = sorted((DATA / "captures").glob("*.pcap.gz"))


def alarms(tables: dict[str, pa.Table], **options: Any) -> set[tuple[Any, ...]]:
    found = findings(Facts([resolved_tables(tables, **options)]))
    return {(f.rule, f.broker, f.topic, f.partition) for f in found if f.severity != "note"}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("healthy_names", set()),
        ("not_told_names", {"KP014", "KP030", "KP031"}),
        ("left_behind_names", {"KP006"}),
    ],
)
def test_three_pods_with_names(name: str, rules: set[str]) -> None:
    tables = kproto.tables.read(DATA / "names" / f"{name}.pcapng.gz")
    found = alarms(tables)
    assert {rule for rule, *_subject in found} >= rules
    assert bool(found) == bool(rules)
    ids = {(f"10.0.0.{number + 1}", 9092): number for number in range(3)}
    given = alarms(tables, broker_ids=ids)
    assert {rule for rule, *_subject in given} == {rule for rule, *_subject in found}
    assert {broker for _rule, broker, *_partition in found} <= {None, 2, "10.0.0.3:9092"}
    assert {broker for _rule, broker, *_partition in given} <= {None, 2}


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.removesuffix(".pcap.gz"))
def test_no_id_is_wrong_and_no_alarm_is_new_where_nothing_lists_addresses(capture: Path) -> None:
    tables = kproto.tables.read(capture)
    known = {(row["server_ip"], row["server_port"]): row["broker_id"] for row in tables["requests"].to_pylist()}
    hidden = without_listings(tables)
    resolved = resolved_tables(hidden)
    for row in resolved["identities"].to_pylist():
        assert row["broker_id"] in (None, known[row["server_ip"], row["server_port"]])
    names = {f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}": broker for (ip, port), broker in known.items()}
    found = {(rule, names.get(broker, broker), *of) for rule, broker, *of in alarms(hidden)}
    assert found <= alarms(tables)


def test_a_request_to_the_same_machine_does_not_tell_which_broker_is_at_its_target(tmp_path: Path) -> None:
    window = Window.of(next(path for path in CAPTURES if path.name.startswith("ibp-2.6")))
    window = window.since(window.at(0.594163)).until(window.at(0.597984))
    servers = [("127.0.0.1", port) for port in (19092, 19093, 19094)]
    part = by_host(Recorded(window.link, window.packets), servers)["host-19094.pcap"]
    (requests,) = (tables["requests"] for tables in resolved_pieces([str(part.write(tmp_path / "one.pcap"))]))
    assert set(requests["broker_id"].to_pylist()) == {None}  # broker 1 fetched from it


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("ibp-2.4-IV0-a", 0.5115, 0.5811),  # broker 2 is back, leads alone, and is told behind the end
        ("ibp-3.2-IV0-a", 0.7161, 0.9161),  # others were told before the begin
    ],
)
def test_a_state_that_others_are_told_outside_a_capture_does_not_tell_who_was_told_it(
    name: str, since: float, until: float, tmp_path: Path
) -> None:
    window = Window.of(next(path for path in CAPTURES if path.name.startswith(name)))
    part = window.since(window.at(since)).until(window.at(until)).write(tmp_path / "part.pcap")
    identities = resolved_tables(without_listings(kproto.tables.read(part)))["identities"].to_pylist()
    assert all(row["broker_id"] in (None, row["server_port"] % 100 - 92) for row in identities)


def _from_another_machine(data: bytes) -> bytes:
    """A packet on ::1 in which clients have another address."""
    at = data.index(bytes(15) + b"\1") - 8
    changed = bytearray(data)
    changed[at + (39 if int.from_bytes(data[at + 40 : at + 42], "big") in (19092, 19093, 19094) else 23)] = 2
    return bytes(changed)


def test_a_brokers_own_requests_tell_where_it_is(tmp_path: Path) -> None:
    """Heard of in a capture, or in the controller's request log, which is all that a TLS cluster has."""
    window = Window.of(next(path for path in CAPTURES if path.name.startswith("ibp-2.8")))
    packets = tuple(packet._replace(data=_from_another_machine(packet.data)) for packet in window.packets)
    capture = replace(window, packets=packets).write(tmp_path / "control.pcap")
    (shown,) = kproto.tables.read(capture)["captures"]["senders"].to_pylist()
    assert {(sender["ip"], sender["broker_id"]) for sender in shown} == {("::2", broker) for broker in range(3)}
    log = tmp_path / "kafka-request.log"
    lines = [
        f'[2026-11-21 06:35:1{broker},000] DEBUG Completed request:{{"isForwarded":false,"requestHeader":'
        f'{{"requestApiKey":56,"requestApiVersion":2,"correlationId":1,"clientId":"{broker}"}},"request":'
        f'{{"brokerId":{broker},"brokerEpoch":7,"topics":[]}},"response":{{}},'
        f'"connection":"10.0.0.9:9092-10.0.0.{broker}:50000-1","totalTimeMs":1.0}} (kafka.request.logger)\n'
        for broker in range(3)
    ]
    log.write_text("".join(lines))
    (logged,) = next(chunks([str(log)]))["captures"]["senders"].to_pylist()
    assert {(sender["ip"], sender["broker_id"]) for sender in logged} == {(f"10.0.0.{n}", n) for n in range(3)}


def test_pods_are_told_apart_by_their_own_requests() -> None:
    """Three brokers that all were told the same: nothing but their own requests tells which is which."""
    tables = kproto.tables.read(DATA / "names" / "healthy_names.pcapng.gz")
    place = tables["captures"].schema.get_field_index("senders")
    field = TABLES["captures"].field("senders")
    senders = [{"ip": f"10.0.0.{broker + 1}", "broker_id": broker, "ts": 0} for broker in range(2)]
    told = tables["captures"].set_column(place, field, pa.array([senders], field.type))
    ids = {
        (row["server_ip"], row["broker_id"])
        for row in resolved_tables(tables | {"captures": told})["requests"].to_pylist()
    }
    assert ids == {(f"10.0.0.{broker + 1}", broker) for broker in range(3)}  # the third is the one that is left
    for row in resolved_tables(tables)["requests"].to_pylist():
        assert row["broker_id"] is None


@pytest.mark.parametrize(
    "words",
    [("top", "--once"), ("summary", "--format", "json"), ("inspect", "--format", "json"), ("query", "--sql", "SQL")],
)
def test_every_command_takes_the_brokers_that_are_known(words: tuple[str, ...]) -> None:
    command, *options = words
    path = str(DATA / "names" / "healthy_names.pcapng.gz")
    sql = "SELECT DISTINCT broker_id FROM requests"
    chosen = [sql if option == "SQL" else option for option in options]
    told = run_kproto(command, path, *chosen, "--brokers", "7172=10.0.0.3:9092")
    assert told.exit_code == 0, told.output
    assert "7172" in told.stdout
