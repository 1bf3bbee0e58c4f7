"""What is said of a cluster depends on no host that recorded it, on no clock, and on nobody else who is there."""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from commands import kproto_rows
from conftest import DATA, few
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import kproto.tables
from kproto.api import ApiKey
from kproto.query import ask, open_tables
from kproto.report.facts import report_facts
from kproto.tables.resolved import by_cluster, of_cluster, resolved_pieces, resolved_reader, resolved_tables
from kproto.tables.stored import reader_of
from kproto.verdicts.events import events
from kproto.verdicts.facts import Facts
from kproto.verdicts.found import facts_of_clusters
from kproto.verdicts.rules import findings
from kproto.verdicts.stale import stale_requests
from kproto.verdicts.summary import summarize
from tests.hosts import Recorded, by_host, ends_of, recorded, servers_of
from tests.packets import Talk, request, response

CAPTURES = sorted(path for path in (DATA / "captures").glob("*.pcap.gz") if "lossy" not in path.name)
SHIFTS = {
    "same clocks": (0, 0, 0),
    "three seconds": (0, 3, 0),
    "both ways": (37.5, 0, -12),
    "two minutes": (0, 0, 120),
    "an hour": (0, 3600, 0),
}
OF_CAPTURES = {"KP060", "KP061", "KP062", "KP063"}
"""Rules about captures: what one of them lacks, each host's does."""


def said(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """What the surfaces say of one cluster, without times."""
    found = findings(Facts(pieces))
    summary = summarize(iter(pieces))
    return {
        "findings": Counter((f.rule, f.severity, str(f.broker), f.topic, f.partition, f.count) for f in found
                            if f.rule not in OF_CAPTURES),
        "changes": summary["changes"],
        "requests": Counter((row["api"], row["error_code"], row["count"]) for row in summary["requests"]),
        "zombies": Counter(
            (row["controller_id"], row["controller_epoch"], row["requests"]) for row in summary["zombies"]
        ),
        "brokers": Counter((row["broker_id"], row["answered"], row["unanswered"]) for row in summary["slowest"]),
    }  # fmt: skip


def answered(tables: Mapping[str, Any], cluster: str | None = None) -> dict[str, Any]:
    """What questions and the report answer, without times."""
    with open_tables(tables, cluster) as sql:
        leaders = Counter(row[1:7] for row in ask(sql, "leader").rows)
        counts = {question: len(ask(sql, question).rows) for question in ("behind", "missed", "isr", "stale", "flaps")}
    timeline = report_facts(tables, cluster=cluster)["timeline"]
    return {"leaders": leaders, "counts": counts, "partitions": timeline["all_partitions"],
            "states": len(timeline["states"]["row"])}  # fmt: skip


def of_one(paths: Sequence[Path]) -> list[dict[str, Any]]:
    pieces = list(resolved_pieces([str(path) for path in paths]))
    assert len(by_cluster(iter(pieces))) == 1
    return pieces


@cache
def whole(capture: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return said(of_one([capture])), answered(kproto.tables.read(capture))


def written(capture: Path, folder: Path, seconds: Sequence[float], drift_ppm: float = 0) -> Iterator[Path]:
    """A capture of each host, whose clocks are ahead by these times, one after the other."""
    parts = by_host(recorded(capture), servers_of(capture))
    for number, (name, part) in enumerate(parts.items()):
        ahead = seconds[number % len(seconds)]
        yield part.write(folder / name, ahead_ns=round(ahead * 10**9), drift_ppm=drift_ppm)


@pytest.mark.parametrize(
    "shift", ["both ways", *(pytest.param(name, marks=pytest.mark.slow) for name in SHIFTS if name != "both ways")]
)
@pytest.mark.parametrize(
    "capture",
    [pytest.param(path, marks=[pytest.mark.slow] * ("0.8.2" not in path.name)) for path in CAPTURES],
    ids=lambda path: path.name.removesuffix(".pcap.gz"),
)
def test_captures_of_each_host_say_what_one_capture_of_all_says(capture: Path, shift: str, tmp_path: Path) -> None:
    paths = list(written(capture, tmp_path, SHIFTS[shift]))
    assert len(paths) > 1
    pieces = of_one(paths)
    expected, answers = whole(capture)
    assert said(pieces) == expected
    assert answered(kproto.tables.read(*paths)) == answers


def accused(paths: Iterable[Path]) -> set[tuple[Any, ...]]:
    """What the doctor finds beyond notes, and deletions that brokers have not accepted."""
    every = [facts for _cluster, facts in facts_of_clusters(resolved_reader(reader_of(kproto.tables.read(*paths))))]
    return {
        (found.rule, found.broker, found.topic, found.partition)
        for found in chain.from_iterable(map(findings, every))
        if found.severity != "note" and found.rule not in OF_CAPTURES
    } | {
        (event.kind, event.topic)
        for event in chain.from_iterable(map(events, every))
        if event.text.endswith("have not accepted it")
    }


PARTS = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


@pytest.mark.slow
@given(st.sampled_from(CAPTURES), st.lists(PARTS, min_size=3, max_size=3))
@example(
    DATA / "captures" / "ibp-0.9.0-a.pcap.gz", [[0.0, 1.0], [0.0, 1.0], [0.51, 0.91]]
)  # KP041 of what was deleted before the third
@example(
    DATA / "captures" / "ibp-0.10.0-a.pcap.gz", [[0.0, 1.0], [0.0, 0.34], [0.0, 1.0]]
)  # KP030 behind the end of the second
@example(
    DATA / "captures" / "ibp-3.9-a.pcap.gz", [[0.0, 0.619], [0.4335, 1.0], [0.0, 0.4395]]
)  # KP022: no capture shows who was alive while one broker was away
@example(
    DATA / "captures" / "ibp-0.9.0-a.pcap.gz", [[0.0, 1.0], [0.7804, 1.0], [0.9911, 1.0]]
)  # the third shows nothing, not even a deletion
@example(
    DATA / "captures" / "ibp-0.9.0-a.pcap.gz", [[0.0, 0.0], [0.0, 0.5], [0.0, 0.5]]
)  # broker 1 is back, and not yet asked to delete what was deleted while it was away
@settings(max_examples=max(settings.default.max_examples // 60, 1))
def test_captures_that_begin_and_end_each_at_its_time_accuse_nobody_of_more(
    tmp_path_factory: pytest.TempPathFactory, capture: Path, parts: list[list[float]]
) -> None:
    """The captures of other hosts show what was told; that a broker was not told, its own host's show alone."""
    folder, paths = tmp_path_factory.mktemp("hosts"), []
    for (name, host), (begin, end) in zip(by_host(recorded(capture), servers_of(capture)).items(), parts, strict=False):
        some = host.packets[int(len(host.packets) * begin) : int(len(host.packets) * end)]
        if some:
            paths.append(host._replace(packets=some).write(folder / name))
    assume(paths)
    assert accused(paths) - accused([capture]) == set()


@given(st.sampled_from(CAPTURES), st.integers(0, 1 << 16))
@example(DATA / "captures" / "ibp-0.10.2-a.pcap.gz", 89)  # KP041 of what was deleted meanwhile
@example(DATA / "captures" / "ibp-0.10.2-a.pcap.gz", 6)  # KP030
@settings(max_examples=max(settings.default.max_examples // 60, 1))
def test_a_connection_that_nobody_recorded_accuses_nobody(
    tmp_path_factory: pytest.TempPathFactory, capture: Path, number: int
) -> None:
    of, servers = recorded(capture), servers_of(capture)
    ends = [frozenset(ends_of(packet.data, of.link)) for packet in of.packets]
    asked = sorted({each for each in ends if each & servers}, key=sorted)
    lost = asked[number % len(asked)]
    others = of._replace(packets=[each for each, of_it in zip(of.packets, ends, strict=True) if of_it != lost])
    path = others.write(tmp_path_factory.mktemp("hosts") / "others.pcap")
    assert accused([path]) - accused([capture]) == set()


def with_clock_set(capture: Path, folder: Path, host: int, part: float, seconds: int, files: int = 1) -> Iterator[Path]:
    """Captures of each host, or one of all, in a number of files, where a clock is set amid a connection."""
    of = recorded(capture)
    hosts = list(by_host(of, servers_of(capture)).values())
    parts, place = (hosts, host) if host < len(hosts) else ([of], 0)
    packets = parts[place].packets
    ends = [ends_of(packet.data, of.link) for packet in packets]
    amid = [at for at in range(10, len(ends)) if ends[at - 1][::-1] == ends[at] and ends[at] in ends[at - 10 : at - 2]]
    begin = amid[int(part * len(amid))]
    later = [packet._replace(time_ns=packet.time_ns + seconds * 10**9) for packet in packets[begin:]]
    parts[place] = of._replace(packets=[*packets[:begin], *later])
    for number, each in enumerate(parts):
        for at in range(files):
            some = each.packets[len(each.packets) * at // files : len(each.packets) * (at + 1) // files]
            yield each._replace(packets=some).write(folder / f"{number}.pcap{at or ''}")


@given(st.sampled_from(CAPTURES), st.integers(0, 3), st.floats(0, 0.99), st.sampled_from([-120, -3]), st.integers(1, 4))
@example(DATA / "captures" / "ibp-0.9.0-a.pcap.gz", 1, 0.17, -120, 1)
@example(DATA / "captures" / "ibp-3.2-IV0-a.pcap.gz", 1, 0.5, -120, 3)  # KP012: the later file came first
@example(DATA / "captures" / "ibp-3.9-a.pcap.gz", 1, 0.7, 57, 1)
@settings(max_examples=max(settings.default.max_examples // 60, 1))
def test_a_clock_that_is_set_amid_a_capture_accuses_nobody(
    tmp_path_factory: pytest.TempPathFactory, capture: Path, host: int, part: float, seconds: int, files: int
) -> None:
    paths = with_clock_set(capture, tmp_path_factory.mktemp("hosts"), host, part, seconds, files)
    assert accused(paths) - accused([capture]) == set()


@pytest.mark.parametrize("shows_ticks", [True, False])
@pytest.mark.parametrize(
    ("name", "host", "part"), [("ibp-0.9.0-a", 2, 0.768), ("ibp-2.2-a", 2, 0.4), ("ibp-3.9-a", 1, 0.7)]
)
def test_a_clock_that_is_put_forward_is_corrected_by_the_senders_clocks_or_cannot_be_compared(
    name: str, host: int, part: float, shows_ticks: bool, tmp_path: Path
) -> None:
    capture = DATA / "captures" / f"{name}.pcap.gz"
    paths = [*with_clock_set(capture, tmp_path, host, part, 37)]
    for path in () if shows_ticks else paths:
        path.write_bytes(path.read_bytes().replace(b"\1\1\x08\x0a", b"\1\1\x1e\x0a"))
    assert accused(paths) - accused([capture]) == set()
    every = findings(Facts(of_one(paths)))
    if shows_ticks:
        assert any("the clock was put forward by 37.0 s" in found.text for found in every if found.rule == "KP065")
    else:
        clocks = [found.text for found in every if found.rule == "KP063"]
        assert any("cannot be compared with that of others: it was set meanwhile" in text for text in clocks)


@pytest.mark.parametrize(
    ("name", "at", "seconds", "borders"),
    [
        ("ibp-2.4-IV0-a", 2491, -30, ()),  # a new connection's SYN-ACK, then its own packets for a third of a second
        ("ibp-0.9.0-a", 2324, 120, ()),  # an RST, which shows no clock
        ("ibp-1.0-a", 2046, 120, (2046, 2117)),
        ("ibp-0.9.0-a", 2415, 120, (194, 345, 2415)),
    ],
)
def test_a_clock_that_is_set_while_new_connections_alone_speak_is_corrected_from_there_on(
    name: str, at: int, seconds: int, borders: Sequence[int], tmp_path: Path
) -> None:
    """The next packet of an older connection told of it: what was before that was dated wrongly, and accused."""
    capture = DATA / "captures" / f"{name}.pcap.gz"
    of = recorded(capture)
    moved = [packet._replace(time_ns=packet.time_ns + seconds * 10**9) for packet in of.packets[at:]]
    packets = [*of.packets[:at], *moved]
    parts = pairwise([0, *borders, len(packets)])
    paths = [
        of._replace(packets=packets[begin:end]).write(tmp_path / f"control.pcap{number or ''}")
        for number, (begin, end) in enumerate(parts)
    ]
    assert accused(paths) - accused([capture]) == set()
    assert [found.severity for found in findings(Facts(of_one(paths))) if found.rule == "KP065"] == ["note"]


def test_damage_is_a_note_where_clocks_alone_make_findings_uncertain(tmp_path: Path) -> None:
    capture = DATA / "captures" / "external-controller-a.pcap.gz"
    first, second = by_host(recorded(capture), servers_of(capture)).values()
    some = second._replace(packets=second.packets[: len(second.packets) // 3])
    paths = [first.write(tmp_path / "first.pcap", ahead_ns=-12 * 10**9), some.write(tmp_path / "second.pcap")]
    paths[0].write_bytes(paths[0].read_bytes() + bytes(7))
    every = findings(Facts(of_one(paths)))
    assert {f.cannot_tell for f in every if f.rule == "KP051"} == {"the clocks of its captures cannot be compared"}
    assert [f.severity for f in every if f.rule == "KP065"] == ["note"]


def test_the_order_of_times_that_cannot_be_compared_makes_no_zombie(tmp_path: Path) -> None:
    capture = next(path for path in CAPTURES if path.name.startswith("ibp-2.8"))
    tables = resolved_tables(kproto.tables.read(*written(capture, tmp_path, [0])))
    requests, clocks = tables["requests"], tables["clocks"]
    ts = requests["ts"].cast(pa.int64())
    of_last = pc.equal(requests["capture"], clocks["capture"][-1])
    late = pc.if_else(of_last, pc.add(ts, 3600 * 10**6), ts).cast(requests["ts"].type)
    shifted = tables | {"requests": requests.set_column(requests.column_names.index("ts"), "ts", late)}
    apart = shifted | {"clocks": clocks.set_column(1, "reference", clocks["capture"])}

    def zombies(of: dict[str, pa.Table]) -> tuple[set[Any], set[Any]]:
        stale = stale_requests(reader_of(of)).to_pylist()
        rows = summarize([of])["zombies"]
        return {row["frame_id"] for row in stale if row["zombie"]}, {row["controller_epoch"] for row in rows}

    for found, are, of_one_clock in zip(zombies(apart), zombies(tables), zombies(shifted), strict=True):
        assert found <= are
        assert not of_one_clock <= are


@given(st.sampled_from(CAPTURES), st.lists(st.floats(-5000, 5000), min_size=3, max_size=3))
@settings(max_examples=max(settings.default.max_examples // 60, 1))
def test_whatever_the_clocks_say(tmp_path_factory: pytest.TempPathFactory, capture: Path, seconds: list[float]) -> None:
    paths = list(written(capture, tmp_path_factory.mktemp("hosts"), seconds))
    assert said(of_one(paths)) == whole(capture)[0]


def test_each_clock_that_differs_is_named_with_its_difference(tmp_path: Path) -> None:
    capture = next(path for path in CAPTURES if path.name.startswith("ibp-2.8"))
    paths = list(written(capture, tmp_path, (0, 37.5, -12)))
    texts = [f.text for f in findings(Facts(of_one(paths))) if f.rule == "KP063"]
    shown = {text.split(" of ")[1].split(" is ")[0]: text.split(" is ")[1].split(" that of")[0] for text in texts}
    clocks = {row["capture"]: row["offset_us"] / 1e6 for row in resolved_tables(kproto.tables.read(*paths))["clocks"]
              .to_pylist()}  # fmt: skip
    names = [path.name for path in paths]
    assert clocks[names[1]] - clocks[names[0]] == pytest.approx(37.5, abs=0.02)
    assert clocks[names[2]] - clocks[names[0]] == pytest.approx(-12, abs=0.02)
    (reference,) = set(names) - shown.keys()
    assert clocks[reference] == 0


def merged(*parts: Recorded) -> Recorded:
    """One capture of what several saw, the others moved to the time of the first."""
    begin = parts[0].packets[0].time_ns
    packets = [
        packet._replace(time_ns=packet.time_ns - part.packets[0].time_ns + begin)
        for part in parts
        for packet in part.packets
    ]
    return Recorded(parts[0].link, sorted(packets, key=lambda packet: packet.time_ns))


@pytest.mark.parametrize("seed", few([2, 1]))
def test_another_clusters_traffic_in_the_same_capture_changes_nothing(seed: int, tmp_path: Path) -> None:
    first = next(path for path in CAPTURES if path.name.startswith("ibp-3.9-a."))
    second = next(path for path in CAPTURES if path.name.startswith(("", "ibp-2.8", "external")[seed]))
    if recorded(first).link != recorded(second).link or servers_of(first) & servers_of(second):
        pytest.skip("their packets do not fit into one file")
    path = merged(recorded(first), recorded(second)).write(tmp_path / "both.pcap")
    pieces = list(resolved_pieces([str(path)]))
    clusters = [name for name, _pieces in by_cluster(iter(pieces))]
    assert len(clusters) == 2
    found = [said([of_cluster(piece, name) for piece in pieces]) for name in clusters]
    for each in (first, second):
        assert whole(each)[0] in found


def test_another_clients_traffic_changes_nothing(tmp_path: Path) -> None:
    capture = next(path for path in CAPTURES if path.name.startswith("ibp-3.9-a."))
    of = recorded(capture)
    talk = Talk(("9.9.9.9", 5000), ("8.8.8.8", 9092), now_ns=of.packets[0].time_ns).open()
    for number in range(50):
        talk.ask(request(ApiKey.METADATA, 1, number, bytes(4), "client"))
        talk.answer(response(ApiKey.METADATA, 1, number, bytes(12)))
    both = Recorded(of.link, sorted([*of.packets, *talk.packets], key=lambda packet: packet.time_ns))
    assert said(of_one([both.write(tmp_path / "both.pcap")])) == whole(capture)[0]


def inspected(paths: Sequence[Path], *options: str) -> list[dict[str, Any]]:
    return [row for row in kproto_rows("inspect", *paths, *options) if row["record"] == "exchange"]


def test_inspect_shows_captures_of_each_host_on_one_clock(tmp_path: Path) -> None:
    capture = next(path for path in CAPTURES if path.name.startswith("ibp-2.8"))
    columns = ("server", "client", "correlation_id", "broker_id", "outcome")
    shown, hosts = inspected([capture]), inspected(list(written(capture, tmp_path, (0, 37.5, -12))))
    key = operator.itemgetter(*columns[:3])
    assert [[row[name] for name in columns] for row in sorted(hosts, key=key)] == [
        [row[name] for name in columns] for row in sorted(shown, key=key)
    ]
    begin = min(row["time"] for row in shown) - min(row["time"] for row in hosts)
    for one, other in zip(sorted(shown, key=key), sorted(hosts, key=key), strict=True):
        assert one["time"] - other["time"] == pytest.approx(begin, abs=0.05)


@pytest.mark.slow
def test_inspect_shows_an_exchange_of_two_places_once(tmp_path: Path) -> None:
    capture = next(path for path in CAPTURES if path.name.startswith("ibp-2.8"))
    of = recorded(capture)
    paths = [of.write(tmp_path / "controller.pcap"), *written(capture, tmp_path, (5, 7))]
    assert len(inspected(paths)) == len(inspected([capture]))
    assert said(of_one(paths)) == whole(capture)[0]
