"""The rooms of ``channel``: few modules at its root, and each class name once."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import channel

ROOT = Path(channel.__file__).parent


def test_the_root_holds_what_all_share() -> None:
    modules = sorted(path.stem for path in ROOT.glob("*.py") if path.stem != "__init__")
    assert len(modules) <= 12, modules


def test_the_network_has_few_modules() -> None:
    network = ROOT / "network"
    found = [path.relative_to(network) for path in network.rglob("*.py*")]
    modules = sorted(str(path) for path in found if path.suffix in (".py", ".pyx"))
    assert len(modules) <= 25, modules


def test_the_way_of_a_request_is_short() -> None:
    program = Path(__file__).with_name("request_way.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    files, on_deciding_thread, on_send_thread = map(int, done.stdout.split())
    assert 10 <= files <= 20
    assert 50 <= on_deciding_thread <= 110
    assert 50 <= on_send_thread <= 90


def test_clients_are_made_in_one_place() -> None:
    places = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if "NetworkClient(" in path.read_text("utf-8")]
    assert places == ["network/node_client.py"]


def test_each_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        for each in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                places[each.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
