"""The filters: what people type, what it comes to, and what is said when it makes no sense."""

from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from click.testing import CliRunner
from commands import run_kproto
from hypothesis import given
from hypothesis import strategies as st

from kproto.api import ApiKey, api_name
from kproto.cli.options import (
    CaptureCommand,
    capture_filters,
    parse_brokers,
    parse_partitions,
    parse_ports,
)
from kproto.cli.times import parse_time
from kproto.errors import ConfigurationError
from kproto.tables.filters import Filters, parse_api
from kproto.types import TopicPartition


def parsed(*arguments: str) -> Filters:
    """What a command gets for these arguments."""
    seen = []

    @click.command(cls=CaptureCommand)
    @capture_filters
    def command(filters: Filters) -> None:
        seen.append(filters)

    result = CliRunner().invoke(command, arguments)
    if result.exception:
        raise result.exception
    return seen[0]


@pytest.mark.parametrize("key", ApiKey)
def test_an_api_is_named_by_key_or_name_in_any_spelling(key: ApiKey) -> None:
    name = api_name(key)
    assert {
        parse_api(t) for t in (str(int(key)), name, name.lower(), key.name, key.name.lower().replace("_", "-"))
    } == {int(key)}


@pytest.mark.parametrize("text", ["88", "-1", "99999", "Leader", "", "LeaderAndIsrRequest2", "٤"])
def test_an_unknown_api_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"api"):
        parse_api(text)


@pytest.mark.parametrize(
    ("text", "topic", "partition"),
    [("orders-3", "orders", 3), ("a-b-c-10", "a-b-c", 10), ("--0", "-", 0), ("eu.orders_v1-007", "eu.orders_v1", 7)],
)
def test_the_last_dash_parts_topic_and_partition(text: str, topic: str, partition: int) -> None:
    assert parse_partitions(text) == [TopicPartition(topic, partition)]


def test_partitions_may_be_written_as_answers_show_them() -> None:
    found = parse_partitions("eu.orders-1[0-2,7]")
    assert found == [TopicPartition("eu.orders-1", number) for number in (0, 1, 2, 7)]
    for text in ("orders[]", "orders[3-1]", "orders[1-]", "[0]", "orders[0-4000000000]", "orders[x]"):
        with pytest.raises(ConfigurationError, match="orders"):
            parse_partitions(text)


@pytest.mark.parametrize("text", ["orders", "orders-", "-3", "orders-x", "orders:3", "", "orders--1x", "orders-²"])
def test_what_is_no_topic_partition_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="orders-3"):
        parse_partitions(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1795203290", 1795203290),
        ("1795203290.558", 1795203290.558),
        ("2026-11-20T18:54:50Z", 1795200890),
        ("2026-11-20T18:54:50", 1795200890),
        ("2026-11-20 18:54:50", 1795200890),
        ("2026-11-20T20:54:50+02:00", 1795200890),
        ("2026-11-20", 1795132800),
        ("20261120", 1795132800),
    ],
)
def test_times_are_iso_8601_or_epoch_seconds_and_utc_by_default(text: str, seconds: float) -> None:
    assert parse_time(text) == round(seconds * 1000) * 1_000_000


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1)),
    st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m))),
)
def test_any_zone_gives_the_same_moment(moment: datetime, zone: timezone) -> None:
    moment = moment.replace(tzinfo=UTC)
    assert parse_time(moment.astimezone(zone).isoformat()) == parse_time(moment.isoformat())


@pytest.mark.parametrize("text", ["yesterday", "25:00", "2026-13-01", "-5", "1e9", "", "nan", "1795203290.1234567890"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="2026-11-21T"):
        parse_time(text)


def test_brokers_are_addresses_and_ports() -> None:
    assert parse_brokers(["7=10.0.0.7:9092,8=[fd00::8]:9092", " 9=127.0.0.1:19094 "]) == {
        ("10.0.0.7", 9092): 7,
        ("fd00::8", 9092): 8,
        ("127.0.0.1", 19094): 9,
    }
    assert ("127.0.0.1", 9092) in parse_brokers(["7=localhost:9092"])
    assert parse_brokers(["1=[0:0:0:0:0:0:0:1]:9092"]) == {("::1", 9092): 1}


@pytest.mark.parametrize(
    "text", ["7", "7=", "7=host", "7=host:", "7=:9092", "x=10.0.0.7:9092", "7=10.0.0.7:0", "7=10.0.0.7:65536"]
)
def test_what_is_no_broker_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_brokers([text])


def test_a_name_that_does_not_resolve_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not resolve"):
        parse_brokers(["7=no-such-host.invalid:9092"])


def test_ports_come_repeated_or_with_commas() -> None:
    assert parse_ports(["9092,9093", "9094"]) == (9092, 9093, 9094)
    assert parse_ports([]) is None
    for wrong in ("0", "65536", "http", "-1", "9092;9093"):
        with pytest.raises(ConfigurationError, match="port"):
            parse_ports([wrong])


def test_all_options_come_to_one_object() -> None:
    assert parsed(
        *("--api", "6", "--api", "LeaderAndIsr,sr", "--broker", "7", "--broker", "8", "--topic", "orders*"),
        *("--partition", "payments-1", "--since", "10", "--until", "11.5", "--errors", "--ports", "9092"),
        *("--brokers", "7=10.0.0.7:9092"),
    ) == Filters(
        apis=frozenset({4, 5, 6}),
        brokers=frozenset({7, 8}),
        topics=("orders*",),
        partitions=frozenset({TopicPartition("payments", 1)}),
        since_ns=10_000_000_000,
        until_ns=11_500_000_000,
        errors="any",
        ports=(9092,),
        broker_ids={("10.0.0.7", 9092): 7},
    )
    assert parsed() == Filters()


def test_an_empty_range_of_time_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not before"):
        parsed("--since", "11", "--until", "10")


def test_no_filter_wants_everything() -> None:
    everything = Filters()
    assert everything.wants_time(0)
    assert everything.wants_broker(None)
    assert everything.wants_topic("a")
    assert everything.wants_partition("a", 0)


def test_each_filter_wants_what_it_names_and_nothing_else() -> None:
    filters = Filters(
        apis=frozenset({6}),
        brokers=frozenset({7}),
        topics=("eu.*",),
        partitions=frozenset({TopicPartition("orders", 3)}),
        since_ns=10,
        until_ns=20,
        errors="any",
    )
    assert [filters.wants_time(t) for t in (9, 10, 19, 20)] == [False, True, True, False]
    assert [filters.wants_broker(b) for b in (7, 8, None)] == [True, False, False]
    assert [filters.wants_topic(t) for t in ("eu.a", "orders", "euro")] == [True, True, False]
    assert [filters.wants_partition(*tp) for tp in (("eu.a", 9), ("orders", 3), ("orders", 4))] == [True, True, False]


@pytest.mark.parametrize("option", ["--broker", "--controller"])
@pytest.mark.parametrize("text", ["-1", "0,-1", "2147483648", "x"])
def test_what_is_no_node_id_is_refused(option: str, text: str) -> None:
    result = run_kproto("summary", "a.pcap", f"{option}={text}")
    assert result.exit_code == 2
    assert f"is not a node id; try e.g. {option} 1, or {option} 0,1" in result.stderr
