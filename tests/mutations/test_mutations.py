"""The tool behind ``make mutations``: its operators, its draw, its lists, and one small campaign from end to end."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from mutations import covering, trial
from mutations.campaign import Trial, attempts
from mutations.covering import measure, mirrors
from mutations.draw import ROOT, all_mutants, draw
from mutations.lists import equivalents, known_breakages
from mutations.operators import Mutant, mutants_of
from mutations.report import report
from mutations.trial import Outcome, Tree

HERE = Path(__file__).parent


def changes(source: str) -> dict[str, list[tuple[str, str]]]:
    """What each operator makes of a source: operator to (text before, text after)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for mutant in mutants_of("channel/x.py", dedent(source).encode()):
        found.setdefault(mutant.operator, []).append((mutant.before, mutant.after))
    return found


@pytest.mark.parametrize(
    ("statement", "operator", "after"),
    [
        ("y = a < b", "comparison", ["(a <= b)"]),
        ("y = a == b", "comparison", ["(a != b)"]),
        ("y = a < b <= c", "comparison", ["(a <= b <= c)", "(a < b < c)"]),
        ("y = a not in b", "comparison", ["(a in b)"]),
        ("y = 'é' if a else b", "condition", ["(not (a))"]),
        ("y = [i for i in a if i]", "condition", ["(not (i))"]),
        ("y = a and b or c", "boolean", ["((a and b) and c)", "(a or b)"]),
        ("y = a + b * c", "arithmetic", ["(a - b * c)", "(b // c)"]),
        ("y += 1", "arithmetic", ["y -= 1"]),
        ("y = 'a %s' % b", "arithmetic", []),
        ("y = [True, 7, 'text', None]", "constant", ["False", "(8)"]),
        ("f(a)", "statement", ["pass"]),
        ("self.x = a", "statement", ["pass"]),
        ("y = a", "statement", []),
        ("raise ValueError(1)", "statement", ["pass"]),
        ("raise ValueError(1)", "constant", []),
        ("_log.debug('%d', a + 1)", "statement", []),
        ("_log.debug('%d', a + 1)", "arithmetic", []),
        ("_log.warning('%d', a)", "statement", ["pass"]),
        ("with a: f(b)", "lock", ["__import__('contextlib').nullcontext()"]),
        ("with a as c: f(b)", "lock", []),
        ("f(b, c)", "arguments", ["c, b"]),
        ("f(b, b)", "arguments", []),
        ("y = f(b)", "call", ["(b)"]),
        ("y = not a", "negation", ["(a)"]),
        ("return a", "returned", ["None"]),
        ("return", "returned", []),
        ("assert a is not None", "comparison", []),
        ("y: Literal[3] = f(4)", "constant", ["(5)"]),
        ("y = f'{a + 1}'", "arithmetic", []),
    ],
)
def test_what_an_operator_makes_of_a_statement(statement: str, operator: str, after: list[str]) -> None:
    found = changes(f"def f(self, a, b, c):\n    {statement}")
    assert [text for _, text in found.get(operator, [])] == after


def test_what_is_made_of_larger_constructs() -> None:
    found = changes(
        """
        def f(a, b=3, *, c=False, d=None) -> bool:
            while a:
                try:
                    if not b:
                        break
                    g(a)
                except (OSError, KeyError):
                    continue
                except ValueError:
                    raise
            while True:
                pass
            return a.b
        """
    )
    assert found == {
        "default": [("3", "(4)"), ("False", "True")],
        "condition": [("a", "(not (a))")],
        "negation": [("not b", "(b)")],
        "loop": [("break", "continue"), ("continue", "break")],
        "statement": [("g(a)", "pass"), ("raise", "pass")],
        "exception": [("continue", "raise"), ("(OSError, KeyError)", "((KeyError,))")],
        "returned": [("a.b", "(not (a.b))")],
    }


def test_what_no_test_should_hold_is_left_out() -> None:
    assert not changes(
        """
        __all__ = ["a"] + ["b"]
        if TYPE_CHECKING:
            X = 1
        @dataclass(slots=True)
        class C:
            __slots__ = ("a",) + ("b",)
            field: Literal[1]
        if __name__ == "__main__":
            main(1)
        """
    )


def test_the_tests_of_a_place_are_those_that_run_its_lines() -> None:
    head = b"A = 1\ndef f(x, y=2):\n    if (x\n        > 3):\n        g(4)\n"
    source = head + b"    try:\n        h()\n    except E:\n        i()\n"
    found = {(m.operator, m.before): m.lines for m in mutants_of("kproto/x.py", source)}
    assert found["constant", "1"] is None  # it runs when the module is imported
    assert found["default", "2"] == (3, 9)  # noticed by whatever runs the function
    assert found["constant", "3"] == found["comparison", "x\n        > 3"] == (3, 4)
    assert found["constant", "4"] == (5, 5)
    assert found["exception", "i()"] == (9, 9)


@pytest.mark.slow
def test_every_mutant_of_the_product_is_a_different_program() -> None:
    programs: dict[str, str] = {}
    for mutant in draw(all_mutants(), 300, seed=1):
        source = (ROOT / mutant.path).read_bytes()
        if mutant.path not in programs:
            programs[mutant.path] = ast.dump(ast.parse(source))
        assert ast.dump(ast.parse(mutant.applied_to(source))) != programs[mutant.path], mutant


class TestDraw:
    MUTANTS = [
        mutant
        for path in ("channel/a.py", "kproto/b.py", "kproto/c.py")
        for mutant in mutants_of(path, b"X = [1, 2, 3, 4, 5, 6, 7, 8]\ndef f(a, b):\n    return a < b and not a\n")
    ]

    def test_a_shorter_draw_is_the_beginning_of_a_longer_one(self) -> None:
        longer = draw(self.MUTANTS, 20, seed=1)
        assert len(set(longer)) == 20
        assert draw(self.MUTANTS, 7, seed=1) == longer[:7]
        assert draw(self.MUTANTS, 20, seed=2) != longer

    def test_operators_packages_and_files_come_in_turn(self) -> None:
        drawn = draw(self.MUTANTS, 10, seed=1)
        assert [m.operator for m in drawn[:4]] == ["comparison", "comparison", "boolean", "boolean"]
        assert [m.path[0] for m in drawn] == ["c", "k"] * 5
        assert {m.path for m in drawn[1::2][:2]} == {"kproto/b.py", "kproto/c.py"}

    def test_lines_elsewhere_change_nothing(self) -> None:
        before = mutants_of("kproto/b.py", b"def f(a, b):\n    return a < b + 1\n")
        after = mutants_of("kproto/b.py", b'"""Text."""\n\ndef f(a, b):\n    return a < b + 1\n')
        assert [m.key for m in draw(before, 3, seed=5)] == [m.key for m in draw(after, 3, seed=5)]


class TestLists:
    ENTRY = """
    [[breakage]]
    name = "it is broken"
    rows = ["ABC-01"]
    function = "f"
    operator = "comparison"
    names = "b"
    """

    @pytest.mark.slow
    def test_the_known_breakages_and_equivalents_stand_where_they_are_said_to(self) -> None:
        everything = all_mutants()
        breakages = known_breakages(everything)
        assert len({b.name for b in breakages}) == len(breakages) >= 23
        assert all(names for b in breakages for names in b.runs)
        assert all(len(reason) > 10 for reason in equivalents(everything).values())

    def test_a_breakage_is_planted_by_the_name_of_its_function(self) -> None:
        source = b"def f(a, b):\n    return a < 1 or b < 2\n"
        (breakage,) = known_breakages(mutants_of("kproto/x.py", source), dedent(self.ENTRY))
        assert (breakage.name, breakage.rows, breakage.change.before) == ("it is broken", ("ABC-01",), "b < 2")

    def test_a_breakage_whose_place_is_gone_is_an_error(self) -> None:
        with pytest.raises(LookupError, match="'it is broken': no comparison with 'b' in f"):
            known_breakages(mutants_of("kproto/x.py", b"def f(a):\n    return a < 1\n"), dedent(self.ENTRY))

    def test_an_equivalent_is_found_by_its_place_alone(self) -> None:
        mutants = mutants_of("kproto/x.py", b"A = 1\ndef f(a):\n    return a < 1 or a < 2\n")
        listed = '[[mutant]]\nfunction = "f"\noperator = "comparison"\nwhy = "w"\n'
        line = 'line = "return a < 1 or a < 2"\n'
        found = equivalents(mutants, f'{listed}{line}before = "a < 2"\n')
        assert [(m.before, why) for m, why in found.items()] == [("a < 2", "w")]
        assert equivalents(mutants, listed + line) == {}  # two places agree
        assert equivalents(mutants, listed + 'line = "gone"\n') == {}


class TestReport:
    MUTANTS = mutants_of("kproto/x.py", b"def f(a, b):\n    return a < b + 1\n")
    KILLED, SURVIVED = Outcome("killed", "tests/test_x.py::test_it"), Outcome("survived")

    def test_too_few_killed_a_stale_equivalent_and_a_lasting_breakage_are_wrong(self) -> None:
        (breakage,) = known_breakages(self.MUTANTS, dedent(TestLists.ENTRY))
        killed = dict.fromkeys(self.MUTANTS, self.KILLED)
        assert report(killed, {}, {breakage: self.KILLED})[1] == []
        (wrong,) = report(killed, {self.MUTANTS[0]: "why"}, {})[1]
        assert wrong.startswith("equivalent.toml: kproto/x.py:2 ")
        assert report(killed, {}, {breakage: self.SURVIVED})[1] == ["it is broken: no test notices"]
        survived = killed | {self.MUTANTS[0]: self.SURVIVED}
        lines, wrong = report(survived, {}, {})
        assert len(wrong) == 1
        assert "at least 85% are wanted" in wrong[0]
        assert any("survived" in line for line in lines)

    def test_a_mutant_that_changes_nothing_does_not_count_against_the_tests(self) -> None:
        survived = dict.fromkeys(self.MUTANTS, self.KILLED) | {self.MUTANTS[0]: self.SURVIVED}
        lines, wrong = report(survived, {self.MUTANTS[0]: "it is the same"}, {})
        assert wrong == []
        rest = len(survived) - 1
        assert f"{rest}, 100.0% of the {rest} that" in lines[0]
        assert f"{rest / len(survived):.1%} of all" in lines[0]


@pytest.mark.parametrize(
    ("path", "test", "does"),
    [
        ("channel/network/selector.py", "tests/channel/network/test_tls.py", True),
        ("channel/network/selector.py", "tests/channel/test_tap.py", False),
        ("channel/broker/handlers.py", "tests/channel/broker/test_cluster.py", True),
        ("channel/tap/relay.py", "tests/channel/network/test_tls.py", True),
        ("kproto/cli/dissection.py", "tests/cli/test_main.py", True),
        ("kproto/cli/dissection.py", "tests/tables/test_ids.py", False),
        ("kproto/reference/struct.py", "tests/reference/test_text.py", True),
        ("kproto/reference/struct.py", "tests/contract/test_vectors.py", True),
        ("kproto/codec.py", "tests/contract/test_vectors.py", True),
        ("kproto/codec.py", "tests/test_api.py", True),
        ("kproto/codec.py", "tests/cli/test_main.py", False),
    ],
)
def test_a_mutant_that_no_measured_test_notices_is_tried_on_the_tests_of_its_folder(
    path: str, test: str, does: bool
) -> None:
    assert mirrors(test, path) is does


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of one module and its tests."""
    root = tmp_path / "project"
    for folder in ("kproto", "channel", "tests/data"):
        (root / folder).mkdir(parents=True)
    for name in ("kproto", "channel"):
        (root / name / "__init__.py").write_text("")
    names = ("held", "run_only", "shared", "traced", "in_a_child", "never_run")
    functions = [f"def {name}(a):\n    return a + 1\n" for name in names]
    (root / "kproto" / "sums.py").write_text("\n\n".join(functions))
    (root / "tests" / "test_sums.py").write_text(
        dedent(
            """
            import coverage, subprocess, sys, threading, pytest
            from kproto.sums import held, run_only, shared, traced

            @pytest.fixture(scope="module")
            def sum_of_all():
                return shared(1)

            def test_first(sum_of_all):
                assert sum_of_all

            def test_traces_by_itself():
                sys.settrace(None)

            @pytest.mark.conformance("SUM-01")
            def test_held():
                assert held(1) == 2

            def test_interrupted_within_the_tracer():
                if (measuring := coverage.Coverage.current()) is not None:
                    measuring._collector.lock_data()  # and no unlock_data()

            def test_run_in_a_thread():
                thread = threading.Thread(target=run_only, args=(1,))
                thread.start()
                thread.join()

            def test_last(sum_of_all):
                assert traced(1) == sum_of_all == 2

            def test_red():
                assert held(1) == 3
            """
        )
    )
    (root / "tests" / "test_child.py").write_text(
        dedent(
            """
            import subprocess, sys

            def test_child():
                child = "import kproto.sums, sys; sys.exit(kproto.sums.in_a_child(1))"
                assert subprocess.run([sys.executable, "-c", child]).returncode == 2
            """
        )
    )
    shutil.copytree(HERE, root / "tests" / "mutations", ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    shutil.copy(HERE.parent / "uncompiled.py", root / "tests")
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n'
        'markers = ["conformance(*rows): x", "java: x", "kafka: x", "spark: x"]\n'
    )
    return root


@pytest.mark.slow
def test_a_campaign_from_end_to_end(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept"
    measured = measure(project, kept, jobs=2)
    assert "test_red" in capsys.readouterr().err  # told and left out: it cannot tell what is broken
    first, traces, interrupted, held, run, last = (
        f"tests/test_sums.py::test_{name}"
        for name in ("first", "traces_by_itself", "interrupted_within_the_tracer", "held", "run_in_a_thread", "last")
    )
    child = "tests/test_child.py::test_child"
    mutants = {m.function: m for m in all_mutants(project) if m.operator == "arithmetic"}
    stages = {name: [sorted(stage) for stage in measured.stages(m, 60)] for name, m in mutants.items()}
    everything = {first, traces, interrupted, held, run, last, child}
    assert {name: found[0] for name, found in stages.items()} == {
        "held": [held],
        "run_only": [run],
        "shared": sorted(everything - {child}),  # fixtures that tests share concern all tests of their file
        "traced": [last],
        # Lines that no test runs in this process: all tests that run anything of the file, then those of its folder.
        "in_a_child": sorted(everything - {child}),
        "never_run": sorted(everything - {child}),
    }
    assert all({test for stage in found for test in stage} == everything for found in stages.values())

    tree = Tree.of(project, tmp_path)
    seconds = tree.prepare(measured.samples())
    trials = [Trial(m, measured.stages(m, 60), seconds) for m in mutants.values()]
    outcomes = {m.function: outcome for m, outcome in attempts(tree, tmp_path, 2, trials)}
    assert {name: (o.verdict, o.red) for name, o in outcomes.items()} == {
        "held": ("killed", held),
        "run_only": ("survived", ""),
        "shared": ("killed", last),
        "traced": ("killed", last),
        "in_a_child": ("killed", child),
        "never_run": ("survived", ""),
    }
    assert (tree.root / "kproto" / "sums.py").read_bytes() == (project / "kproto" / "sums.py").read_bytes()
    (row,) = dict(attempts(tree, tmp_path / "rows", 1, [Trial(mutants["held"], [["SUM-01"]], {}, each=True)])).values()
    assert row.red == held

    measure(project, kept)
    assert capsys.readouterr().err == ""  # nothing has changed, nothing is measured again
    (project / "kproto" / "sums.py").write_text("def held(a):\n    return a - 1\n\n\ndef run_only(a):\n    pass\n")
    (project / "tests" / "test_sums.py").write_text("from kproto.sums import held\ndef test_held():\n    held(1)\n")
    measure(project, kept)
    assert "tests of 1 files" in capsys.readouterr().err


@pytest.mark.slow
def test_tests_that_do_not_end_cost_no_other_file_its_measure(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = project / "tests" / "test_endless.py"
    endless.write_text("import time\ndef test_endless():\n    time.sleep(600)\n")
    assert covering._told(project, ["tests/test_endless.py"], 3) is None
    assert "tests/test_endless.py did not end within 3 s" in capsys.readouterr().err

    told, runs = {"tests": {"tests/test_a.py::test": {"seconds": 1, "outcome": "passed"}}, "lines": {}}, []

    def run(_: Path, files: list[str], __: float) -> dict[str, Any] | None:
        runs.append(files)
        return None if "tests/test_endless.py" in files else told

    monkeypatch.setattr(covering, "_told", run)
    measured = covering._measured(project, ["tests/test_a.py", "tests/test_endless.py"])
    assert measured == {"tests/test_a.py": {"seconds": {"tests/test_a.py::test": 1}, "lines": {}}}
    assert runs == [["tests/test_a.py", "tests/test_endless.py"], ["tests/test_a.py"], ["tests/test_endless.py"]]
    assert "left out, as its tests did not end: tests/test_endless.py" in capsys.readouterr().err


class TestNoticing:
    """What a busy machine does to tests is no kill."""

    @pytest.fixture
    def tree(self, project: Path, tmp_path: Path) -> Tree:
        return Tree.of(project, tmp_path)

    @pytest.fixture
    def mutant(self, project: Path) -> Mutant:
        return next(m for m in all_mutants(project) if m.operator == "arithmetic")

    @pytest.mark.slow
    @pytest.mark.parametrize(("until", "verdict"), [(1, "survived"), (9, "killed")])
    def test_a_test_that_failed_must_fail_again(
        self, tree: Tree, mutant: Mutant, tmp_path: Path, until: int, verdict: str
    ) -> None:
        (tree.root / "tests" / "test_flaky.py").write_text(
            f"from pathlib import Path\nruns = Path({str(tmp_path / 'runs')!r})\n"
            "def test_it():\n    with runs.open('a') as f:\n        f.write('x')\n"
            f"    assert runs.stat().st_size > {until}\n"
        )
        assert tree.notices(mutant, ["tests/test_flaky.py::test_it"], {}).verdict == verdict

    @pytest.mark.parametrize(("unbroken_s", "verdict"), [(0.1, "timeout"), (2.5, "survived")])
    def test_running_out_of_time_tells_something_only_of_tests_that_are_quick_unbroken(
        self, tree: Tree, mutant: Mutant, monkeypatch: pytest.MonkeyPatch, unbroken_s: float, verdict: str
    ) -> None:
        outcomes = iter([Outcome("timeout", seconds=3), Outcome("survived", seconds=unbroken_s)])
        monkeypatch.setattr(trial, "LIMIT", 3)
        monkeypatch.setattr(tree, "run", lambda *_: next(outcomes))
        assert tree.notices(mutant, [], {}).verdict == verdict
