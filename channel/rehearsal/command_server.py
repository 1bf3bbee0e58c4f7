"""An HTTP server for commands to a running fleet: steps by POST, their reports and the brokers' states as JSON."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from channel.errors import IllegalState
from channel.locks import guards, new_lock
from channel.network.http_door import DoorHandler, HttpDoor, RefusedRequest
from kproto.errors import KprotoError

from .fleet_steps import Step, rehearse

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.broker.fleet import Fleet

    from .fleet_steps import StepReport


_LONGEST_BODY: Final = 64 * 1024
_PATHS: Final = "there are GET /brokers, GET /events and POST /steps"


class CommandServer(HttpDoor):
    """Serves a fleet's commands; ``start`` to ``close``, or a context manager.

    The server has no password: anybody who can connect may kill brokers. A web page in a browser cannot: requests with
    another site's name as their host or origin are refused, and steps must have the content type ``application/json``.

    Args:
        commands: Takes the steps.
        host, port: The address to listen at; port 0 for any free port.
        on_stop: Called for the step ``stop``.

    Raises:
        ConfigurationError: The server cannot listen at the address.
    """

    def __init__(self, commands: FleetCommands, host: str, port: int, on_stop: Callable[[], None]) -> None:
        own_hosts = frozenset({"localhost", host.lower(), socket.gethostname().lower()})
        super().__init__("fleet-commands-thread", host, port, partial(_CommandHandler, commands, on_stop, own_hosts))


class _CommandHandler(DoorHandler):
    """The handler of one request."""

    longest_body = _LONGEST_BODY

    def __init__(
        self, commands: FleetCommands, on_stop: Callable[[], None], own_hosts: frozenset[str], *connection: Any
    ) -> None:
        self._commands = commands
        self._on_stop = on_stop
        self._own_hosts = own_hosts
        super().__init__(*connection)

    def _check_is_own(self) -> None:
        """Refuse a request that was not meant for this server.

        A web page can make a browser send requests here, under another site's name (DNS rebinding) or from it.
        """
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not _is_address(_without_port(host)) and _without_port(host).lower() not in self._own_hosts:
            raise RefusedRequest(
                HTTPStatus.MISDIRECTED_REQUEST, "the Host has to be this machine's address, or localhost"
            )
        if origin is not None and origin != f"http://{host}":
            raise RefusedRequest(HTTPStatus.FORBIDDEN, "requests of other sites' web pages are refused")

    def do_GET(self) -> None:
        """Answer the state of the brokers, or the reports of the latest steps."""
        self._check_is_own()
        commands = self._commands
        match self.path:
            case "/brokers":
                self._answer(HTTPStatus.OK, commands.brokers())
            case "/events":
                self._answer(HTTPStatus.OK, [event.to_json() for event in list(commands.events)])
            case _:
                raise RefusedRequest(HTTPStatus.NOT_FOUND, _PATHS)

    def do_POST(self) -> None:
        """Take a step, and answer with its report."""
        self._check_is_own()
        if self.path != "/steps":
            raise RefusedRequest(HTTPStatus.NOT_FOUND, _PATHS)
        if self.headers.get_content_type() != "application/json":
            raise RefusedRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type has to be application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > _LONGEST_BODY:
            raise RefusedRequest(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a Content-Length of at most {_LONGEST_BODY} is required"
            )
        try:
            step = json.loads(self.rfile.read(int(length)))["step"]
            if not isinstance(step, str):
                raise TypeError  # noqa: TRY301
        except (ValueError, LookupError, TypeError, RecursionError) as e:
            example = '{"step": "kill random:3"}'
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, f"the body has to be a JSON object like {example}") from e
        if step.strip() == "stop":
            self._answer(HTTPStatus.OK, {"step": "stop"})
            self._on_stop()
            return
        try:
            self.server.limit(self.request, None)
            report = self._commands.take(step, wait=False).to_json()
        except IllegalState as e:
            raise RefusedRequest(HTTPStatus.CONFLICT, str(e)) from e
        except (KprotoError, ValueError) as e:
            raise RefusedRequest(HTTPStatus.BAD_REQUEST, str(e)) from e
        self._answer(HTTPStatus.OK, report)

    def refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer a request that is not served, as JSON."""
        self._answer(status, {"error": reason})

    def _answer(self, status: HTTPStatus, value: Any) -> None:
        self.answer(status, "application/json", json.dumps(value).encode() + b"\n")


def _without_port(host: str) -> str:
    """Return the name or address of a Host header."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(host: str) -> bool:
    """Whether a host is an IP address, which no other site can have as its name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_KEPT: Final = 1_000


class FleetCommands:
    """Takes steps for a fleet, from any thread.

    Args:
        fleet: A fleet that has started.
        report: Takes the report of each step as a JSON object, on the thread that called ``take``.

    Attributes:
        events: The reports of the latest thousand steps, the oldest first.
    """

    def __init__(self, fleet: Fleet, report: Callable[[dict[str, Any]], None]) -> None:
        self.events: deque[StepReport] = deque(maxlen=_KEPT)
        self._fleet = fleet
        self._report = report
        self._taking = new_lock("fleet commands")

    def take(self, line: str, *, wait: bool) -> StepReport:
        """Take a step, and return its report once it is over.

        Args:
            line: The step, as ``Step.of`` reads it.
            wait: Whether to wait for the end of another thread's step.

        Raises:
            IllegalState: Another step is being taken, and ``wait`` is false.
            ValueError, ChannelError: The line is no step, or the step cannot be taken.
        """
        step = Step.of(line)
        if not self._taking.acquire(blocking=wait):
            raise IllegalState("another step is being taken; try again once it is over")
        try:
            (event,) = rehearse(self._fleet, [step])
            self.events.append(event)
            self._report(event.to_json())
        finally:
            self._taking.release()
        return event

    def brokers(self) -> list[dict[str, Any]]:
        """Return the state of every broker, as JSON objects."""
        leader = self._fleet.controller_id
        return [
            {
                "broker_id": member.id,
                "host": member.host,
                "port": member.port,
                "broker_epoch": member.epoch,
                "up": member.is_up,
                "paused": member.is_paused,
                "leads_cluster": member.id == leader,
            }
            for member in self._fleet
        ]


guards(FleetCommands, "_taking", "_report")
