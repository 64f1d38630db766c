"""ReplicationControllers: like ReplicaSets, with a map of labels as selector."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kindling.controllers.replicas import ReplicaController
from kubecore.json import get_object
from kubecore.objects.selectors import label_selector_of_map
from kubecore.resources import REPLICATION_CONTROLLERS


def set_up(environment: Environment) -> None:
    """Add the controller."""
    ReplicaController(
        environment,
        "replication-controller",
        REPLICATION_CONTROLLERS,
        lambda owner: label_selector_of_map(get_object(owner, "spec", "selector")),
        counts_terminating=False,
    )
