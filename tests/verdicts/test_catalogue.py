"""The catalogue of rules is whole: stable ids, known limits, texts for every question that --explain answers."""

import re

from kproto.query import QUESTIONS
from kproto.verdicts.catalogue import LIMITS, RULES, SEVERITIES


def test_rules_have_stable_ids_and_unique_names() -> None:
    assert all(re.fullmatch(r"KP\d{3}", rule_id) and rule.id == rule_id for rule_id, rule in RULES.items())
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    assert list(RULES) == sorted(RULES)


def test_each_rule_explains_itself_in_sentences() -> None:
    for rule in RULES.values():
        assert rule.severity in SEVERITIES
        for text in (rule.meaning, rule.cause, rule.action, rule.harmless):
            assert text.endswith((".", "?"))
            assert text[0].isupper() or text.startswith("kproto")


def test_each_limit_belongs_to_a_rule() -> None:
    assert {name for rule in RULES.values() for name in rule.limits} == set(LIMITS)


def test_each_rule_names_a_command_that_shows_its_evidence() -> None:
    for rule in RULES.values():
        command, *words = rule.shown_by.split()
        assert command in ("inspect", "query", "summary")
        assert command != "query" or words[0] in QUESTIONS
        assert {word for word in words if word.isupper()} <= {"BROKER", "PLACE", "TIME"}
