"""What ``virtplane install`` applies: the operator, and the object that tells it to install the rest."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import crds, resources
from virtplane.operator.strategy.component_roles import operator_objects
from virtplane.operator.strategy.services import priority_class
from virtplane.operator.strategy.workloads import operator_deployment

KUBEVIRT_NAME = "kubevirt"
_DENSE_RATIO = 20
"""Virtual processors for each one of the node that guests request, where machines are small."""


def install_objects(namespace: str, image: str, layout: str = "distributed") -> list[JsonObject]:
    """Everything that must be there before the KubeVirt object, in the order in which it is applied.

    `layout` is `compact` (the operator's process is the whole control plane) or `distributed`.
    """
    definition = next(entry for entry in crds.DEFINITIONS if entry.resource is resources.KUBEVIRTS)
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {
                    "kubevirt.io": "",
                    "pod-security.kubernetes.io/enforce": "privileged",
                    "openshift.io/cluster-monitoring": "true",
                },
            },
        },
        crds.custom_resource_definition(definition),
        priority_class(),
        *operator_objects(namespace),
        operator_deployment(namespace, image, layout),
    ]


def kubevirt_object(namespace: str, use_emulation: bool = False, *, dense: bool = False) -> JsonObject:
    """The KubeVirt object. With `use_emulation` guests run without KVM where nodes have none.

    `dense` lets each guest request little of a processor (a twentieth for each of its own, like guests that
    say nothing), so that a small machine holds as many as its memory does.
    """
    configuration: JsonObject = {}
    developer: JsonObject = {}
    if use_emulation:
        developer["useEmulation"] = True
    if dense:
        developer["cpuAllocationRatio"] = _DENSE_RATIO
        configuration["cpuRequest"] = f"{1000 // _DENSE_RATIO}m"
    if developer:
        configuration["developerConfiguration"] = developer
    return {
        "apiVersion": resources.KUBEVIRTS.api_version,
        "kind": resources.KUBEVIRTS.kind,
        "metadata": {"name": KUBEVIRT_NAME, "namespace": namespace},
        "spec": {"configuration": configuration, "imagePullPolicy": "IfNotPresent"},
    }
