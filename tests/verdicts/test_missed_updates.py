"""Which updates count as broadcasts, so that a broker that never got one has missed it."""

from types import SimpleNamespace
from typing import Any

import pytest

from kproto.verdicts import updates


@pytest.mark.parametrize(("told", "missed"), [(1, []), (2, []), (3, [3, 4]), (4, [4])])
def test_an_update_that_less_than_half_of_the_brokers_got_is_no_broadcast(
    monkeypatch: pytest.MonkeyPatch, told: int, missed: list[int]
) -> None:
    connected = SimpleNamespace(covers=lambda first, last: True)
    facts = SimpleNamespace(spans=dict.fromkeys(range(5), connected))
    doctor: Any = SimpleNamespace(facts=facts, us=lambda _limit: 10)
    got = dict.fromkeys(range(told), 0)
    body = SimpleNamespace(live=frozenset(range(5)), told=got, sent=set(got), first=0)
    monkeypatch.setattr(updates, "_updates", lambda facts: [body])
    monkeypatch.setattr(updates, "_covered", lambda *_: False)
    assert [broker for broker, _body in updates.missed_updates(doctor)] == missed
