"""The other objects of a new cluster: namespaces, priority classes, the API's own service, addresses."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.resources import ResourceType

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
FLOW_SCHEMAS = ResourceType("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", False)
PRIORITY_LEVELS = ResourceType(
    "flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False
)
SERVICE_CIDRS = ResourceType("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", False)
IP_ADDRESSES = ResourceType("networking.k8s.io", "v1", "ipaddresses", "IPAddress", False)


def namespaces() -> list[JsonObject]:
    """The namespaces of the system."""
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]


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
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "globalDefault": False,
            "description": text,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value, text in described
    ]


def kubernetes_service(address: str) -> JsonObject:
    """The service that leads to the API."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
    }


def kubernetes_endpoints(address: str, port: int) -> JsonObject:
    """The endpoints of that service."""
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [
            {
                "addresses": [{"ip": address}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }
        ],
    }


def kubernetes_endpoint_slice(address: str, port: int) -> JsonObject:
    """The same as an EndpointSlice."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }


def service_cidr(cidr: str) -> JsonObject:
    """The range of service addresses."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes", "finalizers": ["networking.k8s.io/service-cidr-finalizer"]},
        "spec": {"cidrs": [cidr]},
    }


def ip_address_object(address: str, namespace: str, service: str) -> JsonObject:
    """The object of a service's address."""
    family = "IPv6" if ":" in address else "IPv4"
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": address,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": service}},
    }


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
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": data,
    }


def _json_list(values: list[str]) -> str:
    return "[" + ",".join(f'"{value}"' for value in values) + "]"
