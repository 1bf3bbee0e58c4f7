"""``kproto controller`` leads real brokers of several inter-broker protocols, and sends what Kafka's own would send.

``tests/data/control_traffic`` keeps what Kafka's controller sent in a run of the same script; the long form
(``KPROTO_FORM=long``) runs it anew. ``KPROTO_KEEP=1`` keeps what it finds then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from control_events import LedByKafka, LedByOurs, run_events
from real_brokers import IS_LONG, PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from control_events import Traffic

pytestmark = pytest.mark.kafka

KEPT = Path(__file__).parents[1] / "data" / "control_traffic"
RECORDS = 500
REPEATED = ("kill", "shut_down")
"""The events at which Kafka's controller repeats leader epochs, as docs/controller.md explains; ours never does."""

LEAVING = ("shut_down", "1")
"""A broker that shuts down answers as many of its last requests as it has time for."""


@pytest.mark.proof(4, 5)
@pytest.mark.parametrize("ibp", PROTOCOL_VERSIONS)
def test_brokers_are_led_by_what_kafka_would_send(ibp: str, kafka_jars: Path, tmp_path: Path) -> None:
    protocol = "SASL_SSL" if ibp == "3.9" else "PLAINTEXT"
    with LedByOurs(tmp_path, kafka_jars, ibp, protocol) as led:
        found = run_events(led, RECORDS, idempotent=ibp != "0.10.2")
    (tmp_path / "ours.json").write_text(json.dumps(found, indent=1))
    compare(found, kept(ibp))
    for event, by_broker in kept(ibp).items():
        assert not any(ours["repeated"] for ours in found[event].values()), event
        assert any(theirs["repeated"] for theirs in by_broker.values()) == (event in REPEATED), event


@pytest.mark.proof(5)
def test_the_differences_are_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "controller.md").read_text()
    assert f"| {', '.join(f'`{event}`' for event in REPEATED)} | repeats LeaderAndIsr" in page


@pytest.mark.proof(5)
@pytest.mark.skipif(not IS_LONG, reason="only the long form runs Kafka's own controller anew: KPROTO_FORM=long")
@pytest.mark.parametrize("ibp", PROTOCOL_VERSIONS)
def test_kafka_sends_what_is_kept(ibp: str, kafka_jars: Path, tmp_path: Path) -> None:
    with LedByKafka(tmp_path, kafka_jars, ibp) as led:
        found = run_events(led, RECORDS, idempotent=ibp != "0.10.2")
    if os.environ.get("KPROTO_KEEP"):
        (KEPT / f"ibp-{ibp}.json").write_text(json.dumps(found, indent=1) + "\n")
    compare(found, kept(ibp))
    for event, by_broker in kept(ibp).items():
        for broker, theirs in by_broker.items():
            ours = found[event][broker]
            if len(ours["requests"]) <= len(theirs["requests"]):  # a follower that came back has newer leader epochs
                assert ours["repeated"] == theirs["repeated"], (event, broker)


def compare(found: Traffic, expected: Traffic) -> None:
    """Compare the requests at each event with those expected, broker by broker.

    A leader may take a follower that shuts down back into the ISR, as long as StopReplica has not reached the follower;
    then the controller removes it from the ISR a second time, as Kafka's own controller does: the brokers that stay get
    LeaderAndIsr and UpdateMetadata twice at the end. Only the second UpdateMetadata names all the partitions of the
    broker that has ended; the lines of requests hold no epochs.
    """
    assert found.keys() == expected.keys()
    for event, by_broker in expected.items():
        assert found[event].keys() == by_broker.keys(), event
        for broker, theirs in by_broker.items():
            ours, wanted = found[event][broker]["requests"], theirs["requests"]
            if (event, broker) == LEAVING:
                shorter = min(len(ours), len(wanted))
                ours, wanted = ours[:shorter], wanted[:shorter]
            elif event == LEAVING[0] and len(ours) == len(wanted) + 2:
                assert [_kind(line) for line in ours[-4:-2]] == [_kind(line) for line in ours[-2:]], broker
                assert ours[-4] == ours[-2], broker
                ours = [*ours[:-4], *ours[-2:]]
            assert ours == wanted, (event, broker)


def _kind(line: str) -> str:
    """A line of requests without the number of its partitions."""
    return line.partition(":")[0]


def kept(ibp: str) -> Traffic:
    """What Kafka's own controller sent."""
    return json.loads((KEPT / f"ibp-{ibp}.json").read_text())
