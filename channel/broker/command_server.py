"""An HTTP server for commands to a running fleet: steps by POST, their reports and the brokers' states as JSON."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from channel.addresses import show_address
from channel.errors import IllegalState
from channel.logs import get_logger
from kproto.errors import ConfigurationError, KprotoError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .commands import FleetCommands

__all__ = ["CommandServer"]

_log = get_logger(__name__)

_LONGEST_BODY: Final = 64 * 1024
_MOST_CONNECTIONS: Final = 16
_SILENT_S: Final = 10.0
"""The time limit of a client's request."""


class CommandServer:
    """Serves a fleet's commands; ``start`` to ``close``, or a context manager.

    The server has no password: anybody who can connect may kill brokers. A web page cannot, as requests must have the
    content type ``application/json``, which browsers send to another site only with its consent.

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
        handler = type("Handler", (_Handler,), {"commands": commands, "on_stop": staticmethod(on_stop)})
        try:
            self._server = _Server((host, port), handler)
        except OSError as e:
            where = show_address((host, port))
            raise ConfigurationError(f"cannot take commands at {where}: {e.strerror}; choose another port") from e
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._thread = threading.Thread(target=self._server.serve_forever, name="fleet-commands-thread", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Close the port; a step that is being taken goes on."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> CommandServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """A server with a limited number of connections, each with a thread; further clients are rejected."""

    block_on_close = False

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        _log.debug("a client of the fleet's commands has gone", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """The handler of one request; its class has the fleet's commands."""

    commands: FleetCommands
    on_stop: Callable[[], None]
    timeout = _SILENT_S
    server_version = "kproto"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer the state of the brokers, or the reports of the latest steps."""
        match self.path:
            case "/brokers":
                self._answer(HTTPStatus.OK, self.commands.brokers())
            case "/events":
                self._answer(HTTPStatus.OK, [event.to_json() for event in list(self.commands.events)])
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "there are GET /brokers, GET /events and POST /steps")

    def do_POST(self) -> None:
        """Take a step, and answer with its report."""
        if self.path != "/steps":
            self._refuse(HTTPStatus.NOT_FOUND, "there are GET /brokers, GET /events and POST /steps")
            return
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type has to be application/json")
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > _LONGEST_BODY:
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a Content-Length of at most {_LONGEST_BODY} is required"
            )
            return
        try:
            step = json.loads(self.rfile.read(int(length)))["step"]
            if not isinstance(step, str):
                raise TypeError  # noqa: TRY301
        except (ValueError, LookupError, TypeError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, 'the body has to be a JSON object like {"step": "kill random:3"}')
            return
        if step.strip() == "stop":
            self._answer(HTTPStatus.OK, {"step": "stop"})
            self.on_stop()
            return
        try:
            self._answer(HTTPStatus.OK, self.commands.take(step, wait=False).to_json())
        except IllegalState as e:
            self._refuse(HTTPStatus.CONFLICT, str(e))
        except (KprotoError, ValueError) as e:
            self._refuse(HTTPStatus.BAD_REQUEST, str(e))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be read, or whose method is another than GET and POST; the connection ends."""
        self.close_connection = True
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _refuse(self, status: HTTPStatus, error: str) -> None:
        self._answer(status, {"error": error})

    def _answer(self, status: HTTPStatus, value: Any) -> None:
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        _log.debug("%s " + format, self.address_string(), *args)
