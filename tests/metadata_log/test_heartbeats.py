"""What heartbeats tell of why a broker is fenced, and since when it lags."""

from types import SimpleNamespace
from typing import Any

import pytest

from kproto.metadata_log.folding import BrokerSpan
from kproto.metadata_log.heartbeats import ALIVE, Heartbeats, Progress

S = 1_000_000_000
STALE = 77


def span(state: str = "fenced", why: str = "registered", epoch: int = 100) -> BrokerSpan:
    return BrokerSpan(1, state, epoch, bytes(16), 0, None, 0, why, True, (), None, 1)


def heartbeats(*beats: tuple[float, int, str] | tuple[float, int, str, int]) -> Heartbeats:
    """Heartbeats of broker 1, epoch 100: second, applied offset, what it wants, and the answer's error."""
    made = Heartbeats()
    for second, offset, wants, *error in beats:
        request = SimpleNamespace(
            broker_id=1, broker_epoch=100, want_fence=wants == "fence", want_shut_down=wants == "shutdown",
            current_metadata_offset=offset,
        )  # fmt: skip
        answer = SimpleNamespace(error_code=error[0] if error else 0, is_fenced=False, is_caught_up=True)
        made.add(request, answer, int(second * S))
    made.finish()
    return made


@pytest.mark.parametrize(
    ("beats", "until_s", "said"),
    [
        ([], None, None),
        ([(1, 99, "fence")], None, "catching up: 1 heartbeat, applied offset 99, below its registration's"),
        # The newest one counts.
        (
            [(1, 90, "fence"), (2, 99, "")],
            None,
            "catching up: 2 heartbeats, applied offset 99, below its registration's",
        ),
        ([(1, 100, "fence")], None, "starting: 1 heartbeat, still asks to stay fenced"),
        ([(1, 100, "fence"), (2, 101, "")], None, "2 heartbeats, asks to be unfenced"),
        ([(1, 90, "fence"), (2, 101, "")], 3, "2 heartbeats until it was unfenced, 1 asked to stay fenced"),
        ([(1, 90, "fence"), (3, 101, "")], 3, "1 heartbeat until it was unfenced, 1 asked to stay fenced"),
    ],
)
def test_a_broker_that_is_not_unfenced_yet(beats: list[Any], until_s: int | None, said: str | None) -> None:
    until_ns = None if until_s is None else until_s * S
    assert heartbeats(*beats).evidence(span(), 0, until_ns) == said


REGULAR = [(float(second), 200, "") for second in range(1, 11)]


@pytest.mark.parametrize(
    ("beats", "from_s", "said"),
    [
        ([], 10.0, None),
        ([(11.0, 200, "")], 10.0, None),  # none before it
        ([*REGULAR, (10.5, 200, "shutdown")], 11.0, "its heartbeats asked to shut down"),
        ([*REGULAR, (10.5, 200, "fence")], 11.0, "its heartbeats asked to be fenced"),
        (REGULAR, 10.7, "its heartbeats went on, the last 0.7 s before: cannot tell why"),
        (REGULAR, 19.0, "session timed out: no heartbeat for 9.0 s, and none came after"),
        (
            [*REGULAR, (25.0, 200, "")],
            19.0,
            f"session timed out: no heartbeat for 9.0 s, {ALIVE}: its heartbeats went on 6.0 s later",
        ),
        (
            [*REGULAR, (25.0, 200, "", STALE)],
            19.0,
            f"session timed out: no heartbeat for 9.0 s, {ALIVE}: it came back 6.0 s later, replaced",
        ),
    ],
)
def test_why_a_broker_was_fenced(beats: list[Any], from_s: float, said: str | None) -> None:
    assert heartbeats(*beats).evidence(span(why="fenced"), int(from_s * S), None) == said


def test_silence_proves_nothing_where_no_capture_shows_what_the_controller_was_asked() -> None:
    made, fenced = heartbeats(*REGULAR), span(why="fenced")
    assert made.evidence(fenced, 19 * S, None, is_shown=False) is None
    asked = heartbeats(*REGULAR, (10.5, 200, "shutdown"))
    assert asked.evidence(fenced, 19 * S, None, is_shown=False) == "its heartbeats asked to shut down"


def test_a_controlled_shutdown_is_asked_for_shortly_before_it_begins() -> None:
    state = span("in controlled shutdown", "")
    asked = heartbeats((10, 200, ""), (11, 200, "shutdown"))
    assert asked.evidence(state, 12 * S, None) == "its heartbeats asked to shut down"
    assert asked.evidence(state, 14 * S, None) is None
    assert asked.evidence(span("unfenced", ""), 12 * S, None) is None


def test_heartbeats_that_ask_for_the_same_are_a_run_and_know_their_longest_silence() -> None:
    made = heartbeats((1, 10, "fence"), (2, 11, "fence"), (7, 12, "fence"), (8, 13, ""), (8.5, 14, ""))
    first, second = made.runs[1, 100]
    assert (first.times_ns, first.offsets, first.longest_gap_ns) == ([S, 2 * S, 7 * S], [10, 11, 12], 5 * S)
    assert (second.offsets, second.longest_gap_ns) == ([13, 14], S)
    assert len(made.between(1, 100, 2 * S, 8 * S)) == 2


def test_progress_is_the_worst_heartbeat_of_ten_seconds_beside_what_was_committed() -> None:
    made = heartbeats((1, -1, ""), (2, 4, ""), (5, 4, ""), (6, 9, ""), (12, 9, ""))
    committed = [(1 * S, 5), (3 * S, 10)]  # the offset after the last committed, by when answers told it
    assert list(made.progress(committed)) == [
        Progress(1, 5 * S, 10, 4, 2 * S, 1),
        Progress(1, 12 * S, 10, 9, 0, 0),
    ]
    assert [row.committed for row in made.progress([])] == [None, None]
    started = heartbeats((40, 0, "fence"), (41, 0, "fence"), (42, 9, ""))  # before, there was no process to be late
    assert list(started.progress(committed)) == [Progress(1, 41 * S, 10, 0, S, 0)]
