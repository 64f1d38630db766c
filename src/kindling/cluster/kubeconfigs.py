"""Kubeconfig files of the administrator and of the cluster's own components."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import orjson

from kindling.cluster.instance import Instance, write_atomically
from kubecore.client import ClientConfig


def ensure(instance: Instance) -> None:
    """Write the administrator's kubeconfig and, once, a token for programs without certificates."""
    token_file = instance.state / "token"
    if not token_file.exists():
        write_atomically(token_file, secrets.token_hex(32).encode(), 0o600)
    token = token_file.read_text().strip()
    line = f'{token},kindling-admin,kindling-admin,"system:masters"\n'
    write_atomically(instance.pki / "tokens.csv", line.encode(), 0o600)
    write_atomically(instance.kubeconfig, render(instance, "admin", instance.api_url), 0o600)


def render(instance: Instance, identity: str, server: str) -> bytes:
    """A kubeconfig (JSON, which is YAML) of the certificate `identity`."""
    name = f"kindling-{instance.id}"
    user = f"{name}-{identity}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": _encoded(instance.pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _encoded(instance.pki / f"{identity}.crt"),
                    "client-key-data": _encoded(instance.pki / f"{identity}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def client_config(instance: Instance, identity: str, *, internal: bool = False) -> ClientConfig:
    """The client configuration of `identity`; `internal`: for use inside a node."""
    return ClientConfig(
        server=instance.internal_api_url if internal else instance.api_url,
        ca_data=(instance.pki / "ca.crt").read_bytes(),
        client_cert=(instance.pki / f"{identity}.crt").read_bytes(),
        client_key=(instance.pki / f"{identity}.key").read_bytes(),
        user_agent=f"kindling-{identity}",
    )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
