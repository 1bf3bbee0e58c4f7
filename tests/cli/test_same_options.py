"""Options that several commands share mean the same in each of them: what one selects, the others select."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import kproto_rows as objects
from commands import run_kproto
from conftest import few
from log_lines import as_log, rows_of

from channel import EmbeddedCluster

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
CAPTURE = CAPTURES / "ibp-3.9-a.pcap.gz"
COUNT = ["--sql", "select api_key, count(*) n from requests group by all order by all"]

FILTERS = [
    ["--api", "StopReplica"],
    ["--topic", "tVPM9N8d"],
    ["--partition", "tVPM9N8d-0"],
    ["--controller", "2"],
    ["--errors"],
    ["--ports", "19093"],
]


@pytest.fixture
def broker() -> Iterator[str]:
    with EmbeddedCluster([1]) as cluster:
        yield f"{cluster[1].host}:{cluster[1].port}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A request log of broker 1 without a zone: LeaderAndIsr alone, which names no addresses."""
    path = tmp_path / "kafka-request.log"
    rows = [row for row in rows_of("ibp-2.8-a") if (row["api_key"], row["broker"]) == (4, 1)]
    path.write_text(as_log(rows[:5]))
    return path


@pytest.mark.parametrize("options", few(FILTERS, 3), ids=lambda options: options[0])
def test_replay_sends_what_inspect_shows(options: list[str], broker: str) -> None:
    shown = objects("inspect", CAPTURE, "--broker", "1", *options)
    result = run_kproto("replay", CAPTURE, "--to", broker, "--broker", "1", *options)
    assert result.exit_code in (0, 1), result.output  # 1: the answers differ, as requests before them are left out
    assert f"{len(shown)} request" in result.output
    assert 0 < len(shown) < 150


@pytest.mark.parametrize("options", few(FILTERS, 3), ids=lambda options: options[0])
def test_summary_and_query_count_what_inspect_shows(options: list[str]) -> None:
    shown = objects("inspect", CAPTURE, *options)
    summed = objects("summary", CAPTURE, *options)[0]["requests"]
    assert sum(row["count"] for row in summed) == len(shown) < 348
    if options[0] == "--ports":  # the others select rows of answers there, not requests
        assert sum(row["n"] for row in objects("query", CAPTURE, *COUNT, *options)) == len(shown)


def test_a_question_is_answered_for_a_controller_alone() -> None:
    everything = objects("query", CAPTURE, "leader")
    for controller in (0, 2):
        mine = [row for row in everything if row["controller_id"] == controller]
        assert 0 < len(mine) < len(everything)
        assert objects("query", CAPTURE, "leader", "--controller", controller) == mine


def test_top_reads_the_ports_that_are_named() -> None:
    def shown(*options: str) -> str:
        result = run_kproto("top", "--once", CAPTURE, "--window", "3600", *options)
        assert result.exit_code == 0, result.output
        return result.output

    assert "no control request" in shown("--ports", "9092")
    assert shown("--ports", "19092,19093,19094").splitlines()[1:] == shown().splitlines()[1:]


@pytest.mark.slow
def test_a_cluster_is_the_same_in_each_command() -> None:
    other = CAPTURES / "ibp-2.8-a.pcap.gz"
    both = [CAPTURE, other, "--cluster", "default"]
    assert objects("inspect", *both) == objects("inspect", CAPTURE)
    alone, chosen = objects("summary", CAPTURE)[0], objects("summary", *both)[0]
    assert chosen["requests"] == alone["requests"]
    assert objects("query", *both, *COUNT) == objects("query", CAPTURE, *COUNT)


@pytest.mark.parametrize("command", ["inspect", "summary", "doctor", "query", "replay"])
@pytest.mark.parametrize(
    ("option", "advice"),
    [
        (("--log-zone", "Mars/Olympus"), "try e.g. --log-zone UTC"),
        (("--log-date", "yesterday"), "--log-date 2023-11-20"),
        (("--broker-of", "7"), "--broker-of node-a/kafka-request.log=7"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_is_wrong_with_an_option_of_logs_is_told(
    command: str, option: tuple[str, str], advice: str, log: Path
) -> None:
    more = {"query": ["leader"], "replay": ["--to", "127.0.0.1:1"]}.get(command, [])
    result = run_kproto(command, log, *more, *option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert advice in result.stderr


def test_the_zone_the_date_and_the_broker_of_a_log_are_told_to_each_command(log: Path, broker: str) -> None:
    plain = objects("inspect", log, "--log-zone", "UTC")[0]["time"]
    sql = ["--sql", "select epoch(ts) t, broker_id b from requests order by ts limit 1"]
    options = ["--log-zone", "+02:00", "--broker-of", f"{log}=1"]
    assert objects("query", log, *sql, *options) == [{"t": pytest.approx(plain - 7200), "b": 1}]
    sent = objects("replay", log, "--to", broker, *options)
    assert len(sent) == 5
    told = run_kproto("doctor", log, "--events", "--log-date", "2019-03-04", *options)
    assert told.exit_code == 0, told.output
    log.write_text("\n".join(line[12:].replace("]", "", 1) for line in log.read_text().splitlines()))
    assert objects("query", log, *sql, "--log-date", "2019-03-04")[0]["t"] // 86400 == 17959


def test_tables_are_described_with_and_without_the_word() -> None:
    plain, said = (run_kproto("tables", *words, "requests", "--format", "json").stdout for words in ([], ["describe"]))
    assert json.loads(plain).keys() == {"requests"}
    assert plain == said
