"""``kproto report``: a page from a capture or from tables, and one line for what cannot be shown."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from commands import run_kproto

from kproto.errors import CaptureError
from kproto.generate import PlannedFleet, write_captures
from kproto.report import Limits

CAPTURE = Path(__file__).parent.parent / "data" / "captures" / "external-controller-a.pcap.gz"

report = partial(run_kproto, "report")


def test_a_capture_makes_a_page_and_what_stands_out_is_said(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("a former page")
    result = report(str(CAPTURE), "--out", str(out))
    assert result.exit_code == 0
    title, *sentences, last = result.stdout.splitlines()
    assert title == "What stands out"
    assert sentences[0] == "  Controllers 77 and 78 both had epoch 1."
    assert last.startswith(f"{out}: 117 partitions, ")
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_of_many_findings_of_a_rule_the_first_are_printed(tmp_path: Path) -> None:
    write_captures(PlannedFleet(brokers=9, restarts=0, deletions=0, failovers=1, zombies=1), tmp_path)
    result = report(str(tmp_path / "control.pcap"), "--out", str(tmp_path / "page.html"))
    refused = [line for line in result.stdout.splitlines() if "refused 1 request" in line]
    assert len(refused) == 5
    assert "  and 4 more of rule KP002, which the page lists" in result.stdout.splitlines()


def test_a_small_page_says_what_it_leaves_out(tmp_path: Path) -> None:
    result = report(str(CAPTURE), "--partitions", "3", "--out", str(tmp_path / "page.html"))
    assert "note: The timeline shows 3 of 117 partitions" in result.stdout


def test_a_page_has_ten_states_for_each_partition_that_it_may_show(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Limits] = []

    def refuse(*_sources: object, limits: Limits, **_options: object) -> None:
        asked.append(limits)
        raise CaptureError("enough")

    monkeypatch.setattr("kproto.report.write_report", refuse)
    assert report(str(CAPTURE), "--partitions", "7", "--out", "-").exit_code == 2
    assert [(limits.partitions, limits.states) for limits in asked] == [(7, 70)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "nowhere: no such file or directory; check the path, or make tables: kproto analyze"),
        ((str(CAPTURE), "--out", "nowhere/page.html"), "there is no directory nowhere for page.html"),
        ((__file__,), "test_report.py"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = report(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_page_for_standard_output_comes_alone_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = report(str(CAPTURE), "--out", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert result.stdout.rstrip().endswith("</html>")
    assert result.stderr.startswith("What stands out\n")
    assert list(tmp_path.iterdir()) == []


def test_a_page_goes_through_a_link_or_a_pipe_and_leaves_both_in_place(tmp_path: Path) -> None:
    (tmp_path / "shared.html").write_text("a former page")
    (tmp_path / "link.html").symlink_to("shared.html")
    assert report(str(CAPTURE), "--out", str(tmp_path / "link.html")).exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "shared.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe, ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read)
        try:
            assert report(str(CAPTURE), "--out", f"/dev/fd/{writer}").exit_code == 0
        finally:
            os.close(writer)
        assert read.result(timeout=60).startswith(b"<!DOCTYPE html>")
