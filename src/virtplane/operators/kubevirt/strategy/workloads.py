"""Deployments of the control plane and the DaemonSet of the node component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object
from virtplane.api.labels import ALLOW_CLUSTER_SERVICES, APP, PROMETHEUS
from virtplane.components import COMPACT_CONTROL_PLANE, COMPONENTS
from virtplane.operators.kubevirt import certificates
from virtplane.operators.kubevirt.strategy.parameters import KUBELET_ROOT, Parameters
from virtplane.operators.kubevirt.strategy.services import (
    API_PORT,
    HANDLER_HEALTH_PORT,
    HANDLER_PORT,
    HEALTH_PORT,
    OPERATOR_WEBHOOK_PORT,
    PRIORITY_CLASS,
    disruption_budget,
)

API_CERTIFICATES = "/etc/virt-api/certificates"
HANDLER_CERTIFICATES = "/etc/virt-handler"
OPERATOR_CERTIFICATES = "/etc/virt-operator/certificates"

MIRRORED_CERTIFICATES: Mapping[str, str] = {
    f"{API_CERTIFICATES}": certificates.API_SECRET,
    f"{HANDLER_CERTIFICATES}/clientcertificates": certificates.HANDLER_CLIENT_SECRET,
    "/etc/virt-controller/certificates": certificates.CONTROLLER_SECRET,
}
"""Directories in which components of a compact process find their certificates, and the secrets' names."""

_HANDLER_SECRETS: Mapping[str, str] = {
    "servercertificates": certificates.HANDLER_SERVER_SECRET,
    "clientcertificates": certificates.HANDLER_CLIENT_SECRET,
    "migrationservercertificates": certificates.HANDLER_MIGRATION_SECRET,
    "vsockclientcertificates": certificates.HANDLER_VSOCK_SECRET,
}
_REQUESTS: Mapping[str, Mapping[str, str]] = {
    "virt-api": {"cpu": "5m", "memory": "500Mi"},
    "virt-controller": {"cpu": "10m", "memory": "275Mi"},
    "virt-handler": {"cpu": "10m", "memory": "325Mi"},
    "virt-operator": {"cpu": "10m", "memory": "450Mi"},
}
_REQUIRE_CERTIFICATE = "--require-webhook-certificate"
_PLACEMENT_KEYS = ("nodeSelector", "affinity", "tolerations")


def workloads(parameters: Parameters) -> list[JsonObject]:
    """Everything that runs, apart from the operator itself."""
    objects: list[JsonObject] = []
    if parameters.layout == "distributed":
        for name in ("virt-api", "virt-controller"):
            replicas = replica_count(name, parameters)
            objects.append(_control_plane_deployment(name, replicas, parameters))
            if replicas > 1:
                objects.append(disruption_budget(name, parameters.namespace, replicas))
    objects.append(_handler(parameters))
    return objects


def replica_count(name: str, parameters: Parameters) -> int:
    """How many pods a Deployment has: what the user set, or by the number of nodes."""
    wanted = get_int(parameters.spec, "infra", "replicas")
    if wanted:
        return wanted
    if name == "virt-api":
        return 1 if parameters.nodes <= 1 else max(2, parameters.nodes // 10)
    return 2


def operator_deployment(
    namespace: str,
    image: str,
    layout: str,
    replicas: int = 1,
    *,
    kubelet_root: str = KUBELET_ROOT,
    require_webhook_certificate: bool = False,
) -> JsonObject:
    """The operator's own Deployment; in the compact layout its process is the whole control plane."""
    names = COMPACT_CONTROL_PLANE if layout == "compact" else ("virt-operator",)
    container = _container("virt-operator", image, names, layout)
    if kubelet_root != KUBELET_ROOT:
        container["args"] += ["--kubelet-root", kubelet_root]
    if require_webhook_certificate:
        container["args"].append(_REQUIRE_CERTIFICATE)
    container["ports"] = [
        {"name": "metrics", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        {"name": "webhooks", "containerPort": OPERATOR_WEBHOOK_PORT, "protocol": "TCP"},
    ]
    volumes: list[JsonObject] = []
    if layout == "compact":
        container["ports"].append({"name": "api", "containerPort": API_PORT, "protocol": "TCP"})
        for directory in ("virt-api", "virt-handler", "virt-controller"):
            volumes.append({"name": f"{directory}-certs", "emptyDir": {"medium": "Memory"}})
            container.setdefault("volumeMounts", []).append(
                {"name": f"{directory}-certs", "mountPath": f"/etc/{directory}"}
            )
    spec = _pod_spec("virt-operator", container, volumes)
    return _deployment("virt-operator", namespace, replicas, spec)


def _control_plane_deployment(name: str, replicas: int, parameters: Parameters) -> JsonObject:
    container = _container(name, parameters.image, (name,), parameters.layout, parameters.pull_policy)
    container["ports"] = [{"name": "metrics", "containerPort": HEALTH_PORT, "protocol": "TCP"}]
    volumes: list[JsonObject] = []
    if name == "virt-api":
        if parameters.require_webhook_certificate:
            container["args"].append(_REQUIRE_CERTIFICATE)
        container["ports"].append({"name": "virt-api", "containerPort": API_PORT, "protocol": "TCP"})
        _mount_secret(container, volumes, certificates.API_SECRET, API_CERTIFICATES)
        _mount_secret(
            container,
            volumes,
            certificates.HANDLER_CLIENT_SECRET,
            f"{HANDLER_CERTIFICATES}/clientcertificates",
        )
    else:
        _mount_secret(container, volumes, certificates.CONTROLLER_SECRET, "/etc/virt-controller/certificates")
    spec = _pod_spec(name, container, volumes)
    _place(spec, get_object(parameters.spec, "infra", "nodePlacement"))
    spec.setdefault("affinity", {}).setdefault("podAntiAffinity", _apart(name))
    _pull_secrets(spec, parameters)
    return _deployment(name, parameters.namespace, replicas, spec)


def _handler(parameters: Parameters) -> JsonObject:
    container = _container(
        "virt-handler", parameters.image, ("virt-handler",), parameters.layout, parameters.pull_policy
    )
    container["ports"] = [
        {"name": "metrics", "containerPort": HANDLER_HEALTH_PORT, "protocol": "TCP"},
        {"name": "console", "containerPort": HANDLER_PORT, "protocol": "TCP"},
    ]
    container["securityContext"] = {"privileged": True, "runAsUser": 0}
    container["env"].append({"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    container["env"].append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    container["env"].append({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    volumes: list[JsonObject] = []
    for directory, secret in _HANDLER_SECRETS.items():
        _mount_secret(container, volumes, secret, f"{HANDLER_CERTIFICATES}/{directory}")
    for name, path, propagation in (
        ("kubelet", parameters.kubelet_root, "Bidirectional"),
        ("virt-share-dir", "/var/run/kubevirt", "Bidirectional"),
        ("virt-private-dir", "/var/run/kubevirt-private", "Bidirectional"),
        ("node-labeller", "/var/lib/kubevirt-node-labeller", "None"),
        ("dev", "/dev", "HostToContainer"),
    ):
        kind = "Directory" if name == "dev" else "DirectoryOrCreate"
        volumes.append({"name": name, "hostPath": {"path": path, "type": kind}})
        mount = {"name": name, "mountPath": path, "mountPropagation": propagation}
        if name == "kubelet":
            mount["mountPath"] = KUBELET_ROOT  # virt-handler finds it there, wherever the node has it
        container["volumeMounts"].append(mount)
    spec = _pod_spec("virt-handler", container, volumes)
    spec["hostPID"] = True
    _place(spec, get_object(parameters.spec, "workloads", "nodePlacement"))
    _pull_secrets(spec, parameters)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "virt-handler",
            "namespace": parameters.namespace,
            "labels": {APP: "virt-handler"},
        },
        "spec": {
            "selector": {"matchLabels": {APP: "virt-handler"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {"metadata": {"labels": _pod_labels("virt-handler")}, "spec": spec},
        },
    }


def _container(
    name: str, image: str, components: Sequence[str], layout: str, pull_policy: str = "IfNotPresent"
) -> JsonObject:
    port = HANDLER_HEALTH_PORT if name == "virt-handler" else HEALTH_PORT

    def probe(path: str, **times: int) -> JsonObject:
        return {"httpGet": {"path": path, "port": port, "scheme": "HTTPS"}, **times}

    return {
        "name": name,
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["virtplane", "run", ",".join(components)],
        "args": ["--namespace", "$(POD_NAMESPACE)", "--layout", layout, "--image", image],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"requests": dict(_REQUESTS[name])},
        "livenessProbe": probe("/healthz", initialDelaySeconds=15, timeoutSeconds=10, periodSeconds=20),
        "readinessProbe": probe("/readyz", initialDelaySeconds=1, timeoutSeconds=10, periodSeconds=1),
        "volumeMounts": [],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _pod_spec(name: str, container: JsonObject, volumes: list[JsonObject]) -> JsonObject:
    return {
        "serviceAccountName": COMPONENTS[name].service_account,
        "priorityClassName": PRIORITY_CLASS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
        "volumes": volumes,
    }


def _deployment(name: str, namespace: str, replicas: int, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {APP: name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {APP: name}},
            "template": {"metadata": {"labels": _pod_labels(name)}, "spec": spec},
        },
    }


def _pod_labels(name: str) -> dict[str, str]:
    return {APP: name, PROMETHEUS: "true", ALLOW_CLUSTER_SERVICES: "true"}


def _mount_secret(container: JsonObject, volumes: list[JsonObject], secret: str, path: str) -> None:
    volumes.append({"name": secret, "secret": {"secretName": secret, "optional": True}})
    container["volumeMounts"].append({"name": secret, "mountPath": path, "readOnly": True})


def _place(spec: JsonObject, placement: JsonObject) -> None:
    """Apply what the user said about nodes; his node selector is added to ours."""
    for key in _PLACEMENT_KEYS:
        if key not in placement:
            continue
        if key == "nodeSelector":
            spec["nodeSelector"] = {**spec["nodeSelector"], **placement[key]}
        elif key == "tolerations":
            spec["tolerations"] = [*spec["tolerations"], *deep_copy({"v": placement[key]})["v"]]
        else:
            spec[key] = deep_copy(placement[key])


def _pull_secrets(spec: JsonObject, parameters: Parameters) -> None:
    secrets = get_list(parameters.spec, "imagePullSecrets")
    if secrets:
        spec["imagePullSecrets"] = [dict(secret) for secret in secrets]


def _apart(name: str) -> JsonObject:
    term = {
        "labelSelector": {"matchExpressions": [{"key": APP, "operator": "In", "values": [name]}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
