"""The state of a reading as bytes: it holds values alone, so that bytes from elsewhere do nothing."""

import pickle
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.capture import CaptureReader, CaptureSummary
from kproto.capture.frozen import freeze, thaw
from kproto.capture.model import Connection, Endpoint

ENDS = Endpoint("10.0.0.1", 9), Endpoint("10.0.0.2", 9092)


@pytest.mark.parametrize("given_bytes", [b"", b"no state", pickle.dumps(print), pickle.dumps(Random(1))])
def test_a_state_from_elsewhere_is_refused(given_bytes: bytes) -> None:
    with pytest.raises(ValueError, match="this state cannot be read"):
        thaw(given_bytes)


def test_objects_that_hold_one_another_deeply_are_not_kept() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert freeze(deep) is None


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(plain)
def test_values_come_back(value: Any) -> None:
    state = freeze(value)
    assert state is not None
    assert thaw(state) == value


def test_what_is_one_object_stays_one() -> None:
    connection = Connection(*ENDS, 5, "here")
    first, again = thaw(freeze([connection, (connection, {"a": connection})]) or b"")
    assert first is again[0] is again[1]["a"]
    assert (first.client, first.conn_id) == (connection.client, connection.conn_id)


@given(st.data())
def test_damaged_states_are_refused_or_are_objects_of_the_reader(data: st.DataObject) -> None:
    state = bytearray(CaptureReader().freeze([]) or b"")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(state) - 1))
        state[at] = data.draw(st.integers(0, 255))
    with suppress(ValueError):  # nothing else, and no crash
        thaw(bytes(state))


def test_a_tiny_state_takes_no_memory_and_changes_no_class() -> None:
    state = freeze([CaptureSummary()]) or b""
    name = b"s" + len(b"packets").to_bytes(4) + b"packets"
    assert name in state
    other = state.replace(name, b"s" + len(b"add").to_bytes(4) + b"add")
    with pytest.raises(ValueError, match="no field 'add'"):
        thaw(other)
    for length in (1 << 31, (1 << 32) - 1):
        for tag in (b"b", b"B", b"l", b"t", b"d"):
            with pytest.raises(ValueError, match="cannot be read"):
                thaw(tag + length.to_bytes(4))
