"""A certificate authority of the tests' own making, the providers it vouches for, and those that no client should trust."""

import ssl
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import trustme


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def stranger() -> trustme.CA:
    return trustme.CA()


def trusting(tmp_path: Path) -> Path:
    """The authority's own certificate, as `ca_file` takes it."""
    path = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


def client() -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context


def server(
    *names: str, by: trustme.CA | None = None, expired: bool = False, highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    certificate = (by or authority()).issue_cert(
        *(names or ("localhost", "127.0.0.1")), not_after=datetime(2020, 1, 1, tzinfo=UTC) if expired else None
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = highest
    certificate.configure_cert(context)
    return context


def self_signed(tmp_path: Path) -> ssl.SSLContext:
    """The authority's own certificate, served as if it were a provider's; by an authority that nobody knows."""
    authority = trustme.CA()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    authority.private_key_pem.write_to_path(str(key))
    authority.cert_pem.write_to_path(str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
