"""The parameters of an installation's objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kubecore.json import JsonObject
from virtplane.api.config import ClusterConfig
from virtplane.api.paths import KUBELET_ROOT

Layout = Literal["compact", "distributed"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """One installation. `spec` is that of the KubeVirt object; `ca_bundle` is PEM."""

    namespace: str
    image: str
    layout: Layout
    config: ClusterConfig
    ca_bundle: str = ""
    spec: JsonObject = field(default_factory=dict)
    nodes: int = 1
    pull_policy: str = "IfNotPresent"
    host_image: bool = False
    kubelet_root: str = KUBELET_ROOT
    require_webhook_certificate: bool = False
    """Whether the cluster's API server shows webhooks its front proxy's certificate, so that they insist."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Annotations of every object: which installation it is of."""
    generation: int = 0
    """That of the KubeVirt object."""
    sidecar_image: str = ""
    """The image of hook sidecars that name none; empty: the product's, which runs nothing of users."""

    @property
    def component_selector(self) -> Mapping[str, str]:
        """The labels of the pods of virt-api's service."""
        return {"kubevirt.io": "virt-operator" if self.layout == "compact" else "virt-api"}
