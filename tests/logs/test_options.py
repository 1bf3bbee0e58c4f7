"""What a user tells of a log: its zone, its date, its broker."""

import json
from pathlib import Path

import pytest
from commands import run_kproto
from log_lines import as_log, rows_of

from kproto.cli.options import parse_broker_of
from kproto.errors import ConfigurationError
from kproto.pipeline.options import scan_arguments


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kafka-request.log"
    rows = [row for row in rows_of("ibp-2.8-a") if row["api_key"] == 4]
    path.write_text(as_log([row for row in rows if row["broker"] == rows[0]["broker"]][:5]))
    return path


def inspect(*args: object) -> tuple[list[dict[str, object]], str]:
    result = run_kproto("inspect", "--format", "json", *args)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_the_zone_is_named_or_said(log: Path) -> None:
    here, said = inspect(log)
    there, named = inspect(log, "--log-zone", "+02:00")
    assert [row["time"] for row in there] == [pytest.approx(row["time"] - 7200) for row in here]  # type: ignore[operator]
    assert "--log-zone" in said
    assert "--log-zone" not in named


@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("doctor",),
        ("summary",),
        ("query", "controllers"),
        ("query", "events"),
        ("top", "--once"),
    ],
    ids=" ".join,
)
def test_every_command_says_in_one_line_which_zone_it_assumed(
    command: tuple[str, ...], log: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "kafka-request.log"
    other.parent.mkdir()
    other.write_text(log.read_text().replace("-0 ", "-1 "))
    name, *rest = command
    for options in ((), ("--log-zone", "UTC")):
        result = run_kproto(name, log, other, *rest, *options)
        assert result.exit_code in (0, 1, 3), result.stderr
        said = [line for line in result.stderr.splitlines() if "without a zone" in line]
        assert len(said) == (not options)
        assert all("--log-zone" in line and "UTC" in line for line in said)


def test_check_and_top_are_told_the_date(log: Path) -> None:
    log.write_text(
        "\n".join(line[12:].replace("]", "", 1) for line in log.read_text().splitlines() if "Completed" in line)
    )
    for command in (["check"], ["top", "--once"]):
        result = run_kproto(*command, log, "--log-date", "2019-03-04")
        assert result.exit_code == 0, result.stderr
        assert "--log-date" in (undated := run_kproto(*command, log)).stderr + undated.stdout


def test_the_broker_of_a_log_is_named(log: Path) -> None:
    """LeaderAndIsr alone names no addresses."""
    assert {row["broker_id"] for row in inspect(log, "--broker-of", f"{log}=77")[0]} == {77}


def test_the_date_of_a_log_is_named(log: Path) -> None:
    log.write_text(
        "\n".join(line[12:].replace("]", "", 1) for line in log.read_text().splitlines() if "Completed" in line)
    )
    rows, _ = inspect(log, "--log-date", "2019-03-04")
    assert {int(row["time"]) // 86400 for row in rows} == {17959}  # type: ignore[call-overload]
    result = run_kproto("inspect", log)
    assert result.exit_code == 2
    assert "--log-date" in result.stderr


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (("--log-zone", "Mars/Olympus"), "try e.g. --log-zone UTC"),
        (("--log-date", "yesterday"), "--log-date 2023-11-20"),
        (("--broker-of", "7"), "--broker-of node-a/kafka-request.log=7"),
    ],
)
def test_what_is_wrong_is_told(log: Path, args: tuple[str, str], advice: str) -> None:
    result = run_kproto("inspect", log, *args)
    assert result.exit_code != 0
    assert advice in result.stderr + str(result.exception)


def test_a_log_is_one_brokers(log: Path) -> None:
    assert set(parse_broker_of([f"{log}=7"]).values()) == {7}
    with pytest.raises(ConfigurationError, match="two ids"):
        parse_broker_of([f"{log}=7", f"{log}=8"])


def test_spark_has_to_be_told_the_zone() -> None:
    assert scan_arguments({})["logs"].zone_required
    assert scan_arguments({"log_zone": "UTC"})["logs"].zone == "UTC"
