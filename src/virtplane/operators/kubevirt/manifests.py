"""The manifests of ``virtplane install``: the operator, and the KubeVirt object."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane import __version__
from virtplane.api import crds, resources
from virtplane.api.paths import KUBELET_ROOT
from virtplane.operators.cdi import manifests as cdi
from virtplane.operators.cdi.product import Settings as CDISettings
from virtplane.operators.hostpath import manifests as hostpath
from virtplane.operators.hostpath.product import Settings as HostPathSettings
from virtplane.operators.kubevirt.strategy.operator_roles import operator_objects
from virtplane.operators.kubevirt.strategy.parameters import Layout
from virtplane.operators.kubevirt.strategy.services import priority_class
from virtplane.operators.kubevirt.strategy.workloads import operator_deployment

KUBEVIRT_NAME = "kubevirt"
CDI_NAME = "cdi"
_DENSE_RATIO = 20
"""Virtual processors for each one of the node that guests request, where machines are small."""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """What the administrator chooses.

    `layout` is `compact` (the operator's process is the whole control plane) or `distributed`. With
    `use_emulation` guests run without KVM where nodes have none. `dense` is for small machines: a guest
    requests a twentieth of a processor for each of its own, so that as many fit as the memory holds.
    `kubelet_root` is the kubelets' ``--root-dir``. `require_webhook_certificate` is for clusters whose API
    server shows its front proxy's certificate to webhooks: they answer nobody else then. Without `has_cdi`,
    data volumes are left to a CDI that the cluster has already. `guestfs_image` is what ``virtctl guestfs``
    runs; if it is empty, an image beside `image`.
    """

    namespace: str
    image: str
    layout: Layout = "distributed"
    use_emulation: bool = False
    dense: bool = False
    kubelet_root: str = KUBELET_ROOT
    require_webhook_certificate: bool = False
    has_cdi: bool = True
    guestfs_image: str = ""


def install_objects(options: InstallOptions) -> list[JsonObject]:
    """All objects that must exist before the KubeVirt object, in order."""
    namespace = options.namespace
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
        *hostpath.install_objects(
            HostPathSettings(
                namespace, options.image, options.layout, f"v{__version__}", kubelet_root=options.kubelet_root
            ),
            require_webhook_certificate=options.require_webhook_certificate,
        ),
        *_cdi_objects(options),
        operator_deployment(
            namespace,
            options.image,
            options.layout,
            kubelet_root=options.kubelet_root,
            require_webhook_certificate=options.require_webhook_certificate,
            has_cdi=options.has_cdi,
            guestfs_image=options.guestfs_image,
        ),
    ]


def _cdi_objects(options: InstallOptions) -> list[JsonObject]:
    if not options.has_cdi:
        return []
    settings = CDISettings(
        options.namespace,
        options.image,
        options.layout,
        f"v{__version__}",
        require_webhook_certificate=options.require_webhook_certificate,
    )
    return cdi.install_objects(settings)


def cdi_object() -> JsonObject:
    """The CDI object. Claims wait for their first consumer where their class says so."""
    return {
        "apiVersion": resources.CDIS.api_version,
        "kind": resources.CDIS.kind,
        "metadata": {"name": CDI_NAME},
        "spec": {
            "config": {"featureGates": ["HonorWaitForFirstConsumer"]},
            "imagePullPolicy": "IfNotPresent",
            "uninstallStrategy": "BlockUninstallIfWorkloadsExist",
            "infra": {
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
            },
            "workload": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        },
    }


def kubevirt_object(options: InstallOptions) -> JsonObject:
    """The KubeVirt object; launchers run under the seccomp profile of the container runtime."""
    profile = {"customProfile": {"runtimeDefaultProfile": True}}
    configuration: JsonObject = {"seccompConfiguration": {"virtualMachineInstanceProfile": profile}}
    developer: JsonObject = {}
    if options.use_emulation:
        developer["useEmulation"] = True
    if options.dense:
        developer["cpuAllocationRatio"] = _DENSE_RATIO
        configuration["cpuRequest"] = f"{1000 // _DENSE_RATIO}m"
    if developer:
        configuration["developerConfiguration"] = developer
    return {
        "apiVersion": resources.KUBEVIRTS.api_version,
        "kind": resources.KUBEVIRTS.kind,
        "metadata": {"name": KUBEVIRT_NAME, "namespace": options.namespace},
        "spec": {"configuration": configuration, "imagePullPolicy": "IfNotPresent"},
    }
