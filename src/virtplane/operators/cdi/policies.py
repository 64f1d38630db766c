"""Network policies for a namespace that lets nothing through by itself.

As upstream's, they are a manifest of their own that no operator installs: once a policy selects a component,
nothing but what policies name gets through, and nothing here names the API server or DNS.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject
from virtplane.api import cdi_labels, cdi_names, ports

_WORKERS = 8443
"""Where upload servers, and importers with their metrics, listen."""
_METRICS = {cdi_labels.PROMETHEUS: "true"}


def network_policies(namespace: str) -> list[JsonObject]:
    """All of them, for CDI's namespace where each component has pods of its own."""
    servers = {cdi_labels.COMPONENT: cdi_labels.UPLOAD_SERVER}
    metrics = [*_ports(_WORKERS), *_ports(ports.HEALTH)]
    found = [
        _policy("cdi-allow-ingress-to-metrics", _METRICS, ingress=[{"ports": metrics}]),
        _policy(
            "cdi-allow-uploadproxy-communications",
            _component(cdi_names.UPLOAD_PROXY),
            ingress=[{"ports": _ports(ports.CDI_UPLOAD_PROXY)}],
            egress=[_anywhere(servers)],
        ),
        _policy(
            "cdi-allow-cdi-api-webhook-server",
            _component(cdi_names.API_SERVER),
            ingress=[{"ports": _ports(ports.CDI_API)}],
        ),
        _policy(
            "cdi-allow-cdi-deployment-importer-metrics",
            _component(cdi_names.CONTROLLER),
            egress=[_anywhere(_METRICS)],
        ),
        _policy("cdi-allow-egress-from-poller", {cdi_labels.CRON_POLLER: ""}, egress=[{}]),
    ]
    for document in found:
        document["metadata"]["namespace"] = namespace
    return found


def _component(name: str) -> dict[str, str]:
    return {cdi_labels.COMPONENT: name}


def _ports(number: int) -> list[JsonObject]:
    return [{"port": number, "protocol": "TCP"}]


def _anywhere(pods: dict[str, str]) -> JsonObject:
    """Traffic to pods of all namespaces."""
    peer = {"podSelector": {"matchLabels": pods}, "namespaceSelector": {}}
    return {"to": [peer], "ports": _ports(_WORKERS)}


def _policy(
    name: str,
    pods: dict[str, str],
    *,
    ingress: Sequence[JsonObject] = (),
    egress: Sequence[JsonObject] = (),
) -> JsonObject:
    spec: JsonObject = {"podSelector": {"matchLabels": pods}, "policyTypes": []}
    for type_, rules in (("Ingress", ingress), ("Egress", egress)):
        if rules:
            spec["policyTypes"].append(type_)
            spec[type_.lower()] = list(rules)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": {cdi_labels.COMPONENT: ""}},
        "spec": spec,
    }
