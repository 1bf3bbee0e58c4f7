"""A real controller and its brokers through the tap: the recording holds what the brokers logged."""

from pathlib import Path

import pytest
from free_ports import free_ports
from real_brokers import eventually, real_kafka

from channel.network.recorder import PcapngRecorder
from channel.tap import Tap, TapMapping
from kproto.capture import exchanges

pytestmark = pytest.mark.kafka

TOPIC = "through-the-tap"
ASSIGNMENT = '{"version":2,"partitions":{"0":[0,1],"1":[1,0]},"adding_replicas":{},"removing_replicas":{}}'


def told(captures):
    """What a controller told brokers and what they answered, by (API, broker's port or log, correlation id)."""
    return [
        (e.api_key, e.api_version, e.correlation_id, e.request_message.to_json(e.api_version),
         e.response_message.to_json(e.api_version))
        for e in exchanges(captures)
        if e.request is not None and e.response is not None
    ]  # fmt: skip


def missing(folder, recorded):
    """The recorded exchanges that no broker has logged."""
    logs = sorted(Path(folder).glob("logs/broker-*/kafka-request.log*"))
    assert len(logs) >= 2
    logged = [exchange for log in logs for exchange in told(log)]
    return [exchange for exchange in recorded if exchange not in logged]


def test_the_recording_equals_the_brokers_request_logs(tmp_path, kafka_jars):
    folder, recording = tmp_path / "kafka", tmp_path / "tap.pcapng"
    folder.mkdir()
    real_kafka("install", str(folder), "--jars", str(kafka_jars))
    base = free_ports(5)
    listening = base + 3
    mappings = [TapMapping(("127.0.0.1", listening + i), ("127.0.0.1", base + i)) for i in range(2)]
    with PcapngRecorder(recording) as recorder, Tap(mappings, recorder):
        try:
            real_kafka(
                "start", str(folder), "--brokers", "2", "--base-port", str(base), "--zk-port", str(base + 2),
                "--advertise-base-port", str(listening), "--request-log",
            )  # fmt: skip
            real_kafka("zk", str(folder), "create", f"/brokers/topics/{TOPIC}", ASSIGNMENT)
            eventually(lambda: {4, 6} <= {api for api, _, _, body, _ in told(recording) if TOPIC in str(body)})
            # Brokers log a request after its answer; one that stops may not come to that.
            eventually(lambda: len(told(recording)) >= 6 and not missing(folder, told(recording)))
        finally:
            real_kafka("stop", str(folder), "--kill")
