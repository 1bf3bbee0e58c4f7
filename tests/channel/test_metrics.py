"""Metrics: written cheaply, read under Kafka's names, handed to prometheus-client."""

import logging

import prometheus_client
import pytest

from channel.logs import STATE_CHANGE, TRACE, bounded, get_logger
from channel.metrics import MetricName, Metrics, prometheus_collector
from kproto.codec import message_class

MANAGER = "kafka.controller:type=ControllerChannelManager"


@pytest.fixture
def metrics(clock):
    return Metrics(clock)


def test_a_meter_gives_a_total_and_the_rate_of_the_time_that_was_read(metrics, clock):
    meter = metrics.meter("g", "request", {"broker-id": "1"}, "requests")

    def rate():
        return metrics.value("g", "request-rate", {"broker-id": "1"})

    assert rate() == 0
    meter.value += 100
    clock.sleep(10_000)
    assert rate() == 10
    assert metrics.value("g", "request-total", {"broker-id": "1"}) == 100
    for _ in range(20):  # it stops: the rate goes to nothing as the window moves on
        clock.sleep(10_000)
        last = rate()
    assert last == 0


def test_a_timer_knows_its_durations(metrics, clock):
    timer = metrics.timer(MANAGER, "RequestRateAndQueueTimeMs", {"broker-id": "2"})
    for ms in range(1, 101):
        timer.record(ms)
    clock.sleep(10_000)
    read = {name.attribute: value for name, value in metrics.read().items()}
    assert read == {
        "count": 100,
        "mean": 50.5,
        "min": 1,
        "max": 100,
        "p50": 51,
        "p95": 96,
        "p99": 100,
        "p999": 100,
        "rate": 10,
    }


def test_a_histogram_remembers_a_bounded_number_of_values(metrics):
    histogram = metrics.histogram("g", "size")
    for value in range(5000):
        histogram.record(value)
    assert histogram.count == 5000
    assert histogram.maximum == 4999
    assert len(histogram._last) == 1024
    assert histogram.percentile(0) == 5000 - 1024


def test_removal_takes_a_name_with_its_tags_and_leaves_the_others(metrics):
    for broker in ("1", "2"):
        metrics.gauge(MANAGER, "QueueSize", lambda: 0, {"broker-id": broker})
        metrics.timer(MANAGER, "RequestRateAndQueueTimeMs", {"broker-id": broker})
    metrics.gauge(MANAGER, "TotalQueueSize", lambda: 0)
    metrics.remove(MANAGER, tags={"broker-id": "1"})
    left = {str(name) for name in metrics.names()}
    assert f"{MANAGER},name=QueueSize,broker-id=2" in left
    assert f"{MANAGER},name=TotalQueueSize" in left
    assert not [name for name in left if "broker-id=1" in name]
    with pytest.raises(KeyError):
        metrics.value(MANAGER, "QueueSize", {"broker-id": "1"})


def test_prometheus_reads_all_of_them(metrics):
    for broker in ("1", "2"):
        metrics.gauge(MANAGER, "QueueSize", lambda broker=broker: int(broker), {"broker-id": broker})
    metrics.gauge(MANAGER, "TotalQueueSize", lambda: 3)
    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus_collector(metrics))
    text = prometheus_client.generate_latest(registry).decode()
    assert 'kafka_controller_controllerchannelmanager_queuesize{broker_id="2"} 2.0' in text
    assert "kafka_controller_controllerchannelmanager_totalqueuesize 3.0" in text
    assert text.count("# TYPE kafka_controller_controllerchannelmanager_queuesize ") == 1


def test_names_read_as_kafkas():
    assert str(MetricName("g", "n", (("a", "1"),), "count")) == "g,name=n,a=1.count"


@pytest.mark.parametrize("thing", ["x" * 10_000, bytes(10_000), list(range(10_000)), {"a": "b" * 10_000}, "a\nb"])
def test_a_log_line_about_anything_is_one_short_line(thing):
    text = bounded(thing)
    assert len(text) <= 400
    assert "\n" not in text


def test_a_log_line_is_cut_only_where_it_is_too_long():
    assert bounded("x" * 400) == "x" * 400
    assert bounded("x" * 401) == "x" * 397 + "..."


def test_a_message_in_a_log_line_is_named_not_rendered():
    request = message_class(6, "request")(controller_id=1)
    assert bounded(request) == "<UpdateMetadataRequest>"


def test_prefixes_and_kafkas_own_logger(caplog):
    caplog.set_level(TRACE)
    get_logger("channel.test", "[RequestSendThread controllerId=1]").info("said %d", 3)
    assert caplog.messages == ["[RequestSendThread controllerId=1] said 3"]
    assert STATE_CHANGE.name == "state.change.logger"
    assert TRACE < logging.DEBUG
