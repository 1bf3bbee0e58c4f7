"""Describes in sentences, from a report's facts, which problems an engineer on call should look at first."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kproto.api import api_name
from kproto.error_codes import ErrorCode, error_name
from kproto.verdicts.derived import FLAP_MINUTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["findings"]

_SLOW_US: Final = 1_000_000
_SLOWER_US: Final = 100_000
_SLOWER: Final = 5
"""A broker is slow from ``_SLOW_US`` on, or from ``_SLOWER_US`` on if it takes ``_SLOWER`` times as long as most."""


class Finding(NamedTuple):
    """A sentence about a problem.

    Attributes:
        severity: How serious it is.
        text: The sentence.
        section: The section of the page that shows it.
        rows: Which rows of the timeline to choose: "troubled", "changed", or empty for all.
    """

    severity: Literal["bad", "warning"]
    text: str
    section: str
    rows: str = ""


def findings(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """List the problems, the worst first, each with the fields of ``Finding``; empty if there are none.

    Args:
        facts: As of ``report_facts``.
    """
    checks = (_zombies, _partitions, _brokers, _updates, _errors, _flaps, _losses)
    found = [finding for check in checks for finding in check(facts)]
    return [finding._asdict() for finding in sorted(found, key=lambda finding: finding.severity != "bad")]


def _zombies(facts: Mapping[str, Any]) -> Iterator[Finding]:
    for sender in facts["controllers"]:
        sent, fenced = sender["zombies"], sender["fenced"]
        if not sent:
            continue
        after = "" if sender["newer"] is None else f" after epoch {sender['newer']} had begun"
        if sent == 1:
            answer = "the broker refused it" if fenced else "the broker did not refuse it"
        else:
            answer = "brokers refused all of them" if fenced == sent else f"brokers refused {fenced:,} of them"
        name = f"Controller {sender['controller_id']} with epoch {sender['controller_epoch']}"
        yield Finding("bad", f"{name} sent {_counted(sent, 'request')}{after}; {answer}.", "controllers")
    starts = [row for row in facts["brokers"] if row["earlier_starts"]]
    if starts:
        names = " and ".join(sorted({f"broker {_name(row)}" for row in starts})[:3])
        requests = _counted(sum(row["earlier_starts"] for row in starts), "request")
        yield Finding("warning", f"{requests} carried the broker epoch of an earlier start of {names}.", "controllers")


def _partitions(facts: Mapping[str, Any]) -> Iterator[Finding]:
    leaderless, names = facts["timeline"]["leaderless"], ", ".join(facts["timeline"]["leaderless_names"])
    more = leaderless - len(facts["timeline"]["leaderless_names"])
    if leaderless:
        verb = "has" if leaderless == 1 else "have"
        rest = f" and {more:,} more" if more else ""
        text = f"{_counted(leaderless, 'partition')} {verb} no leader at the end: {names}{rest}."
        yield Finding("bad", text, "timeline", "troubled")
    short = facts["timeline"]["under_replicated"]
    if short:
        verb = "lacks" if short == 1 else "lack"
        text = f"{_counted(short, 'partition')} {verb} in-sync replicas at the end."
        yield Finding("warning", text, "timeline", "troubled")


def _brokers(facts: Mapping[str, Any]) -> Iterator[Finding]:
    typical = median([row["p99_us"] for row in facts["brokers"] if row["p99_us"] is not None] or [0])
    slow = min(_SLOW_US, max(_SLOWER_US, _SLOWER * typical))
    for row in facts["brokers"]:
        silent = row["unanswered"] and row["silent"] is not None
        if silent and not row["answered"]:
            yield Finding(
                "bad", f"Broker {_name(row)} answered none of {_counted(row['requests'], 'request')}.", "brokers"
            )
        elif silent:
            text = f"Broker {_name(row)} left its last requests unanswered, {row['unanswered']:,} in all."
            yield Finding("warning", text, "brokers")
        elif (row["p99_us"] or 0) > slow:
            seconds = row["p99_us"] / 1e6
            yield Finding(
                "warning", f"Broker {_name(row)} is slow: 99 % of its answers took up to {seconds:.1f} s.", "brokers"
            )


def _updates(facts: Mapping[str, Any]) -> Iterator[Finding]:
    missed = [row for row in facts["lag"]["brokers"] if row["missing"]]
    if missed:
        worst = max(missed, key=lambda row: row["missing"])
        updates = _counted(sum(row["missing"] for row in missed), "metadata update")
        most = "" if len(missed) == 1 else f"; broker {worst['target_broker']} missed {worst['missing']:,}"
        brokers = f"Broker {worst['target_broker']}" if len(missed) == 1 else _counted(len(missed), "broker")
        yield Finding("warning", f"{brokers} missed {updates} that most others got{most}.", "lag")


def _errors(facts: Mapping[str, Any]) -> Iterator[Finding]:
    refused: Counter[tuple[int, int]] = Counter()
    unreadable = 0
    for row in facts["errors"]:
        if row["scope"] == "unreadable":
            unreadable += row["n"]
        elif row["scope"] == "request" and row["error_code"] not in _STALE:
            refused[row["api_key"], row["error_code"]] += row["n"]
    for (api, code), count in refused.most_common():
        text = f"Brokers refused {_counted(count, f'{api_name(api)} request')}: {error_name(code)}."
        yield Finding("bad", text, "errors")
    if unreadable:
        halves = f"{_counted(unreadable, 'request')} or answer{'s' * (unreadable != 1)}"
        yield Finding("warning", f"{halves} cannot be read.", "errors")


_STALE: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
"""Errors that the findings about controllers already mention."""


def _flaps(facts: Mapping[str, Any]) -> Iterator[Finding]:
    if facts["flaps"]:
        worst = facts["flaps"][0]
        text = (
            f"The leader of {_counted(facts['all_flaps'], 'partition')} changed again and again; {worst['topic']}-"
            f"{worst['partition']} changed it {worst['changes']} times within {FLAP_MINUTES} minutes."
        )
        yield Finding("warning", text, "timeline", "changed")


def _losses(facts: Mapping[str, Any]) -> Iterator[Finding]:
    counts = facts["losses"]["counts"]
    missing = sum(row["gap_bytes"] for row in counts)
    if missing:
        text = f"{missing:,} bytes of Kafka's streams are not in the captures: figures are too low."
        yield Finding("warning", text, "captures")
    if any(row["tls_connections"] for row in counts):
        yield Finding("warning", "Some connections speak TLS, which cannot be read.", "captures")
    if facts["all_bad_inputs"]:
        text = f"{_counted(facts['all_bad_inputs'], 'piece')} of the captures could not be used."
        yield Finding("warning", text, "captures")


def _name(broker: Mapping[str, Any]) -> str:
    return str(broker["address"] if broker["target_broker"] is None else broker["target_broker"])


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
