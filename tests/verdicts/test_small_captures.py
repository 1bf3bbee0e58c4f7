"""Captures made by hand, each of which shows one fault, or none."""

import gzip
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pytest
from commands import run_kproto
from conftest import DATA
from table_truth import CAPTURES, name_of

import kproto.tables
from kproto.error_codes import ErrorCode
from kproto.tables.resolved import resolved_pieces, resolved_tables
from kproto.verdicts.doctor import Finding
from kproto.verdicts.facts import Facts
from kproto.verdicts.rules import findings

PATHS = {name_of(path): path for path in CAPTURES}


def found_in(path: Path) -> list[Finding]:
    return findings(Facts(resolved_pieces([str(path)])))


def made(name: str) -> list[Finding]:
    return found_in(DATA / "verdicts" / f"{name}.pcapng.gz")


def alarms(found: list[Finding]) -> set[str]:
    return {finding.rule for finding in found if finding.severity != "note"}


doctor = partial(run_kproto, "doctor")


def test_another_topic_id_of_a_living_topic_is_no_new_topic() -> None:
    assert alarms(made("topic_id_changed")) == {"KP043"}


def test_a_partition_that_only_requests_name_whose_broker_has_another_of_that_name_is_none() -> None:
    tables = kproto.tables.read(PATHS["external-controller-a"])
    errors = tables["partition_errors"]
    refused = errors.filter(pc.equal(errors["error_code"], ErrorCode.INCONSISTENT_TOPIC_ID))["frame_id"]
    requests = tables["requests"]
    requests = requests.filter(pc.is_in(requests["frame_id"], value_set=refused))
    facts = Facts([resolved_tables({**tables, "requests": requests})])
    assert facts.requests
    assert facts.present == {}
    assert alarms(findings(facts)) == {"KP003", "KP043"}


def test_controllers_that_replace_each_other_all_the_time_are_a_warning() -> None:
    (found,) = [f for f in made("controller_storm") if f.severity != "note"]
    assert (found.rule, found.count) == ("KP008", 29)


def test_a_broker_that_answers_nothing_is_a_warning_with_the_time() -> None:
    found = made("hung_broker")
    (silent,) = [f for f in found if f.rule == "KP037"]
    assert (silent.broker, silent.severity) == (2, "warning")
    assert 9.5 * 60 < (silent.last - silent.first) / 1e6 < 10 * 60
    assert [f.broker for f in found if f.rule == "KP030"] == [2]  # its partition changes all the time


def test_a_deletion_is_not_missed_by_brokers_whose_ids_are_unknown() -> None:
    assert alarms(made("healthy_names")) == set()


def test_an_answer_that_the_capture_lacks_is_no_fault_of_the_broker() -> None:
    lacking = [f for f in found_in(PATHS["ibp-3.9-a-lossy"]) if f.rule == "KP033"]
    assert lacking
    assert all(f.cannot_tell for f in lacking)


def test_before_broker_epochs_restarts_are_those_that_the_live_brokers_show() -> None:
    found = [f for f in found_in(PATHS["ibp-1.0-a"]) if f.rule == "KP035"]
    assert {f.broker for f in found if not f.cannot_tell}
    (unsure,) = [f for f in found if f.cannot_tell]
    assert "before inter-broker protocol 2.2" in unsure.text
    assert not [f for f in found_in(PATHS["ibp-2.4-IV1-a"]) if f.rule == "KP035" and f.cannot_tell]


def test_a_cut_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap.gz"
    cut.write_bytes(PATHS["ibp-3.9-big-a"].read_bytes()[:70_000])
    shown = doctor(str(cut)).stdout
    assert "KP065 damaged-file" in shown
    assert "Nothing is wrong" not in shown
    filtered = doctor(str(cut), "--ignore", "KP065").stdout
    assert "Nothing is wrong" not in filtered
    assert "left out by --ignore: KP065 1" in filtered


def test_lines_of_a_log_that_cannot_be_read_make_absence_uncertain(tmp_path: Path) -> None:
    log = gzip.decompress((DATA / "request_log" / "broker-0-kafka-request.log.gz").read_bytes()).splitlines(True)
    path = tmp_path / "kafka-request.log"
    cut = next(number for number, line in enumerate(log) if b'"requestApiKey":4,' in line)
    path.write_bytes(b"".join(line[:-50] + b"\n" if number == cut else line for number, line in enumerate(log)))
    facts = Facts([kproto.tables.read(path)])
    assert facts.unread_lines == 1
    assert "KP065" in {f.rule for f in findings(facts)}


@pytest.mark.parametrize("option", [("--rule", "KP001"), ("--ignore", "KP011"), ("--baseline", "known")])
def test_a_filtered_answer_is_a_part_of_the_whole_and_says_so(tmp_path: Path, option: tuple[str, str]) -> None:
    path = str(PATHS["ibp-3.9-a"])
    every = doctor(path, "--format", "json").stdout.splitlines()
    known = tmp_path / "known"
    known.write_text("\n".join(every[:1]))
    name, value = option
    options = [name, str(known) if value == "known" else value]
    result = doctor(path, *options, "--format", "json")
    assert set(result.stdout.splitlines()) < set(every)
    assert f"left out by {name}" in result.stderr
    shown = doctor(path, *options).stdout
    assert f"left out by {name}" in shown
    assert "Nothing is wrong" not in shown
