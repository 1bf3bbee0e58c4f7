"""What users read names each state by the word that docs/glossary.md has for it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kproto.verdicts.catalogue import LIMITS, RULES, SEVERITIES

ROOT: Final = Path(__file__).parents[1]
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
ROWS: Final = re.findall(
    r"^\| (.+?) \| (.+?) \| (.+?) \|$", GLOSSARY.read_text(encoding="utf-8").partition("## States")[2], re.MULTILINE
)[1:]
NAMES: Final = [name for _, name, _ in ROWS]
BANNED: Final = {phrase: name for _, name, phrases in ROWS for phrase in phrases.split(", ")}


def texts_of(path: Path) -> Iterator[str]:
    """The strings of a Python file, f-strings with ``{}`` for their values, and of docstrings those of commands."""
    tree = ast.parse(path.read_bytes())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    if path.parent.name != "cli":
        inside |= {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def read_by_users() -> Iterator[tuple[str, str]]:
    """Yield a place and a text: every string of the surfaces, of the report's scripts, and every line of the pages."""
    for folder in ("cli", "verdicts", "report", "query", "tables"):
        for path in sorted((ROOT / "kproto" / folder).rglob("*.py")):
            yield from ((path.name, text) for text in texts_of(path))
    for path in sorted((ROOT / "kproto" / "report" / "assets").glob("*.js")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.name}:{number}", line
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        text = text.partition("## States")[0] if page == GLOSSARY else text
        for number, line in enumerate(text.splitlines(), 1):
            yield f"{page.name}:{number}", line


@cache
def texts() -> tuple[tuple[str, str], ...]:
    return tuple(read_by_users())


lowered = cache(str.lower)


def says(phrase: str, text: str) -> bool:
    """Whether a text has a phrase, as words of its own."""
    phrase, text = lowered(phrase), lowered(text)
    return phrase in text and re.search(rf"(?<![\w-]){re.escape(phrase)}(?!\w)", text) is not None


@pytest.mark.parametrize("phrase", BANNED)
def test_no_text_has_another_name_for_a_state(phrase: str) -> None:
    if phrase == "look at":  # as a label alone: "look at the broker's disk" is advice
        found = [(place, text) for place, text in texts() if text.strip().lower() == phrase or '"Look at"' in text]
    else:
        found = [(place, text) for place, text in texts() if says(phrase, text)]
    assert not found, f"the glossary has {BANNED[phrase]!r} for it"


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_in_use(name: str) -> None:
    assert any(says(name, text) for place, text in texts() if not place.startswith("glossary"))


def test_the_check_sees_what_it_looks_for() -> None:
    assert len(ROWS) >= 15
    assert says("leader -1", "It has leader -1.")
    assert not says("leader -1", "leader -10")
    assert {"no leader", "unanswered", "refused"} <= set(NAMES)
    assert any("{} has no leader" in text for _, text in texts())


def test_every_severity_is_explained() -> None:
    assert set(SEVERITIES) <= set(NAMES)


def test_rules_are_sentences_in_words_of_the_field() -> None:
    for rule in RULES.values():
        for text in (rule.meaning, rule.cause, rule.action, rule.harmless):
            assert text[0].isupper() or text.startswith("kproto "), (rule.id, text)
            assert text.endswith((".", "?")), (rule.id, text)
    assert all(limit.meaning for limit in LIMITS.values())
