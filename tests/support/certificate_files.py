"""Certificates as files, where servers look for them."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import trustme


class FrontProxyFiles(TypedDict):
    """What an API server for tests is told of its front proxy."""

    front_proxy_ca: Path
    proxy_client_cert: Path
    proxy_client_key: Path


def write_certificate(leaf: trustme.LeafCert, directory: Path, name: str) -> None:
    """Write a certificate with its chain, and its key."""
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    (directory / f"{name}.crt").write_bytes(chain)
    (directory / f"{name}.key").write_bytes(leaf.private_key_pem.bytes())


def front_proxy_files(directory: Path) -> FrontProxyFiles:
    """Write the front proxy's authority and certificate to `directory`."""
    authority = trustme.CA()
    write_certificate(authority.issue_cert(common_name="front-proxy-client"), directory, "front-proxy")
    (directory / "front-proxy-ca.crt").write_bytes(authority.cert_pem.bytes())
    return {
        "front_proxy_ca": directory / "front-proxy-ca.crt",
        "proxy_client_cert": directory / "front-proxy.crt",
        "proxy_client_key": directory / "front-proxy.key",
    }
