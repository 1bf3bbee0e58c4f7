"""``kproto summary``: right against what the brokers logged, in three forms, without Spark."""

import gzip
import importlib
import json
import sys
import types
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import packets as make
import pyarrow
import pytest
from commands import python_prints, run_kproto
from conftest import DATA, path, read_jsonl
from hypothesis import given
from hypothesis import strategies as st
from table_truth import NAMES_WITH_TRUTH

from kproto.cli.no_pandas import keep_pandas_out
from kproto.cli.sections import Section, lines_of
from kproto.cli.summary_text import _losses
from kproto.verdicts.request_figures import moment

CAPTURES = DATA / "captures"


summary = partial(run_kproto, "summary")


def figures(*arguments: str) -> dict[str, Any]:
    result = summary(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def logged(name: str) -> list[dict[str, Any]]:
    rows = read_jsonl(CAPTURES / f"{name}.truth.jsonl.gz")
    return [row for row in rows if row["in_capture"] and row["api_key"] in (4, 5, 6)]


@pytest.mark.parametrize("name", NAMES_WITH_TRUTH)
def test_requests_controllers_and_brokers_are_those_that_brokers_logged(name: str) -> None:
    found = figures(path(name))
    truth = logged(name)
    counted = Counter({(r["api_key"], r["api_version"], r["error_code"]): r["count"] for r in found["requests"]})
    assert len(counted) == len(found["requests"])
    missing = Counter((r["api_key"], r["version"], r["response"]["errorCode"]) for r in truth) - counted
    assert not missing  # the wire shows more: a killed broker logs its last requests no more
    senders = {
        (r["controller_id"], r["controller_epoch"], r["is_kraft_controller"]): r["requests"]
        for r in found["controllers"]
    }
    expected = Counter(
        (r["request"]["controllerId"], r["request"]["controllerEpoch"], r["request"].get("isKRaftController", False))
        for r in truth
    )
    assert set(expected) <= set(senders)
    assert all(senders[key] >= count for key, count in expected.items())
    listeners = {(b["broker_id"], b["host"], b["port"]) for b in found["brokers"]}
    assert _listeners(truth) <= listeners


def _listeners(truth: list[dict[str, Any]]) -> set[tuple[int, str, int]]:
    found = set()
    for row in truth:
        for broker in row["request"].get("liveBrokers", ()):
            ends = broker.get("endpoints") or [{"host": broker["v0Host"], "port": broker["v0Port"]}]
            found |= {(broker["id"], end["host"], end["port"]) for end in ends}
    return found


def test_what_was_deleted_is_told_by_topic() -> None:
    found = {row["topic"]: row for row in figures(path("ibp-3.9-migration-a"))["deletions"]}
    truth = {
        topic["topicName"]
        for row in logged("ibp-3.9-migration-a")
        if row["api_key"] == 5
        for topic in row["request"]["topicStates"]
        if any(state["deletePartition"] for state in topic["partitionStates"])
    }
    assert set(found) == truth
    assert found["R9z"]["partitions"] == [0, 2]
    assert not found["R9z"]["whole_topic"]  # replicas that moved away
    assert found["bNt"]["whole_topic"]
    assert found["bNt"]["brokers"] == [2]


def test_an_error_of_a_partition_is_no_refusal_and_its_controller_no_zombie() -> None:
    found = figures(path("ibp-3.9-a"))
    assert {r["error_code"] for r in found["requests"]} == {0}
    assert found["refusals"] == found["zombies"] == []
    assert [(r["error"], r["count"]) for r in found["partition_errors"]] == [("STALE_CONTROLLER_EPOCH", 115)]


def test_refusals_have_their_reason_and_zombies_their_successor() -> None:
    found = figures(path("external-controller-a"))
    reasons = {(r["error"], r["reason"]) for r in found["refusals"]}
    reason = "broker epoch 31 is older than 32: meant for an earlier registration of broker 0"
    assert ("STALE_BROKER_EPOCH", reason) in reasons
    last = max(found["zombies"], key=lambda row: row["first"])
    assert (last["controller_id"], last["controller_epoch"], last["refused"]) == (77, 1, 3)
    assert last["superseded_by"] == {"controller_id": 0, "controller_epoch": 2}
    refused = sum(row["count"] for row in found["refusals"])
    assert refused == sum(row["count"] for row in found["requests"] if row["error_code"])


def test_a_migration_has_its_phases() -> None:
    migration = figures(path("ibp-3.9-migration-a"))["migration"]
    assert migration["zookeeper_controllers"] == [{"controller_id": 1, "controller_epoch": 1}]
    assert migration["kraft_controllers"] == [{"controller_id": 3000, "controller_epoch": 2}]
    times = [moment for row in migration["phases"] for moment in (row["first"], row["last"])]
    assert times == sorted(times)
    assert all(moment.startswith("2026-11-2") for moment in times)
    phases = [(row["phase"], row["requests"], row["brokers"]) for row in migration["phases"]]
    assert phases == [("ZooKeeper controller", 39, 3), ("KRaft controller takes over", 9, 3), ("dual write", 121, 3)]
    assert figures(path("ibp-3.9-a"))["migration"] is None


def test_what_a_capture_lost_is_told() -> None:
    (gap,) = figures(path("ibp-3.9-a-lossy"))["gaps"]
    assert gap["gaps"] > 0
    assert gap["gap_bytes"] > 0
    assert figures(path("ibp-3.9-a"))["gaps"] == []


def test_one_line_and_text_say_the_same_figures() -> None:
    (line,) = summary(path("ibp-3.9-migration-a"), "--format", "line").stdout.splitlines()
    assert line.startswith(
        "169 requests; 0 refused; 0 unanswered; controllers: 1 (epoch 1, ZooKeeper), 3000 (epoch 2, "
    )
    assert "3 brokers; 28 leader changes; 4 topics deleted; zombies: none" in line
    text = summary(path("ibp-3.9-migration-a")).stdout
    assert "28 leader changes on 15 of 71 partitions" in text


def test_filters_are_those_of_inspect() -> None:
    found = figures(path("ibp-3.9-a"), "--broker", "1,2", "--api", "LeaderAndIsr", "--since", "19:35:00")
    assert {row["api"] for row in found["requests"]} == {"LeaderAndIsr"}
    assert {row["broker_id"] for row in found["slowest"]} == {1, 2}
    assert all(row["first"] >= "2026-11-20T19:35:00" for row in found["controllers"])


def test_standard_input_is_a_capture_too() -> None:
    data = gzip.decompress((CAPTURES / "ibp-3.9-a.pcap.gz").read_bytes())
    piped = json.loads(summary("-", "--format", "json", input=data).stdout)
    assert piped["requests"] == figures(path("ibp-3.9-a"))["requests"]


@pytest.mark.parametrize(
    "words", ["summary", "doctor", "inspect", "query {} events", "report {} --out r.html", "analyze {} --out tables"]
)
def test_a_file_that_is_no_capture_is_skipped_with_a_warning(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("no capture")
    command, _, rest = words.partition(" {}")
    if command != "analyze":  # which starts Spark
        result = run_kproto(command, "notes.txt", path("ibp-3.9-a"), *rest.split())
        assert result.exit_code == 0
        assert result.stderr.startswith("warning: notes.txt: not a capture")
        assert str(tmp_path) not in result.output
    alone = run_kproto(command, "notes.txt", *rest.split())
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert "kproto: notes.txt: not a capture" in alone.stderr
    elsewhere = run_kproto(command, tmp_path.parent / "absent.pcap", *rest.split())
    assert f"kproto: {tmp_path.parent}/absent.pcap: no such file" in elsewhere.stderr


def test_a_damaged_capture_is_warned_of_in_one_line(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(gzip.decompress((CAPTURES / "ibp-3.9-a.pcap.gz").read_bytes())[:-3])
    result = summary(str(cut), "--format", "line")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: cut.pcap: ")
    assert line.endswith("; skipped; all stand in bad_inputs of --format json")


def test_a_state_that_every_broker_refused_did_not_happen() -> None:
    """UpdateMetadata of an outdated controller changes no leader in the figures."""
    found = figures(path("external-controller-a"))
    assert found["changes"]["leader_changes"] == 1


@pytest.mark.parametrize("words", ["summary {} --format line", "query {} leader --limit 1 --format csv"])
def test_neither_spark_nor_pandas_is_loaded(words: str) -> None:
    script = (
        "import sys; from kproto.cli import main\n"
        f"main({words.format(path('ibp-0.8.2-a')).split()!r}, standalone_mode=False)\n"
        "print(sorted({'pyspark', 'py4j', 'pandas', 'rich'} & set(sys.modules)))"
    )
    assert python_prints(script).splitlines()[-1] == "[]"


def test_a_capture_of_other_traffic_says_so() -> None:
    talk = make.Talk().open()
    for number in range(4):
        talk.ask(make.request(18, 0, number, b"", "probe"))
        talk.answer(make.response(18, 0, number, bytes.fromhex("000000000000")))
    result = summary("-", input=make.pcap(talk.close().packets))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no control request" in result.stderr


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "no time"),
        (1, "1970-01-01T00:00:00.000001Z"),
        (1_795_203_290_000_007, "2026-11-20T19:34:50.000007Z"),
        (10**18 + 5, "1000000000000.000005"),  # after the year 9999
        (10**24, "1000000000000000000.000000"),  # after the years that the C library counts
        (10**26, "100000000000000000000.000000"),  # more seconds than it can hold
    ],
)
def test_a_moment_beyond_the_calendar_is_told_in_seconds(us: int, text: str) -> None:
    assert moment(us) == text


def test_what_was_lost_is_told_in_rows() -> None:
    nothing: dict[str, list[Any]] = {"unanswered": [], "unreadable": [], "gaps": [], "bad_inputs": [], "captures": []}
    assert _losses(nothing).rows == []
    losses = {
        "unanswered": [{"count": 2, "reason": "the capture ends"}],
        "unreadable": [{"count": 1, "api": "LeaderAndIsr", "api_version": 7, "reason": "cut off"}],
        "captures": [
            {"file": "b.pcap", "untimed_packets": 1, "not_read": [{"protocol": "WireGuard", "packets": 12_000}]}
        ],
        "gaps": [
            {"file": "a.pcap", "gaps": 1, "gap_bytes": 9, "cut_packets": 0, "ip_fragments": 0, "bad_checksums": 3}
            | {"unmatched_responses": 0, "partial_starts": 0, "dropped_packets": 2}
        ],
        "bad_inputs": [
            {"file": f"{number}.pcap", "offset": 7, "bytes_skipped": 5, "reason": "torn"} for number in range(21)
        ],
    }
    rows = _losses(losses).rows
    assert rows[:8] == [
        ["2 requests", "unanswered", "the capture ends"],
        ["1 request", "LeaderAndIsr v7 cannot be read", "cut off"],
        ["12,000 packets", "WireGuard, not read", "b.pcap"],
        ["1 packet", "without a time", "b.pcap"],
        ["9 bytes in 1 gap", "a.pcap", "missing in the capture"],
        ["3 packets, left out: not the recorded checksum", "a.pcap", "missing in the capture"],
        ["2 packets that the recorder dropped", "a.pcap", "missing in the capture"],
        ["5 bytes skipped", "0.pcap", "torn"],
    ]
    assert rows[26:] == [["5 bytes skipped", "19.pcap", "torn"], ["1 more", "", "--format json lists them"]]


def test_a_row_goes_on_below_only_where_it_is_too_wide() -> None:
    section = Section("Losses", ["what", "_why"], [["gap", "the capture was cut"]])
    whole = "  gap   the capture was cut"
    assert list(lines_of(section, None)) == ["  what  why", whole]
    assert list(lines_of(section, len(whole))) == ["  what  why", whole]
    assert len(list(lines_of(section, len(whole) - 1))) > 2


def test_pyarrow_finds_no_pandas_while_it_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def array(_values: object) -> None:
        try:
            importlib.import_module("pandas")
        except ModuleNotFoundError as e:
            found.append(e.name)

    monkeypatch.setattr(pyarrow, "array", array)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    before = list(sys.meta_path)
    keep_pandas_out()
    assert found == ["pandas"]
    assert sys.meta_path == before
    monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))
    keep_pandas_out()
    assert found == ["pandas"]


# ---- a page ----------------------------------------------------------------------------------------------------------


@given(
    rows=st.lists(
        st.tuples(st.text("ab", min_size=2, max_size=90), st.integers(0, 10**9), st.sampled_from("xy")), min_size=1
    ),
    more=st.integers(0, 9),
    width=st.integers(40, 200),
)
def test_a_row_stays_on_one_line_however_wide_its_cells_are(
    rows: list[tuple[str, int, str]], more: int, width: int
) -> None:
    """What has no room is named; in a pipe everything is shown, and one long name does not pad the others."""
    names = ["~topic", ">count", "kind", *(f"long_heading_{number}" for number in range(more))]
    cells = [[text, str(count), kind, *["2026-11-20T19:47:14.632452Z"] * more] for text, count, kind in rows]
    shown = list(lines_of(Section("t", names, cells), width))
    assert max(map(len, shown)) <= width
    if len({text for text, _, _ in rows}) > 1:
        first = [line.split()[0] for line in shown]
        assert sum(len(word) > 1 and set(word) <= set("ab…") for word in first) == len(rows)
    piped = list(lines_of(Section("t", names, cells), None))
    assert len(piped) == 1 + len(rows)
    for line, (text, count, kind) in zip(piped[1:], rows, strict=True):
        assert line[2:].startswith(text)
        assert line[2 + max(len(text), 40) :].split()[:2] == [str(count), kind] if len(text) > 40 else True
        assert len(line) <= max(len(text), 40) + 2 + 12 + 6 + 30 * more


def test_the_summary_of_a_thousand_brokers_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst come first; --all and JSON show every row."""
    summary = figures(path("ibp-3.9-a"))
    slow = summary["slowest"][0]
    summary["slowest"] = [slow | {"broker_id": number} for number in range(1000)]
    summary["brokers"] = [{"broker_id": number, "host": f"b{number}", "port": 9092} for number in range(1000)]
    refusal = {"first": "2026-11-20T19:35:00Z", "controller_id": 1, "api": "StopReplica", "error": "E", "reason": ""}
    summary["refusals"] = [refusal | {"broker_id": number, "count": number} for number in range(1000)]
    monkeypatch.setattr("kproto.verdicts.summary.summarize", lambda _: summary)
    shown = run_kproto("summary", path("ibp-3.9-a")).stdout.splitlines()
    assert len(shown) < 120
    assert shown.count("  and 988 more: --all shows them") == 3
    place = shown.index("Refused requests")
    assert [line.split()[4] for line in shown[place + 2 : place + 14]] == [str(n) for n in range(999, 987, -1)]
    every = run_kproto("summary", path("ibp-3.9-a"), "--all").stdout.splitlines()
    assert len(every) > 3000
    assert not any("--all" in line for line in every)


def test_of_several_clusters_those_without_a_chosen_request_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").touch()
    names = [path("ibp-3.9-a"), path("ibp-2.8-a"), str(tmp_path / "empty.pcap")]
    every = summary(*names, "--format", "line")
    assert (every.exit_code, every.stdout.count("\n")) == (0, 2)
    assert every.stderr.count("\n") == 1  # the bad input is told once
    since = "2026-11-20T19:37"  # the first was over by then
    (alone,) = map(json.loads, summary(*names, "--format", "json", "--since", since).stdout.splitlines())
    assert alone["cluster"] == "at [::1]:19092"
    none = summary(*names, "--since", "2040-01-01")
    assert (none.exit_code, none.stdout) == (2, "")
