"""Tables in an object store: the guarantees of a directory, held by the store's own means, over a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from audit import audit
from object_store import ObjectStore, object_store
from table_truth import CAPTURES

from kproto.errors import ConfigurationError
from kproto.pipeline import OutputDirectory, analyze, derived_table, locks, read_table, unchanged
from kproto.pipeline.upkeep import compact, expire
from kproto.query import ask, ask_sql, open_tables
from kproto.query.rollups import roll_up
from kproto.report import write_report
from kproto.tables import TABLES, read
from kproto.tables.places import MANIFEST, RemotePath, place_of, read_whole
from kproto.tables.points import points_of
from kproto.tables.stored import current_run, current_tables, table_dataset
from kproto.verdicts.derived import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NAMES = ("ibp-3.9-a.", "external-controller-a.")
FILES = [path for name in NAMES for path in CAPTURES if path.name.startswith(name)]


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def store(server: ObjectStore, request: pytest.FixtureRequest) -> Iterator[str]:
    """A directory of this test's own in the store."""
    yield server.uri(request.node.name.replace("[", "-").replace("]", ""))
    server.before_change = lambda _method, _path: None


def write(out: OutputDirectory, text: str, *, fails: bool = False, loses_its_lock: bool = False) -> None:
    """What a run does, in small."""
    with out.writing():
        for name in ("requests", "frames"):
            (out.run / name).mkdir(parents=True)
            (out.run / name / "part.parquet").write_text(text)
        if fails:
            raise RuntimeError("interrupted")
        if loses_its_lock:
            for lock in (out.path / locks.LOCKS).iterdir():
                lock.unlink()
        out.publish({"text": text})


def found(place: str) -> str:
    """The run whose tables readers find, which are all of one run."""
    run = current_run(place_of(place))
    texts = {read_whole(run / name / "part.parquet").decode() for name in ("requests", "frames")}
    assert len(texts) == 1
    return texts.pop()


# ---- one run ---------------------------------------------------------------------------------------------------------


def test_a_run_replaces_the_former_one_whose_readers_may_finish(store: str) -> None:
    write(OutputDirectory(store), "1")
    former = current_run(place_of(store))
    write(OutputDirectory(store), "2")
    assert read_whole(former / "requests" / "part.parquet") == b"1"
    assert found(store) == "2"
    write(OutputDirectory(store), "3")
    assert not (former / "requests" / "part.parquet").exists()


def test_a_failed_run_leaves_the_former_tables_and_no_file(store: str) -> None:
    write(OutputDirectory(store), "1")
    out = OutputDirectory(store)
    with pytest.raises(RuntimeError):
        write(out, "2", fails=True)
    assert found(store) == "1"
    assert not out.run.exists()


def test_files_of_somebody_else_are_refused_and_stay(store: str) -> None:
    mine = place_of(store) / "mine.csv"
    mine.write_text("precious")
    with pytest.raises(ConfigurationError, match=r"holds something else \(mine.csv\)"):
        OutputDirectory(store).check()
    write(OutputDirectory(store, overwrite=True), "1")
    assert (found(store), read_whole(mine)) == ("1", b"precious")


ZYGOTE = """
import os, sys
from kproto.pipeline.output import OutputDirectory  # a child starts its own client of the store: S3 survives no fork
sys.path[:0] = sys.argv[1:]
from pipeline.test_stores import write

for line in sys.stdin:
    store, text = line.split()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.read(reading, 1)
        try:
            write(OutputDirectory(store), text)
        except BaseException as e:
            print(repr(e), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    os.write(writing, b"x")
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_request_leaves_whole_tables_and_the_next_run_able_to_start(
    server: ObjectStore, store: str
) -> None:
    """The server kills the writer before it obeys the n-th change, for every n."""
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", ZYGOTE, str(tests), str(tests.parent / "tools")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as zygote:
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        outcomes = []
        for step in range(1, 200):
            place = f"{store.partition('?')[0]}/{step}{server.query}"
            write(OutputDirectory(place), "0")
            write(OutputDirectory(place), "1")
            print(place, "2", file=zygote.stdin, flush=True)
            server.before_change = _killer(int(zygote.stdout.readline()), step)
            print("go", file=zygote.stdin, flush=True)
            status = int(zygote.stdout.readline())
            server.before_change = lambda _method, _path: None
            outcomes.append(found(place))
            write(OutputDirectory(place), "3")
            assert found(place) == "3"
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                break
            assert os.WTERMSIG(status) == signal.SIGKILL
        zygote.stdin.close()
    assert outcomes == sorted(outcomes)
    assert outcomes.count("1") > 5
    assert outcomes.count("2") > 1


def _killer(pid: int, step: int) -> object:
    left = iter(range(1, 10_000))
    lock = threading.Lock()

    def before_change(_method: str, _path: str) -> None:
        with lock:
            number = next(left)
        if number == step:
            os.kill(pid, signal.SIGKILL)
        if number >= step:
            raise ConnectionAbortedError("the client was killed")

    return before_change


# ---- two runs --------------------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_to_wait(store: str) -> None:
    out = OutputDirectory(store)
    with out.writing():
        (out.run / "requests" / "part.parquet").write_text("1")
        other = OutputDirectory(store)
        with pytest.raises(ConfigurationError, match=f"another kproto is writing to .* \\(process {os.getpid()} on "):
            write(other, "2")
        assert (out.run / "requests" / "part.parquet").exists()
    write(OutputDirectory(store), "3")
    assert found(store) == "3"


def test_of_many_writers_at_once_one_at_most_is_let_in(store: str) -> None:
    inside: list[int] = []
    most: list[int] = []
    barrier = threading.Barrier(4)

    def begin(number: int) -> None:
        barrier.wait()
        try:
            with locks.locked(place_of(store)):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
        except ConfigurationError as e:
            assert "another kproto is writing" in str(e)  # noqa: PT017  # it may as well have been let in

    for _round in range(3):
        threads = [threading.Thread(target=begin, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(most) <= {1}
    write(OutputDirectory(store), "1")


def test_a_lock_of_a_host_that_is_gone_is_broken_by_the_next_run_after_a_minute(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = place_of(store) / locks.LOCKS / "0"
    lock.write_text(json.dumps({"host": "elsewhere", "boot": "b", "pid": 7, "started": "1"}))
    with pytest.raises(ConfigurationError, match=r"process 7 on elsewhere, last sign \d+ s ago"):
        write(OutputDirectory(store), "1")
    monkeypatch.setattr(locks, "_STALE_SECONDS", -1.0)
    write(OutputDirectory(store), "2")
    assert found(store) == "2"
    assert not lock.exists()


def test_a_run_that_lost_its_lock_does_not_commit(store: str) -> None:
    write(OutputDirectory(store), "1")
    out = OutputDirectory(store)
    with pytest.raises(ConfigurationError, match="the lock of this run was lost"):
        write(out, "2", loses_its_lock=True)
    assert found(store) == "1"


# ---- a file system that has directories ------------------------------------------------------------------------------


def test_a_file_system_whose_rename_replaces_no_file_keeps_the_guarantees(monkeypatch: pytest.MonkeyPatch) -> None:
    """As HDFS; the file system is pyarrow's own in memory, which goes by the same interface."""
    store = "mock:///renames/tables"
    rename = RemotePath.rename
    killed = False

    def refuse(self: RemotePath, target: RemotePath) -> None:
        if target.exists():
            raise OSError("the file exists")
        if killed and target.name == MANIFEST:
            raise KeyboardInterrupt
        rename(self, target)

    monkeypatch.setattr(RemotePath, "rename", refuse)
    write(OutputDirectory(store), "1")
    write(OutputDirectory(store), "2")
    assert found(store) == "2"
    killed = True
    out = OutputDirectory(store)
    with pytest.raises(KeyboardInterrupt):
        write(out, "3")
    assert found(store) in ("2", "3")
    killed = False
    write(OutputDirectory(store), "4")
    assert found(store) == "4"


# ---- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://absent/tables", "there is no such bucket; create it"),
        ("s3://fleet/x?endpoint_override=127.0.0.1:1&scheme=http", "cannot reach the store; check the network"),
        ("carrier-pigeon://coop/x", "pyarrow knows no such scheme; it opens file, s3"),
        ("fsspec+memory://x/y", "this URI needs fsspec; try: pip install fsspec"),
        ("hdfs://namenode:8020/x", "HDFS needs"),
        ("s3://fleet/x?colour=red", "Unexpected query parameter in S3 URI: 'colour'"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_in_one_line(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as raised:
        OutputDirectory(uri).check()
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_place_without_tables_says_how_to_make_them(store: str) -> None:
    with pytest.raises(ConfigurationError, match="has no tables; make them: kproto analyze") as raised:
        open_tables(store)
    assert "test:test" in store
    assert "test:test" not in str(raised.value)


# ---- captures and tables ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_captures_are_read_from_a_store_as_from_a_directory(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for file in FILES:
        server.put(f"captures/{file.name}", file.read_bytes())
    for uri in ("s3://fleet/captures", "s3://fleet/captures/*.pcap.gz"):
        local = read(*map(str, FILES))
        remote = read(uri)
        for name in ("requests", "partition_states", "partition_errors"):
            of_the_file = ("capture", "frame_id", "response_frame_id", "conn_id")
            columns = [column for column in TABLES[name].names if column not in of_the_file]
            rows = [sorted(map(repr, t[name].select(columns).to_pylist())) for t in (local, remote)]
            assert rows[0] == rows[1], name
    counts = [row for batch in audit(points_of(["s3://fleet/captures"])) for row in batch.to_pylist()]
    assert sum(row["frames"] or 0 for row in counts) > 100


def rows(place: Path | RemotePath) -> dict[str, list[str]]:
    stored = current_tables(place)
    tables = {name: table_dataset(stored, name).to_table() for name in TABLES}
    return {
        name: sorted(map(repr, table.select([c for c in table.column_names if c != "payload"]).to_pylist()))
        for name, table in tables.items()
    }


@pytest.mark.spark
def test_analyze_writes_to_a_store_what_it_writes_to_a_directory_and_all_readers_follow(
    spark: SparkSession, store: str, server: ObjectStore, tmp_path: Path
) -> None:
    out, local = OutputDirectory(store), OutputDirectory(tmp_path / "local")
    captures = [str(file) for file in FILES]
    analyze(spark, captures[:1], out)
    run = analyze(spark, captures, out)
    assert run.captures_read == 1  # the other's tables are kept
    whole = analyze(spark, captures, local)
    assert (run.rows, run.summary, run.bad_inputs) == (whole.rows, whole.summary, whole.bad_inputs)
    assert isinstance(out.path, RemotePath)
    assert rows(out.path) == rows(local.path)

    changes: list[str] = []
    server.before_change = lambda method, path: changes.append(f"{method} {path}")
    assert unchanged(captures, out) is not None
    for name in TABLES:
        assert read_table(spark, store, name).count() == whole.rows[name]
    named = read_table(spark, store, "requests").groupBy("date").count().collect()
    assert sum(row["count"] for row in named) == whole.rows["requests"]
    assert derived_table(spark, store, "leadership").count() > 0
    with open_tables(store) as here, open_tables(local.path) as there:
        for name in VIEWS:
            query = f"SELECT count(*), count(DISTINCT COLUMNS(*)) FROM {name}"
            assert ask_sql(here, query) == ask_sql(there, query), name
    facts = write_report(store, tmp_path / "report.html")
    assert facts["findings"] == write_report(local.path, tmp_path / "local.html")["findings"]
    assert changes == []  # readers change nothing

    before = current_run(out.path)
    assert analyze(spark, captures, out).captures_read == 0
    assert current_run(out.path) == before

    server.before_change = lambda _method, _path: None
    assert roll_up(out.path) == roll_up(local.path)
    with open_tables(store) as here, open_tables(local.path) as there:
        worst = ask(here, "worst")
        assert worst.rows
        assert worst == ask(there, "worst")
    assert roll_up(out.path)[0] == 0
    before, files = rows(out.path), current_tables(out.path).rows
    assert compact(out) == (len(files), len({file.partition("/")[0] for file in files}))
    assert rows(out.path) == before
    end = datetime(2100, 1, 1, tzinfo=UTC)
    assert expire(out, end) == expire(local, end)
    assert rows(out.path) == rows(local.path)
    with open_tables(store) as here:
        assert ask(here, "worst") == worst
