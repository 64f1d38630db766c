"""Rights that several components have."""

from __future__ import annotations

from virtplane.operators.kit.roles import READ, rule

CUSTOM_RESOURCE_DEFINITIONS = rule("apiextensions.k8s.io", "customresourcedefinitions", READ)
KUBEVIRTS = rule("kubevirt.io", "kubevirts", READ)
MIGRATION_POLICIES = rule("migrations.kubevirt.io", "migrationpolicies", READ)
CONFIG_MAPS = rule("core", "configmaps", READ)
LEASES = rule(
    "coordination.k8s.io", "leases", ("get", "list", "watch", "delete", "update", "create", "patch")
)
INSTANCETYPES = rule(
    "instancetype.kubevirt.io",
    "virtualmachineinstancetypes virtualmachineclusterinstancetypes virtualmachinepreferences"
    " virtualmachineclusterpreferences",
    READ,
)
SNAPSHOT_KINDS = "virtualmachinesnapshots virtualmachinerestores virtualmachinesnapshotcontents"
EVENT_VERBS = ("update", "create", "patch")


def with_parts(plural: str) -> str:
    """A kind with its status and its finalizers."""
    return f"{plural} {plural}/status {plural}/finalizers"
