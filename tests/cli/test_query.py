"""``kproto query``: answers for people, for programs and for spreadsheets, and one line for what cannot be asked."""

import csv
import errno
import gzip
import io
import json
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import packets as make
import pytest
from commands import kproto_rows, run_kproto
from hosts import recorded
from kraft_runs import metadata
from table_truth import CAPTURES, name_of

import kproto.tables
from kproto.query import ask, open_tables
from kproto.query.questions import QUESTIONS
from kproto.verdicts.derived import VIEWS

CAPTURE = Path(__file__).parent.parent / "data" / "captures" / "external-controller-a.pcap.gz"

query = partial(run_kproto, "query")
rows_of = partial(kproto_rows, "query")


def test_a_capture_is_asked_without_tables() -> None:
    result = query(str(CAPTURE), "errors")
    assert result.exit_code == 0
    title, names, *rows = result.stdout.splitlines()
    assert title == "Which errors did brokers answer, and how often?"
    assert names.split() == ["api_key", "api_version", "scope", "error_code", "n", "first_ts", "last_ts", "meaning"]
    assert all(row.split()[2] in ("request", "partition") for row in rows)
    assert any(row.startswith("  LeaderAndIsr ") and " STALE_CONTROLLER_EPOCH " in row for row in rows)


def test_json_is_an_object_a_line_and_csv_has_a_header() -> None:
    answers = kproto_rows("query", CAPTURE, "stale")
    rows = list(csv.DictReader(io.StringIO(query(str(CAPTURE), "stale", "--format", "csv").stdout)))
    assert len(answers) == len(rows) > 3
    assert [row["reason"] for row in rows] == [answer["reason"] for answer in answers]
    assert [row["broker_id"] for row in rows] == [str(answer["broker_id"]) for answer in answers]
    assert all(answer["ts"].startswith("2026-11-20T19:47:") and answer["ts"].endswith("Z") for answer in answers)


@pytest.mark.parametrize("extra", ["query", "report"])
def test_what_duckdb_needs_for_times_comes_with_it(extra: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {"duckdb", "pytz"} <= {
        re.split("[><=[]", needed)[0] for needed in project["optional-dependencies"][extra]
    }, "tools/check-dist asks such a question in an empty environment"


def test_filters_and_a_limit_shorten_the_answer() -> None:
    every = query(str(CAPTURE), "stale", "--format", "json").stdout.splitlines()
    updates = query(str(CAPTURE), "stale", "--format", "json", "--api", "UpdateMetadata").stdout.splitlines()
    assert updates == [line for line in every if json.loads(line)["api_key"] == 6]
    assert query(str(CAPTURE), "stale", "--format", "json", "--limit", "2").stdout.splitlines() == every[:2]


def test_a_query_of_ones_own_sees_every_table() -> None:
    sql = "SELECT broker_id, list(DISTINCT api_key ORDER BY api_key) AS apis FROM requests GROUP BY ALL"
    rows = kproto_rows("query", CAPTURE, "--sql", sql)
    assert [row["apis"] for row in rows if row["broker_id"] == 0] == [[4, 5, 6]]
    coded = "SELECT [4, 5, 6] AS api_key, -2 AS leader, [1, -1] AS leaders, 'x' AS former_leader"
    words = query(str(CAPTURE), "--sql", coded).stdout.splitlines()[-1]
    assert re.split(" {2,}", words)[1:] == [
        "LeaderAndIsr,StopReplica,UpdateMetadata",
        "none (topic being deleted)",
        "1,none",
        "x",
    ]
    derived = query(str(CAPTURE), "--format", "json", "--sql", "SELECT count(*) AS n FROM leadership")
    assert json.loads(derived.stdout)["n"] > 0


def test_without_a_question_the_tables_are_counted() -> None:
    result = query(str(CAPTURE), "--format", "json")
    counts = {row["table"]: row["rows"] for row in map(json.loads, result.stdout.splitlines())}
    assert counts["captures"] == 1
    assert counts["requests"] > 10


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_an_empty_answer_names_the_filter_that_nothing_matches(form: str) -> None:
    result = query(str(CAPTURE), "behind", "--broker", "77", "--format", form)
    assert result.exit_code == 0
    assert result.stderr.startswith("note: no broker 77 is in the tables; there are 0, 1")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "leader"), "nowhere: no such file or directory; check the path, or make tables: kproto analyze"),
        (("no.pcap", "leader"), "no.pcap: no such file or directory; check the path\n"),
        ((str(CAPTURE), "who"), "there is no question 'who'; try leader, offline"),
        ((str(CAPTURE), "lag", "--topic", "t"), "--topic does not apply to the question 'lag'"),
        ((str(CAPTURE), "--sql", "SELECT nothing FROM requests"), "nothing"),
        ((str(CAPTURE), "--sql", "from leader"), "; kproto tables lists the tables"),
        ((str(CAPTURE), "leader", "--sql", "SELECT 1"), "--sql is a whole query"),
        ((str(CAPTURE), "leader", "--at", "soon"), "'soon' is not a time"),
        ((str(CAPTURE), "--sql", " ;"), "this SQL asks nothing; try: SELECT"),
        (
            (str(CAPTURE.parents[1] / "vectors"), "leader"),
            "has no tables; make them: kproto analyze CAPTURE --out DIR (if captures lie",
        ),
        (("/dev/null",), "/dev/null: nothing came; did the command before the pipe fail?"),
        (("-", "leader"), "standard input: an empty file"),
        ((str(CAPTURE.parents[3] / "README.md"), "leader"), "; name kafka-request.log (kafka.request.logger"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = query(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


# ---- states in time --------------------------------------------------------------------------------------------------


def state_of(capture: str, until_s: float) -> dict[tuple[str, int], dict[str, Any]]:
    """The newest state of each partition that any broker had accepted by a time, read from ``kproto inspect``."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    shown = run_kproto("inspect", capture, "--format", "json").stdout.splitlines()
    for row in map(json.loads, shown):
        if row["api"] not in ("LeaderAndIsr", "UpdateMetadata") or row["time"] > until_s or row["outcome"] == "refused":
            continue
        for topic in row["request"]["topicStates"]:
            for state in topic["partitionStates"]:
                place = topic["topicName"], state["partitionIndex"]
                if state["leader"] == -2:
                    found.pop(place, None)
                elif place not in found or _epochs(state) >= _epochs(found[place]):
                    found[place] = state
    return found


def _epochs(state: dict[str, Any]) -> tuple[int, int]:
    return state["leaderEpoch"], state.get("zkVersion", state.get("partitionEpoch", -1))


@pytest.mark.parametrize("name", ["ibp-3.9-a", "ibp-2.8-a"])
@pytest.mark.parametrize("at_s", [20.5, 45.5, 58.5])
@pytest.mark.usefixtures("read_once")
def test_partitions_without_leader_or_replicas_at_a_time_are_those_of_the_newest_states(name: str, at_s: float) -> None:
    capture = str(CAPTURE.with_name(f"{name}.pcap.gz"))
    shown = run_kproto("inspect", capture, "--format", "json").stdout.splitlines()
    at_s += json.loads(shown[0])["time"]
    states = state_of(capture, at_s)
    offline = {(row["topic"], row["partition"]) for row in rows_of(capture, "offline", "--at", f"{at_s:.6f}")}
    assert offline == {place for place, state in states.items() if state["leader"] == -1}
    lacking = {
        (row["topic"], row["partition"]): row["missing"]
        for row in rows_of(capture, "under-replicated", "--at", f"{at_s:.6f}")
    }
    assert lacking == {
        place: sorted(set(state["replicas"]) - set(state["isr"]))
        for place, state in states.items()
        if set(state["replicas"]) - set(state["isr"])
    }
    moved = {
        (row["topic"], row["partition"]): (row["leader"], row["preferred_leader"], row["is_preferred_in_sync"])
        for row in rows_of(capture, "off-preferred", "--at", f"{at_s:.6f}")
    }
    assert moved == {
        place: (state["leader"], state["replicas"][0], state["replicas"][0] in state["isr"])
        for place, state in states.items()
        if state["leader"] not in (-1, state["replicas"][0])
    }


@pytest.mark.parametrize("name", ["ibp-3.9-a", "ibp-2.8-a"])
def test_the_difference_of_two_times_is_that_of_their_states(name: str) -> None:
    capture = str(CAPTURE.with_name(f"{name}.pcap.gz"))
    begin = json.loads(run_kproto("inspect", capture, "--format", "json").stdout.splitlines()[0])["time"]
    first, second = begin + 20.5, begin + 45.5
    former, newer = state_of(capture, first), state_of(capture, second)
    rows = rows_of(capture, "diff", "--from", f"{first:.6f}", "--to", f"{second:.6f}")
    found = {(row["topic"], row["partition"]): row for row in rows}
    assert {place for place, row in found.items() if row["change"] == "deleted"} == former.keys() - newer.keys()
    assert {place for place, row in found.items() if row["change"] in ("created", "first seen")} == (
        newer.keys() - former.keys()
    )

    def short(state: dict[str, Any]) -> tuple[Any, ...]:
        return state["leader"], state["leaderEpoch"], set(state["isr"]), state["replicas"]

    both = former.keys() & newer.keys()
    assert found.keys() & both == {place for place in both if short(former[place]) != short(newer[place])}
    for place in found.keys() & both:
        row = found[place]
        assert (row["leader"], row["leader_epoch"], set(row["isr"]), row["replicas"]) == short(newer[place])
        assert (row["former_leader"], row["former_leader_epoch"], set(row["former_isr"]), row["former_replicas"]) == (
            short(former[place])
        )
    assert found


@pytest.mark.slow
def test_the_difference_to_another_capture_is_that_of_the_states_at_its_end(tmp_path: Path) -> None:
    path = CAPTURE.with_name("ibp-3.9-a.pcap.gz")
    whole = recorded(path)
    half_s = whole.packets[len(whole.packets) // 2].time_ns / 1e9
    begin = tmp_path / "begin.pcap"
    begin.write_bytes(make.pcap([p for p in whole.packets if p.time_ns < half_s * 1e9], whole.link))
    rows = rows_of(str(begin), "diff", "--with", str(path))
    assert {row["change"] for row in rows} >= {"changed", "deleted"}
    assert rows == rows_of(str(path), "diff", "--from", f"{half_s:.6f}")
    assert rows == rows_of(str(path), "diff", "--from", f"{half_s:.6f}", "--with", str(path))
    assert not rows_of(str(path), "diff", "--with", str(path))


def test_another_capture_is_for_the_difference_alone() -> None:
    result = query(str(CAPTURE), "leader", "--with", str(CAPTURE))
    assert result.exit_code == 2
    assert "--with does not apply to the question 'leader'; try diff" in result.stderr


def test_the_two_times_of_a_difference_are_asked_for(tmp_path: Path) -> None:
    capture = str(CAPTURE.with_name("ibp-3.9-a.pcap.gz"))
    for options, words in (
        ((), "compares two times; name the first with --from TIME"),
        (("--from", "19:35:20", "--to", "19:35:10"), "--to is before --from"),
    ):
        result = query(capture, "diff", *options)
        assert result.exit_code == 2
        assert words in result.stderr
    assert (
        "--from and --to do not apply to the question 'leader'" in query(capture, "leader", "--from", "19:35:20").stderr
    )
    assert rows_of(capture, "diff", "--from", "19:35:20") == rows_of(
        capture, "diff", "--from", "19:35:20", "--to", "19:59:59"
    )


def test_who_asked_for_a_changed_isr_is_not_in_tables_nor_in_standard_input() -> None:
    whole = CAPTURE.with_name("ibp-3.9-a.pcap.gz")
    result = run_kproto("query", "-", "isr", input=gzip.decompress(whole.read_bytes()))
    assert "note: who asked is in AlterPartition, which tables and standard input do not give" in result.stderr
    both = query(str(whole), str(whole.with_name("none.pcap")), "isr", "--format", "json")
    assert both.exit_code == 0
    assert both.stdout == query(str(whole), "isr", "--format", "json").stdout


def test_questions_and_derived_tables_are_answered_in_python_without_spark() -> None:
    """As the documentation of kproto.query shows it."""
    with open_tables(kproto.tables.read(str(CAPTURE.with_name("ibp-3.9-a.pcap.gz")))) as sql:
        answer = ask(sql, "leader")
        leadership = sql.table("leadership").to_arrow_table()
        assert leadership.num_rows == len(answer.rows) > 10
        for name, derived in VIEWS.items():
            assert sql.table(name).to_arrow_table().column_names == derived.schema.names


# ---- several captures ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rotated_files_a_directory_and_standard_input_answer_as_the_whole_capture(tmp_path: Path) -> None:
    """Rotation splits requests from their responses; every question has the same answer.

    Standard input is read once, for the tables: they lack who asked for a changed ISR.
    """
    whole = CAPTURE.with_name("ibp-3.9-a.pcap.gz")
    link, packets = make.read_pcap(whole)
    files = [tmp_path / f"broker.pcap{number}" for number in range(3)]
    third = len(packets) // 3 + 1
    for number, file in enumerate(files):
        file.write_bytes(make.pcap(packets[number * third : (number + 1) * third], link))
    for question in ("leader", "errors", "isr"):
        expected = [row | {"capture": ""} for row in rows_of(str(whole), question)]
        assert expected
        for sources in ([*map(str, files)], [str(tmp_path)], [f"{tmp_path}/broker.pcap*"]):
            assert [row | {"capture": ""} for row in rows_of(*sources, question)] == expected
        piped = rows_of("-", question, input=gzip.decompress(whole.read_bytes()))
        unasked = {"capture": "", "asked_by": None} if question == "isr" else {"capture": ""}
        assert [row | unasked for row in piped] == [row | unasked for row in expected]


def test_an_empty_directory_is_called_so_with_a_command_that_can_be_pasted(tmp_path: Path) -> None:
    empty = tmp_path / "böker 1"
    empty.mkdir()
    for command in ("query", "doctor", "report"):
        result = run_kproto(command, empty)
        assert result.exit_code == 2
        assert result.stderr == (
            f"kproto: {empty} is an empty directory; name a capture, or make tables of one there: "
            f"kproto analyze CAPTURE --out '{empty}'\n"
        )


def test_a_directory_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exists = Path.exists

    def refused(path: Path) -> bool:
        if path.parent == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", refused)
    for arguments in (["query", str(tmp_path), "leader"], ["doctor", str(tmp_path)]):
        assert run_kproto(*arguments).stderr.startswith(f"kproto: {tmp_path}: permission denied; try sudo")


def test_words_that_are_neither_captures_nor_questions_are_named(tmp_path: Path) -> None:
    refused = {
        (str(tmp_path / "none.pcap"), str(tmp_path / "no.pcap"), "leader"): "none.pcap: no such file",
        ("leader",): "name a capture or a directory of tables before the question: query CAPTURE leader",
        ("leader", str(tmp_path)): "the question comes last: query CAPTURE leader",
        (str(tmp_path), "leader", "isr"): "a query has one question: query CAPTURE leader",
    }
    for words, text in refused.items():
        result = query(*words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert text in result.stderr


def test_a_capture_that_cannot_be_read_is_a_warning_beside_one_that_can(tmp_path: Path) -> None:
    result = query(str(CAPTURE), str(tmp_path / "none.pcap"), "leader")
    assert result.exit_code == 0
    assert result.stdout == query(str(CAPTURE), "leader").stdout
    assert result.stderr.startswith(f"warning: {tmp_path}/none.pcap: no such file or directory; check the path")


def test_help_lists_every_question() -> None:
    told = run_kproto("query", "--help").output
    lines = told.partition("Questions:\n")[2].partition("\n\n")[0].splitlines()
    listed = [line.split()[0] for line in lines if not line.startswith("     ")]
    assert max(map(len, lines)) <= 80
    assert sorted(listed) == sorted(QUESTIONS)


@pytest.mark.parametrize(
    ("options", "outside"),
    [
        (("--at", "2027-01-01"), "--at lies outside the captures, which reach from 2026-11-20T19:50:24"),
        (("--since", "2027-01-01"), "--since lies outside"),
        (("--until", "2020-01-01"), "--until lies outside"),
        (("--since", "2020-01-01", "--until", "2027-01-01"), ""),
    ],
)
def test_a_time_outside_the_captures_is_said(options: tuple[str, ...], outside: str) -> None:
    path = str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-big-a"))
    result = run_kproto("query", path, "leader", "--limit", "1", *options)
    assert result.exit_code == 0
    assert outside in result.stderr
    assert bool(outside) == ("outside" in result.stderr)


def test_a_question_that_looks_like_another_is_guessed() -> None:
    path = str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-big-a"))
    result = run_kproto("query", path, "leadr")
    assert "did you mean leader?" in result.stderr


def test_cells_of_csv_are_no_formulas() -> None:
    path = str(next(path for path in CAPTURES if name_of(path) == "ibp-3.9-big-a"))
    result = run_kproto(
        "query", path, "--sql", "SELECT '=1+1' AS a, '-x' AS b, '-1+1' AS c, -1 AS d", "--format", "csv"
    )
    assert result.stdout.splitlines()[1] == "'=1+1,-x,'-1+1,-1"


@pytest.mark.parametrize("question", ["brokers", "asked"])
def test_a_question_of_kraft_that_nothing_here_can_answer_says_what_to_name(question: str) -> None:
    result = query(str(CAPTURE), question)
    assert "nothing here is of KRaft; name a copy of __cluster_metadata-0" in result.stderr
    assert "nothing here is of KRaft" not in query(str(CAPTURE), "stale").stderr


def test_a_question_of_kraft_whose_answer_is_nothing_says_no_more() -> None:
    assert not query(str(metadata("kraft-3.9-a")), "asked").stderr
