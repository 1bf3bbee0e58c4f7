"""The run whose tables a directory holds: whether its inputs are the same today, and what a later run adds to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kproto.capture.capture_points import CapturePoint, unpacked
from kproto.errors import ConfigurationError
from kproto.tables.brokers import BrokerDirectory, BrokerFacts
from kproto.tables.files import file_state
from kproto.tables.places import Place, RemotePath, place_of
from kproto.tables.points import DEFAULT_CLUSTER
from kproto.tables.stored import MANIFEST, SUMMARY, StoredTables, current_tables, stored_pieces
from kproto.verdicts.summary import SUMMARY_COLUMNS, summarize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kproto.pipeline.output import OutputDirectory
    from kproto.tables.filters import Filters

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


def _files_behind(before: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]) -> list[Any]:
    """The files of a capture point that are new, if all of them come after a file that is there as it was."""
    known = {unpacked(file[0]): file for file in before}
    old = [file for file in now if unpacked(file[0]) in known]
    new = [file for file in now if unpacked(file[0]) not in known]
    same = all(file == (was := known[unpacked(file[0])]) or file[0] != was[0] for file in old)
    return new if old and same and [*now] == [*old, *new] else []


def _plain(value: Any) -> Any:
    """A filter's value in an order that is the same in every process."""
    if isinstance(value, dict):
        return sorted(value.items())
    return sorted(value) if isinstance(value, frozenset) else value


def store_facts(file: Place, parts: Iterable[BrokerFacts], addresses: Collection[Address]) -> None:
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
    file.write_text(json.dumps(facts) + "\n", encoding="utf-8")


class ChangedInputs(NamedTuple):
    """What a run has to read for the tables to hold its captures too.

    Attributes:
        new: The capture points to add; None: all are read again.
        points: All capture points that the tables hold then, and the state of their files.
        gone: Files that no longer exist, and whose rows stay.
        continued: Of the capture points to add, those that go on behind stored ones: they have the new files alone.
    """

    new: list[CapturePoint] | None
    points: dict[str, Any]
    gone: list[str]
    continued: Collection[str] = ()


@dataclass(slots=True)
class PreviousRun:
    """A completed run.

    Attributes:
        stored: Its tables.
        facts: The facts about brokers in its captures of one cluster.
        addresses: The receivers' addresses of the requests in them.
    """

    stored: StoredTables
    facts: BrokerFacts = field(default_factory=BrokerFacts)
    addresses: set[Address] = field(default_factory=set)

    @classmethod
    def of(cls, out: OutputDirectory, cluster: str = DEFAULT_CLUSTER) -> PreviousRun | None:
        """The current run of a directory; None if there is none, or it cannot be read and is to be overwritten.

        Args:
            out: The directory.
            cluster: The cluster of the captures that a later run adds.

        Raises:
            ConfigurationError: It cannot be read, and its rows would be lost.
        """
        if not (out.path / MANIFEST).exists():
            return None
        try:
            stored = current_tables(out.path)
            _check_files(stored)
            former = cls(stored)
            for generation in stored.facts["generations"]:
                if generation["cluster"] == cluster:
                    former._learn(json.loads((stored.run / generation["facts"]).read_bytes()))
        except ConfigurationError as e:
            if out.overwrite:
                return None
            raise ConfigurationError(f"{e}; or give up these tables and make new ones: --overwrite") from None
        except (OSError, ValueError, LookupError, TypeError) as e:
            if out.overwrite:
                return None
            raise ConfigurationError(
                f"the tables in {out.path} are damaged ({type(e).__name__}: {e}), so nothing can be added: choose "
                "another directory with --out, or give them up and make new ones with --overwrite"
            ) from None
        return former

    def _learn(self, stored: dict[str, Any]) -> None:
        lists = [tuple((broker, host, port) for broker, host, port in listed) for listed in stored["lists"]]
        for time_ns, capture, listed in stored["listeners"]:
            self.facts.learn_listeners(time_ns, capture, lists[listed])
        for capture, (ip, port), ids in stored["replicas"]:
            self.facts.learn_replicas(capture, (ip, port), ids)
        self.addresses.update((capture, ip, port) for capture, ip, port in stored["addresses"])

    def changes(self, points: Sequence[CapturePoint], wanted: dict[str, Any], *, alone: bool) -> ChangedInputs:
        """Compare with the captures of a run that begins.

        Args:
            points: Its capture points.
            wanted: Their ``fingerprint``. Of a capture point of which a file is gone, and no other was added or has
                changed, the former files count.
            alone: Whether the tables shall hold these captures and no others.
        """
        before: dict[str, Any] = self.stored.facts["points"]
        together = dict(wanted["points"]) if alone else before | wanted["points"]
        missing = []
        for name, files in before.items():
            gone = _gone(files, wanted["points"].get(name, []))
            if gone and all(file in files for file in wanted["points"].get(name, [])):
                together[name] = files
                missing += gone
        same = self.stored.facts["filters"] == wanted["filters"]
        continued: dict[str, list[Any]] = {}
        for name in self.stored.facts.get("open", {}) if same and not alone else ():
            new = _files_behind(before[name], wanted["points"].get(name, []))
            if new:
                continued[name] = new
                now = {unpacked(file[0]): file for file in wanted["points"][name]}
                together[name] = [*(now.get(unpacked(file[0]), file) for file in before[name]), *new]
                missing += _gone(before[name], wanted["points"][name])
        if same and all(together.get(name) == files for name, files in before.items() if name not in continued):
            added = [point for point in points if point.name not in before]
            grown = [CapturePoint(name, tuple(file for file, *_ in files)) for name, files in continued.items()]
            return ChangedInputs([*added, *grown], together, missing, continued)
        return ChangedInputs(None, dict(wanted["points"]) if alone else together, missing)

    def check_not_lost(self, out: OutputDirectory, changes: ChangedInputs) -> None:
        """Check before all captures are read again that no rows are lost whose captures are gone.

        Raises:
            ConfigurationError: There are such rows, and the user did not say that they may be replaced.
        """
        before = self.stored.facts["points"]
        gone = [file for name, files in before.items() for file in _gone(files, changes.points.get(name, []))]
        gone = [*dict.fromkeys([*changes.gone, *gone])]
        if gone and not out.overwrite:
            raise ConfigurationError(
                f"{out.path} has rows of {len(gone)} captures that are gone, {', '.join(gone[:3])}"
                f"{' ...' if len(gone) > 3 else ''}, and this run would have to read all captures again: choose "
                "another directory with --out, or add --overwrite to give up these rows"
            )

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
        """Its summary: as it was stored, or computed from the tables where captures were added since."""
        try:
            found: dict[str, Any] = json.loads((self.stored.run / SUMMARY).read_bytes())
        except (OSError, ValueError):
            return summarize(stored_pieces(self.stored, SUMMARY_COLUMNS))
        return found


def _check_files(stored: StoredTables) -> None:
    """Raise if a file of this machine's is missing. Their footers are not read: that would cost all of them."""
    if not isinstance(stored.run, RemotePath):
        for file in stored.rows:
            if not (stored.run / file).exists():
                raise ConfigurationError(f"{stored.run / file} is missing")
