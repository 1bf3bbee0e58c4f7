"""A capture that is read in pieces, while few bodies are remembered, gives what the capture read whole does."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from table_truth import CAPTURES, name_of

from kproto.tables import chunks, read, reading, scanning
from kproto.tables.filters import Filters
from kproto.verdicts.facts import Facts
from kproto.verdicts.history import History
from kproto.verdicts.rules import findings
from kproto.verdicts.summary import summarize

FEW = [path for path in CAPTURES if name_of(path) in ("ibp-2.8-a", "ibp-3.9-a-lossy", "external-controller-a")]
PIECE = 10_000
first = pytest.mark.parametrize("path", FEW, ids=name_of)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember eight bodies, and those of requests that wait for their answers."""
    monkeypatch.setattr(scanning, "REMEMBERED", 8)
    monkeypatch.setattr(reading, "_MOST_BODIES", 40)
    monkeypatch.setattr(reading, "scan", partial(scanning.scan, batch_bytes=PIECE))


def rows(pieces: list[dict[str, pa.Table]], name: str) -> list[Any]:
    return sorted({repr(row) for piece in pieces for row in piece[name].to_pylist()})


@first
@pytest.mark.usefixtures("forgetful")
def test_bodies_that_were_forgotten_are_read_again(path: Path) -> None:
    whole, pieces = read(path), list(chunks([str(path)], chunk_bytes=PIECE))
    assert len(pieces) > 5
    assert sum(piece["bodies"].num_rows for piece in pieces) > whole["bodies"].num_rows
    for name in ("responses", "partition_errors", "partition_states", "frames", "live_brokers"):
        assert rows(pieces, name) == rows([whole], name)
    columns = [name for name in whole["requests"].column_names if name != "broker_id"]
    for piece in (*pieces, whole):
        piece["requests"] = piece["requests"].select(columns)  # an id may be known later than its request
    assert rows(pieces, "requests") == rows([whole], "requests")


@first
@pytest.mark.usefixtures("forgetful")
def test_answers_do_not_depend_on_what_is_remembered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(path)
    expected, found = summarize([whole]), findings(Facts([whole]))
    with monkeypatch.context() as context:
        context.setattr("kproto.verdicts.summary._MOST_STATES", 10)
        assert summarize(chunks([str(path)], chunk_bytes=PIECE)) == expected
    assert findings(Facts(chunks([str(path)], chunk_bytes=PIECE))) == found


@pytest.mark.usefixtures("forgetful")
def test_a_partition_is_chosen_after_its_body_was_forgotten() -> None:
    path = FEW[0]
    states = read(path)["partition_states"]
    filters = Filters(partitions=frozenset({(states["topic"][0].as_py(), states["partition"][0].as_py())}))
    pieces = list(chunks([str(path)], filters=filters, chunk_bytes=PIECE))
    found = {row for piece in pieces for row in piece["requests"]["frame_id"].to_pylist()}
    assert found == set(read(path, filters=filters)["requests"]["frame_id"].to_pylist())


def history(epochs: list[int], limit: int | None) -> History:
    """The history of a partition whose leader is its leader epoch."""
    found = History()
    for epoch in epochs:
        state = {
            "api_key": 4, "topic": "t", "topic_id": b"", "partition": 0, "controller_epoch": 1, "leader_epoch": epoch,
            "partition_epoch": epoch, "leader": epoch, "isr": [epoch], "is_new": False, "ts": 0,
        }  # fmt: skip
        kinds = pa.schema([
            ("api_key", pa.int16()), ("topic", pa.string()), ("topic_id", pa.binary()), ("partition", pa.int32()),
            ("controller_epoch", pa.int32()), ("leader_epoch", pa.int32()), ("partition_epoch", pa.int32()),
            ("leader", pa.int32()), ("isr", pa.list_(pa.int32())), ("is_new", pa.bool_()),
            ("ts", pa.int64()),
        ])  # fmt: skip
        found.add(pa.Table.from_pylist([state], kinds))
        if limit is not None:
            found.limit(limit)
    return found


def test_changes_are_counted_once_whatever_states_are_kept() -> None:
    epochs = [0, 1, 2, 2, 4, 3, 5, 6, 7, 8, 8]
    expected = history(epochs, None).counts(3)
    assert expected[0]["leader_changes"] == 8
    assert history(epochs, 4).counts(3) == expected
    assert history(epochs, 4).reduced().num_rows <= 5


def test_a_state_that_comes_after_newer_ones_were_counted_is_no_change() -> None:
    assert history([5, 6, 7, 2, 8], 2).counts(3) == history([5, 6, 7, 8], None).counts(3)
