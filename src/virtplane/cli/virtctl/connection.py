"""The connection flags that every command has, and the client they describe."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from kubecore.client import (
    Client,
    ClientConfig,
    ConfigError,
    ConnectionFailed,
    Impersonation,
    load_kubeconfig,
)
from kubecore.errors import StatusError
from kubecore.json import get_str
from kubecore.objects.structs import UnfitDocument
from virtplane import KUBEVIRT_VERSION
from virtplane.api.resources import SUBRESOURCES_PATH
from virtplane.cli.virtctl.documents import quoted

logger = logging.getLogger(__name__)

_Command = TypeVar("_Command", bound=Callable[..., Any])

KINDS = {
    "vm": "virtualmachines",
    "vms": "virtualmachines",
    "virtualmachine": "virtualmachines",
    "virtualmachines": "virtualmachines",
    "vmi": "virtualmachineinstances",
    "vmis": "virtualmachineinstances",
    "virtualmachineinstance": "virtualmachineinstances",
    "virtualmachineinstances": "virtualmachineinstances",
}
"""What users call the resources that commands are about."""

_OPTIONS = (
    click.option("--kubeconfig", default=None, help="Path to the kubeconfig file to use for CLI requests."),
    click.option("--context", default=None, help="The name of the kubeconfig context to use."),
    click.option("-n", "--namespace", default=None, help="The namespace scope for this CLI request."),
    click.option("-s", "--server", default=None, help="The address and port of the Kubernetes API server."),
    click.option("--token", default=None, help="Bearer token for authentication to the API server."),
    click.option("--certificate-authority", default=None, help="Path to a cert file for the authority."),
    click.option("--client-certificate", default=None, help="Path to a client certificate file for TLS."),
    click.option("--client-key", default=None, help="Path to a client key file for TLS."),
    click.option("--insecure-skip-tls-verify", is_flag=True, help="Do not check the server's certificate."),
    click.option("--tls-server-name", default=None, help="Server name to use for certificate validation."),
    click.option("--proxy-url", default=None, help="A proxy to use for this request."),
    click.option("--as", "as_user", default=None, help="Username to impersonate for the operation."),
    click.option("--as-group", multiple=True, help="Group to impersonate; may be repeated."),
    click.option("--as-uid", default=None, help="UID to impersonate for the operation."),
    click.option("-v", "--v", "verbosity", type=int, default=2, help="Number for the log level verbosity."),
)


_PARAMETERS = (
    *("kubeconfig", "context", "namespace", "server", "token", "certificate_authority"),
    *("client_certificate", "client_key", "insecure_skip_tls_verify", "tls_server_name", "proxy_url"),
    *("as_user", "as_group", "as_uid", "verbosity"),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """The server, the credentials and the namespace of a command."""

    config: ClientConfig
    namespace: str
    flags: tuple[str, ...]
    """The connection flags as given, for a command that starts this program again."""

    def subresource(self, resource: str, name: str, action: str) -> str:
        """The path of an action on a virtual machine or instance."""
        return f"{SUBRESOURCES_PATH}/namespaces/{self.namespace}/{resource}/{name}/{action}"


def connected(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Decorate a coroutine command: add the connection flags, open a client, and report errors as
    messages.
    """

    @functools.wraps(command)
    def wrapper(**parameters: Any) -> None:
        given = {name: parameters.pop(name) for name in _PARAMETERS}
        run_connected(command, given, parameters)

    return connection_flags(wrapper)


def connection_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the connection flags to a command, for `run_connected`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_connected(
    command: Callable[..., Awaitable[None]], given: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """Run a coroutine command with a client for the flags in `given`. Raises click.ClickException."""
    try:
        asyncio.run(_run(command, _connection(given), parameters))
    except (ConfigError, ConnectionFailed) as error:
        raise click.ClickException(str(error)) from error
    except UnfitDocument as error:
        raise click.ClickException(f"this virtctl cannot read an object of the server: {error}") from error
    except KeyboardInterrupt as error:
        raise click.exceptions.Abort from error


async def _run(
    command: Callable[..., Awaitable[None]], connection: Connection, parameters: dict[str, Any]
) -> None:
    async with Client(connection.config) as client:
        try:
            await command(client, connection, **parameters)
        except StatusError as error:
            await _tell_of_other_version(client)
            raise click.ClickException(error.message) from error
        except click.ClickException as error:
            if isinstance(error.__cause__, StatusError):
                await _tell_of_other_version(client)
            raise


async def _tell_of_other_version(client: Client) -> None:
    """Warn if client and server have different releases, which may be why a request failed."""
    try:
        answer = (await client.request("GET", f"{SUBRESOURCES_PATH}/version")).json()
    except (StatusError, ConnectionFailed) as error:
        # The error of the command itself is more important.
        logger.debug("The server's version is not known", extra={"err": str(error)})
        return
    server = get_str(answer, "gitVersion") if isinstance(answer, dict) else ""
    if server and _release(server) != _release(KUBEVIRT_VERSION):
        text = "You are using a client virtctl version that is different from the KubeVirt version"
        versions = f"Client Version: {KUBEVIRT_VERSION}\nServer Version: {server}\n"
        click.echo(f"{text} running in the cluster\n{versions}", err=True)


def _release(version: str) -> list[str]:
    """Major and minor version."""
    return version.removeprefix("v").split(".")[:2]


def _connection(given: dict[str, Any]) -> Connection:
    try:
        config = load_kubeconfig(given["kubeconfig"], given["context"])
    except ConfigError:
        # A named server needs no kubeconfig, unless other flags refer to one.
        if not given["server"] or given["kubeconfig"] or given["context"]:
            raise
        config = ClientConfig(server=given["server"])
    changes: dict[str, Any] = {"user_agent": "virtctl"}
    for key, field in (("server", "server"), ("token", "token"), ("tls_server_name", "tls_server_name")):
        if given[key]:
            changes[field] = given[key]
    for key, field in (
        ("certificate_authority", "ca_data"),
        ("client_certificate", "client_cert"),
        ("client_key", "client_key"),
    ):
        if given[key]:
            changes[field] = _read(given[key])
    if given["insecure_skip_tls_verify"]:
        changes["insecure"] = True
    if given["proxy_url"]:
        changes["proxy_url"] = given["proxy_url"]
    if given["as_user"]:
        changes["impersonate"] = Impersonation(
            given["as_user"], tuple(given["as_group"]), given["as_uid"] or ""
        )
    config = replace(config, **changes)
    return Connection(config, given["namespace"] or config.namespace, tuple(_flags(given)))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _flags(given: dict[str, Any]) -> list[str]:
    flags = []
    for name in ("kubeconfig", "context", "server", "token", "certificate_authority"):
        if given[name]:
            flags.append(f"--{name.replace('_', '-')}={given[name]}")
    if given["insecure_skip_tls_verify"]:
        flags.append("--insecure-skip-tls-verify")
    return flags


async def put(client: Client, path: str, body: dict[str, Any], failure: str) -> None:
    """PUT to a subresource; `failure` introduces the server's message. Raises click.ClickException."""
    try:
        await client.request("PUT", path, body=body)
    except StatusError as error:
        raise click.ClickException(f"{failure}{error.message}") from error


def answered(error: StatusError, name: str) -> str:
    """What is said of a question about an instance that went wrong.

    virt-api answers these with plain text and 500, which clients of Kubernetes wrap.
    """
    if error.code != 500:
        return error.message
    request = f"get virtualmachineinstances.kubevirt.io {name}"
    reason = f"an error on the server ({quoted(error.message)})"
    return f"{reason} has prevented the request from succeeding ({request})"


def dry_run_body(dry_run: bool) -> dict[str, Any]:
    """The request body of a dry run, announced as virtctl does."""
    if not dry_run:
        return {}
    click.echo("Dry Run execution")
    return {"dryRun": ["All"]}


def key_values(given: tuple[str, ...], flag: str) -> dict[str, str]:
    """The pairs of a flag like ``--flag a=b,c=d``. Raises click.ClickException."""
    pairs: dict[str, str] = {}
    for text in given:
        for item in text.split(","):
            key, equals, value = item.partition("=")
            if not equals:
                why = f"{item} must be formatted as key=value"
                raise click.ClickException(f'invalid argument "{text}" for "--{flag}" flag: {why}')
            pairs[key] = value
    return pairs
