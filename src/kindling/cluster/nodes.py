"""``kindling node``: adding, stopping, starting, isolating and removing single nodes of a running cluster.

Each command first writes down what it wants (``instance.json``), so that it can be repeated after an
interruption; ``up`` completes a stop or a start that was interrupted. What becomes of the pods of a node that
is away is the business of the API's controllers, as with a machine that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kindling import program
from kindling.cluster import (
    bringup,
    certificates,
    kubeconfigs,
    node_network,
    node_places,
    readiness,
    storage_pool,
    supervision,
)
from kindling.cluster import instance as instances
from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.instance import Instance, NodeLayout
from kindling.node import files
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import NODES, PODS

Progress = Callable[[str], None]

_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of pods that the kubelet itself runs, from files."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class NodeState:
    """A line of ``node list``. `ready` is the Ready condition's status, empty where the API shows none."""

    name: str
    address: str
    state: str
    ready: str


def states(instance: Instance) -> list[NodeState]:
    """The state of every node: running, isolated, stopped, or down with the whole cluster."""
    _, document = readiness.get(instance, "/api/v1/nodes")
    shown = {
        meta.name(node): get_str(meta.get_condition(node, "Ready"), "status")
        for node in get_list(document, "items")
    }
    is_up = bool(supervision.supervisor_pid(instance))
    return [
        NodeState(node.name, node.address, _state(instance, node.name, is_up), shown.get(node.name, ""))
        for node in instance.nodes()
    ]


def _state(instance: Instance, name: str, is_up: bool) -> str:
    if name in instance.stopped_nodes:
        return "stopped"
    if not is_up:
        return "down"
    return "isolated" if name in instance.isolated_nodes else "running"


def add(state: Path, name: str, progress: Progress) -> str:
    """Add a node, called `name` or the next free one, wait until it is ready and return its name.

    A node that exists already is waited for. Raises SetupError.
    """
    if name:
        node_places.check_name(name)
    with _changing(state, "adding a node", progress) as instance:
        if name in instance.stopped_nodes:
            raise SetupError(f"node {name}", "it is stopped", program.command(f"node start {name}", state))
        if not name or name not in instance.node_names:
            names = node_places.with_node(instance.node_names, name)
            name = next(iter(set(names) - set(instance.node_names)))
            _save(replace(instance, node_names=names))
        _bring_up(instance, progress)
    return name


def stop(state: Path, name: str, grace_seconds: float, progress: Progress) -> None:
    """End everything on a node, which stays stopped until it is started. Raises SetupError."""
    with _changing(state, f"stopping {name}", progress) as instance:
        _stop(instance, instance.node(name), grace_seconds, progress)


def start(state: Path, name: str, progress: Progress) -> None:
    """Start a stopped node, or mend the link of an isolated one, and wait until it is ready. Raises
    SetupError.
    """
    with _changing(state, f"starting {name}", progress) as instance:
        node = instance.node(name)
        changed = _save(
            replace(
                instance,
                stopped_nodes=_without(instance.stopped_nodes, node),
                isolated_nodes=_without(instance.isolated_nodes, node),
            )
        )
        _bring_up(changed, progress)


def isolate(state: Path, name: str, progress: Progress) -> None:
    """Cut a node's link; what runs on it goes on. Raises SetupError."""
    with _changing(state, f"isolating {name}", progress) as instance:
        node = instance.node(name)
        if name in instance.stopped_nodes:
            raise SetupError(f"node {name}", "it is stopped", program.command(f"node start {name}", state))
        changed = _save(replace(instance, isolated_nodes=(*_without(instance.isolated_nodes, node), name)))
        node_network.plug(changed, node)


def remove(state: Path, name: str, grace_seconds: float, progress: Progress, *, force: bool) -> None:
    """Remove a node with everything that is on it. Raises SetupError, also while pods run there unless
    `force` is set.
    """
    with _changing(state, f"removing {name}", progress) as instance:
        node = instance.node(name)
        if len(instance.nodes()) == 1:
            raise SetupError(
                f"removing {name}",
                "it is the cluster's last node",
                f"to remove the cluster: {program.command('reset', state)}",
                code=ExitCode.UNUSABLE,
            )
        _ask(instance, lambda client: _close(client, name, name in instance.stopped_nodes, force))
        stopped = _stop(instance, node, grace_seconds, progress)
        progress(f"deleting the objects of {name}")
        _ask(instance, lambda client: _forget(client, name))
        storage_pool.remove_own(instance, node)
        files.remove_tree(node.directory)
        certificates.forget_node(instance, name)
        kept = replace(
            stopped,
            node_names=node_places.without_node(stopped.node_names, name),
            stopped_nodes=_without(stopped.stopped_nodes, node),
        )
        supervision.run_processes(_save(kept))


@contextmanager
def _changing(state: Path, what: str, progress: Progress) -> Iterator[Instance]:
    """The running instance, whose nodes no other command changes meanwhile. Raises SetupError."""
    instances.require(state)
    with bringup.node_lock(state, progress):
        instance = instances.require(state)
        if not supervision.supervisor_pid(instance):
            raise SetupError(what, "the cluster is down", program.command("up", state))
        yield instance


def _save(instance: Instance) -> Instance:
    with instances.machine_lock():
        instance.save()
    return instance


def _bring_up(instance: Instance, progress: Progress) -> None:
    bringup.bring_up(bringup.UpOptions(instance.state, host_image=instance.host_image), progress)


def _stop(instance: Instance, node: NodeLayout, grace_seconds: float, progress: Progress) -> Instance:
    stopped = replace(
        instance,
        stopped_nodes=(*_without(instance.stopped_nodes, node), node.name),
        isolated_nodes=_without(instance.isolated_nodes, node),
    )
    _save(stopped)
    progress(f"stopping {node.name}")
    bringup.switch_off(stopped, node, grace_seconds, progress)
    return stopped


def _without(names: Sequence[str], node: NodeLayout) -> tuple[str, ...]:
    return tuple(name for name in names if name != node.name)


def _ask(instance: Instance, work: Callable[[Client], Coroutine[object, object, None]]) -> None:
    """Do something with a client of the administrator. Raises SetupError."""

    async def run() -> None:
        async with Client(kubeconfigs.client_config(instance, "admin")) as client:
            await work(client)

    try:
        asyncio.run(run())
    except (StatusError, ConnectionFailed) as error:
        raise SetupError("asking the API", str(error), program.command("status", instance.state)) from error


async def _close(client: Client, name: str, is_stopped: bool, force: bool) -> None:
    """Keep further pods from a node that is to be removed. Raises SetupError, and opens the node again, if
    there are pods that should go elsewhere first.
    """
    if force:
        return
    with ignoring(404):
        before = await client.get(NODES, name)
        was_open = not before.get("spec", {}).get("unschedulable")
        await client.patch(NODES, name, {"spec": {"unschedulable": True}}, type="merge")
        found = await client.list(PODS, field_selector=f"spec.nodeName={name}")
        pods = [pod for pod in get_list(found, "items") if holds(pod, is_stopped=is_stopped)]
        if not pods:
            return
        if was_open:
            await client.patch(NODES, name, {"spec": {"unschedulable": None}}, type="merge")
        names = [f"{meta.namespace(pod)}/{meta.name(pod)}" for pod in pods]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise SetupError(
            f"removing {name}",
            f"pods run on it: {', '.join(names[:_SHOWN])}{more}",
            f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data, or --force to lose them",
        )


def holds(pod: JsonObject, *, is_stopped: bool) -> bool:
    """Whether a pod keeps its node from being removed, as those that ``kubectl drain`` moves away.

    On a stopped node nothing runs: pods that were deleted or evicted there only wait for it.
    """
    if get_str(pod, "status", "phase") in ("Succeeded", "Failed") or _MIRROR in meta.annotations(pod):
        return False
    if is_stopped and meta.is_being_deleted(pod):
        return False
    owner = meta.controller_of(pod)
    return owner is None or owner.get("kind") != "DaemonSet"


async def _forget(client: Client, name: str) -> None:
    """Delete the Node of an ended node, and its pods, which nothing else confirms to have ended."""
    found = await client.list(PODS, field_selector=f"spec.nodeName={name}")
    for pod in get_list(found, "items"):
        with ignoring(404, 409):
            await client.delete(
                PODS, meta.name(pod), meta.namespace(pod), grace_period_seconds=0, uid=meta.uid(pod)
            )
    with ignoring(404):
        await client.delete(NODES, name)
