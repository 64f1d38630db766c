"""What the long-running processes of a cluster do; each imports its own part when it runs."""

from __future__ import annotations

import os
from pathlib import Path

from kindling.cluster import instance as instances
from kindling.cluster import processes


def api_server(state: Path) -> int:
    """Run the cluster's API server until stopped; gives the exit status. Raises SetupError."""
    from kindling.cluster import components

    return components.run_api_server(instances.require(state))


def controllers(state: Path) -> int:
    """Run the controllers, for all nodes or those that the environment names."""
    from kindling.cluster import components

    nodes = os.environ.get(processes.NODES_VARIABLE, "").split(",")
    components.run_controllers(instances.require(state), [name for name in nodes if name])
    return 0


def node(state: Path, name: str) -> int:
    """Run the agent of node `name`."""
    from kindling.cluster import components

    components.run_node(instances.require(state), name)
    return 0


def supervisor(state: Path) -> int:
    """Run the supervisor."""
    from kindling.cluster.supervisor import Supervisor

    instance = instances.require(state)
    Supervisor(
        instance.id,
        lambda: processes.specs(instances.require(state)),
        instance.logs,
        processes.chores(instance),
        record=lambda names: processes.record(instance, names),
    ).run()
    return 0
