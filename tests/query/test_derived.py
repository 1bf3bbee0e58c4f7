"""The derived tables and the questions, over tables of a few requests made for the purpose."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_truth import CAPTURES

import kproto.tables
from kproto.errors import ConfigurationError
from kproto.generate import PlannedFleet, write_captures
from kproto.query import QUESTIONS, ask, ask_sql, open_tables
from kproto.tables import TABLES, Filters
from kproto.types import TopicPartition
from kproto.verdicts.facts import Facts
from kproto.verdicts.summary import summarize

BEGIN = datetime(2026, 11, 21, 6, tzinfo=UTC)
NO_ID = bytes(16)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


class Traffic:
    """Requests and the partition states in their bodies, as the stored tables have them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def send(
        self,
        seconds: float,
        broker: int,
        states: list[tuple[Any, ...]],
        *,
        api_key: int = 6,
        controller: int = 1,
        epoch: int = 1,
        broker_epoch: int = -1,
        error: int | None = 0,
        capture: str = "a.pcap",
        cluster: str = "default",
        live: range = range(4),
        topic_id: bytes = NO_ID,
    ) -> None:
        """A request, answered after 1 ms; a state is (partition, leader, leader epoch, partition epoch, ISR)."""
        number = len(self.rows["requests"])
        body = blake2b(repr((api_key, epoch, states, topic_id)).encode(), digest_size=16).digest()
        if all(row["body_id"] != body for row in self.rows["partition_states"]):
            self.rows["partition_states"] += [
                {
                    "body_id": body, "api_key": api_key, "topic": "orders", "topic_id": topic_id,
                    "partition": partition, "controller_epoch": epoch, "leader": leader, "leader_epoch": leader_epoch,
                    "partition_epoch": partition_epoch, "isr": isr, "replicas": [0, 1, 2],
                }
                for partition, leader, leader_epoch, partition_epoch, isr in states
            ]  # fmt: skip
        frame = number.to_bytes(16, "big")
        self.rows["requests"].append(
            {
                "frame_id": frame, "capture": capture, "ts": at(seconds), "api_key": api_key, "api_version": 6,
                "controller_id": controller, "controller_epoch": epoch, "broker_epoch": broker_epoch,
                "broker_id": broker, "body_id": body, "error_code": error, "n_partitions": len(states),
                "server_ip": "10.0.0.1", "server_port": broker, "conn_id": bytes([broker]),
                "live_brokers_id": bytes(live) if api_key == 6 else None,
                "response_frame_id": None if error is None else frame,
            }
        )  # fmt: skip
        if all(row["live_brokers_id"] != bytes(live) for row in self.rows["live_brokers"]):
            self.rows["live_brokers"] += [{"live_brokers_id": bytes(live), "broker_id": each} for each in live]
        named = {"capture": capture, "file": capture, "cluster": cluster}
        if named not in self.rows["captures"]:
            self.rows["captures"].append(named)
        if error is not None:
            answer = {"frame_id": frame, "ts": at(seconds + 0.001), "error_code": error}
            self.rows["responses"].append(answer)

    def tables(self) -> dict[str, pa.Table]:
        return {name: pa.Table.from_pylist(rows, schema=TABLES[name]) for name, rows in self.rows.items()}

    def note(self, question: str, **options: Any) -> str:
        with open_tables(self.tables()) as sql:
            return ask(sql, question, **options).note

    def against(self, other: Traffic, columns: str = "partition change", **options: Any) -> tuple[list[Any], str]:
        """Rows and note of the difference to other traffic."""
        with open_tables(self.tables()) as first, open_tables(other.tables()) as second:
            answer = ask(first, "diff", other=second, **options)
            places = [answer.columns.index(name) for name in columns.split()]
            return [tuple(row[place] for place in places) for row in answer.rows], answer.note

    def ask(self, question: str, columns: str, **options: Any) -> list[tuple[Any, ...]]:
        with open_tables(self.tables()) as sql:
            if question in QUESTIONS:
                answer = ask(sql, question, **options)
                places = [answer.columns.index(name) for name in columns.split()]
                return [tuple(row[place] for place in places) for row in answer.rows]
            return ask_sql(sql, f"SELECT {', '.join(columns.split())} FROM {question} ORDER BY ALL").rows


@pytest.mark.parametrize("epoch", [7, None])
def test_a_state_that_one_log_tells_without_its_isr_is_that_of_another(epoch: int | None) -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0, 1, 2])])
    traffic.send(1, 1, [(3, 0, 4, epoch, None)])
    traffic.send(10, 0, [(3, 2, 5, 8, [2])])
    traffic.send(20, 0, [(3, 1, 6, 9, None)])
    traffic.send(30, 0, [(3, 2, 7, 10, [2, 1])])
    assert traffic.ask("isr", "kind removed ts") == [("shrink", [0, 1], at(10))]
    assert traffic.ask("changes", "leader_epoch isr") == [(4, [0, 1, 2]), (5, [2]), (6, None), (7, [2, 1])]


def test_leaders_follow_each_other_by_their_epochs_and_not_by_the_clock() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0, 1, 2])])
    traffic.send(10, 0, [(3, 2, 6, 9, [2])], epoch=2, controller=5)
    traffic.send(11, 1, [(3, 1, 5, 8, [1, 2])])  # a late copy of what was decided before
    reigns = traffic.ask("leader", "leader leader_epoch controller_id valid_from valid_to")
    assert sorted(reigns, key=lambda row: row[1]) == [
        (0, 4, 1, at(0), at(10)),
        (1, 5, 1, at(10), at(10)),  # told after the next one: it began before that
        (2, 6, 5, at(10), None),
    ]


@pytest.mark.parametrize(
    ("epochs", "epoch", "decider"),
    [
        ((4, 7), 2, (None, None)),  # the ISR changed after an election: controller 5 may have decided that alone
        ((4, 4), 2, (5, 2)),  # nothing but elections: the last of them is its own
        ((0, 0), 2, (5, 2)),
        ((4, 7), 1, (5, 1)),  # there was no earlier controller
    ],
)
def test_who_decided_a_leader_before_the_capture_is_not_guessed(
    epochs: tuple[int, int], epoch: int, decider: tuple[int | None, int | None]
) -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, *epochs, [0, 1])], epoch=epoch, controller=5)
    traffic.send(5, 0, [(3, 1, epochs[0] + 1, epochs[1] + 2, [0, 1])], epoch=3, controller=6)
    assert traffic.ask("leader", "leader controller_id controller_epoch") == [(0, *decider), (1, 6, 3)]


def test_a_refused_request_tells_of_no_leader() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])], epoch=2)
    traffic.send(1, 0, [(3, 2, 9, 9, [2])], epoch=1, error=11)
    assert traffic.ask("leader", "leader valid_to") == [(0, None)]


def test_a_leader_ends_with_its_topic() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])])
    traffic.send(5, 0, [(3, -2, -2, 8, [])])
    assert traffic.ask("leader", "leader valid_from valid_to") == [(0, at(0), at(5))]


def test_a_leader_that_is_not_the_first_replica_is_off_preferred_while_there_is_one() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0, 1, 2])])
    traffic.send(1, 1, [(3, 1, 5, 8, [1, 2])])
    traffic.send(2, 1, [(3, 1, 5, 9, [1, 2, 0])])
    traffic.send(3, 1, [(3, -1, 6, 10, [1])])
    columns = "leader preferred_leader is_preferred_in_sync valid_from valid_to"
    rows = [(1, 0, False, at(1), at(2)), (1, 0, True, at(2), at(3))]
    assert traffic.ask("off-preferred", columns) == rows
    assert traffic.ask("off-preferred", columns, at_ns=int(at(2).timestamp()) * 10**9) == rows[1:]


def test_two_captures_are_compared_at_their_ends_and_nothing_is_said_of_what_the_second_does_not_show() -> None:
    first, second = Traffic(), Traffic()
    first.send(0, 0, [(n, 0, 4, 7, [0, 1, 2]) for n in range(4)])
    second.send(10, 0, [(0, 0, 4, 7, [2, 1, 0]), (1, 1, 5, 8, [1, 2]), (2, 0, 4, 7, [0, 1, 2]), (5, 0, 3, 1, [0])])
    second.send(20, 0, [(2, -2, 4, 7, [])])
    second.send(21, 0, [(6, 1, 0, 0, [0, 1, 2])], api_key=4)
    rows, note = first.against(second, "partition change former_leader leader former_isr isr")
    assert rows == [
        (1, "changed", 0, 1, [0, 1, 2], [1, 2]),
        (2, "deleted", 0, None, [0, 1, 2], None),
        (3, "not seen", 0, None, [0, 1, 2], None),
        (5, "first seen", None, 0, None, [0]),
        (6, "created", None, 1, None, [0, 1, 2]),
    ]
    assert note == ""
    before = first.against(second, to_ns=int(at(15).timestamp()) * 10**9)[0]
    assert before == [(1, "changed"), (3, "not seen"), (5, "first seen")]


def test_captures_with_one_cluster_each_are_compared_whatever_name_it_has() -> None:
    first, second = Traffic(), Traffic()
    first.send(0, 0, [(0, 0, 4, 7, [0, 1])], cluster="east")
    second.send(9, 0, [(0, 1, 5, 8, [1])], cluster="default")
    assert first.against(second, "cluster partition change") == ([("east", 0, "changed")], "")


def test_captures_that_share_no_topic_may_be_of_two_clusters() -> None:
    first, second = Traffic(), Traffic()
    first.send(0, 0, [(0, 0, 4, 7, [0, 1])], topic_id=b"1" * 16)
    second.send(9, 0, [(1, 1, 5, 8, [1])], topic_id=b"1" * 16)
    assert "no partition is in both: are they of one cluster?" in first.against(second)[1]
    third = Traffic()
    third.send(9, 0, [(0, 1, 5, 8, [1])], topic_id=b"2" * 16)
    rows, note = first.against(third)
    assert rows == [(0, "deleted and created")]
    assert "no topic of both has the same id: are they of one cluster?" in note


def test_a_leader_told_after_the_deletion_of_its_topic_does_not_lengthen_the_former_ones() -> None:
    """As in ibp-2.8-a: while a deletion waits for a broker that is down, leaders are still elected."""
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])])
    traffic.send(5, 0, [(3, -2, 0, 0, [])])
    traffic.send(9, 1, [(3, 1, 5, 8, [1])])
    assert traffic.ask("leader", "leader valid_from valid_to") == [(0, at(0), at(5)), (1, at(5), at(5))]
    assert traffic.ask("leader", "leader", at_ns=int(at(10).timestamp()) * 10**9) == []
    assert traffic.ask("under-replicated", "leader valid_from valid_to") == [(0, at(0), at(5))]


def test_a_topic_that_is_created_again_without_a_topic_id_has_leaders_again() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 0, 0, [0, 1])])
    traffic.send(1, 0, [(3, 0, 0, 1, [0])])
    traffic.send(5, 0, [(3, -2, 0, 0, [])])
    traffic.send(9, 0, [(3, 0, 0, 0, [0, 1, 2])])
    assert traffic.ask("leader", "leader valid_from valid_to") == [(0, at(0), at(5)), (0, at(9), None)]
    assert traffic.ask("isr", "ts removed added") == [(at(1), [1], [])]
    assert traffic.ask("under-replicated", "valid_from valid_to") == [(at(0), at(1)), (at(1), at(5))]


def test_a_topic_whose_id_comes_with_a_newer_version_is_one_topic() -> None:
    """As in an upgrade to inter-broker protocol 2.8: the controller gives each topic an id, and goes on with it."""
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0, 1])])
    traffic.send(1, 0, [(3, 0, 4, 7, [0, 1])], epoch=2, topic_id=b"1" * 16)
    traffic.send(2, 0, [(3, 1, 5, 8, [1])], epoch=2, topic_id=b"1" * 16)
    traffic.send(3, 0, [(3, 2, 6, 9, [1, 2])])  # a broker of the former version
    traffic.send(8, 0, [(3, -2, -2, 0, [])], epoch=2)
    expected = [(0, at(0), at(2)), (1, at(2), at(3)), (2, at(3), at(8))]
    assert traffic.ask("leader", "leader valid_from valid_to") == expected
    assert traffic.ask("isr", "ts kind removed added") == [(at(2), "shrink", [0], []), (at(3), "expand", [], [2])]
    changes = summarize([traffic.tables()])["changes"]
    assert (changes["leader_changes"], changes["isr_shrinks"], changes["isr_expands"]) == (2, 1, 1)
    ((life,),) = Facts([traffic.tables()]).incarnations.values()
    assert [step.state.leader for step in life.steps] == [0, 1, 2]
    assert life.deleted == at(8).timestamp() * 10**6


def test_a_topic_that_is_created_again_with_an_id_is_another_than_the_one_without() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 0, 0, [0, 1])])
    traffic.send(5, 0, [(3, -2, -2, 0, [])])
    traffic.send(9, 0, [(3, 1, 0, 0, [1, 2])], topic_id=b"1" * 16)
    assert traffic.ask("leader", "leader valid_from valid_to") == [(0, at(0), at(5)), (1, at(9), None)]
    assert summarize([traffic.tables()])["changes"]["leader_changes"] == 0
    assert [len(life.sightings) for lives in Facts([traffic.tables()]).incarnations.values() for life in lives] == [
        1,
        1,
    ]


def test_another_id_of_a_living_topic_makes_no_new_topic() -> None:
    """As an old tool does that writes the topic's znode: nobody deleted it."""
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0, 1])], topic_id=b"1" * 16)
    traffic.send(1, 0, [(3, 1, 5, 8, [1])], topic_id=b"2" * 16)
    assert traffic.ask("leader", "leader valid_from valid_to") == [(0, at(0), at(1)), (1, at(1), None)]
    assert traffic.ask("isr", "ts kind") == [(at(1), "shrink")]
    assert summarize([traffic.tables()])["changes"]["leader_changes"] == 1
    ((life,),) = Facts([traffic.tables()]).incarnations.values()
    assert [step.state.leader for step in life.steps] == [0, 1]


@st.composite
def topics(draw: st.DrawFn) -> list[tuple[bytes, bool, list[tuple[int, int, list[int]]]]]:
    """Topics of one name, one after another: the id, when states without it come first, the states in their order."""
    found = []
    has_id = False
    for number in range(draw(st.integers(1, 4))):
        had_id, has_id = has_id, has_id or draw(st.booleans())
        isrs = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
        states = draw(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1), isrs), min_size=1, max_size=5))
        found.append((bytes([number + 1]) * 16 if has_id else NO_ID, has_id and not had_id, states))
    return found


@pytest.mark.slow
@settings(max_examples=30)
@given(topics())
def test_all_tell_topics_of_one_name_apart_in_the_same_way(name: list[Any]) -> None:
    """Query, summary and rules; a topic may get its id while it exists, as in an upgrade."""
    traffic, seconds = Traffic(), 0
    expected, lost, moved, ends = [], 0, Counter[str](), []
    for life, (topic_id, gets_id, states) in enumerate(name):
        epoch, told = 0, []
        for number, (leader, step, isr) in enumerate(states):
            epoch += step if number else 0
            told.append((3, told[-1][1] if told and not step else leader, epoch, number, isr))
            seconds += 1
            has_none = gets_id and number < len(states) // 2
            traffic.send(seconds, 0, [told[-1]], epoch=life, topic_id=NO_ID if has_none else topic_id)
        for before, after in pairwise(told):
            lost += before[1] != after[1] == -1
            moved["leader"] += before[1] != after[1]
            gone, came = set(before[4]) - set(after[4]), set(after[4]) - set(before[4])
            moved["swap" if gone and came else "shrink" if gone else "expand" if came else "none"] += 1
        expected.append({(leader, epoch) for _partition, leader, epoch, _number, _isr in told})
        if life < len(name) - 1:
            seconds += 1
            traffic.send(seconds, 0, [(3, -2, 0, 0, [])], epoch=life)
            ends.append(at(seconds))
    changes = summarize([traffic.tables()])["changes"]
    assert changes == {
        "partitions": 1, "partitions_moved": int(moved["leader"] > 0), "leader_changes": moved["leader"],
        "leader_lost": lost, **{f"isr_{kind}s": moved[kind] for kind in ("shrink", "expand", "swap")},
    }  # fmt: skip
    ((_partition, lives),) = Facts([traffic.tables()]).incarnations.items()
    assert [{(s.state.leader, s.state.leader_epoch) for s in life.sightings} for life in lives] == expected
    assert [life.deleted for life in lives] == [*(end.timestamp() * 10**6 for end in ends), None]
    rows = traffic.ask("leadership", "topic_id incarnation leader leader_epoch valid_from valid_to")
    found: dict[Any, list[Any]] = defaultdict(list)
    for topic_id, incarnation, *reign in sorted(rows, key=lambda row: row[4]):
        found[topic_id, incarnation].append(reign)
    assert [{(leader, epoch) for leader, epoch, *_times in reigns} for reigns in found.values()] == expected
    assert [reigns[-1][3] for reigns in found.values()] == [*ends, None]
    assert Counter(kind for (kind,) in traffic.ask("isr_events", "kind")) == {
        kind: number for kind, number in moved.items() if kind in ("shrink", "expand", "swap")
    }


def test_who_led_at_a_time() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0]), (4, 2, 1, 1, [2])])
    traffic.send(10, 0, [(3, 1, 5, 8, [1])])
    begin_ns = int(BEGIN.timestamp()) * 10**9
    partition = Filters(partitions=frozenset({TopicPartition("orders", 3)}))
    for seconds, leaders in ((-1, []), (0, [(0,)]), (9, [(0,)]), (10, [(1,)]), (99, [(1,)])):
        assert traffic.ask("leader", "leader", filters=partition, at_ns=begin_ns + seconds * 10**9) == leaders


def test_changes_of_the_isr_have_a_kind_and_names() -> None:
    traffic = Traffic()
    for number, isr in enumerate(([0, 1, 2], [0, 1], [1, 0], [0, 2], [0, 1, 2])):
        traffic.send(number, 0, [(3, 0, 4, number, isr)])
    assert traffic.ask("isr", "ts kind removed added isr_size under_replicated") == [
        (at(1), "shrink", [2], [], 2, True),
        (at(3), "swap", [1], [2], 2, True),
        (at(4), "expand", [], [1], 3, False),
    ]


@pytest.mark.parametrize(("apart", "found"), [(60, [(3, at(60), at(240), 4, [0, 1, 2])]), (201, [])])
def test_a_partition_flaps_when_its_leader_changes_four_times_in_ten_minutes(apart: int, found: list[Any]) -> None:
    traffic = Traffic()
    for number, leader in enumerate((0, 1, 0, 2, 1)):
        traffic.send(apart * number, 0, [(3, leader, number, number, [leader])])
        traffic.send(apart * number, 0, [(4, leader % 2, number // 2, number, [leader])])
    assert traffic.ask("flaps", "partition first_ts last_ts changes leaders") == found
    flaps = [row for row in traffic.ask("findings", "rule partition count") if row[0] == "KP016"]
    assert flaps == [("KP016", partition, changes) for partition, _first, _last, changes, _leaders in found]


def test_changes_that_follow_from_a_brokers_coming_or_going_are_no_flapping() -> None:
    traffic = Traffic()
    for number, leader in enumerate((0, 1, 0, 1, 0)):
        traffic.send(60 * number, 2, [(3, leader, number, number, [leader])], live=range(1 - leader, 4))
    assert traffic.ask("flaps", "partition") == []


def test_a_controller_is_stale_after_a_newer_one_was_accepted() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [], epoch=1, controller=1)
    traffic.send(1, 0, [], epoch=3, controller=9, error=11)  # refused: its epoch does not count
    traffic.send(2, 0, [], epoch=1, controller=1)
    traffic.send(3, 0, [], epoch=2, controller=2)
    traffic.send(4, 1, [], epoch=1, controller=1)
    assert traffic.ask("stale", "ts broker controller_id reason seen_epoch known_epoch") == [
        (at(1), 0, 9, "refused_as_stale", 3, 1),
        (at(4), 1, 1, "controller_epoch_regressed", 1, 2),
    ]


def test_a_request_for_an_earlier_life_of_a_broker_is_stale() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [], broker_epoch=30)
    traffic.send(1, 1, [], broker_epoch=20)
    traffic.send(2, 0, [], broker_epoch=31)
    traffic.send(3, 0, [], broker_epoch=30, error=77)
    assert traffic.ask("stale", "ts reason seen_epoch known_epoch error_code") == [
        (at(3), "broker_epoch_regressed", 30, 31, 77)
    ]


def test_deliveries_say_who_was_told_what_and_when() -> None:
    traffic = Traffic()
    told = [(3, 0, 4, 7, [0])]
    traffic.send(0, 0, told, error=11)
    traffic.send(1, 0, told)
    traffic.send(2, 0, told)
    traffic.send(3, 1, told, error=None)
    columns = "api_key broker_id requests first_ts last_ts accepted_ts acked_ts refused error_code unanswered"
    assert traffic.ask("deliveries", columns) == [
        (6, 0, 3, at(0), at(2), at(1), at(1.001), 1, 11, 0),
        (6, 1, 1, at(3), at(3), None, None, 0, None, 1),
    ]


def test_propagation_counts_from_the_first_broker() -> None:
    traffic = Traffic()
    for broker in range(4):
        traffic.send(0, broker, [])
        traffic.send(90, broker, [(9, 0, 0, 0, [0])])
    for seconds, broker, error in ((10, 0, 0), (11, 2, None), (10.5, 3, 0)):
        traffic.send(seconds, broker, [(3, 0, 4, 7, [0])], error=error)
    found = traffic.ask("propagation", "first_ts broker_id delivered_ts acked_ts lag_us")
    assert [row[1:] for row in found if row[0] == at(10)] == [
        (0, at(10), at(10.001), 0),
        (2, at(11), None, 1_000_000),
        (3, at(10.5), at(10.501), 500_000),
    ]
    assert traffic.ask("lag", "broker updates max_us missed") == [
        (0, 3, 0, 0), (1, 2, 0, 1), (2, 3, 1_000_000, 0), (3, 3, 500_000, 0),
    ]  # fmt: skip


def test_an_update_that_a_broker_never_got_is_named_with_its_controller() -> None:
    traffic = Traffic()
    for broker in range(4):
        traffic.send(0, broker, [(9, 0, 0, 0, [0])], controller=5, epoch=7)
        traffic.send(90, broker, [(9, 0, 1, 1, [0])], controller=5, epoch=7)
    for broker in (0, 2, 3):
        traffic.send(10 + broker, broker, [(3, 0, 4, 7, [0])], controller=5, epoch=7)
    assert traffic.ask("missed", "first_ts broker controller_id controller_epoch") == [(at(10), 1, 5, 7)]
    assert traffic.ask("missed", "broker", filters=Filters(brokers=frozenset({2}))) == []


def test_lag_names_the_update_that_took_longest() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [])
    for seconds, broker in ((1, 0), (1.5, 1)):
        traffic.send(seconds, broker, [(3, 0, 4, 7, [0])], controller=5, epoch=7)
    for seconds, broker in ((10, 0), (13, 1)):
        traffic.send(seconds, broker, [(6, 0, 8, 9, [0]), (4, 0, 2, 3, [0])], controller=5, epoch=8)
    columns = "broker worst_ts worst_topic worst_partition worst_partitions worst_leader_epoch worst_controller_epoch"
    assert traffic.ask("lag", columns)[1] == (1, at(13), "orders", 4, 2, 2, 8)


def test_a_broker_that_missed_an_update_and_went_down_is_named_with_both_times() -> None:
    traffic = Traffic()
    for broker in range(4):
        traffic.send(0, broker, [(9, 0, 0, 0, [0])])
        traffic.send(90, broker, [(9, 0, 1, 1, [0])])
    for broker in (0, 2, 3):
        traffic.send(10 + broker, broker, [(3, 0, 4, 7, [0])])
    assert traffic.ask("missed", "broker down_since") == [(1, None)]
    assert traffic.note("missed") == ""
    traffic.send(95, 0, [(9, 0, 2, 2, [0])], live=range(0, 4, 2))
    assert traffic.ask("missed", "broker first_ts down_since") == [(1, at(10), at(95))]
    note = traffic.note("missed")
    assert note.startswith("down at the end, and told nothing: broker 1 since 2026-11-21T06:01:35")
    assert ", broker 3 since" in note


def test_restarts_are_told_from_broker_epochs_with_what_shows_them() -> None:
    traffic = Traffic()
    for seconds, epoch in ((0, 30), (1, 30), (5, 41), (6, 41)):
        traffic.send(seconds, 2, [], broker_epoch=epoch)
    traffic.send(7, 2, [], broker_epoch=99, error=77)  # refused
    traffic.send(8, 1, [], broker_epoch=50)
    traffic.send(9, 2, [], broker_epoch=77)  # one request with an invented epoch proves nothing
    assert traffic.ask("restarts", "broker broker_epoch valid_from valid_to requests shown_by") == [
        (1, 50, at(8), None, 1, "first request in the capture"),
        (2, 30, at(0), at(5), 2, "first request in the capture"),
        (2, 41, at(5), None, 2, "higher broker epoch, on the same connection: an expired session"),
    ]
    assert traffic.ask("restarts", "broker", at_ns=int(at(3).timestamp()) * 10**9) == [(2,)]
    older = Traffic()
    older.send(0, 2, [])
    assert "no accepted request carries a broker epoch" in older.note("restarts")


def test_a_difference_tells_created_from_first_seen_and_deleted_from_created_again() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(1, 0, 4, 7, [0]), (2, 0, 0, 0, [0, 1]), (3, 0, 1, 1, [0])])
    traffic.send(10, 1, [(4, 1, 0, 0, [1])], api_key=4)
    traffic.send(10, 0, [(4, 1, 0, 0, [1]), (5, 1, 3, 3, [1]), (6, 1, 0, 0, [1]), (2, 0, 0, 1, [1, 0])])
    traffic.send(11, 0, [(1, -2, 0, 0, []), (3, -2, 0, 0, [])])
    traffic.send(12, 0, [(3, 0, 0, 0, [0])])
    times = {"from_ns": int(at(5).timestamp()) * 10**9, "to_ns": int(at(20).timestamp()) * 10**9}
    columns = "partition change former_leader leader former_leader_epoch leader_epoch"
    changes = [
        (1, "deleted", 0, None, 4, None),
        (3, "deleted and created", 0, 0, 1, 0),
        (4, "created", None, 1, None, 0),
        (5, "first seen", None, 1, None, 3),
        (6, "first seen", None, 1, None, 0),  # no LeaderAndIsr creates it: it may be old
    ]
    assert traffic.ask("diff", columns, **times) == changes
    assert traffic.ask("diff", columns, from_ns=times["from_ns"]) == changes
    assert traffic.ask("diff", columns, from_ns=times["to_ns"]) == []


def test_what_is_created_in_one_cluster_is_created_in_no_other() -> None:
    traffic = Traffic()
    for name, api_key in (("east", 4), ("west", 6)):
        here = {"capture": f"{name}/a.pcap", "cluster": name}
        traffic.send(0, 0, [(1, 0, 4, 7, [0])], **here)
        traffic.send(10, 1, [(4, 1, 0, 0, [1])], api_key=api_key, **here)
    times = {"from_ns": int(at(5).timestamp()) * 10**9, "to_ns": int(at(20).timestamp()) * 10**9}
    assert traffic.ask("diff", "cluster partition change", **times) == [
        ("east", 4, "created"),
        ("west", 4, "first seen"),
    ]


def test_an_update_for_one_new_broker_is_missing_nowhere() -> None:
    traffic = Traffic()
    for broker in range(3):
        traffic.send(0, broker, [])
        traffic.send(90, broker, [])
    traffic.send(10, 2, [(3, 0, 4, 7, [0])])
    assert traffic.ask("missed", "broker") == []


def test_a_broker_is_behind_if_it_was_never_sent_the_newest_state() -> None:
    traffic = Traffic()
    for broker in (0, 1):
        traffic.send(broker, broker, [(3, 0, 4, 7, [0, 1])])
    traffic.send(10, 0, [(3, 1, 5, 8, [1])])
    traffic.send(90, 1, [(9, 1, 5, 8, [1])])
    columns = "broker topic partition leader_told newest_leader leader_epoch_told newest_leader_epoch last_request"
    assert traffic.ask("behind", columns) == [(1, "orders", 3, 0, 1, 4, 5, at(90))]
    assert traffic.ask("behind", columns, filters=Filters(brokers=frozenset({0}))) == []


def test_a_broker_is_behind_if_it_was_never_told_of_a_partition() -> None:
    traffic = Traffic()
    for broker in (0, 1, 2):
        traffic.send(0, broker, [(3, 0, 4, 7, [0])])
    for broker in (0, 1):  # partition 4 is new, 5 is deleted later
        traffic.send(10, broker, [(4, 1, 0, 0, [1]), (5, 1, 0, 0, [1])])
    for broker in (0, 1, 2):
        traffic.send(20, broker, [(5, -2, -2, 1, [])])
    traffic.send(21, 3, [(3, 0, 4, 7, [0])])  # a broker that started after the change
    columns = "broker topic partition leader_told newest_leader leader_epoch_told newest_leader_epoch last_request"
    assert traffic.ask("behind", columns) == [(2, "orders", 4, None, 1, None, 0, at(20))]


def test_errors_are_counted_by_their_scope() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [], error=11)
    traffic.send(1, 0, [], error=0, api_key=4)
    traffic.send(2, 0, [], error=11)
    frame = traffic.rows["requests"][1]["frame_id"]
    traffic.rows["partition_errors"].append({"frame_id": frame, "topic": "orders", "partition": 3, "error_code": 6})
    assert traffic.ask("errors", "api_key scope error_code n first_ts last_ts") == [
        (6, "request", 11, 2, at(0), at(2)),
        (4, "partition", 6, 1, at(1), at(1)),
    ]


def test_clusters_in_two_captures_are_kept_apart() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])], epoch=9)
    traffic.send(99, 1, [(3, 1, 2, 3, [1])], epoch=1, capture="b.pcap")  # no cluster's epochs go back
    assert traffic.ask("leader", "leader valid_to") == [(1, None), (0, None)]
    assert len(set(traffic.ask("leader", "cluster"))) == 2
    assert traffic.ask("stale", "reason") == []


@pytest.mark.slow
def test_an_answer_says_which_captures_were_compared_or_why_none_could_be() -> None:
    whole, single, apart = Traffic(), Traffic(), Traffic()
    for broker in (0, 1):
        whole.send(broker, broker, [(3, 0, 4, 7, [0])])
        apart.send(broker, broker, [(3, 0, 4, broker, [0])], capture=f"{broker}.pcap")
    single.send(0, 0, [(3, 0, 4, 7, [0])])
    for traffic, words in (
        (whole, ""),
        (Traffic(), ""),
        (single, "the capture shows one broker, so none can be compared; capture on the controller's host"),
        (apart, "brokers are compared over 2 captures of one cluster"),
        (on_each_host(), "between hosts, lag is as exact as what they share tells of their clocks"),
    ):
        for question in ("lag", "behind", "missed"):
            note = traffic.note(question)
            assert words in note
            assert bool(words) == bool(note)
    assert not single.note("leader")


@pytest.mark.slow
def test_a_filter_that_nothing_in_the_tables_has_is_named() -> None:
    traffic = Traffic()
    for broker in range(5):
        traffic.send(broker, broker, [(3, 0, 4, 7, [0])])
    for filters, words in (
        (Filters(topics=("ordres",)), "no topic 'ordres' is in the tables; there is orders"),
        (Filters(topics=("x*",)), "no topic 'x*' is in the tables; there is orders"),
        (Filters(partitions=frozenset({TopicPartition("x", 1)})), "no topic 'x' is in the tables; there is orders"),
        (
            Filters(partitions=frozenset({TopicPartition("orders", 9)})),
            "no partition orders-9 is in the tables; they have 1 of this topic",
        ),
        (Filters(controllers=frozenset({8})), "no controller 8 is in the tables; there is 1"),
        (Filters(topics=("orders",), until_ns=0), ""),
    ):
        assert traffic.note("leader", filters=filters) == words
    nowhere = traffic.note("behind", filters=Filters(brokers=frozenset({77})))
    assert nowhere == "no broker 77 is in the tables; there are 0, 1, 2 and 2 more"
    assert traffic.note("behind", filters=Filters(brokers=frozenset({1}))) == ""
    assert Traffic().note("leader", filters=Filters(topics=("t",))) == "no topic 't' is in the tables; there is none"


def test_an_unknown_table_points_to_the_list_of_tables() -> None:
    with open_tables(Traffic().tables()) as sql, pytest.raises(ConfigurationError, match="kproto tables lists"):
        ask_sql(sql, "from leader")


@pytest.mark.slow
def test_captures_of_each_host_are_answered_as_one_capture_of_all(tmp_path: Path) -> None:
    fleet = PlannedFleet(
        seed=3, brokers=5, topics=3, partitions=30, elections=30, restarts=2, loss=0.1, plants=("missed-update",)
    )
    for name in ("one", "hosts"):
        (tmp_path / name).mkdir()
        write_captures(fleet, tmp_path / name, per_host=name == "hosts")
    with (
        open_tables(kproto.tables.read(tmp_path / "one")) as one,
        open_tables(kproto.tables.read(tmp_path / "hosts")) as hosts,
    ):
        for question in ("lag", "missed", "behind"):
            whole, together = ask(one, question), ask(hosts, question)
            place = whole.columns.index("cluster")
            assert [(*row[:place], *row[place + 1 :]) for row in together.rows] == [
                (*row[:place], *row[place + 1 :]) for row in whole.rows
            ]
        lag = ask(hosts, "lag")
        assert max(row[lag.columns.index("max_us")] for row in lag.rows) > 0
        assert ask(hosts, "missed").rows


def on_each_host(*, clock: float = 0.0) -> Traffic:
    """A capture of each of four brokers' hosts: broker 1 misses a change; host 3's clock is ahead by ``clock``."""
    traffic = Traffic()
    for broker in range(4):
        host = f"broker-{broker}.pcap"
        ahead = clock if broker == 3 else 0
        traffic.send(ahead, broker, [(3, 0, 4, 7, [0])], capture=host)
        if broker != 1:
            traffic.send(10 + broker + ahead, broker, [(3, 1, 5, 8, [1])], capture=host)
        traffic.send(90 + ahead, broker, [(9, 0, 0, 0, [0])], capture=host)
    return traffic


CLUSTER = "default"


def test_brokers_of_captures_on_each_host_are_compared_with_each_other() -> None:
    traffic = on_each_host()
    assert traffic.ask("lag", "cluster broker updates max_us missed") == [
        (CLUSTER, 0, 3, 0, 0), (CLUSTER, 1, 2, 0, 1), (CLUSTER, 2, 3, 2_000_000, 0), (CLUSTER, 3, 3, 3_000_000, 0),
    ]  # fmt: skip
    assert traffic.ask("missed", "cluster first_ts broker controller_id") == [(CLUSTER, at(10), 1, 1)]
    told = "broker partition leader_told newest_leader leader_epoch_told newest_leader_epoch"
    assert traffic.ask("behind", told) == [(1, 3, 0, 1, 4, 5)]


def test_a_clock_that_is_ahead_makes_no_broker_be_behind() -> None:
    traffic = on_each_host(clock=40)
    assert traffic.ask("behind", "broker") == [(1,)]


def test_captures_that_share_updates_by_way_of_a_third_are_of_one_cluster() -> None:
    traffic = Traffic()
    for number, captures in enumerate(("ab", "bc", "d")):
        for broker, capture in enumerate(captures, 10 * number):
            for moment in range(3):
                traffic.send(moment, broker, [(number, 0, 4, 7 + moment, [0])], capture=capture)
    clusters = dict(traffic.ask("clusters", "capture cluster"))
    assert {clusters["a"], clusters["b"], clusters["c"]} == {"default"}
    assert clusters["d"].startswith("at ")


def test_the_same_update_of_another_controller_is_of_another_cluster() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])], capture="a.pcap")
    traffic.send(0, 1, [(3, 0, 4, 7, [0])], capture="b.pcap", controller=2)
    assert len(set(traffic.ask("lag", "cluster"))) == 2


def test_topics_are_chosen_by_patterns_and_answers_by_time() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])])
    begin_ns = int(BEGIN.timestamp()) * 10**9
    for filters, found in (
        (Filters(topics=("ord*",)), 1),
        (Filters(topics=("ord",)), 0),
        (Filters(since_ns=begin_ns), 1),
        (Filters(until_ns=begin_ns), 0),
        (Filters(controllers=frozenset({1})), 1),
        (Filters(controllers=frozenset({2})), 0),
    ):
        assert len(traffic.ask("leader", "leader", filters=filters)) == found


@pytest.mark.parametrize(
    ("question", "options", "words"),
    [
        ("who", {}, "no question 'who'; try leader, offline"),
        ("flaps", {"filters": Filters(brokers=frozenset({1}))}, "--broker does not apply to the question 'flaps'"),
        ("lag", {"filters": Filters(since_ns=1)}, "--since does not apply to the question 'lag'"),
        ("isr", {"at_ns": 1}, "--at does not apply to the question 'isr'"),
    ],
)
def test_a_question_that_cannot_be_asked_so_says_why(question: str, options: dict[str, Any], words: str) -> None:
    empty = {name: pa.Table.from_pylist([], schema=schema) for name, schema in TABLES.items()}
    with open_tables(empty) as sql, pytest.raises(ConfigurationError, match=words):
        ask(sql, question, **options)


def test_every_question_has_an_answer_of_nothing() -> None:
    with open_tables(Traffic().tables()) as sql:
        for question, found in QUESTIONS.items():
            assert ask(sql, question, **({"from_ns": 0} if found.between else {})).rows == []


def test_every_partition_of_every_request_is_in_the_view_by_broker() -> None:
    tables = kproto.tables.read(*CAPTURES[:2])
    states: dict[bytes, list[tuple[Any, ...]]] = {}
    for state in tables["partition_states"].to_pylist():
        states.setdefault(state["body_id"], []).append((state["topic"], state["partition"], state["leader"]))
    wanted = [
        (request["broker_id"], request["frame_id"], *state)
        for request in tables["requests"].to_pylist()
        for state in states.get(request["body_id"], ())
    ]
    with open_tables(tables) as sql:
        found = ask_sql(
            sql, "SELECT broker_id, frame_id, topic, partition, leader FROM partition_states_by_broker"
        ).rows
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert len(wanted) > len(tables["partition_states"])


def test_brokers_are_compared_within_the_declared_cluster_alone() -> None:
    traffic = Traffic()
    traffic.send(0, 0, [(3, 0, 4, 7, [0])], capture="east/a.pcap", cluster="east")
    traffic.send(1, 1, [(3, 0, 5, 8, [0])], capture="east/b.pcap", cluster="east")
    traffic.send(2, 2, [(3, 0, 4, 7, [0])], capture="west/a.pcap", cluster="west")
    assert traffic.ask("clusters", "capture cluster") == [
        ("east/a.pcap", "east"),
        ("east/b.pcap", "east"),
        ("west/a.pcap", "west"),
    ]
    assert traffic.ask("lag", "cluster broker") == [("east", 0), ("east", 1), ("west", 2)]
