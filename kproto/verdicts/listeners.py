"""Advertised listeners that cannot work, as the lists of live brokers in accepted updates show them.

Nobody on another machine finds a broker that is told as ``localhost``; of two brokers with one address a client reaches
one alone; a client of a listener that some brokers lack finds no leader there. A cluster whose brokers are all on one
machine is a rehearsal: its listeners work.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from kproto.text import printable
from kproto.verdicts.doctor import Doctor, Finding
from kproto.verdicts.live_lists import LiveLists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kproto.verdicts.facts import Facts, Listener


_RULE: Final = "KP039"


_Faults: TypeAlias = "dict[tuple[str, object], tuple[str, int | None]]"
"""What is wrong in one list, by kind and subject, and the broker; the same in the next list is the same fault."""


def broken_listeners(doctor: Doctor) -> Iterator[Finding]:
    """Yield the listeners that cannot work, each with its time.

    Two brokers with one address, and a listener that some lack, count if they last for the limit settled: a broker may
    come back under another id, and listeners are changed broker by broker.
    """
    facts = doctor.facts
    faults = {name: _faults(listed, facts.shown_address) for name, listed in facts.listeners.items()}
    if not any(faults.values()) and not _all_on_loopback(facts):
        return
    lists: LiveLists[bytes] = LiveLists()
    for request in facts.requests:
        if request.live_brokers_id is not None and request.error_code == 0 and not request.is_logged:
            lists.add(request.ts, request.reign, request.broker_id, request.live_brokers_id)
    if _all_on_loopback(facts):
        for ts, name in lists.changes()[:1]:
            several = {broker for broker, *_listener in facts.listeners[name]}
            yield doctor.finding(_RULE, f"All {len(several)} brokers advertise loopback addresses alone", ts, facts.end)
        return
    began: dict[tuple[str, object], tuple[int, str, int | None]] = {}
    for ts, name in [*lists.changes(), (facts.end, b"")]:
        present = faults.get(name, {})
        for key in sorted(began.keys() - present.keys(), key=str):
            first, text, broker = began.pop(key)
            if key[0] == "loopback" or ts - first >= doctor.us("settled"):
                yield doctor.finding(_RULE, text, first, ts, broker=broker)
        for key, fault in present.items():
            began[key] = began.get(key, (ts,))[0], *fault


def _faults(listed: Sequence[Listener], shown: Callable[[str, int], str]) -> _Faults:
    found: _Faults = {}
    at: dict[tuple[str, int], set[int]] = defaultdict(set)
    by_name: dict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
    for broker, host, port, listener in listed:
        if host and port is not None and listener:
            at[host.lower(), port].add(broker)
            by_name[listener][broker] = host, port
    for (host, port), brokers in sorted(at.items()):
        if len(brokers) > 1:
            text = f"Brokers {_ids(brokers)} advertise the same address, {shown(host, port)}"
            found["shared", (host, port)] = text, None
    every = {broker for brokers in by_name.values() for broker in brokers}
    for name, places in sorted(by_name.items()):
        local = {broker: place for broker, place in places.items() if _is_loopback(place[0])}
        if len(local) < len(places):  # else the listener is for clients on the brokers' machine
            for broker, place in sorted(local.items()):
                text = f"Broker {broker} advertises {shown(*place)} as listener {printable(name)}, others do not: only "
                found["loopback", (name, broker)] = f"{text}its own machine reaches it there", broker
        if lacking := every - places.keys():
            text = f"Listener {printable(name)} is advertised by {len(places):,} of {len(every):,} brokers, not by "
            found["lacking", name] = text + _ids(lacking), next(iter(lacking)) if len(lacking) == 1 else None
    return found


def _all_on_loopback(facts: Facts) -> bool:
    """Whether several brokers advertise loopback addresses alone, and requests went to other machines."""
    listed = [listener for some in facts.listeners.values() for listener in some if listener[1] and listener[3]]
    several = len({broker for broker, *_listener in listed}) > 1
    if not several or not all(_is_loopback(host or "") for _, host, *_ in listed):
        return False
    return any(_is_loopback(ip) is False for ip in {request.server_ip for request in facts.requests})


def _is_loopback(host: str) -> bool | None:
    """Whether an address reaches its own machine alone; None: it is a name, of which nothing is known."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None


def _ids(brokers: Iterable[int]) -> str:
    several = sorted(brokers)
    more = f" and {len(several) - 3:,} more" if len(several) > 3 else ""
    return ", ".join(map(str, several[:3])) + more
