"""Launcher pods rendered from short instances, and their parts."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod

IMAGES = Images(launcher="launcher:1", sidecar="sidecar:1")


def settings(**configuration: Any) -> ClusterConfig:
    return ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": configuration}})


def instance(*, metadata: JsonObject | None = None, **spec: Any) -> JsonObject:
    domain = {"devices": {}, "memory": {"guest": "128Mi"}, **spec.pop("domain", {})}
    named = {"name": "vm", "namespace": "ns", "uid": "u1", **(metadata or {})}
    return {"metadata": named, "spec": {"architecture": "amd64", "domain": domain, **spec}}


def rendered(vmi: JsonObject, config: ClusterConfig | None = None, **inputs: Any) -> JsonObject:
    return render_launcher_pod(
        RenderInputs(decode(VirtualMachineInstance, vmi), config or settings(), IMAGES, **inputs)
    )


def compute(pod: JsonObject) -> JsonObject:
    return next(item for item in pod["spec"]["containers"] if item["name"] == "compute")


def mounts(pod: JsonObject) -> dict[str, str]:
    return {item["name"]: item["mountPath"] for item in compute(pod)["volumeMounts"]}


def volume(pod: JsonObject, name: str) -> JsonObject:
    return next(item for item in pod["spec"]["volumes"] if item["name"] == name)
