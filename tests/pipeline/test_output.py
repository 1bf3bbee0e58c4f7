"""The output directory: nothing of the user's is lost, tables come whole or not at all, nothing is left behind."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproto.errors import ConfigurationError
from kproto.pipeline import OutputDirectory
from kproto.pipeline.output import move_files
from kproto.tables import TABLES
from kproto.tables.places import MANIFEST
from kproto.tables.stored import SCHEMA, current_run, current_tables


def write(out: OutputDirectory, text: str) -> None:
    """What a run does, in small."""
    with out.writing():
        for name in TABLES:
            (out.run / name).mkdir()
            (out.run / name / "part.parquet").write_text(text)
        out.publish({"text": text})


def add(out: OutputDirectory, text: str) -> None:
    """What a run that adds captures does, in small."""
    with out.writing():
        files = dict.fromkeys(json.loads((out.path / MANIFEST).read_bytes()).get("files", {}), 1)
        moves = {}
        for name in TABLES:
            files[f"{name}/added-{text}.parquet"] = 1
            added = f"{name}/added-{text}.parquet"
            moves[added] = out.run / "staged"
            (moves[added] / name).mkdir(parents=True)
            (moves[added] / added).write_text(text)
        facts = {"schema": SCHEMA, "tables": {}, "files": files | {f"{name}/part.parquet": 1 for name in TABLES}}
        run = current_run(out.path)
        move_files(moves, run)
        out.publish(facts, run)


def listed(path: Path) -> set[str]:
    """The contents of the files that the manifest lists."""
    stored = current_tables(path)
    return {file.read_text() for name in TABLES for file in map(Path, map(str, stored.files(name)))}


def identity(file: Path) -> tuple[int, int, int]:
    facts = file.stat()
    return facts.st_ino, facts.st_nlink, facts.st_ctime_ns


def test_a_run_adds_files_and_touches_no_former_one(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    write(out, "1")
    run = current_run(out.path)
    before = {file: identity(file) for file in run.rglob("*.parquet")}
    add(out, "2")
    add(out, "3")
    assert current_run(out.path) == run
    assert listed(out.path) == {"1", "2", "3"}
    assert {file: identity(file) for file in before} == before
    assert [entry.name for entry in (out.path / "kproto-runs").iterdir()] == [run.name]


def contents(path: Path) -> dict[str, str]:
    """What readers find: the files of the directory, and those of the tables through their links."""
    found = {entry.name: entry.read_text() for entry in path.iterdir() if entry.is_file()}
    for table in path.iterdir():
        if table.is_dir() and table.name not in ("kproto-runs", "current"):
            found |= {f"{table.name}/{file.relative_to(table)}": file.read_text() for file in table.iterdir()}
    return found


def manifest(path: Path) -> dict[str, object]:
    facts: dict[str, object] = json.loads((path / "_kproto.json").read_text())
    return facts


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "a" / "b"), "1")
    found = contents(tmp_path / "a" / "b")
    assert set(found) == {"_kproto.json", *(f"{name}/part.parquet" for name in TABLES)}


def test_our_own_tables_are_replaced_and_other_files_beside_them_stay(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out" / "requests" / "old.parquet").write_text("gone with its run")
    write(OutputDirectory(tmp_path / "out"), "2")
    found = contents(tmp_path / "out")
    assert found.pop("notes.txt") == "mine"
    del found["_kproto.json"]
    assert manifest(tmp_path / "out")["text"] == "2"
    assert set(found.values()) == {"2"}
    assert "requests/old.parquet" not in found


def test_a_directory_with_other_things_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "mine.csv").write_text("precious")
    out = OutputDirectory(tmp_path)
    with pytest.raises(ConfigurationError, match=r"holds something else \(requests\).*--overwrite"):
        out.check()
    with pytest.raises(ConfigurationError), out.writing():
        pytest.fail("not to be reached")
    assert contents(tmp_path) == {"requests/mine.csv": "precious"}


def test_overwrite_replaces_tables_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "mine.csv").write_text("precious")
    (tmp_path / "thesis.txt").write_text("precious")
    write(OutputDirectory(tmp_path, overwrite=True), "1")
    found = contents(tmp_path)
    assert found["thesis.txt"] == "precious"
    assert "requests/mine.csv" not in found
    assert found["requests/part.parquet"] == "1"


def test_a_failed_run_leaves_the_old_tables_as_they_were(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    before = contents(tmp_path / "out")
    out = OutputDirectory(tmp_path / "out")
    with pytest.raises(FileNotFoundError), out.writing():
        (out.run / "requests" / "part.parquet").write_text("2")
    assert contents(tmp_path / "out") == before
    assert not out.run.exists()


@pytest.mark.parametrize("also", [False, True])
def test_a_run_that_fails_while_it_adds_files_removes_them_and_tells_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also: bool
) -> None:
    """Also where the files cannot be removed."""
    out = OutputDirectory(tmp_path / "out")
    write(out, "1")
    add(out, "2")
    run = current_run(out.path)
    before, facts = set(run.rglob("*")), manifest(out.path)
    with monkeypatch.context() as patched:

        def fail(_facts: object, run: Path) -> None:
            for name in ("edges-3", "brokers-3"):
                (run / name).touch()
            if also:
                patched.setattr("kproto.pipeline.output.table_files", lambda _run: 1 / 0)
            raise OSError(errno.ENOSPC, "the disk is full")

        patched.setattr(out, "publish", fail)
        with pytest.raises(OSError, match="the disk is full"):
            add(out, "3")
    assert (set(run.rglob("*")) == before) == (not also)
    assert manifest(out.path) == facts
    assert listed(out.path) == {"1", "2"}
    assert [entry.name for entry in (out.path / "kproto-runs").iterdir()] == [run.name]
    add(out, "4")
    assert listed(out.path) == {"1", "2", "4"}


def test_a_failed_first_run_leaves_nothing(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    with pytest.raises(RuntimeError), out.writing():
        raise RuntimeError("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    half = tmp_path / "out" / "kproto-runs" / "20261121T000000.000000" / "requests"
    half.mkdir(parents=True)
    (half / "half.parquet").write_text("half")
    out = OutputDirectory(tmp_path / "out")
    out.check()  # what a run of kproto left does not count as somebody else's
    write(out, "1")
    assert not half.exists()
    assert {text for name, text in contents(tmp_path / "out").items() if "/" in name} == {"1"}


def test_runs_behind_a_link_are_refused_and_untouched(tmp_path: Path) -> None:
    """A directory of tables from elsewhere: what the link names is not kproto's to remove."""
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    (theirs / "photos").mkdir(parents=True)
    (theirs / "photos" / "a.jpg").write_text("a")
    write(OutputDirectory(out), "1")
    (out / "kproto-runs").rename(tmp_path / "moved")
    (out / "kproto-runs").symlink_to(theirs)
    with pytest.raises(ConfigurationError, match=r"is a link to .*theirs; kproto follows no links"):
        write(OutputDirectory(out, overwrite=True), "2")
    assert (theirs / "photos" / "a.jpg").read_text() == "a"


def test_a_link_among_the_runs_is_removed_and_not_what_it_names(tmp_path: Path) -> None:
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    theirs.mkdir()
    (theirs / "a.jpg").write_text("a")
    write(OutputDirectory(out), "1")
    (out / "kproto-runs" / "20200101T000000.000000").symlink_to(theirs)
    write(OutputDirectory(out), "2")
    assert (theirs / "a.jpg").read_text() == "a"
    assert len(list((out / "kproto-runs").iterdir())) == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"run": 7}'])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    (tmp_path / "out" / MANIFEST).write_text(text)
    with pytest.raises(ConfigurationError, match="is no manifest of kproto"):
        current_run(tmp_path / "out")


def test_a_reader_of_the_former_tables_may_finish(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    former = current_run(tmp_path / "out")
    write(OutputDirectory(tmp_path / "out"), "2")
    assert (former / "requests" / "part.parquet").read_text() == "1"
    assert (current_run(tmp_path / "out") / "requests" / "part.parquet").read_text() == "2"
    write(OutputDirectory(tmp_path / "out"), "3")
    assert not former.exists()


ADDING_KILLED_AT_EACH_STEP = """
import itertools, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pipeline.test_output import add, listed, write
from kproto.pipeline.output import OutputDirectory

base = Path(sys.argv[1])
STEPS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "open")

for step in itertools.count(1):
    out = OutputDirectory(base / str(step))
    write(out, "1")
    add(out, "2")
    child = os.fork()
    if not child:
        left = itertools.count(1)
        def hook(event, _arguments):
            if event in STEPS and next(left) == step:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        try:
            add(out, "3")
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    found = listed(out.path)
    assert found in ({"1", "2"}, {"1", "2", "3"}), (step, found)
    add(out, "4")
    assert listed(out.path) == found | {"4"}
    there = {file.read_text() for file in out.path.rglob("*.parquet")}
    assert there == found | {"4"}, (step, there)
    print(step, len(found))
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
"""


def outcomes_of(script: str, tmp_path: Path) -> list[str]:
    """What each kill of a script's run left; the later the kill, the newer."""
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", script, str(tmp_path), str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = [line.split()[1] for line in done.stdout.splitlines()]
    assert outcomes == sorted(outcomes)
    return outcomes


@pytest.mark.slow
def test_a_kill_at_any_step_of_adding_leaves_the_former_tables_or_the_new_ones(tmp_path: Path) -> None:
    outcomes = outcomes_of(ADDING_KILLED_AT_EACH_STEP, tmp_path)
    assert outcomes.count("2") > len(TABLES)
    assert outcomes.count("3") > 1


KILLED_AT_EACH_STEP = """
import itertools, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pipeline.test_output import check_result, write
from kproto.pipeline.output import OutputDirectory

base = Path(sys.argv[1])
STEPS = ("os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "shutil.rmtree", "open")

def run_until(step, path):
    left = itertools.count(1)
    def hook(event, _arguments):
        if event in STEPS and next(left) == step:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    write(OutputDirectory(path), "2")
    os._exit(0)

for step in itertools.count(1):
    path = base / str(step)
    write(OutputDirectory(path), "0")
    write(OutputDirectory(path), "1")
    child = os.fork()
    if not child:
        try:
            run_until(step, path)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    found = check_result(path)
    write(OutputDirectory(path), "3")
    assert check_result(path) == "3", path
    print(step, found)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
"""


def check_result(path: Path) -> str:
    """The run whose tables readers find, by the manifest; tables found by their links are of one run too."""
    run = current_run(path)
    by_manifest = {(run / name / "part.parquet").read_text() for name in TABLES}
    by_links = {(path / name / "part.parquet").read_text() for name in TABLES}
    assert len(by_manifest) == len(by_links) == 1, path
    assert by_links <= by_manifest | {"1"}, path
    return by_manifest.pop()


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_whole_tables_and_the_next_run_able_to_start(tmp_path: Path) -> None:
    outcomes = outcomes_of(KILLED_AT_EACH_STEP, tmp_path)
    assert outcomes.count("1") > len(TABLES)
    assert outcomes.count("2") > 1


def test_a_second_writer_is_told_to_wait(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "out")
    with out.writing():
        (out.run / "requests").mkdir()
        other = OutputDirectory(tmp_path / "out")
        with pytest.raises(ConfigurationError, match="another kproto is writing"), other.writing():
            pytest.fail("not to be reached")
        assert (out.run / "requests").is_dir()


def test_the_directory_is_free_again_afterwards(tmp_path: Path) -> None:
    write(OutputDirectory(tmp_path / "out"), "1")
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigurationError, match="is a file"):
        OutputDirectory(tmp_path / "out").check()


def test_names_that_are_no_unicode_stand_in_the_manifest(tmp_path: Path) -> None:
    out = OutputDirectory(tmp_path / "tables")
    with out.writing():
        out.publish({"inputs": ["broken-\udcff.pcap"]})
    assert json.loads((tmp_path / "tables" / "_kproto.json").read_bytes())["inputs"] == ["broken-\udcff.pcap"]


def test_a_directory_that_cannot_be_made_or_written_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OutputDirectory(tmp_path / "a" / "b").check_writable()
    OutputDirectory(tmp_path).check_writable()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="/proc/x/y: tables cannot be written there"):
        OutputDirectory("/proc/x/y").check_writable()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written there: not a directory"):
        OutputDirectory(tmp_path / "file" / "tables").check_writable()

    def full(**_where: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kproto.pipeline.output.TemporaryFile", full)
    with pytest.raises(ConfigurationError, match=r"tables: .* no space left on device; free some space \(df -h"):
        OutputDirectory(tmp_path / "tables").check_writable()
