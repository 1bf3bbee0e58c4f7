"""Lists of live brokers: slow receivers, and where captures begin, make no broker leave or come back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.verdicts.live_lists import LiveLists

LISTS = st.lists(st.frozensets(st.integers(1, 4), min_size=1), min_size=1, max_size=8).map(
    lambda lists: [live for at, live in enumerate(lists) if not at or live != lists[at - 1]]
)


@settings(deadline=None)
@given(LISTS, st.integers(1, 4), st.integers(-1 << 31, (1 << 31) - 1), st.data())
def test_the_changes_are_those_that_the_controller_made(
    lists: list[frozenset[int]], receivers: int, epoch: int, data: st.DataObject
) -> None:
    """Whoever is slow, and whatever epoch is claimed: each broker gets all lists in their order."""
    found, sent = LiveLists(), [0] * receivers
    ts = 0
    while waiting := [each for each in range(receivers) if sent[each] < len(lists)]:
        receiver = data.draw(st.sampled_from(waiting))
        repeats = data.draw(st.integers(1, 2))
        for _ in range(repeats):
            ts += 1
            found.add(ts, (False, epoch), receiver, lists[sent[receiver]])
        sent[receiver] += 1
    assert [live for _ts, live in found.changes()] == lists
    assert [ts for ts, _live in found.changes()] == sorted(ts for ts, _live in found.changes())


@settings(deadline=None)
@given(st.lists(st.frozensets(st.integers(1, 4)), min_size=1, max_size=12, unique=True), st.integers(0, 5), st.data())
def test_brokers_several_lists_behind_make_no_change_and_hide_none(
    lists: list[frozenset[int]], shown: int, data: st.DataObject
) -> None:
    """Each broker is told while it is alive, up to five lists behind the controller; broker 0 always is.

    The capture begins with broker 0's first list, or with others that were told up to ``shown`` lists more.
    """
    queues = {broker: [at for at, live in enumerate(lists) if not broker or broker in live] for broker in range(5)}
    told = [] if shown else [(0, queues[0].pop(0))]
    newest = min(shown, len(lists) - 1)
    while any(queues.values()):
        late = [broker for broker, queue in queues.items() if queue and queue[0] <= newest - 5]
        ready = late or [broker for broker, queue in queues.items() if queue and queue[0] <= newest]
        pick = data.draw(st.sampled_from([*ready, -1] if newest < len(lists) - 1 and not late else ready))
        if pick < 0:
            newest += 1
        else:
            told.append((pick, queues[pick].pop(0)))
    found: LiveLists[frozenset[int]] = LiveLists()
    for ts, (broker, at) in enumerate(told):
        found.add(ts, (False, 1), broker, lists[at])
    began = next(ts for ts, (broker, _at) in enumerate(told) if not broker)
    before = max((at for _broker, at in told[:began]), default=0)  # what was older may be of no known time
    changes = found.changes()
    places = [lists.index(live) for _ts, live in changes]
    assert places == list(range(len(lists) - len(places), len(lists)))
    assert len(places) >= len(lists) - before
    for place, (ts, _live) in zip(places, changes, strict=True):
        first = min(ts for ts, (_, at) in enumerate(told) if at >= place)
        last = max(ts for ts, (_, at) in enumerate(told) if at == place)  # who was told first may have no place then
        assert first <= ts <= last


def test_who_starts_after_others_is_told_the_newest_list_before_they_are() -> None:
    found = LiveLists()
    for ts, receiver, live in [(1, 2, {0, 1, 2}), (2, 1, {1}), (3, 1, {0, 1}), (4, 0, {0, 1}), (5, 1, {0, 1, 2})]:
        found.add(ts, (False, 1), receiver, frozenset(live))
    assert found.changes() == [(1, {0, 1, 2})]


def test_a_receiver_whose_first_list_is_older_makes_no_change() -> None:
    found = LiveLists()
    found.add(1, (False, 1), "fast", frozenset({1, 2}))
    found.add(2, (False, 1), "slow", frozenset({1}))  # the capture begins between the two
    found.add(3, (False, 1), "slow", frozenset({1, 2}))
    assert found.changes() == [(1, {1, 2})]


def test_a_change_that_one_receiver_alone_shows_counts_once_another_follows() -> None:
    found = LiveLists()
    found.add(1, (False, 1), "first", frozenset({1, 2}))
    found.add(2, (False, 1), "late", frozenset({1}))
    found.add(3, (False, 1), "late", frozenset({1, 3}))
    assert found.changes() == [(1, {1, 2}), (3, {1, 3})]


def test_lists_of_a_replaced_controller_count_no_more() -> None:
    found = LiveLists()
    for ts, epoch, live in [(1, 4, {1, 2}), (2, 5, {1, 2}), (3, 5, {1}), (4, 4, {1, 2})]:
        found.add(ts, (False, epoch), 1, frozenset(live))
    assert found.changes() == [(1, {1, 2}), (3, {1})]


def test_lists_between_lists_cost_as_much_as_others() -> None:
    """Each receiver is sent a list between the first and the newest such list: so deep places are not made."""
    lists: LiveLists[object] = LiveLists()
    for number in range(3000):
        for live in ("first", ("between", number), ("between", number - 1)):
            lists.add(number, (False, 1), number, live)
    assert all(place.denominator <= 1 << 65 for place in lists._order)
    assert ("between", 60) in [live for _ts, live in lists.changes()]
