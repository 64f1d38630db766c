"""vm-console-proxy: the rights to make tokens for displays. virt-api acts under this account for that."""

from __future__ import annotations

from virtplane.api.resources import SUBRESOURCES_GROUP
from virtplane.api.vnc_access import ISSUER
from virtplane.operators.kit.roles import rule
from virtplane.operators.kubevirt.strategy.component import Component

_MADE = ("get", "create", "delete")

COMPONENT = Component(
    ISSUER,
    ISSUER,
    cluster_rules=[
        rule("kubevirt.io", "virtualmachines", ("get",)),
        rule("core", "serviceaccounts", _MADE),
        rule("core", "serviceaccounts/token", ("create",)),
        rule("rbac.authorization.k8s.io", "roles rolebindings", _MADE),
        # It can hand out only rights that it has.
        rule(SUBRESOURCES_GROUP, "virtualmachineinstances/vnc", ("get",)),
    ],
    namespace_rules=[],
)
