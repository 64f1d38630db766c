"""Ending what runs on a node, and removing what it has on the machine; its directory stays."""

from __future__ import annotations

from collections.abc import Callable

from kindling.cluster import (
    namespaces,
    node_links,
    node_network,
    processes,
    storage_pool,
    supervisor,
    termination,
)
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance, NodeLayout
from kindling.node.cgroup_hierarchies import hierarchies
from kindling.node.pods.cgroup_removal import remove_tree

Progress = Callable[[str], None]


def switch_off(instance: Instance, node: NodeLayout, grace_seconds: float, progress: Progress) -> None:
    """End a stopped node, which the supervisor no longer starts. May be repeated. Raises SetupError.

    Containers get SIGTERM, and SIGKILL after `grace_seconds`; no agent runs then that would restart them.
    """
    left = supervisor.find_children(instance.id, processes.of_node(instance, node.name))
    namespaces.kill(list(left.values()))
    cgroup = instance.node_cgroup(node.name)
    end_containers(cgroup, grace_seconds, progress)
    kill_processes(node)
    kill_pods(cgroup)
    storage_pool.detach_own(instance, node)
    namespaces.destroy(node)
    node_network.disconnect(instance, node)
    node_links.disconnect(instance, node)
    remove_cgroups(cgroup)
    node.registered.unlink(missing_ok=True)
    if not instance.running_nodes():
        storage_pool.release(instance)


def end_containers(cgroup: str, grace_seconds: float, progress: Progress) -> None:
    """Ask the containers below `cgroup` to end, and wait for `grace_seconds` at most."""
    if not grace_seconds:
        return
    found = termination.first_processes(termination.pod_processes(cgroup))
    if late := termination.terminate(found, grace_seconds):
        progress(f"killing {len(late)} containers that did not end within {grace_seconds:g} s")


def kill_processes(node: NodeLayout) -> None:
    """Kill the processes in the node's namespaces until there are none. Raises SetupError."""
    for _ in range(20):
        found = namespaces.processes(node)
        if not found:
            return
        namespaces.kill(found, timeout_seconds=2.0)
    if stayed := namespaces.processes(node):
        raise SetupError(f"stopping {node.name}", f"processes {stayed} cannot be killed")


def kill_pods(cgroup: str) -> None:
    """Kill the processes below `cgroup` until there are none. Raises SetupError."""
    for _ in range(50):
        found = termination.pod_processes(cgroup)
        if not found:
            return
        namespaces.kill(sorted(found), timeout_seconds=2.0)
    raise SetupError("stopping pods", f"processes {sorted(found)} cannot be killed")


def remove_cgroups(cgroup: str) -> None:
    """Remove the cgroups at and below `cgroup`, which have no processes left."""
    for hierarchy in hierarchies():
        remove_tree(hierarchy / cgroup.lstrip("/"))
