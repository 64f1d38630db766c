"""virt-handler: its rights and the settings of its pods."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import paths, ports
from virtplane.components import COMPONENTS
from virtplane.operators.kit.roles import READ, rule
from virtplane.operators.kubevirt import certificates
from virtplane.operators.kubevirt.strategy.component import Component
from virtplane.operators.kubevirt.strategy.components import rights


def _cluster_rules() -> list[JsonObject]:
    """virt-handler: reports on its guests and its node.

    It reads the installation's config maps alone, KubeVirt's those of everybody, which a node that is taken
    over would have then.
    """
    return [
        rule("kubevirt.io", "virtualmachineinstances", ("update", "patch", "list", "watch")),
        rule("core", "nodes", ("patch", "list", "watch", "get")),
        rule("core", "nodes/status", ("patch",)),
        rule("core events.k8s.io", "events", ("create", "patch")),
        rights.CUSTOM_RESOURCE_DEFINITIONS,
        rights.KUBEVIRTS,
        rights.MIGRATION_POLICIES,
        rule(
            "backup.kubevirt.io",
            "virtualmachinebackuptrackers virtualmachinebackuptrackers/status",
            ("list", "watch", "patch"),
        ),
        rule("plugin.kubevirt.io", "plugins", READ),
    ]


COMPONENT = Component(
    "virt-handler",
    COMPONENTS["virt-handler"].service_account,
    cluster_rules=_cluster_rules(),
    namespace_rules=[rights.CONFIG_MAPS],
    reviews_access=True,
    requests={"cpu": "10m", "memory": "325Mi"},
    ports={"metrics": ports.COMPONENT_HEALTH, "console": ports.HANDLER},
    secrets={
        certificates.HANDLER_SERVER_SECRET: f"{paths.HANDLER_CERTIFICATES}/servercertificates",
        certificates.HANDLER_CLIENT_SECRET: paths.HANDLER_CLIENT_CERTIFICATES,
        certificates.HANDLER_MIGRATION_SECRET: f"{paths.HANDLER_CERTIFICATES}/migrationservercertificates",
        certificates.HANDLER_VSOCK_SECRET: f"{paths.HANDLER_CERTIFICATES}/vsockclientcertificates",
    },
)
