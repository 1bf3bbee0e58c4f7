"""KP039: advertised listeners that cannot work, and none where all brokers are on one machine."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from lines_run import lines_run

from kproto.tables import TABLES
from kproto.verdicts.doctor import Finding
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

BEGIN = datetime(2026, 11, 21, 6, tzinfo=UTC)
Told = list[tuple[int, str | None, int | None, str | None]]


def facts_of(lists: Iterable[tuple[float, Told]], server: str = "10.0.0.1", error: int = 0, **options: Any) -> Facts:
    """What updates to broker 1 tell that list listeners: broker, host, port and name."""
    requests: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number, (seconds, listed) in enumerate(lists):
        frame = number.to_bytes(16, "big")
        name = repr(listed).encode()
        requests.append(
            {
                "frame_id": frame, "body_id": frame, "ts": BEGIN + timedelta(seconds=seconds), "api_key": 6,
                "api_version": 6, "controller_id": 1, "controller_epoch": 1, "broker_epoch": -1, "broker_id": 1,
                "error_code": error, "server_ip": server, "server_port": 9092, "conn_id": b"1", "capture": "a",
                "response_frame_id": frame, "live_brokers_id": name, "n_partitions": 0,
            }
        )  # fmt: skip
        if all(row["live_brokers_id"] != name for row in rows[-len(listed) :]):
            columns = ("live_brokers_id", "broker_id", "host", "port", "listener")
            rows += [dict(zip(columns, (name, *each), strict=True)) for each in listed]
    made = {"requests": requests, "live_brokers": rows}
    return Facts([{name: pa.Table.from_pylist(some, schema=TABLES[name]) for name, some in made.items()}], **options)


def found_in(lists: Iterable[tuple[float, Told]], **options: Any) -> list[Finding]:
    return [one for one in findings(facts_of(lists, **options)) if one.rule == "KP039"]


def plain(*hosts: str, port: int = 9092, name: str = "PLAINTEXT") -> Told:
    return [(number, host, port, name) for number, host in enumerate(hosts, 1)]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.3.2.1", "::1"])
def test_a_broker_that_advertises_loopback_beside_others_is_named_at_once(host: str) -> None:
    (one,) = found_in([(0, plain("10.0.0.1", host, "kafka-3")), (1, plain("10.0.0.1", host, "kafka-3"))])
    assert one.broker == 2
    assert one.severity == "warning"
    assert one.text == (
        f"Broker 2 advertises {'[::1]' if host == '::1' else host}:9092 as listener PLAINTEXT, others do not: only its "
        "own machine reaches it there"
    )


def test_two_brokers_with_one_address_are_named_if_it_lasts() -> None:
    both = plain("10.0.0.1", "10.0.0.1", "10.0.0.3")
    apart = plain("10.0.0.1", "10.0.0.2", "10.0.0.3")
    (one,) = found_in([(0, both), (70, both)])
    assert one.text == "Brokers 1, 2 advertise the same address, 10.0.0.1:9092"
    assert one.broker is None
    assert not found_in([(0, both), (30, both)])
    (ended,) = found_in([(0, both), (70, apart), (200, apart)])
    assert ended.last - ended.first == 70_000_000
    assert not found_in([(0, both), (30, apart), (200, apart)])


def test_a_listener_that_some_brokers_lack_is_named_if_it_lasts() -> None:
    inner = plain("10.0.0.1", "10.0.0.2", "10.0.0.3")
    outer = plain("a.example", "b.example", port=9094, name="EXTERNAL")
    (one,) = found_in([(0, inner + outer), (70, inner + outer)])
    assert one.text == "Listener EXTERNAL is advertised by 2 of 3 brokers, not by 3"
    assert one.broker == 3
    assert not found_in([(0, inner + outer), (59, inner + outer)])
    third = [(3, "c.example", 9094, "EXTERNAL")]
    assert not found_in([(0, inner), (10, inner + outer), (60, inner + outer + third), (200, inner + outer + third)])


@pytest.mark.parametrize("server", ["127.0.0.1", "::1", "broker-1"])
def test_brokers_on_one_machine_are_a_rehearsal(server: str) -> None:
    local: Told = [(broker, "localhost", 9090 + broker, "PLAINTEXT") for broker in (1, 2, 3)]
    assert not found_in([(0, local), (100, local)], server=server)
    inner = plain("kafka-1", "kafka-2", "kafka-3", name="INSIDE")  # a listener for clients on the containers' host
    assert not found_in([(0, local + inner), (100, local + inner)])


def test_brokers_of_other_machines_that_advertise_loopback_alone_are_named() -> None:
    local: Told = [(broker, "localhost", 9090 + broker, "PLAINTEXT") for broker in (1, 2, 3)]
    (one,) = found_in([(0, local), (100, local)], server="10.0.0.1")
    assert one.text == "All 3 brokers advertise loopback addresses alone"
    assert not found_in([(0, local[:1]), (100, local[:1])], server="10.0.0.1")


def test_lists_without_listeners_say_nothing() -> None:
    logged: Told = [(1, "broker-1", 0, ""), (2, "broker-2", 0, "")]
    known: Told = [(1, None, None, None), (2, None, None, None)]
    assert not found_in([(0, logged), (100, logged)])
    assert not found_in([(0, known), (100, known)])
    assert not found_in([(0, plain("10.0.0.1", "localhost")), (1, plain("10.0.0.1", "localhost"))], error=11)


def test_addresses_are_numbered_where_names_are_hidden() -> None:
    (one,) = found_in([(0, plain("10.0.0.1", "localhost"))], redact=True)
    assert "localhost" not in one.text


@pytest.mark.parametrize("dimension", ["brokers", "lists"])
def test_work_grows_as_brokers_and_lists_do(dimension: str) -> None:
    def work(count: int) -> int:
        brokers, lists = (count, 2) if dimension == "brokers" else (3, count)
        inner = plain(*(f"10.0.{n // 250}.{n % 250}" for n in range(brokers)))
        outer = plain(*("one.example" for _ in range(brokers)), port=9094, name="EXTERNAL")
        told = [(100.0 * number, [*inner, *outer[number % 2 :]]) for number in range(lists)]
        return lines_run(lambda: found_in(told))

    works = [work(count) for count in (50, 100, 200)]
    assert works[2] - works[1] < 2.4 * (works[1] - works[0]) + 3_000, works
