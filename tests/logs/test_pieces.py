"""Logs that are rotated anywhere, kept twice under any name, or saved in pieces that overlap are the plain log."""

import gzip
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from state_runs import files_of, logs_of

from kproto import tables
from kproto.capture import CaptureSummary, capture_points, exchanges

LOGS = {
    "TRACE": logs_of("kafka-2.8.2", "TRACE")["broker-1/state-change.log"].splitlines(keepends=True)[700:1000],
    "INFO": logs_of("ibp-3.9-a", "INFO")["broker-1/state-change.log"].splitlines(keepends=True)[-400:],
    "controller.log": logs_of("kafka-2.8.2", "INFO")["broker-1/controller.log"].splitlines(keepends=True),
    "KRaft": logs_of("kraft-3.9.1", "INFO")["broker-1/state-change.log"].splitlines(keepends=True),
    "requests": files_of("kafka-2.0.1")["broker-1/kafka-request.log"].splitlines(keepends=True)[:60],
}
ANY = ["server.log", "copy.txt", "old.log", "state-change.log.2026-11-26-20", "state-change.log", "kafka-1.log"]
ROTATED = [f"kafka.log{rotation}" for rotation in (".2026-11-26-20", ".3", ".2", ".1", "")]


def told(path: Path) -> tuple[Counter[Any], list[str]]:
    summary = CaptureSummary()
    found = Counter(
        (str(each.server), each.api_key, each.correlation_id, each.time_ns, json.dumps(each.to_json()["request"]))
        for each in exchanges(path, summary=summary)
    )
    return found, [bad.reason for bad in summary.bad_inputs]


@st.composite
def _pieces(draw: st.DrawFn) -> list[tuple[str, float, float, int]]:
    """Pieces of a log: the name, the begin and the end between 0 and 1, and how many lines earlier it begins.

    They overlap by a line with a time or more, whatever their names are; or rotation named them. One more may stand
    within one of them.
    """
    place = st.floats(0, 1)
    overlap = draw(st.sampled_from([0, 1, 30]))
    cuts = [0.0, *sorted(draw(st.lists(place, max_size=4))), 1.0]
    found = [(*part, overlap) for part in pairwise(cuts)]
    names = draw(st.permutations(ANY))
    names = names if overlap else [*ROTATED[-len(found) :], *names]
    if draw(st.booleans()):
        begin, end, _ = draw(st.sampled_from(found))
        cut = sorted(begin + draw(place) * (end - begin) for _ in range(2))
        found.append((cut[0], cut[1], 0))
    return [(name + draw(st.sampled_from(["", ".gz"])), *part) for name, part in zip(names, found, strict=False)]


def _with_time(lines: list[bytes], number: int) -> int:
    """The line from which on an exception's lines, which have no time, are not cut from theirs."""
    while number < len(lines) and not lines[number].startswith(b"["):
        number -= 1
    return number


@pytest.mark.parametrize("log", LOGS)
@settings(max_examples=settings().max_examples // 4)
@given(pieces=_pieces())
@example(pieces=[("state-change.log.2026-11-26-20", 0, 0.3, 0), ("state-change.log", 0.3, 1, 0)])
@example(pieces=[("all.log", 0, 1, 0), ("tail.log", 0.5, 1, 0)])
@example(pieces=[("1.txt", 0, 0.6, 0), ("0.txt.gz", 0.4, 1, 0), ("all.log", 0.1, 0.5, 0)])
def test_pieces_of_a_log_are_the_log(log: str, pieces: list[tuple[str, float, float, int]]) -> None:
    lines = LOGS[log]
    with TemporaryDirectory() as folder:
        (Path(folder) / "whole.log").write_bytes(b"".join(lines))
        whole = told(Path(folder) / "whole.log")
        (Path(folder) / "whole.log").unlink()
        assert whole[0].total() > 10
        began = set()
        for name, begin, end, overlap in pieces:
            cut, last = (_with_time(lines, round(place * len(lines))) for place in (begin, end))
            first = _with_time(lines, max(cut - overlap, 0))
            if data := b"".join(lines[first:last]):
                assume(lines[first][:24] not in began)  # of pieces of one millisecond the order is not known
                began.add(lines[first][:24])
                (Path(folder) / name).write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
        assert told(Path(folder)) == whole


@pytest.mark.parametrize(("run", "level"), [("kafka-2.8.2", "TRACE"), ("kafka-2.8.2", "INFO"), ("ibp-3.9-a", "INFO")])
def test_a_file_of_all_loggers_beside_the_logs_adds_nothing(run: str, level: str, tmp_path: Path) -> None:
    """The standard output of a container, which the same lines stand in, plain or in Docker's file."""
    lines = []
    for name, data in logs_of(run, level).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
        if name.startswith("broker-1/"):
            lines += [line for line in data.splitlines(keepends=True) if line.startswith(b"[20")]
    alone = tables.read(tmp_path)["requests"]["frame_id"].to_pylist()
    lines.sort(key=lambda line: line[:25])
    (tmp_path / "pod-1").mkdir()
    (tmp_path / "pod-1" / "server.log").write_bytes(b"".join(lines))
    (tmp_path / "pod-2").mkdir()
    times = [line[1:24].decode().replace(" ", "T").replace(",", ".") + "999Z" for line in lines]
    docker = [json.dumps({"log": line.decode(), "time": time}) for line, time in zip(lines, times, strict=True)]
    (tmp_path / "pod-2" / "1-json.log").write_text("\n".join(docker))
    assert sorted(tables.read(tmp_path)["requests"]["frame_id"].to_pylist()) == sorted(alone)


def test_logs_that_only_begin_alike_are_no_pieces(tmp_path: Path) -> None:
    lines = LOGS["TRACE"]
    (tmp_path / "one.log").write_bytes(b"".join(lines))
    (tmp_path / "other.log").write_bytes(b"".join([*lines[50:80], lines[0].replace(b"id=1", b"id=2"), *lines[81:]]))
    assert [point.name for point in capture_points([tmp_path])] == ["one.log", "other.log"]


@pytest.mark.parametrize("log", ["TRACE", "INFO", "controller.log"])
@pytest.mark.parametrize("is_twice", [False, True])
def test_parts_of_a_log_in_another_order_within_a_file_are_noted(log: str, is_twice: bool, tmp_path: Path) -> None:
    """The younger file before the older one, or the end of a log before the whole."""
    lines = LOGS[log]
    cut = _with_time(lines, 2 * len(lines) // 3)
    (tmp_path / "whole.log").write_bytes(b"".join(lines))
    assert told(tmp_path / "whole.log")[1] == []
    (tmp_path / "parts.log").write_bytes(b"".join(lines[cut:] + (lines if is_twice else lines[:cut])))
    assert [reason[:60] for reason in told(tmp_path / "parts.log")[1]] == [
        "lines of a broker stand behind later ones of its own: parts "
    ]
