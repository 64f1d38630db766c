"""``adm drain-plan``: what a drain of a node would do to each of its guests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.objects.structs import decode
from virtplane.api import labels
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.documents import as_json, printable

if TYPE_CHECKING:
    from virtplane.cli.virtctl.explaining.draining import Guest
    from virtplane.cli.virtctl.explaining.room import Node

_REFUSED = 429
_DRY = {"dryRun": ["All"]}


@click.command(name="drain-plan")
@click.argument("node", metavar="(NODE)")
@click.option("-o", "--output", default="", help="json, for programs.")
@connected
async def drain_plan(client: Client, connection: Connection, node: str, output: str) -> None:
    """Say what draining a node would do to each of its guests, and which block it.

    Nothing is changed: the API server is asked for each eviction as a dry run, so that its answer is the one
    that kubectl drain would get. The command exits with 1 if a guest would block the drain.
    """
    from virtplane.cli.virtctl.explaining import draining, room

    if output not in ("", "json"):
        raise click.ClickException(f"unsupported output format: {output} (must be 'json')")
    try:
        await client.get(resources.NODES, node)
        pods = get_list(await client.list(resources.PODS), "items")
        nodes = room.nodes(get_list(await client.list(resources.NODES), "items"), pods)
        found = await guests(client, node, pods, nodes)
    except StatusError as error:
        raise click.ClickException(f"cannot plan the drain of {node}: {error.message}") from error
    others = [each for each in nodes if each.name != node]
    steps = draining.plan(found, others)
    if output:
        document = {"node": node, "guests": [step.document() for step in steps]}
        click.echo(as_json(document, indent=2))
    else:
        click.echo(printable("\n".join(draining.lines(node, steps))))
    if any(step.outcome == draining.BLOCKS for step in steps):
        raise click.exceptions.Exit(1)


async def guests(client: Client, node: str, pods: list[JsonObject], nodes: tuple[Node, ...]) -> list[Guest]:
    """The guests of a node, each with the answer to its eviction. Raises StatusError."""
    from virtplane.api import resources as api
    from virtplane.api.kubevirt_v1.vm import VirtualMachine
    from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
    from virtplane.cli.virtctl.explaining.draining import Guest
    from virtplane.cli.virtctl.explaining.reading import found_object, held_by

    found: list[Guest] = []
    launchers = [
        pod for pod in pods if meta.labels(pod).get("kubevirt.io") == "virt-launcher" and _is_on(pod, node)
    ]
    for pod in launchers:
        name, namespace = meta.annotations(pod).get(labels.DOMAIN, ""), meta.namespace(pod)
        document = (
            await found_object(client, api.VIRTUAL_MACHINE_INSTANCES, name, namespace) if name else None
        )
        if document is None:
            continue
        instance = decode(VirtualMachineInstance, document)
        if meta.uid(pod) not in instance.status.active_pods:
            continue  # what calls itself a launcher
        vm = await found_object(client, api.VIRTUAL_MACHINES, name, namespace)
        found.append(
            Guest(
                instance,
                decode(VirtualMachine, vm) if vm is not None else None,
                pod,
                await _refusal(client, pod),
                await held_by(client, instance, [each for each in nodes if each.name != node]),
            )
        )
    return found


def _is_on(pod: JsonObject, node: str) -> bool:
    ended = get_object(pod, "status").get("phase") in ("Succeeded", "Failed")
    return get_object(pod, "spec").get("nodeName") == node and not ended


async def _refusal(client: Client, pod: JsonObject) -> str:
    """Why the pod may not be evicted; empty if it may."""
    metadata = {"name": meta.name(pod), "namespace": meta.namespace(pod)}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": _DRY}
    try:
        await client.create(
            resources.PODS,
            eviction,
            meta.namespace(pod),
            subresource="eviction",
            name=meta.name(pod),
            dry_run=True,
        )
    except StatusError as error:
        if error.code != _REFUSED:
            raise
        return _without_webhook(error.message)
    return ""


def _without_webhook(message: str) -> str:
    """What a webhook says, without the words with which the API server introduces it."""
    return message.partition(" denied the request: ")[2] or message
