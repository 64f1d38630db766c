"""virt-controller: its rights and the settings of its pods."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import paths, ports
from virtplane.api.resources import SUBRESOURCES_GROUP
from virtplane.components import COMPONENTS
from virtplane.operators.kit.roles import READ, WRITE, rule
from virtplane.operators.kubevirt import certificates
from virtplane.operators.kubevirt.strategy.component import Component
from virtplane.operators.kubevirt.strategy.components import rights


def _cluster_rules() -> list[JsonObject]:
    """virt-controller: all objects that it makes for VMs."""
    return [
        rule("core", "namespaces", ("get", "list", "watch", "patch")),
        rule("policy", "poddisruptionbudgets", ("get", "list", "watch", "delete", "create", "patch")),
        rule("core", "pods configmaps endpoints services", WRITE),
        rule("core events.k8s.io", "events", rights.EVENT_VERBS),
        rule("core", "secrets", ("create",)),
        rule("core", "pods/finalizers", ("update",)),
        rule("core", "pods/eviction", ("create",)),
        rule("core", "pods/status pods/resize", ("patch",)),
        rule("core", "nodes", ("get", "list", "watch", "update", "patch")),
        rule("apps", "daemonsets", ("list",)),
        rule("apps", "controllerrevisions", ("watch", "list", "create", "delete", "get", "update")),
        rule("core", "persistentvolumeclaims", WRITE),
        rule(
            "snapshot.kubevirt.io",
            " ".join(rights.with_parts(kind) for kind in rights.SNAPSHOT_KINDS.split()),
            WRITE,
        ),
        rule("export.kubevirt.io", rights.with_parts("virtualmachineexports"), WRITE),
        rule(
            "backup.kubevirt.io",
            rights.with_parts("virtualmachinebackups")
            + " "
            + rights.with_parts("virtualmachinebackuptrackers"),
            WRITE,
        ),
        rule("template.kubevirt.io", "virtualmachinetemplates", READ),
        rule(
            "pool.kubevirt.io", rights.with_parts("virtualmachinepools") + " virtualmachinepools/scale", WRITE
        ),
        rule("kubevirt.io", "*", ("*",)),
        rule("kubevirt.io", "virtualmachines/finalizers virtualmachineinstances/finalizers", ("update",)),
        rule(SUBRESOURCES_GROUP, "virtualmachines/stop", ("update",)),
        rule(
            SUBRESOURCES_GROUP,
            " ".join(
                f"virtualmachineinstances/{action}"
                for action in [
                    "addvolume",
                    "removevolume",
                    "backup",
                    "redefine-checkpoint",
                    "freeze",
                    "unfreeze",
                    "reset",
                    "softreboot",
                    "sev/setupsession",
                    "sev/injectlaunchsecret",
                ]
            ),
            ("update",),
        ),
        rule("cdi.kubevirt.io", "*", ("*",)),
        rights.CUSTOM_RESOURCE_DEFINITIONS,
        rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        rule("k8s.cni.cncf.io", "network-attachment-definitions", ("get",)),
        rule("snapshot.storage.k8s.io", "volumesnapshotclasses", READ),
        rule(
            "snapshot.storage.k8s.io",
            "volumesnapshots",
            ("get", "list", "watch", "create", "update", "delete"),
        ),
        rule("storage.k8s.io", "storageclasses", READ),
        rights.INSTANCETYPES,
        rights.MIGRATION_POLICIES,
        rule(
            "clone.kubevirt.io",
            rights.with_parts("virtualmachineclones"),
            ("get", "list", "watch", "update", "patch", "delete"),
        ),
        rule("core", "resourcequotas", ("list", "watch")),
        rule("batch", "jobs", ("create", "get", "delete")),
        rule("resource.k8s.io", "resourceslices resourceclaims", READ),
    ]


def namespace_rules() -> list[JsonObject]:
    """virt-controller in the namespace of the installation: the objects through which exports are reached
    from outside.
    """
    return [
        rule("core", "secrets", READ),
        rule("networking.k8s.io", "ingresses", READ),
        rule("route.openshift.io", "routes", READ),
        rights.LEASES,
    ]


COMPONENT = Component(
    "virt-controller",
    COMPONENTS["virt-controller"].service_account,
    cluster_rules=_cluster_rules(),
    namespace_rules=namespace_rules(),
    is_replicated=True,
    reviews_access=True,
    requests={"cpu": "10m", "memory": "275Mi"},
    ports={"metrics": ports.COMPONENT_HEALTH},
    secrets={certificates.CONTROLLER_SECRET: paths.CONTROLLER_CERTIFICATES},
)
