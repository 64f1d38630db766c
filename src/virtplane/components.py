"""The table of components that ``virtplane run`` can start."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import cast

from kubecore.runtime.component import Component
from virtplane.api import account_names
from virtplane.api.vnc_access import ISSUER


@dataclass(frozen=True, slots=True)
class ComponentEntry:
    """Where a component's class is found, and the service account that it acts as."""

    path: str
    service_account: str


COMPONENTS: dict[str, ComponentEntry] = {
    "cdi-apiserver": ComponentEntry("virtplane.storage.cdi.apiserver.server:CdiApiServer", "cdi-apiserver"),
    "cdi-deployment": ComponentEntry("virtplane.storage.cdi.controller.component:CdiController", "cdi-sa"),
    "cdi-operator": ComponentEntry("virtplane.operators.cdi.operator:CdiOperator", "cdi-operator"),
    "cdi-uploadproxy": ComponentEntry(
        "virtplane.storage.cdi.uploadproxy.component:CdiUploadProxy", "cdi-uploadproxy"
    ),
    "virt-api": ComponentEntry("virtplane.compute.apiserver.server:VirtApi", account_names.VIRT_API),
    "virt-controller": ComponentEntry(
        "virtplane.compute.controller.component:VirtController", "kubevirt-controller"
    ),
    "virt-handler": ComponentEntry("virtplane.compute.handler.component:VirtHandler", "kubevirt-handler"),
    "hostpath-provisioner": ComponentEntry(
        "virtplane.storage.hostpath.legacy:LegacyProvisioner", "hostpath-provisioner-admin"
    ),
    "hostpath-provisioner-operator": ComponentEntry(
        "virtplane.operators.hostpath.operator:HostPathOperator", "hostpath-provisioner-operator"
    ),
    "virt-operator": ComponentEntry(
        "virtplane.operators.kubevirt.operator:VirtOperator", "kubevirt-operator"
    ),
    "snapshot-controller": ComponentEntry(
        "virtplane.storage.volumesnapshot.component:SnapshotControllerComponent",
        "kubevirt-snapshot-controller",
    ),
}

BORROWED_ACCOUNTS = {ISSUER: ISSUER}
"""Service accounts under which a component does a part of its work, by the clients' names: virt-api makes
tokens for displays so, with rights that it has only for that.
"""
CDI_OPERATOR = "cdi-operator"
OPERATOR_PROCESS = ("virt-operator", "snapshot-controller")
"""What the operator's own process runs in the distributed layout."""
COMPACT_CONTROL_PLANE = (
    "virt-operator",
    "virt-api",
    "virt-controller",
    "hostpath-provisioner-operator",
    "snapshot-controller",
    CDI_OPERATOR,
)
"""What it runs in the compact layout."""
CDI_COMPONENTS = ("cdi-apiserver", "cdi-deployment", "cdi-uploadproxy")
"""What cdi-operator runs in the compact layout while there is a CDI object."""


class UnknownComponent(Exception):
    """No component has that name."""


def load_component(name: str) -> Component:
    """An instance of the component `name`. Only its own module is imported.

    Raises UnknownComponent.
    """
    entry = COMPONENTS.get(name)
    if entry is None:
        raise UnknownComponent(f"no component is named {name!r}; there are: {', '.join(sorted(COMPONENTS))}")
    module_name, _, class_name = entry.path.partition(":")
    component_class = getattr(importlib.import_module(module_name), class_name)
    return cast(Component, component_class())
