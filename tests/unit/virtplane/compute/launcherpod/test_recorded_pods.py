"""The pods recorded from a real control plane, compared with what is rendered from the same instances.

Set ``VIRTPLANE_REFERENCE`` to the folder that holds ``conformance/cases-kubevirt``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod

_FOLDER = os.environ.get("VIRTPLANE_REFERENCE", "")
_CASES = sorted(Path(_FOLDER, "conformance/cases-kubevirt/launcher-pod").glob("*.json")) if _FOLDER else []
_IMAGES = Images(launcher="${launcher_image}", sidecar="${sidecar_image}")
_MATCH_ANYTHING = {"{{any}}", "{{list}}", "{{managedFields}}", "{{time}}", "{{rv}}"}
_SERVER_META = {"name", "uid", "resourceVersion", "creationTimestamp", "managedFields"}
_SERVER_SPEC = {"preemptionPolicy", "priority", "serviceAccount", "serviceAccountName", "schedulerName"}
_DEFAULT_TOLERATIONS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def _merge(base: Any, patch: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    return {
        key: _merge(base.get(key), patch[key]) if key in patch else base[key] for key in {**base, **patch}
    }


def _admitted(vmi: JsonObject, settings: ClusterConfig) -> JsonObject:
    """The few defaults of admission that show in the pod."""
    spec = vmi["spec"]
    vmi["metadata"]["uid"] = "${vmi_uid}"
    architecture = spec.setdefault("architecture", "amd64")
    if architecture != "s390x":
        vmi["metadata"].setdefault("annotations", {})["kubevirt.io/pci-topology-version"] = "v3"
    domain = spec["domain"]
    sockets = int(domain.get("resources", {}).get("limits", {}).get("cpu", 1))
    cpu = {"cores": 1, "sockets": sockets, "threads": 1, **domain.get("cpu", {})}
    cpu.setdefault("model", "host-passthrough" if architecture == "arm64" else "host-model")
    domain["cpu"] = cpu
    domain["machine"] = {"type": settings.machine_type(architecture)}
    if "evmcs" in domain.get("features", {}).get("hyperv", {}):
        cpu["features"] = [{"name": "vmx", "policy": "require"}]
    if domain["devices"].get("autoattachPodInterface") is not False:
        domain["devices"].setdefault("interfaces", [{"name": "default", "bridge": {}}])
        spec.setdefault("networks", [{"name": "default", "pod": {}}])
    return vmi


def _load(path: Path) -> tuple[RenderInputs, JsonObject]:
    case = json.loads(path.read_text())
    kubevirt: JsonObject = {"metadata": {"namespace": "kubevirt"}, "status": {"phase": "Deployed"}}
    claims: dict[str, JsonObject] = {}
    quotas: list[JsonObject] = []
    vmi: JsonObject = {}
    pod: JsonObject = {}
    state_claim = ""
    bodies = [step["body"] for step in case["steps"] if isinstance(step.get("body"), dict)]
    for step in case["steps"]:
        body, answer = step.get("body"), step.get("expect", {}).get("body")
        if step.get("method") == "PATCH" and "kubevirts" in step["path"]:
            kubevirt = _merge(kubevirt, body)
        if isinstance(body, dict) and body.get("kind") == "PersistentVolumeClaim":
            claims[body["metadata"]["name"]] = body
        if isinstance(body, dict) and body.get("kind") == "ResourceQuota":
            quotas.append(body)
        if isinstance(answer, dict) and answer.get("kind") == "VirtualMachineInstance":
            vmi = answer
        if isinstance(answer, dict) and answer.get("kind") == "Pod":
            pod = answer
        if isinstance(answer, dict) and answer.get("kind") == "PersistentVolumeClaim":
            state_claim = "${claim}"
    if not vmi:
        vmi = _admitted(
            next(b for b in bodies if b.get("kind") == "VirtualMachineInstance"), ClusterConfig(kubevirt)
        )
    vmi["metadata"]["namespace"] = "${ns}"
    inputs = RenderInputs(
        vmi=decode(VirtualMachineInstance, vmi),
        settings=ClusterConfig(kubevirt),
        images=_IMAGES,
        claims=claims,
        quotas=quotas,
        state_claim=state_claim,
    )
    return inputs, pod


def _without_server_defaults(pod: JsonObject) -> JsonObject:
    pod = {"metadata": dict(pod["metadata"]), "spec": dict(pod["spec"])}
    for key in _SERVER_META:
        pod["metadata"].pop(key, None)
    for key in _SERVER_SPEC:
        pod["spec"].pop(key, None)
    tolerations = [t for t in pod["spec"].get("tolerations", []) if t.get("key") not in _DEFAULT_TOLERATIONS]
    pod["spec"]["tolerations"] = tolerations
    for container in [*pod["spec"].get("containers", []), *pod["spec"].get("initContainers", [])]:
        container.pop("terminationMessagePath", None)
        if container.get("terminationMessagePolicy") == "File":
            container.pop("terminationMessagePolicy")
        container.pop("imagePullPolicy", None)
        if container["name"].startswith("virtiofs-"):
            container["securityContext"].pop("seccompProfile", None)  # Ours needs its own: decision 041.
        for key in ("command", "args", "env", "volumeMounts"):
            if not container["name"].startswith("hook-sidecar") or key in ("volumeMounts", "env"):
                container.pop(key, None)
        for probe in (container.get("livenessProbe"), container.get("readinessProbe")):
            for key in ("periodSeconds", "failureThreshold", "successThreshold", "timeoutSeconds"):
                if probe:
                    probe.pop(key, None)
    volumes = pod["spec"].pop("volumes", [])
    pod["volumes"] = (
        [] if volumes == "{{list}}" else [v for v in volumes if "kube-api-access" not in v["name"]]
    )
    return pod


def _differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    if isinstance(expected, str) and expected in _MATCH_ANYTHING:
        return []
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            difference
            for key in sorted({*expected, *actual})
            for difference in _differences(expected.get(key), actual.get(key), f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        if all(isinstance(item, dict) and "name" in item for item in [*expected, *actual]):
            expected, actual = (sorted(items, key=lambda item: item["name"]) for items in (expected, actual))
        if all(isinstance(item, dict) and "key" in item for item in [*expected, *actual]):
            expected, actual = (sorted(items, key=lambda item: item["key"]) for items in (expected, actual))
        pairs = zip(expected, actual, strict=True)
        return [d for index, (a, b) in enumerate(pairs) for d in _differences(a, b, f"{path}[{index}]")]
    return [] if expected == actual else [f"{path}: expected {expected!r}, rendered {actual!r}"]


def _volume_differences(expected: list[JsonObject], actual: list[JsonObject]) -> list[str]:
    by_name = {volume["name"]: volume for volume in actual}
    found = []
    for volume in expected:
        rendered = json.loads(json.dumps(by_name.get(volume["name"], {})))
        for source in rendered.values():
            if (
                isinstance(source, dict)
                and "image" not in rendered
                and "persistentVolumeClaim" not in rendered
            ):
                for item in source.get("items", []):
                    item.get("fieldRef", {}).setdefault("apiVersion", "v1")
        for key in ("configMap", "secret", "downwardAPI"):
            if key in rendered:
                rendered[key].setdefault("defaultMode", 420)
        if "image" in rendered:
            rendered["image"].setdefault("pullPolicy", "IfNotPresent")
        found += _differences(volume, rendered, f"volumes[{volume['name']}]")
    return found


@pytest.mark.skipif(not _CASES, reason="VIRTPLANE_REFERENCE names no folder with recorded cases")
@pytest.mark.parametrize("path", _CASES, ids=lambda path: path.stem)
def test_the_rendered_pod_is_the_recorded_one(path: Path) -> None:
    inputs, recorded = _load(path)
    priority_class = inputs.spec.priority_class_name
    rendered = _without_server_defaults(json.loads(json.dumps(render_launcher_pod(inputs))))
    expected = _without_server_defaults(recorded)
    if priority_class:
        expected["spec"]["priorityClassName"] = priority_class
    found = _volume_differences(expected.pop("volumes"), rendered.pop("volumes"))
    found += _differences(expected, rendered)
    assert not found, "\n".join(found)
