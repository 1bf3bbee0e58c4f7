"""The byte budget: never more out than it has, every buffer known until it is back."""

import gc
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel.network.frames import MemoryPool


@pytest.mark.parametrize(
    ("size", "maximum"),
    [
        pytest.param(0, 7, marks=pytest.mark.conformance("MEM-01")),
        pytest.param(-1, 7, marks=pytest.mark.conformance("MEM-02")),
        pytest.param(100, 0, marks=pytest.mark.conformance("MEM-03")),
        (100, -1),
        (100, 101),
    ],
)
def test_a_pool_that_could_give_nothing_is_refused(size, maximum):
    with pytest.raises(ValueError, match="pool"):
        MemoryPool(size, maximum)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(11, marks=pytest.mark.conformance("MEM-06")),
        pytest.param(0, marks=pytest.mark.conformance("MEM-07")),
        -1,
    ],
)
def test_a_buffer_must_be_of_a_size_that_the_pool_gives(size):
    with pytest.raises(ValueError, match="1 to 10"):
        MemoryPool(1000, 10).allocate(size)


@pytest.mark.conformance("MEM-09")
def test_nothing_cannot_be_released():
    with pytest.raises(ValueError, match="not given out"):
        MemoryPool(1000, 10).release(None)


@pytest.mark.conformance("MEM-10")
def test_a_foreign_buffer_cannot_be_released():
    with pytest.raises(ValueError, match="not given out"):
        MemoryPool(1000, 10).release(bytearray(5))


@pytest.mark.conformance("MEM-11")
def test_a_buffer_can_be_released_once():
    pool = MemoryPool(1000, 10)
    buffer = pool.allocate(5)
    pool.release(buffer)
    with pytest.raises(ValueError, match="has back already"):
        pool.release(buffer)


def test_a_pool_gives_while_anything_is_left():
    pool = MemoryPool(10, 10)
    held = pool.allocate(9)
    more = pool.allocate(5)
    assert more is not None
    assert pool.available == -4
    assert pool.out_of_memory
    assert pool.allocate(1) is None
    pool.release(more)
    assert not pool.out_of_memory
    pool.release(held)
    assert pool.available == 10


def test_a_dropped_buffer_comes_back_and_is_an_error_in_the_log(caplog):
    pool = MemoryPool(100, 10)
    assert pool.allocate(10) is not None
    gc.collect()
    assert pool.available == 100
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


@given(st.lists(st.integers(1, 10)))
def test_what_is_out_and_what_is_left_are_always_the_pool(sizes):
    pool = MemoryPool(30, 10)
    held = []
    for size in sizes:
        buffer = pool.allocate(size)
        if buffer is not None:
            assert len(buffer) == size
            held.append(buffer)
        assert pool.available + sum(map(len, held)) == 30
        assert pool.available > -10
    for buffer in held:
        pool.release(buffer)
    assert pool.available == 30


def test_the_last_reference_to_a_buffer_may_be_released(monkeypatch):
    """The buffer dies with the call: nothing may be printed of it, nor counted twice."""
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    pool = MemoryPool(100, 10)
    for _ in range(3):
        pool.release(pool.allocate(10))
    gc.collect()
    assert unraisable == []
    assert pool.available == 100
