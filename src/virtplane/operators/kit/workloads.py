"""Workloads: Deployments and DaemonSets, their services, and their placement on nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubecore.json import JsonObject, deep_copy
from virtplane.operators.kit.product import Product

_PLACEMENT_KEYS = ("nodeSelector", "affinity", "tolerations")


@dataclass(frozen=True, slots=True)
class Workloads:
    """Creates the workloads of one product in one namespace."""

    product: Product
    namespace: str
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of all pods beside the name of their component."""

    def deployment(self, name: str, replicas: int, pod: JsonObject) -> JsonObject:
        """The Deployment of a component; `pod` is the spec of its pods."""
        return self._workload("Deployment", name, {"replicas": replicas}, pod)

    def daemon_set(self, name: str, pod: JsonObject) -> JsonObject:
        """The DaemonSet of a component, updated one node at a time."""
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
        return self._workload("DaemonSet", name, {"updateStrategy": strategy}, pod)

    def service(
        self, name: str, selector: Mapping[str, str], target: int | str, port_name: str = ""
    ) -> JsonObject:
        """A service on port 443 for the port `target` of the selected pods."""
        port: JsonObject = {"port": 443, "targetPort": target, "protocol": "TCP"}
        if port_name:
            port["name"] = port_name
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(name),
            "spec": {"selector": dict(selector), "ports": [port], "type": "ClusterIP"},
        }

    def disruption_budget(self, name: str, replicas: int) -> JsonObject:
        """A PodDisruptionBudget that allows one replica of a component to be evicted at a time."""
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {**self._metadata(name), "name": f"{name}-pdb"},
            "spec": {
                "minAvailable": replicas - 1,
                "selector": {"matchLabels": self.product.labels(name)},
            },
        }

    def apart(self, name: str) -> JsonObject:
        """The anti-affinity by which the replicas of a component prefer different nodes."""
        expression = {"key": self.product.label, "operator": "In", "values": [name]}
        term = {
            "labelSelector": {"matchExpressions": [expression]},
            "topologyKey": "kubernetes.io/hostname",
        }
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}

    def _workload(self, kind: str, name: str, spec: JsonObject, pod: JsonObject) -> JsonObject:
        own = self.product.labels(name)
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": self._metadata(name),
            "spec": {
                **spec,
                "selector": {"matchLabels": own},
                "template": {"metadata": {"labels": {**own, **self.pod_labels}}, "spec": pod},
            },
        }

    def _metadata(self, name: str) -> JsonObject:
        return {"name": name, "namespace": self.namespace, "labels": self.product.labels(name)}


def priority_class(product: Product, name: str, description: str) -> JsonObject:
    """The PriorityClass of the components."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": product.labels()},
        "value": 1000000000,
        "globalDefault": False,
        "description": description,
    }


def probed(container: JsonObject, port: int) -> None:
    """Add the probes of a process with health endpoints on `port` to a container."""

    def probe(path: str, **times: int) -> JsonObject:
        return {"httpGet": {"path": path, "port": port, "scheme": "HTTPS"}, **times}

    container["livenessProbe"] = probe(
        "/healthz", initialDelaySeconds=15, timeoutSeconds=10, periodSeconds=20
    )
    container["readinessProbe"] = probe("/readyz", initialDelaySeconds=1, timeoutSeconds=10, periodSeconds=1)


def mount_secret(container: JsonObject, volumes: list[JsonObject], secret: str, path: str) -> None:
    """Mount a secret that may not exist yet when the pod starts."""
    volumes.append({"name": secret, "secret": {"secretName": secret, "optional": True}})
    container["volumeMounts"].append({"name": secret, "mountPath": path, "readOnly": True})


def place(pod: JsonObject, placement: JsonObject) -> None:
    """Apply the user's placement; its node selector and tolerations are added to ours."""
    for key in _PLACEMENT_KEYS:
        if key not in placement:
            continue
        wanted = deep_copy(placement)[key]
        if key == "nodeSelector":
            pod["nodeSelector"] = {**pod["nodeSelector"], **wanted}
        elif key == "tolerations":
            pod["tolerations"] = [*pod["tolerations"], *wanted]
        else:
            pod[key] = wanted


def add_pull_secrets(pod: JsonObject, secrets: Sequence[JsonObject]) -> None:
    """Add the pull secrets to a pod."""
    if secrets:
        pod["imagePullSecrets"] = [dict(secret) for secret in secrets]
