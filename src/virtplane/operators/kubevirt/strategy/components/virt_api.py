"""virt-api: its rights and the settings of its pods."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import account_names, paths, ports
from virtplane.api.vnc_access import ISSUER
from virtplane.components import COMPONENTS
from virtplane.operators.kit.roles import READ, rule
from virtplane.operators.kubevirt import certificates
from virtplane.operators.kubevirt.strategy.component import Component
from virtplane.operators.kubevirt.strategy.components import rights


def _cluster_rules() -> list[JsonObject]:
    """virt-api: reads objects for webhooks and subresources; changes VMs and instances."""
    return [
        rule("core", "pods", ("get", "list", "delete", "patch")),
        rule(
            "kubevirt.io",
            "virtualmachines virtualmachineinstances",
            ("get", "list", "watch", "patch", "update"),
        ),
        rule("core", "persistentvolumeclaims", ("get", "list")),
        rule("kubevirt.io", "virtualmachines/status", ("patch",)),
        rule("kubevirt.io", "virtualmachineinstancemigrations", ("create", "get", "list", "watch", "patch")),
        rule("kubevirt.io", "virtualmachineinstancepresets", ("watch", "list")),
        rights.CONFIG_MAPS,
        rule("core", "limitranges", ("watch", "list")),
        rights.CUSTOM_RESOURCE_DEFINITIONS,
        rights.KUBEVIRTS,
        rule("snapshot.kubevirt.io", rights.SNAPSHOT_KINDS, READ),
        rule("snapshot.storage.k8s.io", "volumesnapshots", ("get",)),
        rule("backup.kubevirt.io", "virtualmachinebackups virtualmachinebackuptrackers", READ),
        rule("cdi.kubevirt.io", "datasources datavolumes", READ),
        rule("core", "namespaces", READ),
        rights.INSTANCETYPES,
        rights.MIGRATION_POLICIES,
        rule("apps", "controllerrevisions", ("create", "list", "get")),
        rule("core", "nodes", ("get",)),
        rule("core", "serviceaccounts", ("get",)),
    ]


COMPONENT = Component(
    "virt-api",
    COMPONENTS["virt-api"].service_account,
    cluster_rules=_cluster_rules(),
    namespace_rules=[
        rights.CONFIG_MAPS,
        # For other components that it has profiled: a token of its own that is for nothing else.
        rule("core", "serviceaccounts/token", ("create",), [account_names.VIRT_API]),
        # Tokens for displays are made under that account, which has no rights while the gate is off.
        rule("core", "serviceaccounts", ("impersonate",), (ISSUER,)),
    ],
    is_replicated=True,
    reviews_access=True,
    reads_front_proxy=True,
    requests={"cpu": "5m", "memory": "500Mi"},
    ports={"metrics": ports.API, "virt-api": ports.API},
    health_port=ports.HEALTH,
    secrets={
        certificates.API_SECRET: paths.API_CERTIFICATES,
        certificates.HANDLER_CLIENT_SECRET: paths.HANDLER_CLIENT_CERTIFICATES,
    },
    serves_webhooks=True,
)
