"""The server's TLS: its certificate, and client certificates where one is shown."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HTTP2 = "h2"
"""The name of HTTP/2 in ALPN."""


def server_context(
    certificate: Path, key: Path, client_cas: Sequence[Path], protocols: Sequence[str] = ()
) -> ssl.SSLContext:
    """TLS 1.2 and up; client certificates are optional, but must be of one of `client_cas` if shown.

    `protocols` are offered in ALPN before HTTP/1.1.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    for ca in client_cas:
        context.load_verify_locations(ca)
    # Sessions would cost each connection 7 KiB in its client, and clients of Kubernetes resume none.
    context.num_tickets = 0
    if client_cas:
        context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols([*protocols, "http/1.1"])
    return context


def authority_names(bundle: Path) -> frozenset[str]:
    """The common names of the authorities in a file. Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(bundle)
    names: set[str] = set()
    for certificate in context.get_ca_certs():
        subject: Any = certificate["subject"]
        names |= {value for part in subject for key, value in part if key == "commonName"}
    return frozenset(names)
