"""The example that pauses, reassigns and kills real brokers is short, runs, and fails by the doctor's findings."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from led_cluster import LedCluster
from real_brokers import eventually

pytestmark = pytest.mark.kafka

EXAMPLE = Path(__file__).parents[2] / "examples" / "rehearse_real_brokers.py"


def test_the_example_leads_real_brokers_through_faults(kafka_jars: Path, tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 40
    with LedCluster(tmp_path, kafka_jars) as led:
        led.start(0, 1, 2)  # one of them leads at first
        admin = led.admin()
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[0, 1, 2]])])["orders"].result(120)
        eventually(lambda: led.is_in_sync("orders", 1, {0, 1, 2}))
        processes = [f"{broker_id}={led.pid(f'broker-{broker_id}')}" for broker_id in (0, 1, 2)]
        done = subprocess.run(
            [sys.executable, EXAMPLE, led.zookeeper, "orders", *processes],
            cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert led.state("orders").isr == (2,)
