"""The tool behind ``make mutations``: its operators, its draw, its lists, and one small campaign from end to end."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from mutations.covering import measure
from mutations.draw import ROOT, all_mutants, draw
from mutations.kills import Kills
from mutations.lists import equivalents, known_breakages
from mutations.operators import OPERATORS, mutants_of
from mutations.run import report, table, try_mutant
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

    def test_there_are_no_more_than_there_are(self) -> None:
        assert len(draw(self.MUTANTS, 10_000, seed=1)) == len(self.MUTANTS)
        assert draw([], 5, seed=1) == []


class TestLists:
    ENTRY = """
    [[breakage]]
    name = "it is broken"
    rows = ["ABC-01"]
    file = "x.py"
    text = '''
    b = 2
    '''
    becomes = "b = 3\\n"
    """

    def test_the_known_breakages_and_equivalents_stand_where_they_are_said_to(self) -> None:
        breakages = known_breakages()
        assert len({b.name for b in breakages}) == len(breakages) >= 28
        assert all(len(reason) > 10 for reason in equivalents(all_mutants()).values())

    def test_a_breakage_is_a_change_of_text(self, tmp_path: Path) -> None:
        (tmp_path / "x.py").write_text("a = 1\nb = 2\nc = 3\n")
        (breakage,) = known_breakages(tmp_path, dedent(self.ENTRY))
        assert (breakage.name, breakage.rows, breakage.change.lines) == ("it is broken", ("ABC-01",), (2, 2))
        assert breakage.change.applied_to((tmp_path / "x.py").read_bytes()) == b"a = 1\nb = 3\nc = 3\n"

    @pytest.mark.parametrize("text", ["a = 1\n", "b = 2\nb = 2\n"])
    def test_a_breakage_whose_place_is_gone_or_doubled_is_an_error(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "x.py").write_text(text)
        with pytest.raises(LookupError, match=f"'it is broken' stands {text.count('b = 2')} times"):
            known_breakages(tmp_path, dedent(self.ENTRY))

    def test_an_equivalent_is_found_by_its_place_alone(self) -> None:
        mutants = mutants_of("kproto/x.py", b"A = 1\ndef f(a):\n    return a < 1 or a < 2\n")
        listed = '[[mutant]]\nfile = "kproto/x.py"\nfunction = "f"\noperator = "comparison"\nwhy = "w"\n'
        line = 'line = "return a < 1 or a < 2"\n'
        found = equivalents(mutants, f'{listed}{line}before = "a < 2"\n')
        assert [(m.before, why) for m, why in found.items()] == [("a < 2", "w")]
        with pytest.raises(LookupError, match="2 mutants"):
            equivalents(mutants, listed + line)
        with pytest.raises(LookupError, match="0 mutants"):
            equivalents(mutants, listed + 'line = "gone"\n')


class TestReport:
    MUTANTS = mutants_of("kproto/x.py", b"def f(a, b):\n    return a < b + 1\n")
    KILLED, SURVIVED = Outcome("killed", "tests/test_x.py::test_it"), Outcome("survived")

    def test_the_table_counts_by_operator_and_package(self) -> None:
        outcomes = dict.fromkeys(self.MUTANTS, self.KILLED) | {self.MUTANTS[0]: self.SURVIVED}
        lines = table(outcomes)
        assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in (*OPERATORS, "all")]
        assert (
            lines[-1]
            == f"| all | - | {len(outcomes) - 1} of {len(outcomes)} | {len(outcomes) - 1} of {len(outcomes)} |"
        )

    def test_too_few_killed_a_stale_equivalent_and_a_lasting_breakage_are_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "x.py").write_text("b = 2\n")
        (breakage,) = known_breakages(tmp_path, dedent(TestLists.ENTRY))
        killed = dict.fromkeys(self.MUTANTS, self.KILLED)
        assert report(killed, {}, {breakage: self.KILLED}, 1)[1] == []
        (wrong,) = report(killed, {self.MUTANTS[0]: "why"}, {}, 1)[1]
        assert wrong.startswith("equivalent.toml: kproto/x.py:2 ")
        assert report(killed, {}, {breakage: self.SURVIVED}, 1)[1] == ["it is broken: no test notices"]
        lines, wrong = report(killed | {self.MUTANTS[0]: self.SURVIVED}, {}, {}, 1)
        assert len(wrong) == 1
        assert "at least 90% are wanted" in wrong[0]
        assert any("survived" in line for line in lines)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of one module and its tests."""
    root = tmp_path / "project"
    for folder in ("kproto", "channel", "tests/data"):
        (root / folder).mkdir(parents=True)
    for name in ("kproto", "channel"):
        (root / name / "__init__.py").write_text("")
    functions = [f"def {name}(a):\n    return a + 1\n" for name in ("held", "run_only", "never_run")]
    (root / "kproto" / "sums.py").write_text("\n\n".join(functions))
    (root / "tests" / "test_sums.py").write_text(
        dedent(
            """
            import threading, pytest
            from kproto.sums import held, run_only

            @pytest.mark.conformance("SUM-01")
            def test_held():
                assert held(1) == 2

            def test_run_in_a_thread():
                thread = threading.Thread(target=run_only, args=(1,))
                thread.start()
                thread.join()

            def test_red():
                assert held(1) == 3
            """
        )
    )
    shutil.copytree(HERE, root / "tests" / "mutations", ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n'
        'markers = ["conformance(*rows): x", "java: x", "kafka: x", "spark: x"]\n'
    )
    return root


def test_a_campaign_from_end_to_end(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept"
    covering = measure(project, kept)
    assert "test_red" in capsys.readouterr().err  # told and left out: it cannot tell what is broken
    held, run = "tests/test_sums.py::test_held", "tests/test_sums.py::test_run_in_a_thread"
    assert covering.rows == {"SUM-01": {held}}
    mutants = {m.function: m for m in all_mutants(project) if m.operator == "arithmetic"}
    assert [covering.tests_of(m, 60) for m in mutants.values()] == [[held], [run], []]

    tree = Tree(tmp_path, project)
    tree.prepare(covering.samples())
    outcomes = {name: try_mutant(tree, m, covering.tests_of(m, 60), covering) for name, m in mutants.items()}
    assert {name: o.verdict for name, o in outcomes.items()} == {
        "held": "killed",
        "run_only": "survived",
        "never_run": "untested",
    }
    assert outcomes["held"].red == held
    assert (tree.root / "kproto" / "sums.py").read_bytes() == (project / "kproto" / "sums.py").read_bytes()

    kills = Kills(project, tmp_path / "kills.json")
    for name, mutant in mutants.items():
        kills.add(mutant, outcomes[name])
    kills = Kills(project, tmp_path / "kills.json")
    assert [kills.of(m) for m in mutants.values()] == [Outcome("killed", held), None, None]

    measure(project, kept)
    assert capsys.readouterr().err == ""  # nothing has changed, nothing is measured again
    (project / "kproto" / "sums.py").write_text("def held(a):\n    return a - 1\n\n\ndef run_only(a):\n    pass\n")
    measure(project, kept)
    assert "tests of 1 files" in capsys.readouterr().err
    assert kills.of(mutants["held"]) is None
