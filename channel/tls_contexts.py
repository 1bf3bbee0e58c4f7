"""TLS contexts from security settings. Only connections with TLS import this module: ``ssl`` takes 4 MiB of memory."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from channel.locks import guards, new_lock
from channel.logs import get_logger
from kproto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel.security import SecurityConfig

_log = get_logger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class CurrentContext:
    """A TLS context that is made again when one of the files of its certificates changes; safe from any thread.

    Files that cannot be used are logged, and connections go on with the former certificates. Established connections
    keep theirs in any case.

    Args:
        make: ``client_context`` or ``server_context``.
        security: The settings that name the files.

    Raises:
        ConfigurationError: A certificate, key or authority cannot be read.
    """

    def __init__(self, make: Callable[[SecurityConfig], ssl.SSLContext], security: SecurityConfig) -> None:
        self._make = make
        self._security = security
        locations = (security.ssl_keystore_location, security.ssl_truststore_location)
        self._files = [Path(each).expanduser() for each in locations if each is not None]
        self._lock = new_lock("TLS contexts")
        self._state = self._state_now()
        self._context = make(security)

    def __call__(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        with self._lock:
            state = self._state_now()
            if state != self._state:
                self._state = state
                names = ", ".join(map(str, self._files))
                try:
                    self._context = self._make(self._security)
                except ConfigurationError as e:
                    _log.error("the changed certificates are not used, the former ones are kept: %s", e)
                else:
                    _log.info("new connections use the changed certificates: %s", names)
            return self._context

    def _state_now(self) -> list[tuple[int, int, int] | None]:
        """Return a value that changes when the contents of the files change."""
        states: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                found = path.stat()
            except OSError:
                states.append(None)
            else:
                states.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return states


guards(CurrentContext, "_lock", "_context", "_files", "_state")


def client_context(security: SecurityConfig) -> ssl.SSLContext:
    """Build the TLS context of connections that this end makes.

    Raises:
        ConfigurationError: A certificate, key or authority cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.ssl_endpoint_identification_algorithm == "https"
    _trust(context, security)
    return _configured(context, security)


def server_context(security: SecurityConfig) -> ssl.SSLContext:
    """Build the TLS context of connections that this end accepts.

    Raises:
        ConfigurationError: There is no certificate, or a certificate, key or authority cannot be read.
    """
    if not security.has_certificate:
        raise ConfigurationError("a TLS listener needs a certificate: set ssl.keystore.location to a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client that closes with session tickets unread would reset the connection and lose its last request.
    context.num_tickets = 0
    if security.ssl_client_auth != "none":
        context.verify_mode = ssl.CERT_REQUIRED if security.ssl_client_auth == "required" else ssl.CERT_OPTIONAL
        _trust(context, security)
    return _configured(context, security)


def _configured(context: ssl.SSLContext, security: SecurityConfig) -> ssl.SSLContext:
    versions = sorted(_VERSIONS[name] for name in security.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION
    ciphers = security.ssl_cipher_suites
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as e:
            raise ConfigurationError(f"ssl.cipher.suites: OpenSSL knows none of {ciphers!r}") from e
    if security.ssl_keystore_location is not None:
        _load_certificate(context, security, _file("ssl.keystore.location", security.ssl_keystore_location))
    elif security.ssl_keystore_certificate_chain is not None:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:  # OpenSSL reads keys from files only; mode 0600
            pem.write(f"{security.ssl_keystore_key!s}\n{security.ssl_keystore_certificate_chain}\n")
            pem.flush()
            _load_certificate(context, security, Path(pem.name))
    return context


def _load_certificate(context: ssl.SSLContext, security: SecurityConfig, path: Path) -> None:
    def password() -> str:
        if security.ssl_key_password is None:
            raise ConfigurationError("the private key is encrypted; set ssl.key.password")
        return str(security.ssl_key_password)

    source = security.ssl_keystore_location or "ssl.keystore.certificate.chain"
    try:
        context.load_cert_chain(path, password=password)
    except (ssl.SSLError, OSError) as e:
        raise ConfigurationError(f"{source}: no usable PEM certificate with its private key ({_why(e)})") from e


def _trust(context: ssl.SSLContext, security: SecurityConfig) -> None:
    location, certificates = security.ssl_truststore_location, security.ssl_truststore_certificates
    try:
        if location is not None:
            context.load_verify_locations(_file("ssl.truststore.location", location))
        elif certificates is not None:
            context.load_verify_locations(cadata=certificates)
        else:
            context.load_default_certs()
    except (ssl.SSLError, OSError, ValueError) as e:
        source = location or "ssl.truststore.certificates"
        raise ConfigurationError(f"{source}: no usable PEM certificates ({_why(e)})") from e


def _file(key: str, location: str) -> Path:
    path = Path(location).expanduser()
    if not path.is_file():
        raise ConfigurationError(f"{key}: there is no file {location}")
    return path


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
