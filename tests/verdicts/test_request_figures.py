"""The figures of requests that are counted by groups are those of each request counted for itself."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.tables.schemas import PARTITION_STATES, REQUESTS
from kproto.verdicts.epochs import Epochs
from kproto.verdicts.request_figures import REQUEST_COLUMNS, RequestFigures, moment
from kproto.verdicts.stale import epochs_in, learn_epochs
from kproto.verdicts.summary import Figures

SCHEMA = pa.schema([REQUESTS.field(name) for name in REQUEST_COLUMNS])
NO_SENDER: dict[str, Any] = dict.fromkeys(
    ("controller_id", "controller_epoch", "broker_epoch", "is_kraft_controller", "type")
)

senders = st.fixed_dictionaries(
    {
        "controller_id": st.integers(1, 2),
        "controller_epoch": st.integers(1, 3),
        "broker_epoch": st.sampled_from([None, -1, 1, 2]),
        "is_kraft_controller": st.sampled_from([None, False, True]),
        "type": st.sampled_from([None, 0, 1, 2]),
    }
)
receivers = st.fixed_dictionaries(
    {
        "api_key": st.integers(4, 6),
        "api_version": st.integers(1, 2),
        "error_code": st.sampled_from([None, 0, 0, 0, 11, 77, -1, 41]),
        "broker_id": st.sampled_from([None, 1, 2]),
        "server_ip": st.sampled_from(["10.0.0.1", "fe80::1"]),
        "server_port": st.integers(1, 2),
        "body_id": st.sampled_from([None, b"a", b"b"]),
        "unmatched_reason": st.sampled_from([None, "lost", "late"]),
        "decode_error": st.sampled_from([None, None, "cut"]),
    }
)
kinds = st.builds(lambda receiver, sender: receiver | sender, receivers, senders | st.just(NO_SENDER))


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Requests in the order of time, many of which differ in little but their times."""
    few = draw(st.lists(kinds, min_size=2, max_size=4))
    times = draw(st.lists(st.integers(0, 9), min_size=10, max_size=25))
    varied = {
        "capture": st.none(),
        "n_partitions": st.sampled_from([None, 0, 3]),
        "latency_us": st.sampled_from([None, 1, 5, 700]),
        "response_frame_id": st.sampled_from([None, b"f"]),
    }
    vary = st.sampled_from(few).flatmap(lambda row: st.fixed_dictionaries(varied).map(lambda some: row | some))
    return [draw(vary) | {"ts": ts} for ts in sorted(times)]


def request(ts: int, **given: Any) -> dict[str, Any]:
    """A request of the ZooKeeper controller 1 with epoch 1, which the broker accepted."""
    plain = {
        "ts": ts, "api_key": 6, "api_version": 1, "error_code": 0, "controller_id": 1, "controller_epoch": 1,
        "server_ip": "10.0.0.1", "server_port": 1, "body_id": b"a",
    }  # fmt: skip
    return dict.fromkeys(REQUEST_COLUMNS) | plain | given


BEFORE_AND_AFTER_A_NEWER_CONTROLLER = [request(1), request(2, controller_id=2, controller_epoch=2), request(3)]
BEFORE_AND_AFTER_ALL_PARTITIONS = [
    request(ts, is_kraft_controller=True, type=kind) for ts, kind in ((1, 0), (2, 2), (3, 0))
]
BEFORE_AND_AFTER_A_BROKER_STARTED_AGAIN = [
    request(ts, broker_epoch=epoch, error_code=error) for ts, epoch, error in ((1, 1, 77), (2, 2, 0), (3, 1, 77))
]


@pytest.mark.slow
@given(requests(), st.integers(0, 25))
@example(BEFORE_AND_AFTER_A_NEWER_CONTROLLER, 2)
@example(BEFORE_AND_AFTER_ALL_PARTITIONS, 2)
@example(BEFORE_AND_AFTER_A_BROKER_STARTED_AGAIN, 2)
def test_figures_by_groups_are_those_of_each_request(rows: list[dict[str, Any]], cut: int) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    seen = Epochs()
    learn_epochs(seen, epochs_in([table]))
    whole, first, second, single = (RequestFigures(seen) for _ in range(4))
    accepted = [
        row for row in rows if not row["error_code"] and row["controller_id"] is not None and row["body_id"] is not None
    ]
    assert whole.add(table).to_pylist() == accepted
    first.add(table.slice(0, cut))
    second.add(table.slice(cut))
    first.merge(second)
    for at in range(len(rows)):
        single.add(table.slice(at, 1))
    assert whole.rows() == first.rows() == single.rows()


def test_a_deletion_that_is_sent_again_and_again_takes_no_more_memory() -> None:
    figures, sizes = Figures(), []
    deleted = {"topic": "t", "partition": 3, "body_id": b"a", "delete_partition": True}
    for thousand in range(1, 5):
        times = range(thousand * 1000, thousand * 1000 + 1000)
        sent = [request(ts, api_key=5, broker_id=ts % 2) for ts in times]
        accepted = figures.add({"requests": pa.Table.from_pylist(sent, schema=SCHEMA)})
        figures.add_states(pa.Table.from_pylist([deleted], schema=PARTITION_STATES), accepted)
        sizes.append(len(pickle.dumps(figures)))
    assert sizes[-1] - sizes[1] < 1000
    (told,) = figures.rows()["deletions"]
    assert (told["partitions"], told["brokers"]) == ([3], [0, 1])
    assert (told["first"], told["last"]) == (moment(1000), moment(4999))


@given(requests(), st.integers(1, 3))
def test_tables_of_epochs_teach_the_epochs_of_each_request(rows: list[dict[str, Any]], size: int) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    readable = [row for row in rows if row["controller_id"] is not None]
    by_tables, one_by_one = Epochs(), Epochs()
    for at in range(0, len(rows), size):
        learn_epochs(by_tables, epochs_in([table.slice(at, size)]))
    for row in readable:
        one_by_one.learn(
            row["ts"], row["ts"], (row["server_ip"], row["server_port"]), row["controller_id"], row["controller_epoch"],
            row["broker_epoch"], is_kraft_controller=bool(row["is_kraft_controller"]), error_code=row["error_code"],
            is_full_update=row["api_key"] == 6 and row["type"] == 2,
        )  # fmt: skip
    assert by_tables.rivals() == one_by_one.rivals()
    assert by_tables.went_back() == one_by_one.went_back()
    for ts in range(-1, 11):
        known = [row["controller_epoch"] for row in readable if row["ts"] < ts and row["error_code"] == 0]
        newest = by_tables.newest_controller(ts)
        assert newest == one_by_one.newest_controller(ts)
        assert (newest.epoch if newest else None) == max(known, default=None)
        for row in readable:
            code = row["error_code"]
            asked = ts, (row["server_ip"], row["server_port"]), row["controller_epoch"], row["broker_epoch"], code
            stale = list(by_tables.stale(*asked, is_kraft_controller=bool(row["is_kraft_controller"])))
            assert stale == list(one_by_one.stale(*asked, is_kraft_controller=bool(row["is_kraft_controller"])))
            is_zombie = code == 11 or any(row["controller_epoch"] < epoch for epoch in known)
            assert any(found.zombie for found in stale) == is_zombie
