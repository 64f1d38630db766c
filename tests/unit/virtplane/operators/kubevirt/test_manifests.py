"""What ``virtplane install`` and ``virtplane up`` apply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kindling.apiserver.admission.pod_security.levels import Policy, describe
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod
from virtplane.operators.kubevirt import manifests
from virtplane.operators.kubevirt.manifests import InstallOptions


def test_dense_installations_let_guests_request_little_of_a_processor() -> None:
    configuration = _configuration(InstallOptions("kubevirt", "image", use_emulation=True, dense=True))
    assert configuration["cpuRequest"] == "50m"
    assert configuration["developerConfiguration"] == {"useEmulation": True, "cpuAllocationRatio": 20}
    plain = _configuration(InstallOptions("kubevirt", "image"))
    assert not {"cpuRequest", "developerConfiguration"} & set(plain)


def _configuration(options: InstallOptions) -> JsonObject:
    found: JsonObject = manifests.kubevirt_object(options)["spec"]["configuration"]
    return found


def test_another_root_of_the_kubelets_reaches_the_operator() -> None:
    options = InstallOptions("kubevirt", "image", kubelet_root="/var/lib/k0s/kubelet")
    operator = manifests.install_objects(options)[-1]
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-2:] == ["--kubelet-root", "/var/lib/k0s/kubelet"]


@pytest.mark.feature("INS-46")
@pytest.mark.parametrize("is_configured", [True, False])
def test_launchers_are_admitted_where_the_restricted_standard_is_enforced(is_configured: bool) -> None:
    """With the object that an installation gets, and with an empty one."""
    document = manifests.kubevirt_object(InstallOptions("ns", "i")) if is_configured else {"spec": {}}
    settings = ClusterConfig({**document, "status": {"phase": "Deployed"}})
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    vmi: JsonObject = {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "spec": {
            "domain": {"devices": {}, "memory": {"guest": "128Mi"}},
            "volumes": [
                {"name": "root", "containerDisk": {"image": "i"}},
                {"name": "empty", "emptyDisk": {"capacity": "1Gi"}},
                {"name": "cloudinit", "cloudInitNoCloud": {"userData": "#cloud-config"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
    }
    inputs = RenderInputs(
        decode(VirtualMachineInstance, vmi), settings, Images("launcher:1", "sidecar:1"), namespace=enforced
    )
    pod = render_launcher_pod(inputs)
    assert describe(Policy("restricted").violations(pod, pod["spec"])) == ""
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    elsewhere = render_launcher_pod(replace(inputs, namespace={}))
    assert ("seccompProfile" in elsewhere["spec"]["securityContext"]) is is_configured
