"""Certificates for tests: an authority, a server and its clients, some of them wrong; made once for each test run."""

import datetime
import functools
from dataclasses import dataclass

import trustme

__all__ = ["Certificates", "certificates"]


@dataclass(frozen=True)
class Certificates:
    """PEM texts.

    Attributes:
        authority: The authority that both ends trust.
        server: Key and certificate of ``localhost`` and 127.0.0.1.
        other_host: The same for another host's name.
        expired: The same as ``server``, no longer valid.
        client: Key and certificate of a client.
        stranger: Key and certificate of a client of another authority.
    """

    authority: str
    server: str
    other_host: str
    expired: str
    client: str
    stranger: str


def _pem(certificate: trustme.LeafCert) -> str:
    return certificate.private_key_and_cert_chain_pem.bytes().decode()


@functools.cache
def certificates() -> Certificates:
    """The certificates of this test run."""
    ca = trustme.CA()
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    return Certificates(
        authority=ca.cert_pem.bytes().decode(),
        server=_pem(ca.issue_cert("localhost", "127.0.0.1")),
        other_host=_pem(ca.issue_cert("elsewhere.example")),
        expired=_pem(ca.issue_cert("localhost", "127.0.0.1", not_before=past, not_after=past + datetime.timedelta(1))),
        client=_pem(ca.issue_cert("client@example.org", common_name="client")),
        stranger=_pem(trustme.CA().issue_cert("stranger@example.org")),
    )
