"""An S3 server of this process, over real HTTP: moto's, with a hook before each request that changes an object."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow.fs import FileSystem
from werkzeug.serving import make_server

BUCKET = "fleet"


class ObjectStore:
    """The running server, with an empty bucket.

    Attributes:
        environment: The variables with which a client finds the server and is let in.
        query: The part of a URI that does the same.
        before_change: Called with method and path before the server obeys a PUT, POST or DELETE.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # takes half a second

        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self._application = DomainDispatcherApplication(create_backend_app)
        self._thread = threading.Thread(target=self._server.serve_forever, name="object-store")
        self._thread.start()
        place = f"127.0.0.1:{self._server.port}"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{place}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.query = f"?endpoint_override={place}&scheme=http&region=us-east-1"
        self.before_change: Callable[[str, str], object] = lambda _method, _path: None

    def uri(self, path: str) -> str:
        """A URI in the bucket that needs nothing of the environment."""
        return f"s3://test:test@{BUCKET}/{path}{self.query}"

    def put(self, path: str, content: bytes) -> None:
        """Store an object."""
        files, _path = FileSystem.from_uri(self.uri(""))
        with files.open_output_stream(f"{BUCKET}/{path}", compression=None) as opened:
            opened.write(content)

    def stop(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("PUT", "POST", "DELETE"):
            self.before_change(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        return self._application(environ, start_response)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run a server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ObjectStore()
    try:
        FileSystem.from_uri(store.uri("") + "&allow_bucket_creation=true")[0].create_dir(BUCKET)
        yield store
    finally:
        store.stop()
