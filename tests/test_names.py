"""One name has one meaning: no two classes of kproto share one, except the twins of the two codecs."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import kproto

PACKAGE = Path(kproto.__file__).parent

REFERENCE = PACKAGE / "reference"
"""Its messages have the names of the extension's: that is how one takes the other's place."""

PROTOCOLS = {"Message"}
"""A protocol that the classes of this name in both codecs fulfil."""


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not (REFERENCE in path.parents and node.name in PROTOCOLS):
                places[node.name].add(str(path.relative_to(PACKAGE)))
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}
