"""snapshot-controller: its rights. It runs in the operator's process."""

from __future__ import annotations

from virtplane.components import COMPONENTS
from virtplane.operators.kit.roles import READ, WRITE, rule
from virtplane.operators.kubevirt.strategy.component import Component
from virtplane.operators.kubevirt.strategy.components import rights

_GROUP = "snapshot.storage.k8s.io"
_GROUPS = "groupsnapshot.storage.k8s.io"

COMPONENT = Component(
    "snapshot-controller",
    COMPONENTS["snapshot-controller"].service_account,
    cluster_rules=[
        rule("core", "persistentvolumes", READ),
        rule("core", "persistentvolumeclaims", (*READ, "patch")),
        rule("core", "nodes", READ),
        rule("core events.k8s.io", "events", rights.EVENT_VERBS),
        rule(_GROUP, "volumesnapshotclasses", READ),
        rule(_GROUP, "volumesnapshots", (*READ, "create", "patch", "delete")),
        rule(_GROUP, "volumesnapshots/status", (*READ, "patch")),
        rule(_GROUP, "volumesnapshotcontents", WRITE),
        rule(_GROUP, "volumesnapshotcontents/status", ("patch",)),
        rule(_GROUPS, "volumegroupsnapshotclasses", READ),
        rule(_GROUPS, "volumegroupsnapshots volumegroupsnapshots/status", (*READ, "patch")),
        rule(_GROUPS, "volumegroupsnapshotcontents", WRITE),
        rights.CUSTOM_RESOURCE_DEFINITIONS,
    ],
    namespace_rules=[rights.LEASES],
    reviews_access=True,
)
