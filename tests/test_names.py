"""One name has one meaning: no two classes of the product share one, and no two modules of the channel."""

import re
from collections import defaultdict
from pathlib import Path

import channel
import kproto

PACKAGES = [Path(str(package.__file__)).parent for package in (channel, kproto)]


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in (path for package in PACKAGES for path in package.rglob("*.py")):
        for name in re.findall(r"\nclass (\w+)", path.read_text()):
            places[name].add(str(path))
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}


def test_no_two_modules_of_the_channel_share_a_name() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGES[0].rglob("*.py"):
        if path.name != "__init__.py":
            places[path.name].add(str(path))
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}
