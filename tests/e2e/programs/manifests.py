"""Programs as users run them: configuration, claims, workloads and services."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.e2e.clusters import CORE, NAMESPACE, Cluster
from tests.e2e.failures import Document
from tests.e2e.programs.image import REFERENCE, USER
from tests.e2e.support import wait_for

BOTH_FAMILIES = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
_LEAVES_LOST_NODES = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 1,
    }
    for state in ("not-ready", "unreachable")
]
"""Pods are evicted a second after their node was found lost, instead of five minutes."""


def document(kind: str, name: str, version: str = "v1", *, namespace: str = "", **content: Any) -> Document:
    """An object; `content` is all but its metadata."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def container(name: str, script: str, *, ready: Document, mounts: dict[str, str], **more: Any) -> Document:
    """A container that runs a shell script; `mounts` are paths by volume."""
    return {
        "name": name,
        "image": REFERENCE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "readinessProbe": {**ready, "periodSeconds": 1, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
        **more,
    }


def pod_spec(only: Document, *, group: str, **more: Any) -> Document:
    """The spec of a pod with one container that needs no rights.

    It prefers a node without another pod that has the label `group`.
    """
    apart: Document = {"labelSelector": {"matchExpressions": [{"key": group, "operator": "Exists"}]}}
    apart |= {"topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": apart}]
    security: Document = {"runAsUser": USER, "runAsGroup": USER, "runAsNonRoot": True, "fsGroup": USER}
    # The default policy lets the group write to every file again, which PostgreSQL refuses.
    security["fsGroupChangePolicy"] = "OnRootMismatch"
    return {
        "containers": [only],
        "securityContext": security,
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "tolerations": _LEAVES_LOST_NODES,
        "terminationGracePeriodSeconds": 20,
        **more,
    }


def template(name: str, spec: Document, **labels: str) -> Document:
    """A workload's selector and template, with the label ``app`` and others."""
    return {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name, **labels}}, "spec": spec},
    }


def claim(name: str, mode: str = "ReadWriteOnce") -> Document:
    """A claim of the default class."""
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "256Mi"}}}
    return document("PersistentVolumeClaim", name, spec=spec)


def claimed(name: str) -> Document:
    """The volume of a claim, called data."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def configured(name: str) -> Document:
    """The volume of a ConfigMap, called configuration."""
    return {"name": "configuration", "configMap": {"name": name}}


def service(name: str, port: int, **more: Any) -> Document:
    """A service of both families for the pods with the label ``app``."""
    spec = {"selector": {"app": name}, "ports": [{"name": name, "port": port}], **BOTH_FAMILIES, **more}
    return document("Service", name, spec=spec)


def stateful_set(name: str, port: int, only: Document) -> list[Document]:
    """A StatefulSet of one pod with a claim, and its headless service."""
    spec = {"serviceName": name, "replicas": 1, "volumeClaimTemplates": [claim("data")]}
    spec |= template(name, pod_spec(only, group="database"), database=name)
    return [service(name, port, clusterIP="None"), document("StatefulSet", name, "apps/v1", spec=spec)]


def deployment(name: str, replicas: int, spec: Document, **more: Any) -> Document:
    """A Deployment."""
    return document(
        "Deployment", name, "apps/v1", spec={"replicas": replicas, **more, **template(name, spec)}
    )


def apply(cluster: Cluster, folder: Any, *documents: Document) -> None:
    """``kubectl apply`` them, as one file in `folder`."""
    file = folder / "manifest.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    cluster.kubectl("apply", "-f", str(file), seconds=60)


def wait_rolled_out(cluster: Cluster, *workloads: str) -> None:
    """Wait until workloads (``deployment/web``) are ready."""
    for workload in workloads:
        wait_for(f"{workload} is ready", partial(_is_ready, cluster, workload), 60)


def _is_ready(cluster: Cluster, workload: str) -> bool:
    kind, name = workload.split("/")
    found = cluster.request("GET", f"/apis/apps/v1/namespaces/default/{kind}s/{name}")
    wanted: int = found["spec"]["replicas"]
    status: Document = found.get("status", {})
    is_observed: bool = status.get("observedGeneration") == found["metadata"]["generation"]
    return is_observed and [status.get(each) for each in ("replicas", "readyReplicas")] == [wanted] * 2


def load_balancer_addresses(cluster: Cluster, name: str) -> list[str]:
    """The addresses of a service outside of the cluster, IPv4 first."""

    def given() -> list[str]:
        found = cluster.request("GET", f"{CORE}/namespaces/{NAMESPACE}/services/{name}")
        entries = found["status"].get("loadBalancer", {}).get("ingress", [])
        return [entry["ip"] for entry in entries] if len(entries) == 2 else []

    return wait_for(f"{name} has addresses of both families", given, 10)
