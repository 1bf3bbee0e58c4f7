"""An HTTP server for commands to a running fleet: steps by POST, their reports and the brokers' states as JSON."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import time
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from channel.addresses import show_address
from channel.errors import IllegalState
from channel.locks import new_lock
from channel.logs import get_logger
from channel.threads import LoopThread, Startable
from kproto.errors import ConfigurationError, KprotoError

from .fleet_steps import Step, rehearse

if TYPE_CHECKING:
    from collections.abc import Callable

    from .fleet import Fleet
    from .fleet_steps import StepReport


_log = get_logger(__name__)

_LONGEST_BODY: Final = 64 * 1024
_MOST_CONNECTIONS: Final = 16
_LONGEST_HEAD: Final = 16 * 1024
_REQUEST_S: Final = 10.0
"""The time in which a client must send its whole request."""
_CLOSE_S: Final = 10.0
_POLL_S: Final = 0.1
"""The interval at which the time limits are checked."""
_ANSWER_S: Final = 10.0
"""The time in which a client must take its whole answer."""
_PATHS: Final = "there are GET /brokers, GET /events and POST /steps"


class CommandServer(Startable):
    """Serves a fleet's commands; ``start`` to ``close``, or a context manager.

    The server has no password: anybody who can connect may kill brokers. A web page in a browser cannot: requests with
    another site's name as their host or origin are refused, and steps must have the content type ``application/json``.

    Args:
        commands: Takes the steps.
        host, port: The address to listen at; port 0 for any free port.
        on_stop: Called for the step ``stop``.

    Attributes:
        address: The listening address, host and port.

    Raises:
        ConfigurationError: The server cannot listen at the address.
    """

    def __init__(self, commands: FleetCommands, host: str, port: int, on_stop: Callable[[], None]) -> None:
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as e:
            where = show_address((host, port))
            raise ConfigurationError(f"cannot take commands at {where}: {e.strerror}; choose another port") from e
        self._server.commands, self._server.on_stop = commands, on_stop
        self._server.own_hosts = frozenset({"localhost", host.lower(), socket.gethostname().lower()})
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._server.timeout = _POLL_S
        self._thread = LoopThread("fleet-commands-thread", self._serve_once, ended=self._server.server_close)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self, timeout_s: float | None = _CLOSE_S) -> bool:
        """Close the port; a step that is being taken goes on. Harmless if closed.

        Returns:
            Whether the thread has ended within this time; a line in the log says if not.
        """
        if self._thread.initiate_shutdown() and self._thread.ident is None:
            self._server.server_close()
        return self._thread.shutdown(timeout_s)

    def _serve_once(self) -> None:
        self._server.handle_request()
        self._server.service_actions()


class _Server(ThreadingHTTPServer):
    """A server with a limited number of connections, each with a thread and a time limit.

    At the limit a new client takes the place of the one whose request has been awaited longest, so that clients which
    send slowly cannot keep the others out.
    """

    block_on_close = False
    commands: FleetCommands
    on_stop: Callable[[], None]
    own_hosts: frozenset[str]

    def __init__(self, *args: Any) -> None:
        self._lock = new_lock("command server")
        self._deadlines: dict[socket.socket, float | None] = {}  # in the order of their beginning; None during a step
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._deadlines) >= _MOST_CONNECTIONS:
                slowest = next((each for each, until in self._deadlines.items() if until is not None), None)
                if slowest is not None:
                    self._end(slowest)
            self._deadlines[request] = time.monotonic() + _REQUEST_S
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._deadlines.pop(request, None)

    def limit(self, request: Any, seconds: float | None) -> None:
        """Give a connection another time limit from now on, None for no limit."""
        with self._lock:
            if request in self._deadlines:
                self._deadlines[request] = None if seconds is None else time.monotonic() + seconds

    def service_actions(self) -> None:
        """End the connections whose time is over; the server's thread calls it at every poll."""
        now = time.monotonic()
        with self._lock:
            for request, until in list(self._deadlines.items()):
                if until is not None and until <= now:
                    self._end(request)

    def _end(self, request: socket.socket) -> None:
        """End a connection; its thread, which waits for it, closes the socket."""
        del self._deadlines[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        _log.debug("a client of the fleet's commands has gone", exc_info=True)


class _RefusedError(Exception):
    """A request is refused."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _RequestBytes:
    """The bytes of one request, of a limited number."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = _LONGEST_HEAD + _LONGEST_BODY

    def readline(self, size: int) -> bytes:
        """Read a line of at most this many bytes."""
        return self._counted(self._file.readline(min(size, self._left + 1)))

    def read(self, size: int) -> bytes:
        """Read this many bytes."""
        return self._counted(self._file.read(size))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise _RefusedError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head of at most {_LONGEST_HEAD} bytes is read"
            )
        return data


class _Handler(BaseHTTPRequestHandler):
    """The handler of one request."""

    server: _Server
    timeout = _REQUEST_S
    server_version = "kproto"
    sys_version = ""

    def setup(self) -> None:
        """Limit the request's size."""
        super().setup()
        self.rfile: Any = _RequestBytes(self.rfile)
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""  # until they are read

    def handle(self) -> None:
        """Answer one request."""
        try:
            super().handle()
        except _RefusedError as e:
            self._answer(e.status, {"error": str(e)})

    def _check_is_own(self) -> None:
        """Refuse a request that was not meant for this server.

        A web page can make a browser send requests here, under another site's name (DNS rebinding) or from it.
        """
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not _is_address(_without_port(host)) and _without_port(host).lower() not in self.server.own_hosts:
            raise _RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, "the Host has to be this machine's address, or localhost"
            )
        if origin is not None and origin != f"http://{host}":
            raise _RefusedError(HTTPStatus.FORBIDDEN, "requests of other sites' web pages are refused")

    def do_GET(self) -> None:
        """Answer the state of the brokers, or the reports of the latest steps."""
        self._check_is_own()
        commands = self.server.commands
        match self.path:
            case "/brokers":
                self._answer(HTTPStatus.OK, commands.brokers())
            case "/events":
                self._answer(HTTPStatus.OK, [event.to_json() for event in list(commands.events)])
            case _:
                raise _RefusedError(HTTPStatus.NOT_FOUND, _PATHS)

    def do_POST(self) -> None:
        """Take a step, and answer with its report."""
        self._check_is_own()
        if self.path != "/steps":
            raise _RefusedError(HTTPStatus.NOT_FOUND, _PATHS)
        if self.headers.get_content_type() != "application/json":
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type has to be application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > _LONGEST_BODY:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a Content-Length of at most {_LONGEST_BODY} is required"
            )
        try:
            step = json.loads(self.rfile.read(int(length)))["step"]
            if not isinstance(step, str):
                raise TypeError  # noqa: TRY301
        except (ValueError, LookupError, TypeError, RecursionError) as e:
            example = '{"step": "kill random:3"}'
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the body has to be a JSON object like {example}") from e
        if step.strip() == "stop":
            self._answer(HTTPStatus.OK, {"step": "stop"})
            self.server.on_stop()
            return
        try:
            self.server.limit(self.request, None)
            report = self.server.commands.take(step, wait=False).to_json()
        except IllegalState as e:
            raise _RefusedError(HTTPStatus.CONFLICT, str(e)) from e
        except (KprotoError, ValueError) as e:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, str(e)) from e
        self._answer(HTTPStatus.OK, report)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be read, or whose method is another than GET and POST; the connection ends."""
        self.close_connection = True
        self._answer(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def _answer(self, status: HTTPStatus, value: Any) -> None:
        self.server.limit(self.request, _ANSWER_S)
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        _log.debug("%s " + format, self.address_string(), *args)


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
                "broker": member.id,
                "host": member.host,
                "port": member.port,
                "broker_epoch": member.epoch,
                "up": member.is_up,
                "paused": member.is_paused,
                "leads_cluster": member.id == leader,
            }
            for member in self._fleet
        ]
