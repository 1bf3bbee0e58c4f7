"""``--security`` of the commands, with the settings that the page on TLS and SASL shows."""

import json
import re
from pathlib import Path

import pytest
from commands import kproto_running, run_kproto
from tls_certificates import certificates

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
UPDATE = {
    "controllerId": 1, "isKRaftController": False, "controllerEpoch": 2, "brokerEpoch": -1, "topicStates": [],
    "liveBrokers": [],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's two files, the certificates that they name, and a client's file with a wrong password."""
    client, broker = re.findall(
        r"^```properties\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    for name, text in (
        ("client.properties", client),
        ("broker.properties", broker),
        ("wrong.properties", client.replace("=controller-secret", "=guessed-secret")),
    ):
        located = re.sub(r"(?m)(location=)(.+)$", lambda found: f"{found[1]}{tmp_path / found[2]}", text)
        (tmp_path / name).write_text(located)
    (tmp_path / "authority.pem").write_text(certificates().authority)
    (tmp_path / "broker.pem").write_text(certificates().server)
    return tmp_path


def test_brokers_metadata_and_send_speak_tls_and_sasl_as_the_page_shows(folder: Path) -> None:
    def kproto(*args: str, settings: str, text: str = "") -> tuple[int, str]:
        done = run_kproto(*args, "--security", folder / settings, input=text)
        return done.exit_code, done.output

    with kproto_running("brokers", "--count", "1", "--security", folder / "broker.properties") as server:
        assert server.stdout is not None
        address = f"localhost:{json.loads(server.stdout.readline())['port']}"
        code, out = kproto(
            "send", address, "--api", "UpdateMetadata", settings="client.properties", text=json.dumps(UPDATE)
        )
        assert (code, json.loads(out)) == (0, {"errorCode": 0})
        code, out = kproto("metadata", "--bootstrap", address, "--format", "json", settings="client.properties")
        assert (code, json.loads(out)["partitions"]) == (0, [])
        code, out = kproto("metadata", "--bootstrap", address, settings="wrong.properties")
        assert code != 0
        assert "invalid username or password" in out
        assert "secret" not in out
        server.terminate()
        assert server.stderr is not None
        said = server.stderr.read()
    assert "secret" not in said
