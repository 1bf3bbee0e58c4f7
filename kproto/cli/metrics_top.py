"""``kproto top --metrics``: shows a controller's Prometheus metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kproto.cli.screen import cut, section_lines
from kproto.cli.sections import Section, shortened
from kproto.errors import ConfigurationError
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kproto.cli.screen import Screen

_MANAGER: Final = "kafka_controller_controllerchannelmanager"
_CHANNEL: Final = "controller_channel_metrics"
_EVENTS: Final = "kafka_controller_controllereventmanager_eventqueuesize"
_BROKER_FIGURES: Final = {
    ">queued": f"{_MANAGER}_queuesize",
    ">a second": f"{_CHANNEL}_request_rate",
    ">queue ms p50": f"{_MANAGER}_requestrateandqueuetimems_p50",
    ">p99": f"{_MANAGER}_requestrateandqueuetimems_p99",
    ">answer ms p50": f"{_CHANNEL}_request_latency_p50",
    ">p99 ": f"{_CHANNEL}_request_latency_p99",
    ">connections": f"{_CHANNEL}_connection_count",
}


def show_metrics(url: str, screen: Screen) -> None:
    """Show a controller's metrics at each interval."""
    found, failed = read_metrics(url), ""
    while True:
        screen.show(list(metrics_lines(found, url, failed, *screen.size)))
        if screen.once:
            return
        time.sleep(screen.wait_s())
        try:
            found, failed = read_metrics(url), ""
        except ConfigurationError as e:
            failed = str(e)


def read_metrics(url: str) -> dict[tuple[str, str], float]:
    """Read the metrics of a controller by name and broker id ("" where there is none).

    Raises:
        ConfigurationError: They cannot be read, or are not those of a controller.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    from prometheus_client.parser import text_string_to_metric_families

    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"{url!r} is no URL; try --metrics http://127.0.0.1:9404/metrics")
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310  the scheme is checked above
            text = answer.read().decode()
        found = {
            (sample.name, sample.labels.get("broker_id", "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    except (OSError, HTTPException, ValueError) as e:
        reason = getattr(e, "reason", None) or e
        raise ConfigurationError(
            f"no metrics at {url}: {getattr(reason, 'strerror', None) or reason}; check the address"
        ) from e
    if not any(name.startswith(_MANAGER) for name, _broker in found):
        raise ConfigurationError(f"{url} has no metrics of a controller; kproto controller --metrics serves them")
    return found


def metrics_lines(
    found: dict[tuple[str, str], float], url: str, failed: str, width: int, height: int | None
) -> Iterator[str]:
    """Yield a controller's metrics as lines of text.

    Args:
        found: Values by name and broker id.
        url: The address from which they were read.
        failed: Why they could not be read again; empty: they could.
        width: Columns.
        height: Lines to fit; None: any number.
    """
    yield f"kproto top  {shortened(printable(url), width - 12)}"
    if failed:
        yield f"  {cut(printable(failed), width - 2)}"
    queued, events = found.get((f"{_MANAGER}_totalqueuesize", "")), found.get((_EVENTS, ""))
    active = {1.0: "active", 0.0: "not active"}.get(
        found.get(("kafka_controller_kafkacontroller_activecontrollercount", ""), -1.0)
    )
    parts = [f"controller {active}"] if active else []
    parts += [f"{counted(int(queued), 'request')} queued"] if queued is not None else []
    parts += [f"{counted(int(events), 'event')} queued"] if events is not None else []
    yield f"  {'; '.join(parts)}"
    brokers = sorted({broker for _name, broker in found if broker}, key=lambda broker: (len(broker), broker))
    brokers.sort(key=lambda broker: -found.get((f"{_MANAGER}_queuesize", broker), 0.0))
    rows = len(brokers) if height is None else max(height - 6, 1)
    section = Section("Brokers", ["~broker", *_BROKER_FIGURES])
    for broker in brokers[:rows]:
        values = [found.get((name, broker)) for name in _BROKER_FIGURES.values()]
        section.rows.append([broker, *("-" if value is None else f"{value:.4g}" for value in values)])
    if len(brokers) > rows:
        section.below = f"and {len(brokers) - rows} more with shorter queues"
    yield from section_lines(section, width)
