"""Where a request's credentials come from, and when they are read again."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from kubecore.client.config import ClientConfig, ConfigError, ExecPlugin
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import times

TOKEN_FILE_PERIOD_SECONDS = 60.0
"""How long a token read from a file is used before the file is read again; the kubelet replaces such
tokens long before they expire."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What identifies the client: headers, and a certificate with its key (PEM)."""

    authorization: str = ""
    client_cert: bytes | None = None
    client_key: bytes | None = None


class CredentialSource:
    """The current credentials: static, from a token file, or from an exec plugin."""

    def __init__(self, config: ClientConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._cached: Credentials | None = None
        self._valid_until = float("-inf")
        self._lock = asyncio.Lock()

    async def current(self) -> Credentials:
        """The credentials to send now. Raises ConfigError when they cannot be obtained."""
        async with self._lock:
            if self._cached is None or self._clock() >= self._valid_until:
                self._cached, self._valid_until = await self._load()
            return self._cached

    def refresh(self) -> bool:
        """Drop cached credentials after a 401; returns False if the source has no others."""
        self._valid_until = float("-inf")
        return bool(self._config.token_file or self._config.exec_plugin)

    async def _load(self) -> tuple[Credentials, float]:
        config = self._config
        certificate = (config.client_cert, config.client_key)
        if config.exec_plugin is not None:
            return await _run_plugin(config.exec_plugin, config)
        if config.token_file:
            token = await asyncio.to_thread(_read_token, Path(config.token_file), config.token)
            return Credentials(f"Bearer {token}", *certificate), self._clock() + TOKEN_FILE_PERIOD_SECONDS
        if config.token:
            return Credentials(f"Bearer {config.token}", *certificate), float("inf")
        if config.username:
            pair = base64.b64encode(f"{config.username}:{config.password}".encode()).decode()
            return Credentials(f"Basic {pair}", *certificate), float("inf")
        return Credentials("", *certificate), float("inf")


def _read_token(path: Path, fallback: str) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        if fallback:
            return fallback
        raise ConfigError(f"failed to read token file {path}: {error.strerror}") from error
    if not token:
        raise ConfigError(f"token file {path} is empty")
    return token


async def _run_plugin(plugin: ExecPlugin, config: ClientConfig) -> tuple[Credentials, float]:
    spec: JsonObject = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: JsonObject = {"server": config.server}
        if config.ca_data:
            cluster["certificate-authority-data"] = base64.b64encode(config.ca_data).decode()
        if config.tls_server_name:
            cluster["tls-server-name"] = config.tls_server_name
        if config.insecure:
            cluster["insecure-skip-tls-verify"] = True
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.args, stdout=asyncio.subprocess.PIPE, env=environment
        )
    except OSError as error:
        hint = f"\n\n{plugin.install_hint}" if plugin.install_hint else ""
        raise ConfigError(f"exec: executable {plugin.command} not found{hint}") from error
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise ConfigError(f"exec: executable {plugin.command} failed with exit code {process.returncode}")
    return parse_exec_credential(output, config)


def parse_exec_credential(output: bytes, config: ClientConfig) -> tuple[Credentials, float]:
    """The credentials that an exec plugin printed and their expiry as Unix time. Raises ConfigError for
    anything but an ``ExecCredential`` with a token or a certificate.
    """
    try:
        document = orjson.loads(output)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"decoding stdout of the exec plugin: {error}") from error
    status = get_object(document, "status")
    token, certificate = get_str(status, "token"), get_str(status, "clientCertificateData")
    key = get_str(status, "clientKeyData")
    if not token and not certificate:
        raise ConfigError("the exec plugin didn't return a token or cert/key pair")
    if bool(certificate) != bool(key):
        raise ConfigError("the exec plugin returned only certificate or key, not both")
    expiry = get_str(status, "expirationTimestamp")
    try:
        until = times.parse_time(expiry).timestamp() if expiry else float("inf")
    except ValueError as error:
        raise ConfigError(f"decoding stdout of the exec plugin: {error}") from error
    credentials = Credentials(
        f"Bearer {token}" if token else "",
        certificate.encode() if certificate else config.client_cert,
        key.encode() if key else config.client_key,
    )
    return credentials, until
