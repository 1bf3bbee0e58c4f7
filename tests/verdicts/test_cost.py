"""The rules, the summary and ``top`` take work in proportion to each dimension of what a capture holds.

Work is counted in executed lines, not in seconds.
"""

import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import growing_stream
import pyarrow as pa
import pytest
from conftest import few
from lines_run import lines_run
from packets import Talk, pcap, request, response

from kproto import codec, messages
from kproto.capture import CaptureReader, CaptureSummary
from kproto.messages import LeaderAndIsrResponse, UpdateMetadataResponse
from kproto.tables.resolved import resolved_pieces
from kproto.verdicts.events import events
from kproto.verdicts.facts import Facts, Spans
from kproto.verdicts.live import LiveFold
from kproto.verdicts.rules import findings
from kproto.verdicts.summary import summarize

FEW = 20
BROKERS = ((1, "10.0.0.2"), (2, "10.0.0.3"))
OK_4 = codec.encode(LeaderAndIsrResponse(), 4)
OK_6 = codec.encode(UpdateMetadataResponse(), 6)
Told = tuple[int, int, int]
"""Leader epoch, partition epoch and leader of a partition."""


def told(
    of: str, version: int, partition_epoch: str, states: Iterable[Told], epoch: int, broker_epoch: int, **more: Any
) -> bytes:
    request, topic, row = (getattr(messages, f"{of}{part}") for part in ("Request", "TopicState", "PartitionState"))
    some = [
        row(partition_index=0, controller_epoch=epoch, leader=leader, leader_epoch=leader_epoch, isr=(leader,),
            replicas=(1, 2), **{partition_epoch: number})
        for leader_epoch, number, leader in states
    ]  # fmt: skip
    topics = [topic(topic_name="orders", partition_states=some)]
    message = request(controller_id=9, controller_epoch=epoch, broker_epoch=broker_epoch, topic_states=topics, **more)
    return codec.encode(message, version)


leadership = partial(told, "LeaderAndIsr", 4, "partition_epoch")
update = partial(told, "UpdateMetadata", 6, "zk_version")


def written(path: Path, requests: Iterable[tuple[bytes, bytes]]) -> Path:
    """A capture of two brokers, each of which is sent the same pairs of LeaderAndIsr and UpdateMetadata."""
    talks = [
        Talk(("10.0.0.1", 50_000 + broker), (ip, 9092), client_isn=10_000_000 * broker, server_isn=broker).open()
        for broker, ip in BROKERS
    ]
    for number, (first, second) in enumerate(requests):
        for talk in talks:
            talk.ask(request(4, 4, 2 * number, first), 60_000).answer(response(4, 4, 2 * number, OK_4))
            talk.ask(request(6, 6, 2 * number + 1, second), 60_000).answer(response(6, 6, 2 * number + 1, OK_6))
    path.write_bytes(pcap(sorted(packet for talk in talks for packet in talk.packets)))
    return path


def repetitions(count: int) -> list[tuple[bytes, bytes]]:
    """One request that names one partition again and again."""
    states = [(number, number, 1 + number % 2) for number in range(count)]
    return [(leadership(states, 1, 5), update(states, 1, 5))]


def falling(count: int) -> list[tuple[bytes, bytes]]:
    return [(leadership([(n, n, 1)], 1, 5), update([(n, n, 1)], 1, 5)) for n in range(count, 0, -1)]


def elections(count: int) -> list[tuple[bytes, bytes]]:
    return [(leadership([(n, n, 1 + n % 2)], 1, 5), update([(n, n, 1 + n % 2)], 1, 5)) for n in range(count)]


def controllers(count: int) -> list[tuple[bytes, bytes]]:
    return [(leadership([(0, 0, 1)], n, 5), update([(0, 0, 1)], n, 5)) for n in range(1, count + 1)]


def registrations(count: int) -> list[tuple[bytes, bytes]]:
    return [(leadership([(0, 0, 1)], 1, n // 2), update([(0, 0, 1)], 1, n // 2)) for n in range(2 * count)]


def incarnations(count: int) -> list[tuple[bytes, bytes]]:
    requests = []
    for number in range(count):
        requests.append((leadership([(0, 0, 1)], 1, 5 + number), update([(0, 0, 1)], 1, 5 + number)))
        requests.append((leadership([(0, 1, 1)], 1, 5 + number), update([(0, 0, -2)], 1, 5 + number)))
    return requests


def departures(count: int) -> list[tuple[bytes, bytes]]:
    """Broker 2 leaves the live brokers, comes back and registers anew, again and again."""
    requests = []
    for number in range(2 * count):
        broker_epoch = 5 + (number + 1) // 2
        live = [
            messages.UpdateMetadataBroker(id=broker, endpoints=[messages.UpdateMetadataEndpoint(host=ip, port=9092)])
            for broker, ip in BROKERS[: 2 - number % 2]
        ]
        states = [(number // 2, number, 1)]
        requests.append((leadership(states, 1, broker_epoch), update(states, 1, broker_epoch, live_brokers=live)))
    return requests


def doctor(path: Path) -> None:
    findings(Facts(resolved_pieces([str(path)])))


def what_happened(path: Path) -> None:
    events(Facts(resolved_pieces([str(path)])))


def summary(path: Path) -> None:
    summarize(resolved_pieces([str(path)]))


def top(path: Path) -> None:
    summary = CaptureSummary()
    reader = CaptureReader(summary=summary)
    fold = LiveFold(30, {"": summary}, thrifty=False)
    with path.open("rb") as file:
        fold.add(reader.feed(file.read()))
    fold.snapshot()


@pytest.mark.parametrize("ask", few([doctor, summary, what_happened, top], 2))
@pytest.mark.parametrize(
    "grown", few([repetitions, falling, elections, controllers, registrations, incarnations, departures], 3)
)
def test_work_grows_as_the_input_does(
    tmp_path: Path, ask: Callable[[Path], None], grown: Callable[[int], list[tuple[bytes, bytes]]]
) -> None:
    paths = [written(tmp_path / f"{count}.pcap", grown(count)) for count in (FEW, 2 * FEW, 4 * FEW)]
    ask(paths[0])  # what is done once in a process does not count
    work = [lines_run(partial(ask, path)) for path in paths]
    assert work[2] - work[1] < 2.4 * (work[1] - work[0]) + 3_000, work


def test_what_a_broker_was_connected_for_is_found_among_many_connections() -> None:
    def ask(count: int) -> list[tuple[int | None, bool, bool]]:
        spans = Spans()
        for number in range(count):
            for ts in (10 * number, 10 * number + 15):
                spans.add(number.to_bytes(4, "big"), ts)
        return [
            (spans.last_before(ts), spans.covers(ts, ts + 5), spans.covers(ts, ts + 15))
            for ts in range(5, 10 * count, 10)
        ]

    assert ask(3) == [(5, True, False), (15, True, False), (25, True, False)]
    work = [lines_run(partial(ask, count)) for count in (FEW, 2 * FEW, 4 * FEW)]
    assert work[2] - work[1] < 2.4 * (work[1] - work[0]), work


def test_what_rules_know_of_a_distinct_body_takes_less_than_two_kilobytes(tmp_path: Path) -> None:
    """What many bodies have alike is held once, and what was read of the captures not beside what was made of it."""
    count = 4000
    path = tmp_path / "stream.pcap"
    path.write_bytes(b"".join(growing_stream.pieces(count)))
    doctor(path)  # modules are imported, and caches filled
    before = pa.total_allocated_bytes()
    pieces = list(resolved_pieces([str(path)]))
    tracemalloc.start()
    try:
        facts = Facts(pieces)
        del pieces
        assert sum(len(life.steps) for _partition, life in facts.told_lives) == count
        held, _most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (held + pa.total_allocated_bytes() - before) / count < 2000
