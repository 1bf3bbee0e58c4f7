"""The run whose tables a directory holds: whether its inputs are the same today, and what a later run adds to it."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kproto.capture.capture_points import unpacked
from kproto.errors import ConfigurationError
from kproto.pipeline.stages import SMALL_TABLES
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.files import file_state
from kproto.tables.places import Place, RemotePath, copy, place_of
from kproto.tables.stored import MANIFEST, SUMMARY, checked_run, table_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from kproto.capture import CapturePoint
    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.filters import Filters

_FACTS: Final = "brokers.json"

_STORE_THREADS: Final = 16
"""How many requests the driver has under way at a store, which answers each of them slowly."""

T = TypeVar("T")

Address = tuple[str, str, int]
"""Capture point, IP and port of a broker."""


def fingerprint(points: Sequence[CapturePoint], filters: Filters) -> dict[str, Any]:
    """The inputs of a run, to be compared with a later one's: files with size and time of change, and the filters."""
    return {
        "points": {point.name: [_state_of(file) for file in point.files] for point in points},
        "filters": repr(sorted((name, _plain(value)) for name, value in asdict(filters).items())),
    }


def _state_of(file: str) -> list[str | int]:
    return [file, *file_state(file)]


def _gone(before: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]) -> list[str]:
    """The files of a capture point that no longer exist, neither as they were nor compressed."""
    there = {unpacked(file) for file, *_ in now}
    return [file for file, *_ in before if unpacked(file) not in there and not place_of(file).exists()]


def _plain(value: Any) -> Any:
    """A filter's value in an order that is the same in every process."""
    if isinstance(value, dict):
        return sorted(value.items())
    return sorted(value) if isinstance(value, frozenset) else value


def store_facts(run: Place, parts: Iterable[BrokerFacts], addresses: Collection[Address]) -> None:
    """Store the captures' facts about brokers, for a run that adds captures to this one."""
    parts = list(parts)
    listings = [fact for part in parts for fact in part.listeners]
    lists = {listed: number for number, listed in enumerate(dict.fromkeys(listed for _, _, listed in listings))}
    facts = {
        "lists": list(lists),
        "listeners": [(time_ns, capture, lists[listed]) for time_ns, capture, listed in listings],
        "replicas": [[*key, sorted(ids)] for part in parts for key, ids in part.replicas.items()],
        "addresses": sorted(addresses),
    }
    (run / _FACTS).write_text(json.dumps(facts) + "\n", encoding="utf-8")


@dataclass(slots=True)
class PreviousRun:
    """A completed run.

    Attributes:
        run: Its directory.
        manifest: The content of its manifest.
        facts: Its captures' facts about brokers.
        addresses: The receivers' addresses of its requests.
    """

    run: Place
    manifest: dict[str, Any]
    facts: BrokerFacts
    addresses: list[Address]

    @classmethod
    def of(cls, directory: Place) -> PreviousRun | None:
        """The current run of a directory; None if there is none, it is damaged, or captures cannot be added to it."""
        try:
            run = checked_run(directory)
            manifest = json.loads((directory / MANIFEST).read_bytes())
            stored = json.loads((run / _FACTS).read_bytes())
            facts = BrokerFacts()
            lists = [tuple((broker, host, port) for broker, host, port in listed) for listed in stored["lists"]]
            for time_ns, capture, listed in stored["listeners"]:
                facts.learn_listeners(time_ns, capture, lists[listed])
            for capture, (ip, port), ids in stored["replicas"]:
                facts.learn_replicas(capture, (ip, port), ids)
            return cls(run, manifest, facts, [(capture, ip, port) for capture, ip, port in stored["addresses"]])
        except (ConfigurationError, OSError, ValueError, LookupError, TypeError):
            return None

    def with_gone(self, wanted: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Add to a run's inputs the capture points whose files are gone, as they were; return the missing files too.

        Args:
            wanted: The run's ``fingerprint``; a capture point of which a file is gone, and no other was added or has
                changed, gets its former files.
        """
        points, missing = dict(wanted["points"]), []
        for name, files in self.manifest.get("points", {}).items():
            now = points.get(name, [])
            gone = _gone(files, now)
            if gone and all(file in files for file in now):
                points[name] = files
                missing += gone
        return wanted | {"points": points}, missing

    def check_not_lost(self, wanted: dict[str, Any], out: OutputDirectory) -> None:
        """Check before all captures are read again that no rows are lost whose captures are gone.

        Raises:
            ConfigurationError: There are such rows, and the user did not say that they may be replaced.
        """
        before = self.manifest.get("points", {})
        gone = [file for name, files in before.items() for file in _gone(files, wanted["points"].get(name, []))]
        if gone and not out.overwrite:
            raise ConfigurationError(
                f"{out.path} has rows of {len(gone)} captures that are gone, {', '.join(gone[:3])}"
                f"{' ...' if len(gone) > 3 else ''}, and this run would have to read all captures again: choose "
                "another directory with --out, or add --overwrite to give up these rows"
            )

    def added(self, points: Sequence[CapturePoint], wanted: dict[str, Any], version: str) -> list[CapturePoint] | None:
        """The new capture points; None if the former ones have changed, or were read with other filters.

        Args:
            points: Of the run that begins.
            wanted: Its ``fingerprint``.
            version: Of this kproto.
        """
        if self.manifest.get("kproto") != version or self.manifest.get("filters") != wanted["filters"]:
            return None
        before: dict[str, Any] = self.manifest.get("points", {})
        if any(wanted["points"].get(name) != files for name, files in before.items()):
            return None
        return [point for point in points if point.name not in before]

    def holds_beside(self, parts: Iterable[BrokerFacts], filters: Filters) -> bool:
        """Whether its requests keep their brokers when the facts of other captures are added."""
        alone, together = BrokerDirectory(filters.broker_ids), BrokerDirectory(filters.broker_ids)
        BrokerFacts.teach(alone, [self.facts])
        BrokerFacts.teach(together, [self.facts, *parts])
        return all(
            alone.history_of((ip, port), capture) == together.history_of((ip, port), capture)
            for capture, ip, port in self.addresses
        )

    def summary(self) -> dict[str, Any]:
        """Its summary.

        Raises:
            OSError: It is not there.
            ValueError: It cannot be read.
        """
        found: dict[str, Any] = json.loads((self.run / SUMMARY).read_bytes())
        return found

    def files(self) -> list[PurePath]:
        """Its table files but for the small tables', below its directory."""
        return [
            file.relative_to(self.run)  # type: ignore[arg-type]  # both are paths, or both URIs
            for name in self.manifest["tables"]
            if name not in SMALL_TABLES
            for file in table_files(self.run / name)
        ]

    def link_into(self, run: Place) -> None:
        """Give a run its table files too: as links, where the file system has them; a store copies them on its side."""
        at_store(lambda file: _link(self.run / file, run / file), self.files())


def at_store(work: Callable[[T], object], things: Iterable[T]) -> None:
    """Do the work for each of the things, several at once; the first error is raised."""
    with ThreadPoolExecutor(_STORE_THREADS) as threads:
        for _done in threads.map(work, things):
            pass


def _link(file: Place, place: Place) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(file, RemotePath) and isinstance(place, RemotePath):
        copy(file, place)
        return
    assert isinstance(file, Path)
    assert isinstance(place, Path)
    try:
        os.link(file, place)
    except OSError:
        shutil.copy2(file, place)
