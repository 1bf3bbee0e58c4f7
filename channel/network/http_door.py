"""The HTTP server of every door that a process opens: few connections, time limits, and requests of few bytes."""

from __future__ import annotations

import contextlib
import socket
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from channel.locks import guards, new_lock
from channel.logs import get_logger
from channel.threads import LoopThread, Startable

from .sockets import Acceptor, listening_socket

if TYPE_CHECKING:
    from collections.abc import Callable

_log = get_logger(__name__)

MOST_CONNECTIONS: Final = 16
REQUEST_S: Final = 10.0
"""The time in which a client must send its whole request."""
ANSWER_S: Final = 10.0
"""The time in which a client must take its whole answer."""

_LONGEST_HEAD: Final = 16 * 1024
_CLOSE_S: Final = 10.0
_POLL_S: Final = 0.1
"""The interval at which the time limits are checked."""


class HttpDoor(Startable):
    """An HTTP server with a thread of its own, from ``start`` to ``close``.

    It has 16 connections at most, with a thread each. At that limit a new client takes the place of the one whose
    request has been awaited longest, so that clients which send slowly keep nobody out. A client has 10 s to send its
    request, and 10 s to take the answer. The door takes none of the last descriptors of the process.

    Args:
        name: Names the server's thread.
        host, port: The address to listen at; port 0 for any free port.
        handler: Makes the handler of a connection; a ``DoorHandler`` class, or a partial call of one.

    Attributes:
        address: The listening address, host and port.

    Raises:
        ConfigurationError: The server cannot listen at the address.
    """

    def __init__(self, name: str, host: str, port: int, handler: Callable[..., DoorHandler]) -> None:
        self._server = DoorServer((host, port), handler)
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._server.timeout = _POLL_S
        self._thread = LoopThread(name, self._serve_once, ended=self._server.server_close)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self, timeout_s: float | None = _CLOSE_S) -> bool:
        """Close the port; a request that is being served goes on. Harmless if closed.

        Returns:
            Whether the thread has ended within this time; a line in the log says if not.
        """
        return self._thread.shutdown(timeout_s)

    @property
    def error(self) -> BaseException | None:
        """The error that has ended the server, None while it serves and after ``close``."""
        return self._thread.error

    def _serve_once(self) -> None:
        self._server.handle_request()
        self._server.service_actions()


class DoorServer(ThreadingHTTPServer):
    """The server of a door, which its handlers know; ``HttpDoor`` makes it."""

    block_on_close = False
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._lock = new_lock("HTTP door")
        self._deadlines: dict[socket.socket, float | None] = {}  # in the order of their beginning; None during a step
        super().__init__(address, handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening_socket(*address)
        self.socket.setblocking(True)  # else handle_request does not wait at all
        self.server_address = self.socket.getsockname()
        self._acceptor = Acceptor(self.socket, is_bounded=True)  # it answers while others take all descriptors

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; an ``OSError`` leaves it out."""
        return self._acceptor.accept()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, and make room for it."""
        with self._lock:
            if len(self._deadlines) >= MOST_CONNECTIONS:
                slowest = next((each for each, until in self._deadlines.items() if until is not None), None)
                if slowest is None:
                    raise ConnectionRefusedError("every connection of the door is in the middle of a step")
                self._end(slowest)
            self._deadlines[request] = time.monotonic() + REQUEST_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is over, or whose thread could not be started, and close it."""
        with self._lock:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

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
        """Note that a connection has ended in the middle."""
        _log.debug("a client of %s has gone", self.server_address, exc_info=True)


guards(DoorServer, "_lock", "_deadlines")


class RefusedRequest(Exception):
    """A request is refused."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _RequestBytes:
    """The bytes of one request, of a limited number."""

    def __init__(self, file: Any, most: int) -> None:
        self._file = file
        self._left = most

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
            raise RefusedRequest(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head of at most {_LONGEST_HEAD} bytes is read"
            )
        return data


class DoorHandler(BaseHTTPRequestHandler):
    """The handler of one request; a subclass has ``do_GET`` and the like, which call ``answer`` or raise.

    Attributes:
        longest_body: The longest body of a request in bytes.
    """

    server: DoorServer
    timeout = REQUEST_S
    server_version = "kproto"
    sys_version = ""
    longest_body = 0

    def setup(self) -> None:
        """Limit the request's size."""
        super().setup()
        self.rfile: Any = _RequestBytes(self.rfile, _LONGEST_HEAD + self.longest_body)
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""  # until they are read

    def handle(self) -> None:
        """Answer one request."""
        try:
            super().handle()
        except RefusedRequest as e:
            self.refuse(e.status, str(e))
        except OSError:
            raise  # the client has gone
        except Exception:  # noqa: BLE001  (a fault of the handler: it is logged, and the client is answered)
            _log.exception("a request at port %d could not be answered", self.server.server_address[1])
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the request could not be answered; the log says why")

    def refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer a request that is not served, in text."""
        self.answer(status, "text/plain; charset=utf-8", f"{reason}\n".encode())

    def answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        """Send the answer."""
        self.server.limit(self.request, ANSWER_S)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be read, or whose method is not served; the connection ends."""
        self.close_connection = True
        self.refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log a request that was served."""
        _log.debug("%s " + format, self.address_string(), *args)
