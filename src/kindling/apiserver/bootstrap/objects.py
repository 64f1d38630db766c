"""The other objects of a new cluster: namespaces, priority classes, the API's own service, addresses."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject
from kubecore.resources import ResourceType

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
FLOW_SCHEMAS = ResourceType("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", False)
PRIORITY_LEVELS = ResourceType(
    "flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False
)
SERVICE_CIDRS = ResourceType("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False)
IP_ADDRESSES = ResourceType("networking.k8s.io", "v1", "ipaddresses", "IPAddress", False)


def _object(
    api_version: str,
    kind: str,
    name: str,
    namespace: str = "",
    *,
    labels: JsonObject | None = None,
    **rest: Any,
) -> JsonObject:
    metadata: JsonObject = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def namespaces() -> list[JsonObject]:
    """The namespaces of the system."""
    return [_object("v1", "Namespace", name) for name in NAMESPACES]


def priority_classes() -> list[JsonObject]:
    """The priority classes of system components."""
    described = (
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node "
            "if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    )
    return [
        _object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            name,
            value=value,
            globalDefault=False,
            description=text,
            preemptionPolicy="PreemptLowerPriority",
        )
        for name, value, text in described
    ]


def kubernetes_service(address: str) -> JsonObject:
    """The service that leads to the API."""
    spec = {
        "type": "ClusterIP",
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return _object("v1", "Service", "kubernetes", "default", labels=labels, spec=spec)


def kubernetes_endpoints(address: str, port: int) -> JsonObject:
    """The endpoints of that service."""
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    subsets = [{"addresses": [{"ip": address}], "ports": ports}]
    labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return _object("v1", "Endpoints", "kubernetes", "default", labels=labels, subsets=subsets)


def kubernetes_endpoint_slice(address: str, port: int) -> JsonObject:
    """The same as an EndpointSlice."""
    return _object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "kubernetes",
        "default",
        labels={"kubernetes.io/service-name": "kubernetes"},
        addressType="IPv4",
        endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
        ports=[{"name": "https", "port": port, "protocol": "TCP"}],
    )


def service_cidr(cidrs: list[str]) -> JsonObject:
    """The range of service addresses, or one of each family."""
    made = _object("networking.k8s.io/v1", "ServiceCIDR", "kubernetes", spec={"cidrs": cidrs})
    made["metadata"]["finalizers"] = ["networking.k8s.io/service-cidr-finalizer"]
    return made


def ip_address_object(address: str, namespace: str, service: str) -> JsonObject:
    """The object of a service's address."""
    labels = {
        "ipaddress.kubernetes.io/ip-family": "IPv6" if ":" in address else "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    parent = {"resource": "services", "namespace": namespace, "name": service}
    return _object("networking.k8s.io/v1", "IPAddress", address, labels=labels, spec={"parentRef": parent})


def authentication_config_map(client_ca: str, proxy_ca: str, proxy_names: list[str]) -> JsonObject:
    """What extension API servers read to trust the callers that this server forwards."""
    data: JsonObject = {}
    if client_ca:
        data["client-ca-file"] = client_ca
    if proxy_ca:
        data["requestheader-client-ca-file"] = proxy_ca
        data["requestheader-allowed-names"] = _json_list(proxy_names)
        data["requestheader-extra-headers-prefix"] = _json_list(["X-Remote-Extra-"])
        data["requestheader-group-headers"] = _json_list(["X-Remote-Group"])
        data["requestheader-uid-headers"] = _json_list(["X-Remote-Uid"])
        data["requestheader-username-headers"] = _json_list(["X-Remote-User"])
    return _object("v1", "ConfigMap", "extension-apiserver-authentication", "kube-system", data=data)


def _json_list(values: list[str]) -> str:
    return "[" + ",".join(f'"{value}"' for value in values) + "]"
