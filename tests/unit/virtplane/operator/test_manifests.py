"""What ``virtplane install`` and ``virtplane up`` apply."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.operator import manifests
from virtplane.operator.manifests import InstallOptions


def test_dense_installations_let_guests_request_little_of_a_processor() -> None:
    configuration = _configuration(InstallOptions("kubevirt", "image", use_emulation=True, dense=True))
    assert configuration == {
        "cpuRequest": "50m",
        "developerConfiguration": {"useEmulation": True, "cpuAllocationRatio": 20},
    }
    assert _configuration(InstallOptions("kubevirt", "image")) == {}


def _configuration(options: InstallOptions) -> JsonObject:
    found: JsonObject = manifests.kubevirt_object(options)["spec"]["configuration"]
    return found


def test_another_root_of_the_kubelets_reaches_the_operator() -> None:
    options = InstallOptions("kubevirt", "image", kubelet_root="/var/lib/k0s/kubelet")
    operator = manifests.install_objects(options)[-1]
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-2:] == ["--kubelet-root", "/var/lib/k0s/kubelet"]
