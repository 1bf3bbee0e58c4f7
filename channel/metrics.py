"""Metrics under Kafka's names and tags. Writing a metric costs an addition; derived figures are computed when read.

A metric is a name and a way to read its value now. Instruments (``Counter``, ``Meter``, ``Histogram``, ``Timer``) are
plain objects that one thread writes without a lock; threads that share an instrument need a lock of their own.
With the extra ``metrics`` installed, ``prometheus_collector`` hands all of them to prometheus-client.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from .clock import SYSTEM_CLOCK, Clock
from .locks import guards, guards_changes, new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.registry import Collector

_WINDOW_NS: Final = 30_000_000_000
_SAMPLES: Final = 1024  # a power of two


class MetricName(NamedTuple):
    """A metric's name: Kafka's group (or MBean type), name and tags, and one attribute of the instrument.

    >>> str(MetricName("kafka.controller:type=ControllerChannelManager", "QueueSize", (("broker-id", "2"),)))
    'kafka.controller:type=ControllerChannelManager,name=QueueSize,broker-id=2'
    """

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()
    attribute: str = ""

    def __str__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        attribute = f".{self.attribute}" if self.attribute else ""
        return f"{self.group},name={self.name}{tags}{attribute}"


class Counter:
    """A number that is written in place: ``counter.value += n``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Meter(Counter):
    """A total and its rate per second, over the last 30 to 60 s before the rate is read."""

    __slots__ = ("_clock", "_marks")

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__()
        self._clock = clock
        mark = (clock.nanoseconds(), 0)
        self._marks = [mark, mark]

    def rate(self) -> float:
        """Return the number of events per second."""
        now = self._clock.nanoseconds()
        if now - self._marks[1][0] >= _WINDOW_NS:
            self._marks = [self._marks[1], (now, self.value)]
        since, value = self._marks[0]
        return (self.value - value) * 1e9 / (now - since) if now > since else 0.0


class Histogram:
    """Count, sum, extremes, and percentiles of the last 1,024 values."""

    __slots__ = ("_last", "count", "maximum", "minimum", "total")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self.count = 0
        self.total = 0.0
        self.minimum = 0.0
        self.maximum = 0.0
        self._last: list[float] = []

    def record(self, value: float) -> None:
        """Take one value."""
        if self.count < _SAMPLES:
            self._last.append(value)
        else:
            self._last[self.count & (_SAMPLES - 1)] = value
        self.count += 1
        self.total += value
        if value > self.maximum:
            self.maximum = value
        if value < self.minimum or self.count == 1:
            self.minimum = value

    def mean(self) -> float:
        """Mean of all values; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """Return the value below which this share (0 to 1) of the last values lie; 0 if there are none."""
        values = sorted(self._last)
        return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class Timer(Histogram):
    """A histogram of durations in ms, with their rate per second."""

    __slots__ = ("_meter",)

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__()
        self._meter = Meter(clock)

    def rate(self) -> float:
        """Return the number of durations recorded per second."""
        self._meter.value = self.count
        return self._meter.rate()


_FIGURES: Final[tuple[tuple[str, Callable[[Any], float]], ...]] = (
    ("count", lambda histogram: histogram.count),
    ("mean", lambda histogram: histogram.mean()),
    ("min", lambda histogram: histogram.minimum),
    ("max", lambda histogram: histogram.maximum),
    ("p50", lambda histogram: histogram.percentile(0.5)),
    ("p95", lambda histogram: histogram.percentile(0.95)),
    ("p99", lambda histogram: histogram.percentile(0.99)),
    ("p999", lambda histogram: histogram.percentile(0.999)),
)
"""The attributes of a histogram's metric; one reader of each serves all histograms."""

_FIGURES_OF_TIMER: Final = (*_FIGURES, ("rate", lambda timer: timer.rate()))

_Instrument = TypeVar("_Instrument", bound=Histogram)


class Metrics:
    """All metrics of a process, or of a test. Adding and removing is safe from any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._lock = new_lock("metrics")
        # The reader of each metric, its arguments, and the metric's description.
        self._readers: dict[MetricName, tuple[Callable[..., float], tuple[Any, ...], str]] = {}
        # By group and by each tag in it, so that one of a thousand brokers is forgotten without looking at the others.
        self._index: dict[tuple[str, tuple[str, str] | None], dict[MetricName, None]] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def gauge(
        self, group: str, name: str, read: Callable[[], float], tags: Mapping[str, str] | None = None, doc: str = ""
    ) -> MetricName:
        """Add a metric whose value is computed when it is read; it replaces a metric of the same name."""
        metric = MetricName(group, name, _tags(tags))
        self._add([(metric, (read, (), doc))])
        return metric

    def gauges(
        self,
        group: str,
        gauges: Iterable[tuple[str, Callable[[Any], float], str]],
        of: object,
        tags: Mapping[str, str] | None = None,
    ) -> list[MetricName]:
        """Add the gauges of one of many like objects, whose readers all such objects share.

        Args:
            gauges: Name, reader and description of each; a reader takes the object.
        """
        together, arguments = _tags(tags), (of,)
        added = [(MetricName(group, name, together), (read, arguments, doc)) for name, read, doc in gauges]
        self._add(added)
        return [metric for metric, _ in added]

    def meter(self, group: str, name: str, tags: Mapping[str, str] | None = None, doc: str = "") -> Meter:
        """Add a pair ``<name>-rate`` and ``<name>-total``."""
        meter = Meter(self.clock)
        self.gauge(group, f"{name}-rate", meter.rate, tags, f"{doc} per second".lstrip())
        self.gauge(group, f"{name}-total", lambda: meter.value, tags, f"{doc} in total".lstrip())
        return meter

    def histogram(self, group: str, name: str, tags: Mapping[str, str] | None = None, doc: str = "") -> Histogram:
        """Add a histogram: one name, an attribute for each figure."""
        return self._instrument(Histogram(), _FIGURES, group, name, tags, doc)

    def timer(self, group: str, name: str, tags: Mapping[str, str] | None = None, doc: str = "") -> Timer:
        """Add a timer: a histogram in ms with a rate."""
        return self._instrument(Timer(self.clock), _FIGURES_OF_TIMER, group, name, tags, doc)

    def remove(self, group: str, name: str | None = None, tags: Mapping[str, str] | None = None) -> None:
        """Forget the metrics of a group, or of one name in it, with all attributes; only those with all ``tags``."""
        wanted = _tags(tags)
        places: list[tuple[str, tuple[str, str] | None]] = [(group, tag) for tag in wanted] or [(group, None)]
        with self._lock:
            candidates = min((self._index.get(place, {}) for place in places), key=len)
            for key in [k for k in candidates if (name is None or k.name == name) and set(wanted) <= set(k.tags)]:
                del self._readers[key]
                for place in _places(key):
                    del self._index[place][key]
                    if not self._index[place]:
                        del self._index[place]

    def value(self, group: str, name: str, tags: Mapping[str, str] | None = None, attribute: str = "") -> float:
        """Read one metric.

        Raises:
            KeyError: No metric has that name.
        """
        read, arguments, _ = self._readers[MetricName(group, name, _tags(tags), attribute)]
        return read(*arguments)

    def names(self) -> list[MetricName]:
        """The names of all metrics there are."""
        with self._lock:
            return list(self._readers)

    def doc(self, name: MetricName) -> str:
        """Return a metric's description."""
        return self._readers[name][2]

    def read(self) -> dict[MetricName, float]:
        """All values now."""
        with self._lock:
            readers = list(self._readers.items())
        return {name: read(*arguments) for name, (read, arguments, _) in readers}

    def _instrument(
        self,
        instrument: _Instrument,
        figures: Iterable[tuple[str, Callable[[Any], float]]],
        group: str,
        name: str,
        tags: Mapping[str, str] | None,
        doc: str,
    ) -> _Instrument:
        together, arguments = _tags(tags), (instrument,)
        self._add((MetricName(group, name, together, each), (read, arguments, doc)) for each, read in figures)
        return instrument

    def _add(self, metrics: Iterable[tuple[MetricName, tuple[Callable[..., float], tuple[Any, ...], str]]]) -> None:
        with self._lock:
            for name, reader in metrics:
                self._readers[name] = reader
                for place in _places(name):
                    self._index.setdefault(place, {})[name] = None


guards(Metrics, "_lock", "_index")
guards_changes(Metrics, "_lock", "_readers")


def _places(name: MetricName) -> list[tuple[str, tuple[str, str] | None]]:
    return [(name.group, None), *((name.group, tag) for tag in name.tags)]


def _tags(tags: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items())) if tags else ()


def prometheus_collector(metrics: Metrics) -> Collector:
    """A collector for prometheus-client: ``REGISTRY.register(prometheus_collector(metrics))``.

    Names are Kafka's in lower case with underscores, tags are labels, attributes a suffix.

    Raises:
        ImportError: The extra ``metrics`` is not installed.
    """
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class _Collector(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            families: dict[str, GaugeMetricFamily] = {}
            for name, value in metrics.read().items():
                parts = (name.group.replace("type=", ""), name.name, name.attribute)
                full = re.sub(r"[^a-zA-Z0-9]+", "_", "_".join(part for part in parts if part)).lower()
                keys = [re.sub(r"[^a-zA-Z0-9]+", "_", key).lower() for key, _ in name.tags]
                # A family has one set of labels: the same name with other tags becomes a family of its own.
                family = families.setdefault(f"{full} {keys}", GaugeMetricFamily(full, str(name), labels=keys))
                family.add_metric([tag for _, tag in name.tags], value)
            yield from families.values()

    return _Collector()
