"""What ``inspect`` says on standard error when it has come to the end."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kproto.api import CONTROL_APIS, api_name
from kproto.cli.text import counted, day_and_clock
from kproto.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kproto.capture import CaptureSummary, Exchange
    from kproto.tables.filters import Filters

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Counts of one run.

    Attributes:
        seen: Exchanges of the wanted APIs, before any other filter.
        shown: What was printed, by API key (None: a response whose request is not in the capture).
        unanswered: Printed without a response.
        failed: Printed with an error.
        unnamed: Left out by ``--broker`` only because the id at that address is not known.
        summaries: What the reader met, one for each capture.
    """

    seen: int = 0
    shown: Counter[int | None] = field(default_factory=Counter)
    unanswered: int = 0
    failed: int = 0
    unnamed: int = 0
    summaries: list[CaptureSummary] = field(default_factory=list)

    def show(self, exchange: Exchange, *, failed: bool) -> None:
        """Count an exchange that is printed."""
        self.shown[exchange.api_key] += 1
        self.unanswered += exchange.response is None
        self.failed += failed

    def conclude(self, filters: Filters, *, quiet: bool) -> None:
        """Say what was shown, what was folded away, and what the captures lack.

        Raises:
            CaptureError: None of the captures holds a request of the wanted APIs.
        """
        if not self.seen:
            raise CaptureError("; ".join(dict.fromkeys(_nothing(s, filters) for s in self.summaries)))
        if quiet:
            return
        _say(self._shown())
        if not self.shown:
            _say(self._where_to_look())
        if self.unnamed:
            _say(
                f"{self.unnamed} to brokers whose id the traffic does not tell were left out; name them with --brokers"
            )
        for summary in self.summaries:
            if lacks := "; ".join(_lacks(summary)):
                _say(f"{summary.file}: {lacks}")
        folded = Counter(dict(self._folded()))
        if folded and not filters.apis and not filters.by_partition:
            _say("other requests, for --all-apis: " + _counts(folded.most_common(6)))

    def _shown(self) -> str:
        parts = [f"{self.shown.total()} of {self.seen} requests shown"]
        if self.shown:
            parts[0] += ": " + _counts(sorted(self.shown.items(), key=lambda item: (item[0] is None, item[0] or 0)))
        if self.unanswered:
            parts.append(f"{self.unanswered} without answer")
        if self.failed:
            parts.append(f"{self.failed} with errors")
        return "; ".join(parts)

    def _where_to_look(self) -> str:
        spans = [(s.first_ns, s.last_ns) for s in self.summaries if s.first_ns]
        if not spans:
            return "no request matches the filters"
        first, last = ("T".join(day_and_clock(ns)) for ns in (min(a for a, _ in spans), max(b for _, b in spans)))
        return f"no request matches the filters; the captures reach from {first}Z to {last}Z"

    def _folded(self) -> Iterable[tuple[int, int]]:
        folded: Counter[int] = Counter()
        for summary in self.summaries:
            for (api, _version), n in summary.requests.items():
                if api not in CONTROL_APIS and api not in self.shown:
                    folded[api] += n
        return folded.items()


def _nothing(summary: CaptureSummary, filters: Filters) -> str:
    """Why a capture gave nothing at all."""
    if problem := summary.problem():
        return problem
    wanted = ", ".join(api_name(api) for api in sorted(filters.apis))
    return f"{summary.file}: no {wanted} request; without --api it shows {summary.control_requests} control requests"


def _lacks(summary: CaptureSummary) -> Iterable[str]:
    if summary.gaps:
        yield f"{counted(summary.gap_bytes, 'byte')} missing, in {counted(summary.gaps, 'gap')}"
    if summary.cut_packets:
        yield f"{counted(summary.cut_packets, 'packet')} cut short: capture with -s 0"
    if summary.ip_fragments:
        yield f"{counted(summary.ip_fragments, 'IP fragment')} without the rest of their packets"
    if summary.bad_checksums:
        yield f"{counted(summary.bad_checksums, 'packet')} left out, not matching the checksum recorded with it"
    count, reason = summary.unusable
    if count:
        yield f"{counted(count, 'piece')} could not be used" + (f", first: {reason}" if reason else "")


def _counts(items: Iterable[tuple[int | None, int]]) -> str:
    return ", ".join(f"{n} {'of unknown request' if api is None else api_name(api)}" for api, n in items)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
