"""A component of KubeVirt, except for its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubecore.json import JsonObject
from virtplane.api.ports import COMPONENT_HEALTH
from virtplane.operators.kit.roles import account_subject
from virtplane.operators.kubevirt.product import ACCESS


@dataclass(frozen=True, slots=True)
class Component:
    """One component: its minimal rights, and the settings of its pods."""

    name: str
    account: str
    cluster_rules: Sequence[JsonObject]
    namespace_rules: Sequence[JsonObject]
    """What it may do in the namespace of the installation."""
    is_replicated: bool = False
    """Whether it has a Deployment of its own in the distributed layout."""
    reviews_access: bool = False
    """Whether it asks the API server who a client is and what that client may do."""
    reads_front_proxy: bool = False
    """Whether it reads how the API server vouches for its users."""
    requests: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports by name."""
    health_port: int = COMPONENT_HEALTH
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Where each secret of certificates is mounted."""
    serves_webhooks: bool = False

    def access(self, namespace: str) -> list[JsonObject]:
        """Account, roles and bindings."""
        subjects = [account_subject(self.account, namespace)]
        objects = ACCESS.component(self.account, namespace, self.cluster_rules, self.namespace_rules)
        if self.reviews_access:
            name = f"{self.account}-auth-delegator"
            objects.append(ACCESS.bind_cluster_role(name, subjects, "system:auth-delegator"))
        if self.reads_front_proxy:
            name, role = f"{self.account}-auth-reader", "extension-apiserver-authentication-reader"
            objects.append(ACCESS.bind_role(name, "kube-system", subjects, role))
        return objects
