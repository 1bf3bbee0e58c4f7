"""The Grafana dashboard of a controller asks for metrics that ``kproto controller --metrics`` has."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from free_ports import free_ports
from real_brokers import eventually

from channel.broker.fleet import Fleet

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]

DASHBOARD = Path(__file__).parents[2] / "examples" / "controller-dashboard.json"
_SESSIONS = "kafka_server_sessionexpirelistener_zookeeper"


def values(address: str) -> dict[str, str]:
    """The values of metrics by their names; none before the page is served."""
    try:
        page = urlopen(f"http://{address}/metrics", timeout=60).read().decode()
    except URLError:
        return {}
    return dict(re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", page, re.MULTILINE))


def test_every_query_finds_its_metrics_at_a_controller(zookeeper: str) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = {target["expr"] for panel in panels for target in panel["targets"]}
    asked = {name for query in queries for name in re.findall(r"(?:kafka|controller)_\w+", query)}
    assert len(asked) > 30
    address = f"127.0.0.1:{free_ports(1)}"
    command = [
        sys.executable,
        "-m",
        "kproto",
        "controller",
        "--zookeeper",
        zookeeper,
        "--id",
        "77",
        "--metrics",
        address,
    ]
    with Fleet(zookeeper, [1]), subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: asked <= values(address).keys())  # once it leads, and has a channel to the broker
            found = values(address)
        finally:
            process.terminate()
    assert (found[f"{_SESSIONS}syncconnectspersec_total"], found[f"{_SESSIONS}expirespersec_total"]) == ("1.0", "0.0")
    assert found["kafka_server_sessionexpirelistener_sessionstate"] == "1.0"
    assert float(found["kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count"]) > 0
    assert float(found["kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_p50"]) > 0
