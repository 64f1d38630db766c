"""``image-upload``: a local image or archive into a DataVolume or claim."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from kubecore.client import Client
from kubecore.json import get_str
from virtplane.api import labels, resources
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.contents import Content, whole
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.params import given_flags
from virtplane.cli.virtctl.progress import Progress
from virtplane.cli.virtctl.uploading import uploadclaims, uploadproxy
from virtplane.cli.virtctl.uploading.uploadclaims import Target, Wanted
from virtplane.cli.virtctl.uploading.uploadproxy import Attempts, Proxy
from virtplane.cli.virtctl.usage import Integer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_COUNT = Integer(0, 2**64 - 1)
_DEPRECATED = {
    "pvc-name": "specify the name as the second argument instead.",
    "pvc-size": "use --size instead.",
    "block-volume": "specify volume mode (filesystem/block) with --volume-mode instead.",
}
_DEFAULTS = {
    "default_instancetype": labels.DEFAULT_INSTANCETYPE,
    "default_instancetype_kind": labels.DEFAULT_INSTANCETYPE_KIND,
    "default_preference": labels.DEFAULT_PREFERENCE,
    "default_preference_kind": labels.DEFAULT_PREFERENCE_KIND,
}
_SENT = (
    "Uploading data completed successfully, waiting for processing to complete,"
    " you can hit ctrl-c without interrupting the progress"
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """How content is sent."""

    proxy_url: str
    insecure: bool
    wait_seconds: int
    retries: int
    force_bind: bool


def transfer_options(command: _Command) -> _Command:
    """Add the flags of a Transfer."""
    for option in reversed(
        (
            click.option("--insecure", is_flag=True, help="Do not check the upload proxy's certificate."),
            click.option("--uploadproxy-url", default="", help="The URL of the upload proxy."),
            click.option(
                "--wait-secs", type=_COUNT, default=300, help="Seconds to wait for the upload pod (300)."
            ),
            click.option("--retry", type=_COUNT, default=5, help="How often a failing upload is tried (5)."),
        )
    ):
        command = option(command)
    return command


def transfer_of(given: dict[str, Any], *, force_bind: bool) -> Transfer:
    """The Transfer that the flags describe."""
    retries, seconds = given["retry"], given["wait_secs"]
    return Transfer(given["uploadproxy_url"], given["insecure"], seconds, retries, force_bind)


@click.command(name="image-upload")
@click.argument("arguments", nargs=-1, metavar="dv|pvc NAME")
@click.option("--image-path", default="", help="The local image: qcow2, raw, ISO, ..., also compressed.")
@click.option("--archive-path", default="", help="The local tar archive, which fills a file system.")
@click.option("--size", default="", help="The size of the volume to create (10Gi, 500Mi).")
@click.option("--storage-class", default="", help="The storage class of the volume to create.")
@click.option("--access-mode", default="", help="The access mode of the volume to create.")
@click.option("--volume-mode", default="", help="block or filesystem; else what the storage profile says.")
@click.option("--force-bind", is_flag=True, help="Bind the claim without waiting for its first consumer.")
@click.option("--no-create", is_flag=True, help="Upload into an existing DataVolume or claim only.")
@click.option("--datasource", is_flag=True, help="Create a DataSource that leads to the volume.")
@click.option("--default-instancetype", default="", help="The instance type of VMs with this image.")
@click.option("--default-instancetype-kind", default="", help="Its kind.")
@click.option("--default-preference", default="", help="The preference of VMs with this image.")
@click.option("--default-preference-kind", default="", help="Its kind.")
@click.option("--pvc-name", default="", hidden=True)
@click.option("--pvc-size", default="", hidden=True)
@click.option("--block-volume", is_flag=True, hidden=True)
@transfer_options
@connected
async def image_upload(
    client: Client, connection: Connection, arguments: tuple[str, ...], **given: Any
) -> None:
    """Send a disk image from here into a DataVolume or claim."""
    for flag in given_flags():
        if flag in _DEPRECATED:
            click.echo(f"Flag --{flag} has been deprecated, {_DEPRECATED[flag]}", err=True)
    target, wanted, path = parsed(arguments, given, connection.namespace)
    content = whole(path)
    claim = await uploadclaims.existing(client, target, must_exist=given["no_create"])
    if claim is not None:
        await uploadclaims.accept_upload(client, claim)
    elif not wanted.size:
        raise click.ClickException("when creating a resource, the size must be specified")
    else:
        await uploadclaims.create(client, target, wanted)
    transfer = transfer_of(given, force_bind=given["force_bind"])
    restarts = await deliver(client, target, content, transfer)
    if given["datasource"]:
        await uploadclaims.refer(client, target, wanted.labels)
    click.echo(_SENT)
    await uploadclaims.wait_until_processed(client, target, restarts)
    click.echo(f"Uploading {path} completed successfully")


def parsed(arguments: tuple[str, ...], given: dict[str, Any], namespace: str) -> tuple[Target, Wanted, Path]:
    """Where to, which volume, and the file, as the command line says. Raises click.ClickException.

    The order of the checks is that of KubeVirt's virtctl.
    """
    if len(arguments) > 2:
        raise click.ClickException(f"accepts at most 2 arg(s), received {len(arguments)}")
    size, old_size = given["size"], given["pvc_size"]
    if size and old_size and size != old_size:
        raise click.ClickException("--pvc-size and --size can not be specified at the same time")
    image, archive = given["image_path"], given["archive_path"]
    if given["pvc_name"]:
        if arguments:
            raise click.ClickException("cannot use --pvc-name and args")
        arguments = ("pvc", given["pvc_name"])
    mode = _volume_mode(given["volume_mode"], given["block_volume"])
    _check_paths(image, archive, mode)
    target = _target(arguments, namespace, is_archive=bool(archive))
    defaults = _default_labels(given)
    wanted = Wanted(
        old_size or size, given["storage_class"], given["access_mode"], mode, given["force_bind"], defaults
    )
    return target, wanted, Path(archive or image)


def _volume_mode(mode: str, is_block: bool) -> str:
    if is_block and mode not in ("", "block"):
        raise click.ClickException(f"incompatible --volume-mode '{mode}' and --block-volume")
    mode = "block" if is_block else mode
    if mode not in ("", "block", "filesystem"):
        text = f"Invalid volume mode '{mode}'. Valid values are 'block' and 'filesystem'."
        raise click.ClickException(text)
    return mode


def _check_paths(image: str, archive: str, mode: str) -> None:
    if not image and not archive:
        raise click.ClickException("either image-path or archive-path must be provided")
    if image and archive:
        raise click.ClickException("cannot handle both image-path and archive-path, provide only one")
    if archive and mode == "block":
        raise click.ClickException("In archive upload the volume mode should always be filesystem")


def _target(arguments: tuple[str, ...], namespace: str, *, is_archive: bool) -> Target:
    if len(arguments) != 2:
        raise click.ClickException("expecting two args")
    kind, name = arguments
    if kind.lower() not in ("dv", "pvc"):
        raise click.ClickException(f"invalid resource type {kind}")
    return Target(namespace, name, kind.lower() == "pvc", is_archive)


def _default_labels(given: dict[str, Any]) -> dict[str, str]:
    for what in ("instancetype", "preference"):
        if given[f"default_{what}_kind"] and not given[f"default_{what}"]:
            raise click.ClickException(f"--default-{what} must be provided with --default-{what}-kind")
    found = {label: given[flag] for flag, label in _DEFAULTS.items() if given[flag]}
    if found and given["no_create"]:
        text = "--default-instancetype and --default-preference cannot be used with --no-create"
        raise click.ClickException(text)
    return found


async def deliver(
    client: Client, target: Target, content: Content, transfer: Transfer, proxy: Proxy | None = None
) -> str:
    """Wait for the upload server of `target` and send it `content`, by `proxy` instead of `transfer`'s.

    Returns how often the upload server had started anew before (`uploadclaims.wait_until_processed`).
    Raises click.ClickException, StatusError.
    """
    await uploadclaims.wait_until_ready(client, target, transfer.wait_seconds, force_bind=transfer.force_bind)
    if proxy is None:
        proxy = await uploadproxy.find_proxy(client, transfer.proxy_url, insecure=transfer.insecure)
    click.echo(f"Uploading data to {printable(proxy.url)}")
    return await _send(client, target, proxy, content, transfer.retries)


async def _send(client: Client, target: Target, proxy: Proxy, content: Content, retries: int) -> str:
    async def token() -> str:
        wish = {
            "apiVersion": resources.UPLOAD_TOKEN_REQUESTS.api_version,
            "kind": resources.UPLOAD_TOKEN_REQUESTS.kind,
            "metadata": {"generateName": "token-for-virtctl-", "namespace": target.namespace},
            "spec": {"pvcName": target.name},
        }
        return get_str(await client.create(resources.UPLOAD_TOKEN_REQUESTS, wish), "status", "token")

    restarts = ""

    async def prepare() -> None:
        nonlocal restarts
        restarts = await uploadclaims.restarts(client, target)

    async def is_done() -> bool:
        return await uploadclaims.is_filled(client, target)

    progress = Progress(content.size, sys.stdout)
    click.echo()
    try:
        await uploadproxy.send(proxy, content, Attempts(retries, token, prepare, is_done), progress)
    finally:
        progress.finish()
    click.echo()
    return restarts


COMMANDS = {"image-upload": image_upload}
