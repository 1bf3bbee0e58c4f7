"""Texts that a broker or a capture chooses reach no terminal, log or file of JSON as they are."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run_kproto
from control_messages import update_metadata
from network_peers import frame

from channel.broker.cluster import EmbeddedCluster
from channel.logs import get_logger
from channel.network.recorder import PcapngRecorder
from channel.send.encoded_requests import SingleRequest
from channel.send.manager import ControllerChannelManager
from channel.types import Broker, EndPoint
from kproto.api import ApiKey
from kproto.codec import encode, message_class
from kproto.headers import decode_request_header_from
from kproto.messages import UpdateMetadataBroker, UpdateMetadataEndpoint

EVIL = "a\x1b[31m\u202e\x9b2J\nERROR forged" + "x" * 20_000
"""An escape sequence, a change of direction, a C1 control, a second line, and no end."""


VERSIONS = {
    "errorCode": 0,
    "apiKeys": [{"apiKey": key, "minVersion": 0, "maxVersion": 4} for key in (3, 18)],
    "throttleTimeMs": 0,
}
PARTITION = {"errorCode": 0, "partitionIndex": 0, "leaderId": 1, "replicaNodes": [1], "isrNodes": [1]}
METADATA = {
    "throttleTimeMs": 0,
    "clusterId": EVIL,
    "controllerId": 1,
    "brokers": [{"nodeId": 1, "host": EVIL, "port": 1, "rack": EVIL}],
    "topics": [{"errorCode": 0, "name": EVIL[:200], "isInternal": False, "partitions": [PARTITION]}],
}


def is_safe(text: str) -> bool:
    """Whether every line of a text is printable and bounded."""
    return all(line.isprintable() and len(line) < 7_000 and not line.startswith("ERROR") for line in text.split("\n"))


@pytest.fixture
def broker() -> Iterator[str]:
    """The address of a broker that answers Metadata and ApiVersions with evil texts."""

    def serve() -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            with sock, sock.makefile("rb") as file:
                while len(head := file.read(4)) == 4:
                    payload = file.read(int.from_bytes(head, "big"))
                    header, _ = decode_request_header_from(payload)
                    key, version = header.request_api_key, header.request_api_version
                    response = message_class(key, "response")
                    form = VERSIONS if key == ApiKey.API_VERSIONS else METADATA
                    body = encode(response.from_json(form, version), version)
                    sock.sendall(frame(header.correlation_id.to_bytes(4, "big") + body))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.parametrize("arguments", [
    ("metadata", "--bootstrap"), ("metadata", "--format", "json", "--bootstrap"),
    ("metadata", "--all-brokers", "--timeout", "2", "--bootstrap"), ("send",),
])  # fmt: skip
def test_what_a_broker_answers_is_shown_escaped(broker: str, arguments: tuple[str, ...]) -> None:
    request = ["--api", "Metadata", "--api-version", "4"] if arguments == ("send",) else []
    question = json.dumps({"topics": None, "allowAutoTopicCreation": False})
    done = run_kproto(*arguments, broker, *request, input=question)
    assert "31m" in done.output
    assert is_safe(done.stderr)
    assert done.stdout.isascii() if "text" not in arguments else is_safe(done.stdout)
    assert "\x1b" not in done.output
    assert "\nERROR" not in done.output


def test_a_captures_texts_are_escaped_in_json(tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with (
        EmbeddedCluster(1) as cluster,
        PcapngRecorder(path) as recorder,
        ControllerChannelManager(9, lambda: 1, recorder=recorder) as manager,
    ):
        manager.start([Broker(0, (EndPoint(cluster[0].host, cluster[0].port),))])
        answered = threading.Event()
        evil = UpdateMetadataEndpoint(port=1, host=EVIL[:300], listener="PLAINTEXT", security_protocol=0)
        told = update_metadata({}, broker_epoch=1, brokers=[UpdateMetadataBroker(id=0, endpoints=[evil])])
        manager.send_request(0, SingleRequest(told, 8), lambda _: answered.set())
        assert answered.wait(60)
    for command in (["summary"], ["query", "--sql", "SELECT * FROM brokers"], ["inspect"]):
        done = run_kproto(*command, path, "--format", "json")
        assert done.exit_code == 0, done.output
        assert done.stdout.isascii()
        assert "\x1b" not in done.stdout
    assert "u202e" in done.stdout


def test_log_lines_are_printable_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("channel.test", "[prefix]")
    log.warning("from %s", EVIL)
    log.warning("from %s", "a host")
    log.error("it failed", exc_info=ValueError(EVIL))
    evil, plain, failed = caplog.records
    assert is_safe(evil.getMessage())
    assert evil.getMessage().startswith("[prefix] from a\\x1b[31m")
    assert (plain.msg, plain.args) == ("[prefix] from %s", ("a host",))
    text = logging.Formatter().format(failed)
    assert is_safe(text)
    assert "\x1b" not in text
