"""The client of a command, by its global flags; requests and errors that several commands share."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from kubecore.client import Client, ClientConfig, ConfigError, ConnectionFailed
from kubecore.client.transport import Query, Response
from kubecore.errors import StatusError
from kubecore.json import get_str
from kubecore.logs import TRACE
from kubecore.objects.structs import UnfitDocument
from virtplane import KUBEVIRT_VERSION
from virtplane.api.resources import SUBRESOURCES_PATH
from virtplane.cli.virtctl.documents import printable, quoted
from virtplane.cli.virtctl.globalflags import client_config, global_flags, repeated, taken_from

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""One value of the header ``Warning`` (RFC 7234, section 5.5)."""

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class Connection:
    """The server, the credentials and the namespace of a command."""

    config: ClientConfig
    namespace: str
    flags: tuple[str, ...]
    """The global flags as given, for a command that starts this program again."""

    def subresource(self, resource: str, name: str, action: str) -> str:
        """The path of an action on a virtual machine or instance."""
        return f"{SUBRESOURCES_PATH}/namespaces/{self.namespace}/{resource}/{name}/{action}"


def connected(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Decorate a coroutine command: add the global flags, open a client, and report errors as messages."""
    return connected_besides()(command)


def connected_besides(
    *own: str,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """As `connected`, for a command with flags of its `own` that have names of global ones."""

    def decorate(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**parameters: Any) -> None:
            run_connected(command, taken_from(parameters, own), parameters)

        return global_flags(wrapper, besides=own)

    return decorate


def run_connected(
    command: Callable[..., Awaitable[None]], given: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """Run a coroutine command with a client for the flags in `given`. Raises click.ClickException."""
    _log(given["verbosity"])
    try:
        asyncio.run(_run(command, _connection(given), parameters))
    except (ConfigError, ConnectionFailed) as error:
        raise click.ClickException(str(error)) from error
    except UnfitDocument as error:
        raise click.ClickException(f"this virtctl cannot read an object of the server: {error}") from error
    except KeyboardInterrupt as error:
        raise click.exceptions.Abort from error


class _Telling(Client):
    """A client that tells the user what the server warns of, as kubectl does."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """As the client's."""
        response = await super().request(method, path, query=query, body=body, headers=headers)
        for text in _WARNING.findall(response.headers.get("warning", "")):
            shown = re.sub(r"\\(.)", r"\1", text)
            click.echo(f"Warning: {printable(shown)}", err=True)
        return response


async def _run(
    command: Callable[..., Awaitable[None]], connection: Connection, parameters: dict[str, Any]
) -> None:
    async with _Telling(connection.config) as client:
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
        versions = f"Client Version: {KUBEVIRT_VERSION}\nServer Version: {printable(server)}\n"
        click.echo(f"{text} running in the cluster\n{versions}", err=True)


def _release(version: str) -> list[str]:
    """Major and minor version."""
    return version.removeprefix("v").split(".")[:2]


def _log(verbosity: int) -> None:
    """Log to standard error: more from level 4 of `verbosity` on, and each request from 6 on."""
    if verbosity < 4:
        return
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    for name in ("kubecore", "virtplane"):
        logging.getLogger(name).setLevel(TRACE if verbosity >= 6 else logging.DEBUG)


def _connection(given: dict[str, Any]) -> Connection:
    config = client_config(given)
    return Connection(config, config.namespace, tuple(repeated(given)))


async def put(client: Client, path: str, body: dict[str, Any] | None, failure: str) -> None:
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
                name = flag if flag.startswith("-") else f"--{flag}"
                raise click.ClickException(f'invalid argument "{text}" for "{name}" flag: {why}')
            pairs[key] = value
    return pairs
