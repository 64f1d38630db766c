"""``guestfs``: a shell in a pod that has libguestfs and one claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.api.guestfs import APPLIANCE, ENTRYPOINT, IMAGE
from virtplane.api.resources import SUBRESOURCES_PATH, VIRTUAL_MACHINES
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.talking.console import raw_terminal, talk
from virtplane.cli.virtctl.talking.streams import received

if TYPE_CHECKING:
    import aiohttp

_CONTAINER = "libguestfs"
_KVM = "devices.kubevirt.io/kvm"
_PROTOCOL = "v4.channel.k8s.io"
_STDIN, _OUTPUTS = b"\x00", (1, 2)
_START_SECONDS = 500.0
_POLL_SECONDS = 1.0
_CANNOT_PULL = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_POLICIES = ("Always", "Never", "IfNotPresent")
_ENVIRONMENT = {
    "LIBGUESTFS_BACKEND": "direct",
    "LIBGUESTFS_PATH": APPLIANCE,
    "LIBGUESTFS_TMPDIR": "/tmp/guestfs",
    "HOME": "/home/guestfs",
}


@click.command()
@click.argument("claim", metavar="(PVC)")
@click.option("--image", default="", help="Another image than the installation's.")
@click.option(
    "--pull-policy", default="IfNotPresent", help="When the image is pulled: Always, IfNotPresent or Never."
)
@click.option(
    "--kvm",
    type=bool,
    is_flag=False,
    flag_value=True,
    default=True,
    help="Run on a node with KVM; without, libguestfs emulates.",
)
@click.option("--root", is_flag=True, help="Run as root.")
@click.option("--uid", default="", help="Run as this user; not with --root.")
@click.option("--gid", default="", help="Run as this group; needs --uid.")
@click.option("--fsGroup", "fs_group", default="", help="Group that owns the claim's files.")
@click.option("--vm", default="", help="Run where this VM may run.")
@connected
async def guestfs(client: Client, connection: Connection, claim: str, **given: Any) -> None:
    """Open a shell with libguestfs beside a claim's disk.

    The claim is mounted under /disk in the pod, or is its device /dev/vda where the claim is a block device.
    """
    if given["pull_policy"] not in _POLICIES:
        raise click.ClickException(f"Invalid pull policy: {given['pull_policy']}")
    security = security_context(given)
    namespace = connection.namespace
    image = given["image"] or await _image(client)
    click.echo(f"Use image: {printable(image)} ")
    is_block = await _check_claim(client, claim, namespace)
    machine = await client.get(VIRTUAL_MACHINES, given["vm"], namespace) if given["vm"] else {}
    wanted = pod(claim, image, security, machine, is_block=is_block, given=given)
    click.echo(f"The PVC has been mounted at {'/dev/vda' if is_block else '/disk'} ")
    await client.create(resources.PODS, wanted, namespace)
    name = get_str(wanted, "metadata", "name")
    try:
        await _wait_until_running(client, name, namespace)
        await _attach(client, name, namespace)
    finally:
        await _remove(client, name, namespace)


async def _remove(client: Client, name: str, namespace: str) -> None:
    try:
        await client.delete(resources.PODS, name, namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise


def security_context(given: Mapping[str, Any]) -> JsonObject:
    """The security context of the pod. Raises click.ClickException."""
    root = given["root"]
    if root and given["uid"]:
        raise click.ClickException("cannot set uid if root is true")
    if given["gid"] and not given["uid"]:
        raise click.ClickException("gid requires the uid to be set")
    if root and given["fs_group"]:
        raise click.ClickException("cannot set fsGroup id with root")
    context: JsonObject = {"runAsNonRoot": not root, "seccompProfile": {"type": "RuntimeDefault"}}
    for flag, field in (("uid", "runAsUser"), ("gid", "runAsGroup"), ("fs_group", "fsGroup")):
        text = "0" if root else given[flag]
        if text:
            context[field] = _number(text)
    return context


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        text = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise click.ClickException(text) from error


def pod(
    claim: str,
    image: str,
    security: JsonObject,
    machine: JsonObject,
    *,
    is_block: bool,
    given: Mapping[str, Any],
) -> JsonObject:
    """The pod; `machine` lends its place, if it is not empty."""
    mounts = [
        {"name": "libguestfs-tmp-dir", "mountPath": _ENVIRONMENT["LIBGUESTFS_TMPDIR"]},
        {"name": "guestfs", "mountPath": _ENVIRONMENT["HOME"]},
    ]
    container: JsonObject = {
        "name": _CONTAINER,
        "image": image,
        "imagePullPolicy": given["pull_policy"],
        "command": [ENTRYPOINT],
        "env": [{"name": name, "value": value} for name, value in _ENVIRONMENT.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "stdin": True,
        "tty": True,
        "volumeMounts": mounts if is_block else [*mounts, {"name": "volume", "mountPath": "/disk"}],
    }
    if given["kvm"]:
        container["resources"] = {"limits": {_KVM: "1"}}
    if is_block:
        container["volumeDevices"] = [{"name": "volume", "devicePath": "/dev/vda"}]
    else:
        container["workingDir"] = "/disk"
    template = get_object(machine, "spec", "template", "spec")
    names = ("tolerations", "affinity", "nodeSelector")
    place: JsonObject = {name: template[name] for name in names if name in template}
    spec: JsonObject = {
        "securityContext": security,
        "containers": [container],
        "restartPolicy": "Never",
        "volumes": [
            {"name": "volume", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "libguestfs-tmp-dir", "emptyDir": {}},
            {"name": "guestfs", "emptyDir": {}},
        ],
        **place,
    }
    metadata: JsonObject = {"name": f"{IMAGE}-{claim}"}
    labels = get_object(machine, "spec", "template", "metadata", "labels")
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def _image(client: Client) -> str:
    """The image that belongs to the installation. Raises click.ClickException."""
    try:
        info = (await client.request("GET", f"{SUBRESOURCES_PATH}/guestfs")).json()
    except StatusError as error:
        raise click.ClickException(f"could not get guestfs image info: {error.message}") from error
    if get_str(info, "gsImage"):
        return get_str(info, "gsImage")
    name, tag, digest = (
        f"{get_str(info, 'imagePrefix')}{IMAGE}",
        get_str(info, "tag"),
        get_str(info, "digest"),
    )
    if not tag and not digest:
        text = "Neither the digest nor the tag for the image has been specified"
        raise click.ClickException(text)
    name = f"{name}@{digest}" if digest else f"{name}:{tag}"
    registry = get_str(info, "registry")
    return f"{registry}/{name}" if registry else name


async def _check_claim(client: Client, claim: str, namespace: str) -> bool:
    """Whether the claim is a block device. Raises click.ClickException where it is missing or in use."""
    try:
        found = await client.get(resources.PERSISTENT_VOLUME_CLAIMS, claim, namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
        raise click.ClickException(f"The PVC {claim} doesn't exist") from error
    for user in get_list(await client.list(resources.PODS, namespace), "items"):
        volumes = get_list(user, "spec", "volumes")
        if claim in [get_str(volume, "persistentVolumeClaim", "claimName") for volume in volumes]:
            raise click.ClickException(f"PVC {claim} is used by another pod")
    return get_str(found, "spec", "volumeMode") == "Block"


async def _wait_until_running(client: Client, name: str, namespace: str) -> None:
    """Raises click.ClickException where the pod ends, or does not start in time."""
    deadline = asyncio.get_running_loop().time() + _START_SECONDS
    said = ""
    while asyncio.get_running_loop().time() < deadline:
        status = get_object(await client.get(resources.PODS, name, namespace), "status")
        phase = get_str(status, "phase")
        if phase == "Running":
            return
        if phase not in ("", "Pending"):
            raise click.ClickException(f"Pod is not in running state but got {phase}")
        why = obstacle(status)
        if why and why != said:
            click.echo(f"The pod does not start yet: {printable(why)}", err=True)
            said = why
        await asyncio.sleep(_POLL_SECONDS)
    raise click.ClickException(f"timeout in waiting for the containers to be started in pod {name}")


def obstacle(status: JsonObject) -> str:
    """What keeps a pod with `status` from starting, as its cluster says it; empty if nothing is known."""
    for condition in get_list(status, "conditions"):
        if get_str(condition, "type") == "PodScheduled" and get_str(condition, "status") == "False":
            return get_str(condition, "message")
    for container in get_list(status, "containerStatuses"):
        waiting = get_object(container, "state", "waiting")
        if get_str(waiting, "reason") in _CANNOT_PULL:
            return get_str(waiting, "message") or get_str(waiting, "reason")
    return ""


async def _attach(client: Client, name: str, namespace: str) -> None:
    """The container's terminal in this one, until the shell ends or the user leaves. Raises StatusError."""
    query = {"container": _CONTAINER, "stdin": "true", "stdout": "true", "tty": "true"}
    path = resources.PODS.path(namespace, name, "attach")
    socket = await client.websocket(path, [_PROTOCOL], query=query)
    click.echo("If you don't see a command prompt, try pressing enter.", err=True)

    async def send(keys: bytes) -> None:
        await socket.send_bytes(_STDIN + keys)

    try:
        with raw_terminal():
            await talk(send, _output(socket))
    finally:
        await socket.close()


async def _output(socket: aiohttp.ClientWebSocketResponse) -> AsyncIterator[bytes]:
    """What the container writes; each message begins with its channel."""
    async for data in received(socket):
        if data and data[0] in _OUTPUTS:
            yield data[1:]


COMMANDS = {"guestfs": guestfs}
