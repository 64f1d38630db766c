"""virt-exportproxy: its rights. No pods run under its account yet."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.operators.kit.roles import READ, rule
from virtplane.operators.kubevirt.strategy.component import Component
from virtplane.operators.kubevirt.strategy.components import rights


def _cluster_rules() -> list[JsonObject]:
    """virt-exportproxy: reads exports."""
    return [
        rule("export.kubevirt.io", "virtualmachineexports", READ),
        rule("kubevirt.io", "kubevirts", ("list", "watch")),
    ]


COMPONENT = Component(
    "virt-exportproxy",
    "kubevirt-exportproxy",
    cluster_rules=_cluster_rules(),
    namespace_rules=[rights.CONFIG_MAPS],
)
