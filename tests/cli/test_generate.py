"""``kproto generate``: files that the other commands read, and one line where it refuses."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import run_kproto as run
from conftest import few
from expected_tables import expected_tables

import kproto.generate
import kproto.tables
from kproto.generate import write_captures


def test_a_generated_capture_is_summed_up(tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    made = run("generate", "--out", str(out), "--brokers", "4", "--partitions", "40", "--isr-changes", "9")
    assert made.exit_code == 0, made.output
    assert made.output == f"{out / 'control.pcap'}  {(out / 'control.pcap').stat().st_size:,} bytes\n"
    summary = json.loads(run("summary", str(out), "--format", "json").output)
    assert {row["controller_epoch"] for row in summary["controllers"]} == {1, 2}
    assert summary["changes"]["partitions"] == 40


@pytest.mark.parametrize(
    ("option", "least"),
    [("brokers", 1), ("topics", 1), ("partitions", 1), ("replication", 1), ("batch", 1), ("restarts", 0)],
)
def test_help_names_the_least_number_that_is_taken(option: str, least: int, tmp_path: Path) -> None:
    told = re.search(rf"--{option} N .*?; (x>=\d)\]", " ".join(run("generate", "--help").output.split()))
    assert told is not None
    assert told[1] == f"x>={least}"
    refused = run("generate", "--out", str(tmp_path), f"--{option}", str(least - 1))
    assert refused.exit_code == 2
    assert f"{least - 1} is not in the range x>={least}" in refused.stderr


def test_json_names_the_files(tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    made = run("generate", "--out", str(out), "--partitions", "20", "--per-host", "--format", "json")
    told = json.loads(made.output)
    assert len(told["files"]) == 10
    assert told["bytes"] == sum(path.stat().st_size for path in out.iterdir())


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    refused = run("generate", "--out", str(tmp_path))
    assert refused.exit_code == 2
    assert "not empty" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_size_that_is_none_is_refused(tmp_path: Path) -> None:
    refused = run("generate", "--out", str(tmp_path / "out"), "--size", "many")
    assert refused.exit_code == 2
    assert "try e.g. 250M" in refused.output


@pytest.mark.parametrize("hours", ["nan", "inf", "0", "1e9"])
def test_hours_without_times_in_a_pcap_are_refused(tmp_path: Path, hours: str) -> None:
    refused = run("generate", "--out", str(tmp_path / "out"), "--hours", hours)
    assert refused.exit_code == 2
    assert "hours must be above 0 and at most 500000" in refused.output
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control.pcap").touch()
    refused = run("generate", "--out", str(tmp_path / "control.pcap"))
    assert refused.exit_code == 2
    assert "control.pcap: a file; name a directory with --out" in refused.output


SMALL = {"brokers": 4, "topics": 2, "partitions": 20, "isr_changes": 5}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--topics", 5),
        ("--replication", 2),
        ("--failovers", 3),
        ("--restarts", 4),
        ("--elections", 2),
        ("--batch", 3),
        ("--zombies", 0),
        ("--deletions", 2),
        ("--loss", 0.3),
        ("--capture-loss", 0.3),
        ("--bodies", "distinct"),
    ],
)
def test_an_option_sets_the_field_of_its_name(option: str, value: Any, tmp_path: Path) -> None:
    small = [text for name, number in SMALL.items() for text in (f"--{name.replace('_', '-')}", str(number))]
    made = run("generate", "--out", str(tmp_path / "made"), *small, option, str(value))
    assert made.exit_code == 0, made.output
    fields: dict[str, Any] = {**SMALL, option[2:].replace("-", "_"): value}
    for name, of in (("default", SMALL), ("with", fields)):
        (tmp_path / name).mkdir()
        write_captures(kproto.generate.PlannedFleet(**of), tmp_path / name)
    found, default, expected = ((tmp_path / n / "control.pcap").read_bytes() for n in ("made", "default", "with"))
    assert found == expected != default


@pytest.mark.parametrize(
    ("option", "setting"),
    [(("--rotate", "20K"), {"rotate_bytes": 20_000}), (("--zstd",), {"zstd": True}), (("--mss", "500"), {"mss": 500})],
)
def test_an_option_sets_how_files_are_written(option: tuple[str, ...], setting: Any, tmp_path: Path) -> None:
    made = run("generate", "--out", str(tmp_path / "made"), "--partitions", "20", *option)
    assert made.exit_code == 0, made.output
    contents = []
    for name, settings in (("made", None), ("default", {}), ("with", setting)):
        if settings is not None:
            (tmp_path / name).mkdir()
            write_captures(kproto.generate.PlannedFleet(partitions=20), tmp_path / name, **settings)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    found, default, expected = contents
    assert found == expected != default


def test_a_capture_goes_through_a_pipe(tmp_path: Path) -> None:
    options = ["--partitions", "20", "--isr-changes", "5", "--seed", "3"]
    out = tmp_path / "fleet"
    assert run("generate", "--out", str(out), *options).exit_code == 0
    piped = run("generate", "--out", "-", *options)
    assert piped.stdout_bytes == (out / "control.pcap").read_bytes()
    refused = run("generate", "--out", "-", "--per-host")
    assert refused.exit_code == 2
    assert "standard output holds one capture" in refused.output


@pytest.mark.parametrize("packed", few([[], ["--zstd"], ["--zstd", "--rotate", "20K"]]))
def test_the_expected_ids_are_those_that_are_read_however_the_capture_is_packed(
    packed: list[str], tmp_path: Path
) -> None:
    made = run("generate", "--out", str(tmp_path), "--partitions", "20", "--mss", "700", *packed)
    assert made.exit_code == 0, made.output
    files = sorted(tmp_path.iterdir())
    assert {path.suffix == ".zst" for path in files} == {bool(packed)}
    assert (len(files) > 1) == ("--rotate" in packed)
    found = kproto.tables.read(*files)
    expected = expected_tables(kproto.generate.PlannedFleet(partitions=20), mss=700)
    for name, column in (("requests", "frame_id"), ("responses", "response_frame_id"), ("frames", "conn_id")):
        wanted = expected[name][column].to_pylist()
        assert sorted(found[name][column].to_pylist()) == sorted(wanted) != [], name


def test_planted_faults_are_written_beside_the_capture(tmp_path: Path) -> None:
    options = ["--plant", "missed-update, two-leaders", "--partitions", "40"]
    made = run("generate", "--out", str(tmp_path / "out"), *options)
    assert made.exit_code == 0, made.output
    truth = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert {fault["name"] for fault in truth["planted"]} == {"missed-update", "two-leaders"}
    assert {"KP014", "KP031"} <= {finding["rule"] for finding in truth["required"]}


def test_the_metadata_logs_of_a_kraft_cluster_are_written_with_their_truth(tmp_path: Path) -> None:
    options = ["--controllers", "2", "--partitions", "30", "--eligible-elections", "2", "--plant", "unclean-election"]
    made = run("generate", "--out", str(tmp_path / "out"), "--kraft", *options, "--format", "json")
    assert made.exit_code == 0, made.output
    files = json.loads(made.output)["files"]
    assert sorted({file.split("/")[-3] for file in files}) == ["node1000", "node1001"]
    truth = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert [fault["name"] for fault in truth["planted"]] == ["unclean-election"]
    found = json.loads(run("doctor", str(tmp_path / "out"), "--format", "json").output.splitlines()[0])
    assert found["rule"] == "KP011"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kraft", "--zstd"], "--zstd is about captures; leave it out with --kraft"),
        (["--kraft", "--plant", "zombie"], "zombie: no fault that can be planted; there are isr-flapping, "),
        (["--plant", "rust"], "rust: no fault that can be planted; there are behind, "),
        (["--plant", "behind", "--plants", "2"], "give one of the two"),
        (["--migration", "--protocol", "2.4"], "a migration needs --protocol 3.9"),
    ],
)
def test_faults_that_cannot_be_planted_are_refused(tmp_path: Path, options: list[str], says: str) -> None:
    refused = run("generate", "--out", str(tmp_path / "out"), *options)
    assert refused.exit_code == 2
    assert says in refused.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("failure", "code", "says"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "kproto: {out}: no space left on device\n"),
    ],
    ids=["Ctrl-C", "full disk"],
)
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(("writer", "kind"), [("write_captures", []), ("write_metadata_logs", ["--kraft"])])
def test_nothing_is_left_behind_of_files_that_cannot_be_completed(
    failure: BaseException, code: int, says: str, is_there: bool, writer: str, kind: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def write(fleet: object, directory: Path, **settings: Any) -> None:
        getattr(kproto.generate, writer)(fleet, directory, **settings)
        raise failure

    out = tmp_path / "new" / "fleet"
    if is_there:
        out.mkdir(parents=True)
    monkeypatch.setattr(f"kproto.cli.generate.{writer}", write)
    made = run("generate", "--out", str(out), "--partitions", "40", "--isr-changes", "9", *kind)
    assert (made.exit_code, made.stderr) == (code, says.format(out=out))
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if is_there else [])
