"""Settings of new topics, judged by a real Kafka controller and by ours: both take the same, and refuse the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from free_ports import free_ports
from real_brokers import administrator, real_kafka

from channel.lead.topic_settings import _SETTINGS, check_topic_settings
from kproto.error_codes import ErrorCode

pytestmark = pytest.mark.kafka

VALUES = [
    "", "0", "1", "-1", "-2", "-3", "2", "3", "4", "9", "10", "13", "14", "17", "18", "22", "23", "+5", "0.5", "1.0",
    "1.01", ".5", "1e-1", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "-131072", "-131073",
    "-9223372036854775808", "true", "TRUE", "False", "yes", "compact", "delete", "compact, delete", "compact,gone",
    "gzip", "lz4", "zstd", "snappy", "producer", "uncompressed", "none", "GZIP", "CreateTime", "LogAppendTime",
    "createtime", "*", "0:1", "0:1, 1:2", "0", "0:x", "3.0-IV1", "2.8", "0.10.2", "9.9", "1_0", " 7 ", "a week",
]  # fmt: skip


@pytest.fixture(scope="module")
def admin(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    folder, base = str(tmp_path_factory.mktemp("settings")), free_ports(3)
    real_kafka("install", folder, "--jars", str(kafka_jars))
    try:
        real_kafka("start", folder, "--brokers", "1", "--base-port", str(base), "--zk-port", str(base + 2))
        yield administrator({"bootstrap.servers": f"127.0.0.1:{base}"})
    finally:
        real_kafka("stop", folder, "--kill")


def verdicts(admin: AdminClient, settings: list[dict[str, str]]) -> list[bool]:
    """Whether Kafka's controller takes each of the settings."""
    topics = [NewTopic(f"t{i}", 1, 1, config=each) for i, each in enumerate(settings)]
    answers = admin.create_topics(topics, validate_only=True)
    found = []
    for topic in topics:
        try:
            answers[topic.topic].result(120)
        except KafkaException as e:
            found.append(e.args[0].code())
        else:
            found.append(ErrorCode.NONE)
    assert set(found) == {ErrorCode.NONE, ErrorCode.INVALID_CONFIG}
    return [code == ErrorCode.NONE for code in found]


def test_both_controllers_judge_alike(admin: AdminClient) -> None:
    single = [{name: value} for name in _SETTINGS for value in VALUES]
    settings = [
        *single,
        {"no.such.setting": "1"},
        {"retention.bytes": "1", "no.such": "1"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
        {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "10"},
    ]
    ours = [check_topic_settings(each) is None for each in settings]
    differing = [s for s, we, they in zip(settings, ours, verdicts(admin, settings), strict=True) if we is not they]
    assert not differing, "\n".join(map(str, differing))
