"""Reads the control requests of a recording or of a broker's request log, for comparison."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproto.api import api_name
from kproto.capture import exchanges

__all__ = ["ControlRequest", "control_requests"]


@dataclass(frozen=True)
class ControlRequest:
    """A request of a controller.

    Attributes:
        time: When it passed, in seconds since the epoch; in a request log, when it was answered.
        port: The broker's port.
        source: The controller's end of the connection.
        api, version: The API and version.
        body: Its JSON form.
    """

    time: float
    port: int
    source: tuple[str, int]
    api: str
    version: int
    body: dict[str, Any]

    @property
    def sender(self) -> tuple[int, int]:
        """The controller's epoch and broker id."""
        return self.body["controllerEpoch"], self.body["controllerId"]

    @property
    def content(self) -> dict[str, Any]:
        """The body without the broker epoch, which alone differs between brokers that are sent the same."""
        return {name: value for name, value in self.body.items() if name != "brokerEpoch"}


def control_requests(path: Path) -> list[ControlRequest]:
    """The answered control requests of a file, in their order; none of a file that has nothing in it yet."""
    if not path.exists() or not path.stat().st_size:
        return []
    found = [e for e in exchanges(path) if e.request is not None and e.response is not None]
    for at in range(1, len(found)):  # a log has milliseconds: ids tell the order of requests that were quicker
        before, this = found[at - 1 : at + 1]
        if this.client == before.client and this.correlation_id == before.correlation_id - 1:
            found[at - 1], found[at] = this, before
    return [
        ControlRequest(
            e.time, e.server.port, e.client, api_name(e.api_key), e.api_version,
            e.request_message.to_json(e.api_version),
        )
        for e in found
    ]  # fmt: skip
