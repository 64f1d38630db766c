"""``migrate --to``: looks whether the node can take the guest, before anything is asked for."""

from __future__ import annotations

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.explaining import moving, room
from virtplane.cli.virtctl.explaining.reading import found_object, held_by


async def selector_for(client: Client, namespace: str, name: str, node: str) -> dict[str, str]:
    """What names the node in a migration. Raises click.ClickException, which says what is in the way."""
    try:
        target, found = await look(client, namespace, name, node)
    except StatusError as error:
        raise click.ClickException(
            f"cannot tell whether {name} can move to {node}: {error.message}"
        ) from error
    if found:
        raise click.ClickException(printable("\n".join(moving.lines(name, node, found))))
    return {moving.HOSTNAME: target.labels.get(moving.HOSTNAME, node)}


async def look(
    client: Client, namespace: str, name: str, node: str
) -> tuple[room.Node, list[moving.Obstacle]]:
    """The node, and what keeps the guest from it. Raises StatusError, click.ClickException."""
    document = await found_object(client, VIRTUAL_MACHINE_INSTANCES, name, namespace)
    if document is None:
        raise click.ClickException(
            f"{name} cannot move to {node}: its guest does not run (virtctl start {name})"
        )
    instance = decode(VirtualMachineInstance, document)
    pods = get_list(await client.list(resources.PODS), "items")
    nodes = {
        each.name: each for each in room.nodes(get_list(await client.list(resources.NODES), "items"), pods)
    }
    target = nodes.get(node)
    if target is None:
        known = ", ".join(sorted(nodes))
        raise click.ClickException(
            f"{name} cannot move to {node}: there is no such node (there are: {known})"
        )
    none: JsonObject = {}
    pod = next((each for each in pods if moving.is_launcher(each, instance)), none)
    source = nodes.get(instance.status.node_name or "")
    held = await held_by(client, instance, [target])
    return target, moving.obstacles(moving.Move(instance, pod, source, target, held))
