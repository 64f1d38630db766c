"""Security context constraints: which pods virt-handler and virt-controller may make, on OpenShift.

A guest's pod is judged by the account that creates it, virt-controller's, as nobody in the namespace of the
guest need have such rights.
"""

from __future__ import annotations

from typing import Any

from kubecore.client import Client
from kubecore.json import JsonObject
from virtplane.api.resources import SECURITY_CONTEXT_CONSTRAINTS
from virtplane.components import COMPONENTS
from virtplane.operators.kit import optional
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.parameters import Parameters

_ANY = {"type": "RunAsAny"}
_SECCOMP_PROFILES = ("runtime/default", "unconfined", "localhost/kubevirt/kubevirt.json")
_RESERVATION_HELPER = ("SYS_RAWIO", "SETPCAP", "SETUID", "SETGID")


def constraints(namespace: str) -> list[JsonObject]:
    """Those of virt-handler, which is root on its node, and of virt-controller, whose pods are not."""
    return [
        _constraint(
            "virt-handler",
            namespace,
            allowPrivilegedContainer=True,
            allowHostPID=True,
            allowHostIPC=True,
            allowHostPorts=True,
            allowedCapabilities=list(_RESERVATION_HELPER),
        ),
        _constraint(
            "virt-controller",
            namespace,
            # CPU affinity of guests; ports below 1024 of what answers them
            allowedCapabilities=["SYS_NICE", "NET_BIND_SERVICE"],
            seccompProfiles=list(_SECCOMP_PROFILES),
        ),
    ]


def _constraint(component: str, namespace: str, **allowed: Any) -> JsonObject:
    account = COMPONENTS[component].service_account
    denied = ("PrivilegedContainer", "HostPID", "HostIPC", "HostPorts", "HostNetwork")
    return {
        "apiVersion": SECURITY_CONTEXT_CONSTRAINTS.api_version,
        "kind": SECURITY_CONTEXT_CONSTRAINTS.kind,
        "metadata": {"name": account},
        **{f"allow{what}": False for what in denied},
        "allowHostDirVolumePlugin": True,
        "readOnlyRootFilesystem": False,
        "runAsUser": _ANY,
        "seLinuxContext": _ANY,
        "fsGroup": _ANY,
        "supplementalGroups": _ANY,
        "volumes": ["*"],
        "users": [f"system:serviceaccount:{namespace}:{account}"],
        **allowed,
    }


async def keep_constraints(client: Client, parameters: Parameters) -> None:
    """Have both, where the cluster knows such things. Raises StatusError, ConnectionFailed."""
    if await optional.present(client, KUBEVIRT, SECURITY_CONTEXT_CONSTRAINTS) is None:
        return
    applier = Applier(client, KUBEVIRT, kinds=(SECURITY_CONTEXT_CONSTRAINTS,))
    for document in constraints(parameters.namespace):
        KUBEVIRT.mark_managed(document, parameters.spec)
        await applier.apply(document)


async def remove_constraints(client: Client) -> None:
    """Delete both. Raises StatusError, ConnectionFailed."""
    await optional.delete_all(client, KUBEVIRT, SECURITY_CONTEXT_CONSTRAINTS)
