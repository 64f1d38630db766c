"""The objects of the metrics API: the APIService, the service that it names, and who may read it; pure.

What the component itself may do is among the default roles of the API server: it starts before these objects
exist.
"""

from __future__ import annotations

import base64

from kindling.metrics.documents import GROUP, VERSION
from kubecore.json import JsonObject
from kubecore.resources import (
    API_SERVICES,
    CLUSTER_ROLES,
    ENDPOINTS,
    SERVICES,
    ResourceType,
)

NAMESPACE = "kube-system"
SERVICE = "metrics-server"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
USER = "system:kindling:metrics"
API_SERVICE = f"{VERSION}.{GROUP}"
OWN_LABEL = {"app.kubernetes.io/managed-by": "kindling"}
_RBAC = "rbac.authorization.k8s.io"


def objects(authority: bytes) -> list[tuple[ResourceType, JsonObject]]:
    """All of them; `authority` is the PEM of the authority that signs the component's certificate."""
    aggregated = {f"{_RBAC}/aggregate-to-{name}": "true" for name in ("admin", "edit", "view")}
    port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}
    api_service = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": base64.b64encode(authority).decode(),
        "service": {"namespace": NAMESPACE, "name": SERVICE, "port": 443},
    }
    return [
        (
            CLUSTER_ROLES,
            _object(CLUSTER_ROLES, "system:aggregated-metrics-reader", labels=aggregated)
            | {"rules": [_rule(GROUP, ["nodes", "pods"], "get", "list", "watch")]},
        ),
        # The component writes where it listens.
        (ENDPOINTS, _object(ENDPOINTS, SERVICE, NAMESPACE)),
        (SERVICES, _object(SERVICES, SERVICE, NAMESPACE) | {"spec": {"ports": [port]}}),
        (API_SERVICES, _object(API_SERVICES, API_SERVICE) | {"spec": api_service}),
    ]


def subsets(address: str, port: int) -> list[JsonObject]:
    """The endpoints of the service."""
    return [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]


def _object(
    resource: ResourceType, name: str, namespace: str = "", labels: JsonObject | None = None
) -> JsonObject:
    metadata: JsonObject = {"name": name, "labels": OWN_LABEL | (labels or {})}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _rule(group: str, resources: list[str], *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
