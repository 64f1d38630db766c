"""A certificate that a process makes for itself when it starts."""

from __future__ import annotations

import ssl
import tempfile
from datetime import timedelta
from pathlib import Path

from virtplane.operators.kit.certificates import new_authority, utc_now

_LIFETIME = timedelta(days=3650)
"""Longer than any process runs: nothing renews it."""


def self_signed_tls(name: str) -> ssl.SSLContext:
    """TLS for a port whose clients (the kubelet's probes, Prometheus) do not verify the certificate.

    It protects tokens from eavesdropping; the key exists only in this process. `name` is the name in the
    certificate.
    """
    pair = new_authority(name, _LIFETIME, utc_now())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.key + pair.certificate)
        context.load_cert_chain(path)
    return context
