"""``kindling down`` and ``reset``: stop everything and leave nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kindling.cluster import instance as instances
from kindling.cluster import (
    kubeconfig_merge,
    machine,
    namespaces,
    node_links,
    node_network,
    node_teardown,
    processes,
    state_directory,
    storage_pool,
    supervisor,
)
from kindling.cluster.instance import Instance
from kindling.cluster.supervision import supervisor_pid

Progress = Callable[[str], None]

_SUPERVISOR_SECONDS = 40.0


def down(instance: Instance, progress: Progress, grace_seconds: float = 0.0) -> None:
    """Stop all processes, pods included; keep what is on disk. Raises SetupError when a process cannot be
    stopped.

    Containers get SIGTERM, and SIGKILL after `grace_seconds`. At that time no agent runs that would restart
    them or report their end: they are started again when the cluster is.
    """
    progress("stopping the supervisor and its processes")
    _stop_supervisor(instance)
    every = processes.specs(replace(instance, stopped_nodes=()))  # stopping a node may have been interrupted
    left = supervisor.find_children(instance.id, every)
    namespaces.kill(list(left.values()))
    progress("stopping pods")
    node_teardown.end_containers(instance.cgroup, grace_seconds, progress)
    for node in instance.nodes():
        node_teardown.kill_processes(node)
    node_teardown.kill_pods(instance.cgroup)
    for node in instance.nodes():
        namespaces.destroy(node)
    storage_pool.release(instance)
    node_links.destroy(instance)
    node_network.destroy(instance)
    node_teardown.remove_cgroups(instance.cgroup)
    for name in ("supervisor.pid", processes.SUPERVISED):
        (instance.state / name).unlink(missing_ok=True)


def reset(instance: Instance, progress: Progress) -> None:
    """Stop everything and remove every trace. Raises SetupError.

    In the state directory, only files of the cluster are removed; others are kept and listed.
    """
    down(instance, progress)
    progress(f"removing {instance.state}")
    created = namespaces.created_mount_points(instance)
    for failure in kubeconfig_merge.unmerge(instance):
        progress(failure)
    _detach_loops(instance)
    if left := state_directory.remove(instance.state):
        progress(f"{instance.state} stays, for it holds what no cluster made: {', '.join(left)}")
    # Another instance's nodes may have these directories mounted; the last instance removes them.
    if instances.unregister(instance):
        namespaces.remove_mount_points(created)


def _stop_supervisor(instance: Instance) -> None:
    pid = supervisor_pid(instance)
    if not pid:
        return
    try:
        handle = os.pidfd_open(pid)
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + _SUPERVISOR_SECONDS
    while supervisor_pid(instance) and time.monotonic() < deadline:
        time.sleep(0.05)
    if supervisor_pid(instance):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)


def _detach_loops(instance: Instance) -> None:
    output = machine.run(
        ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], what="loop devices"
    )
    for line in output.splitlines():
        name, _, file = line.strip().partition(" ")
        if Path(file.strip()).is_relative_to(instance.state):
            machine.run(["losetup", "--detach", name], what=f"detaching {name}", check=False)
