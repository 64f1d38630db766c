"""How to reach one API server and as whom: the result of reading a kubeconfig or a pod's service account."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """The configuration of a client is missing, unreadable or inconsistent."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user to impersonate; sent as the ``Impersonate-*`` headers."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A command that prints an ``ExecCredential`` (client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    provide_cluster_info: bool = False
    install_hint: str = ""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Everything a client needs. Certificates and keys are PEM bytes, never paths.

    `namespace` is the one that commands use by default; `user_agent` names the program to the server,
    which derives the field manager of plain writes from it. `field_manager`, when set, is sent with
    every write and is the manager of applies. `request_seconds` limits every request but streams (0: the
    transport's own limit); without `compression`, answers are asked for as they are.
    """

    server: str
    ca_data: bytes | None = None
    client_cert: bytes | None = None
    client_key: bytes | None = None
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec_plugin: ExecPlugin | None = None
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    impersonate: Impersonation | None = None
    namespace: str = "default"
    user_agent: str = "kubecore"
    field_manager: str = ""
    request_seconds: float = 0.0
    compression: bool = True


def is_in_cluster() -> bool:
    """Whether this process runs in a pod that has a service account."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT_DIRECTORY / "token").exists()


def in_cluster(directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> ClientConfig:
    """The configuration of a pod's service account.

    Raises ConfigError outside a pod.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "unable to load in-cluster configuration, "
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
        )
    token_file = directory / "token"
    if not token_file.exists():
        raise ConfigError(f"unable to load in-cluster configuration: {token_file} does not exist")
    ca_file = directory / "ca.crt"
    namespace_file = directory / "namespace"
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_data=ca_file.read_bytes() if ca_file.exists() else None,
        token_file=str(token_file),
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
    )
