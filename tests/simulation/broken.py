"""Loads the product with a deliberate fault: its Python modules uncompiled, the texts of some of them changed."""

import importlib.util
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from mutations.draw import all_mutants, draw

__all__ = ["Breakage", "breakages", "drawn", "install"]

PROTOCOL = tuple(
    f"channel/{name}.py"
    for name in (
        "send/batch",
        "send/manager",
        "send/messages",
        "send/encoded_requests",
        "send/send_thread",
        "network/client",
        "network/channel",
        "network/frames",
        "network/request",
        "network/selector",
        "network/server",
        "broker/metadata_cache",
        "broker/replicas",
        "broker/service",
        "broker/snapshot",
        "threads",
    )
)
"""The files of the protocol's logic that the simulation runs."""

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Breakage:
    """A deliberate fault.

    Attributes:
        name: What no longer holds.
        sources: The changed source of each file.
        kind: The kind of seeds that find it; None for the default ones.
    """

    name: str
    sources: dict[str, bytes]
    kind: str | None = None


def breakages() -> list[Breakage]:
    """Read the faults of ``breakages.toml``.

    Raises:
        LookupError: A text does not stand exactly once in its file.
    """
    listed = tomllib.loads((Path(__file__).parent / "breakages.toml").read_text(encoding="utf-8"))["breakage"]
    found = []
    for entry in listed:
        sources: dict[str, bytes] = {}
        for change in entry["change"]:
            name, text = change["file"], change["text"].encode()
            source = sources.get(name) or (ROOT / name).read_bytes()
            if source.count(text) != 1:
                raise LookupError(f"{entry['name']}: {name} has its text {source.count(text)} times, not once")
            sources[name] = source.replace(text, change["becomes"].encode())
        found.append(Breakage(entry["name"], sources, entry.get("kind")))
    return found


def drawn(count: int, seed: int) -> list[Breakage]:
    """Draw mutants of the protocol's logic, as ``make mutations`` draws them, without those that change nothing."""
    mutants = all_mutants(only=PROTOCOL)
    listed = tomllib.loads((ROOT / "tests/mutations/equivalent.toml").read_text(encoding="utf-8"))["mutant"]
    alike = {(entry["function"], entry["operator"], entry["line"]) for entry in listed}
    kept = [mutant for mutant in mutants if mutant.key[1:4] not in alike]
    found = []
    for mutant in draw(kept, count, seed):
        name = f"{mutant.path}:{mutant.lineno} {mutant.function}: {mutant.before!r} -> {mutant.after!r}"
        found.append(Breakage(name, {mutant.path: mutant.applied_to((ROOT / mutant.path).read_bytes())}))
    return found


class _Loader(SourceFileLoader):
    """Loads a module from its source, or from the changed one."""

    def __init__(self, name: str, path: str, changed: bytes | None) -> None:
        super().__init__(name, path)
        self._changed = changed

    def get_code(self, fullname: str) -> CodeType | None:
        if self._changed is None:
            return super().get_code(fullname)
        return compile(self._changed, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the modules of ``channel`` as the Python that they are, compiled or not."""

    def __init__(self, changed: dict[str, bytes]) -> None:
        self._changed = changed

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(("channel.", "kproto.")) or path is None:
            return None
        for folder in path:
            file = Path(folder) / f"{name.rpartition('.')[2]}.py"
            if file.is_file():
                changed = self._changed.get(file.relative_to(ROOT).as_posix())
                if changed is not None or name.startswith("channel."):
                    return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file), changed))
        return None


def install(changed: dict[str, bytes]) -> None:
    """Load the product with these files changed; before any of its modules is imported."""
    assert not any(name.startswith("channel.") for name in sys.modules), "the product is loaded already"
    sys.meta_path.insert(0, _Finder(changed))
