"""The principal of an accepted connection: who the peer is, by SASL or by its certificate, as Kafka names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["ANONYMOUS", "principal_of", "serialized_principal"]

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a peer that has not authenticated."""

_SHORT: Final = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip


def principal_of(channel: Channel) -> str:
    """Return ``User:`` and the SASL user, else the subject of the peer's certificate, else ``ANONYMOUS``.

    Kafka's default: the subject is in the form of RFC 2253, ``CN=kafka,OU=ops,O=example``.
    """
    if channel.authenticator is not None:
        user: str | None = channel.authenticator.user
        return ANONYMOUS if user is None else f"User:{user}"
    certificate = getattr(channel.transport, "peer_certificate", None)
    return f"User:{_subject(certificate)}" if certificate else ANONYMOUS


def _subject(certificate: dict[str, Any]) -> str:
    names = ("+".join(f"{_SHORT.get(k, k)}={_escaped(v)}" for k, v in rdn) for rdn in certificate.get("subject", ()))
    return ",".join(reversed(list(names)))


def _escaped(value: str) -> str:
    text = "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text


def serialized_principal(principal: str) -> bytes:
    """Return a principal in Kafka's form of version 0: type, name, no delegation token, no tags.

    >>> serialized_principal("User:ANONYMOUS")
    b'\\x00\\x00\\x05User\\nANONYMOUS\\x00\\x00'
    """
    kind, _, name = principal.partition(":")
    return b"\0\0" + _compact(kind) + _compact(name) + b"\0\0"


def _compact(text: str) -> bytes:
    data = text.encode()
    left, size = len(data) + 1, b""
    while left > 0x7F:
        size += bytes([left & 0x7F | 0x80])
        left >>= 7
    return size + bytes([left]) + data
