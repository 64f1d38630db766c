"""ReplicaSets."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kindling.controllers.replicas import ReplicaController
from kubecore.json import get_object
from kubecore.objects.selectors import from_label_selector_object
from kubecore.resources import REPLICA_SETS


def set_up(environment: Environment) -> None:
    """Add the controller."""
    ReplicaController(
        environment,
        "replicaset-controller",
        REPLICA_SETS,
        lambda owner: from_label_selector_object(get_object(owner, "spec", "selector")),
        counts_terminating=True,
    )
