"""``kproto doctor``: findings for people, for programs and for CI."""

import gzip
import json
import re
from functools import partial
from pathlib import Path

import pytest
from commands import kproto_rows, run_kproto
from table_truth import CAPTURES, name_of, store

from kproto.tables import reading, resolved, scanning
from kproto.verdicts.catalogue import RULES

PATHS = {name_of(path): str(path) for path in CAPTURES}
UNCLEAN = PATHS["ibp-3.9-a"]


doctor = partial(run_kproto, "doctor")
rows = partial(kproto_rows, "doctor")


def test_findings_come_worst_first_with_a_command_that_runs() -> None:
    lines = doctor(UNCLEAN).stdout.splitlines()
    assert lines[0].startswith("trouble  KP011 unclean-election (2), 2026-11-20T19:35:17Z: Broker 0 was elected leader")
    severities = [line.split()[0] for line in lines[::2]]
    assert severities == ["trouble", "note", "note", "note", "note"]
    for line in lines[1::2]:
        command = line.split()
        assert command[0] == "kproto"
        assert run_kproto(*command[1:]).exit_code == 0, line


def test_sentences_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproto.cli.doctor.terminal_width", lambda: 50)
    shown = doctor(UNCLEAN, "--events").stdout + doctor("--explain", "KP011").stdout
    assert "broker left: Broker 0" in shown
    assert not [line for line in shown.splitlines() if len(line) > 50 and not line.startswith("         kproto ")]


def test_json_is_an_object_for_each_finding() -> None:
    found = [row for row in rows(UNCLEAN) if row["rule"] == "KP011"]
    assert [(row["topic"], row["partition"], row["severity"]) for row in found] == [
        ("tVPM9N8d", 0, "trouble"), ("tVPM9N8d", 1, "trouble"),
    ]  # fmt: skip
    assert {"rule", "name", "severity", "text", "first", "last", "count", "broker_id", "cannot_tell"} < found[0].keys()


@pytest.mark.slow
def test_each_cluster_in_tables_is_judged_by_itself(tmp_path: Path) -> None:
    store(tmp_path, Path(PATHS["ibp-3.9-a"]), Path(PATHS["ibp-2.8-a"]))
    found = rows(str(tmp_path))
    for name, cluster in (("ibp-3.9-a", "default"), ("ibp-2.8-a", "at [::1]:19092")):
        alone = [row | {"cluster": None} for row in rows(PATHS[name])]
        mine = [row for row in found if row["cluster"] == cluster]
        assert [row | {"cluster": None} for row in mine] == alone
        assert f"cluster {cluster}" in doctor(str(tmp_path)).stdout.splitlines()
        for sources in ([str(tmp_path)], [PATHS["ibp-3.9-a"], PATHS["ibp-2.8-a"]]):
            assert [row | {"cluster": None} for row in rows(*sources, "--cluster", cluster)] == alone
    assert "no traffic of cluster 'west' is here; there is default" in doctor(str(tmp_path), "--cluster", "west").stderr
    (tmp_path / "known.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    assert rows(str(tmp_path), "--baseline", str(tmp_path / "known.jsonl")) == []
    assert rows(PATHS["ibp-3.9-a"], "--baseline", str(tmp_path / "known.jsonl")) == rows(PATHS["ibp-3.9-a"])
    assert "ibp" not in doctor(str(tmp_path), "--redact").stdout


@pytest.mark.parametrize(
    ("name", "severity", "code"),
    [("ibp-3.9-a", "trouble", 1), ("ibp-3.9-big-a", "warning", 0), ("ibp-3.9-big-a", "note", 1)],
)
def test_the_exit_code_says_whether_it_is_as_bad_as_that(name: str, severity: str, code: int) -> None:
    assert doctor(PATHS[name], "--fail-on", severity).exit_code == code


def test_rules_are_chosen_and_left_out_by_id_or_name() -> None:
    assert {row["rule"] for row in rows(UNCLEAN, "--rule", "kp011")} == {"KP011"}
    assert {row["rule"] for row in rows(UNCLEAN, "--ignore", "unclean-election")} == {"KP010", "KP035"}


def test_a_baseline_leaves_only_what_is_new(tmp_path: Path) -> None:
    known = tmp_path / "known.jsonl"
    known.write_text(doctor(UNCLEAN, "--format", "json").stdout, encoding="utf-8")
    result = doctor(UNCLEAN, "--baseline", str(known), "--fail-on", "note")
    told = "6 findings left out by --baseline: KP010 1, KP011 2, KP035 3\n"
    assert (result.exit_code, result.stdout) == (0, told)
    known.write_text("{}\n", encoding="utf-8")
    assert "is no baseline" in doctor(UNCLEAN, "--baseline", str(known)).stderr


def test_a_limit_changes_what_is_found() -> None:
    assert not [row for row in rows(PATHS["ibp-2.6-a"]) if row["rule"] == "KP021"]
    assert [row for row in rows(PATHS["ibp-2.6-a"], "--limit", "min-isr=3") if row["rule"] == "KP021"]


def test_redacted_output_names_no_topic_host_or_file() -> None:
    for form in ("text", "json"):
        shown = doctor(PATHS["external-controller-a"], "--redact", "--format", form).stdout
        assert "topic-" in shown
        for secret in ("noleader", "err.topic", "127.0.0.1", "external-controller"):
            assert secret not in shown


def test_standard_input_gives_the_findings_of_the_file() -> None:
    with Path(UNCLEAN).open("rb") as file:
        piped = doctor("-", "--format", "json", input=file.read()).stdout
    assert piped == doctor(UNCLEAN, "--format", "json").stdout


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_explained_without_reading_anything(rule: str) -> None:
    text = doctor("--explain", rule).stdout
    assert text.startswith(f"{rule} {RULES[rule].name} (")
    assert "What to do: " in text
    assert max(map(len, text.splitlines())) <= 80


def test_all_rules_and_limits_are_listed() -> None:
    text = doctor("--explain", "all").stdout
    assert all(rule in text for rule in RULES)
    assert "offline=30 (s)" in text
    assert "--explain is text" in doctor("--explain", "all", "--format", "json").stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x", "--rule", "KP999"], "there is no rule 'KP999'"),
        (["x", "--rule", "KP11"], "there is no rule 'KP11'; did you mean KP011"),
        (["--explain", "zombies"], "there is no rule 'zombies'"),
        (["x", "--limit", "speed=3"], "there is no limit 'speed'"),
        (["x", "--rule", "Zombie"], "try zombie-controller-accepted, zombie-controller-refused, or kproto doctor"),
        (["x", "--limit", "offline"], "'offline' is not NAME=VALUE"),
        *((["x", "--limit", f"offline={value}"], "a number from 0 on") for value in ("nan", "inf", "-3", "1s")),
        (["x", "--since", "12:00"], "there is no option --since, which inspect, summary and query have"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], told: str) -> None:
    result = doctor(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.slow
def test_a_summary_begins_with_the_same_findings() -> None:
    (summary,) = kproto_rows("summary", UNCLEAN)
    assert next(iter(summary)) == "findings"
    assert summary["findings"] == rows(UNCLEAN)
    text = run_kproto("summary", UNCLEAN).stdout.splitlines()
    assert text[0] == "Findings"
    assert text[2].strip() == doctor(UNCLEAN).stdout.splitlines()[0]
    (chosen,) = kproto_rows("summary", UNCLEAN, "--broker", "1")
    assert chosen["findings"] is None  # of a part of the requests nothing follows


@pytest.mark.slow
def test_findings_of_a_long_stream_rest_on_its_last_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "scan", partial(scanning.scan, batch_bytes=5000))
    monkeypatch.setattr(resolved, "chunks_of", partial(reading.chunks_of, chunk_bytes=5000))
    assert "left out" not in doctor(UNCLEAN).stderr
    monkeypatch.setattr("kproto.cli.doctor._MOST_REQUESTS", 50)
    result = doctor(UNCLEAN)
    assert result.exit_code == 0
    assert re.search(r"findings are of the last \d+ requests; \d+ earlier ones are left out", result.stderr)


@pytest.mark.parametrize("name", ["ibp-3.9-a", "ibp-2.8-a"])
def test_under_min_isr_is_told_as_present_only_of_partitions_that_lack_replicas_now(name: str) -> None:
    result = run_kproto("query", PATHS[name], "diff", "--from", "0", "--format", "json")
    isr = {(row["topic"], row["partition"]): row["isr"] for row in map(json.loads, result.stdout.splitlines())}
    found = rows(PATHS[name], "--rule", "KP021", "--limit", "min-isr=2", "--limit", "under-min-isr=1")
    changed = [row for row in found if (row["topic"], row["partition"]) in isr]
    assert len(changed) > 5
    for row in changed:
        number = len(isr[row["topic"], row["partition"]])
        assert (f"-{row['partition']} has {number} in-sync replicas" in str(row["text"])) is (0 < number < 2)


def test_files_that_cannot_be_read_are_told_once(tmp_path: Path) -> None:
    """No finding rests on them: "nothing is wrong" without a word on them would be a verdict on what nobody read."""
    (tmp_path / "empty.pcap").touch()
    (tmp_path / "secret photo.pcap").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "control.pcap.gz").symlink_to(UNCLEAN)
    told = doctor(str(tmp_path)).stderr
    assert told.count("\n") == 1
    assert "empty.pcap: an empty file; nothing was recorded in it; skipped, with 1 more bad input in 2 files" in told
    redacted = doctor(str(tmp_path), "--redact").stderr
    assert "a file cannot be read; skipped, with 1 more bad input in 2 files" in redacted
    assert "empty" not in redacted
    alone = doctor(str(tmp_path / "empty.pcap"))
    assert (alone.exit_code, alone.stderr.count("\n")) == (2, 1)


def test_a_directory_of_logs_beside_a_capture_is_said_to_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "control.pcap.gz").symlink_to(UNCLEAN)
    for name in ("broker 0", "broker 1", "broker 2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state-change.log").write_text("no line")
    (note,) = doctor(str(tmp_path)).stderr.splitlines()
    assert note == f"note: {tmp_path}/broker 0 and 2 other directories are not read with {tmp_path}; name them, too"
    assert doctor(str(tmp_path), "--redact").stderr == ""
    assert doctor(str(tmp_path / "control.pcap.gz")).stderr == ""


def test_a_damaged_copy_of_what_another_capture_shows_is_told_beside_several_clusters(tmp_path: Path) -> None:
    """No cluster has the copy's captures, so that no finding tells of the damage."""
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(gzip.decompress(Path(UNCLEAN).read_bytes())[:300_000])
    alone, beside = doctor(UNCLEAN, str(cut)), doctor(UNCLEAN, str(cut), PATHS["ibp-2.8-a"])
    assert ("KP065" in alone.stdout, alone.stderr) == (True, "")
    assert ("KP065" in beside.stdout, beside.stderr.count("\n")) == (False, 1)
    assert beside.stderr.startswith("warning: cut.pcap: the file ends within a packet")
