"""What worker pods share, and the scratch claim beside them."""

from __future__ import annotations

from virtplane.api.core_v1 import NodePlacement, PersistentVolumeClaimSpec, VolumeResourceRequirements
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller.pods.scratch import scratch_claim, scratch_size
from virtplane.storage.cdi.controller.pods.worker import Workers, container, data_access, pod, pod_annotations

GIB = 1 << 30
WORKERS = Workers(
    "importer:1", "cloner:1", "uploadserver:1", placement=NodePlacement(node_selector={"a": "b"})
)


def claim(size: str = "1138166334", mode: str = "Filesystem", **given: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name="prime-1", namespace="ns", uid="1", annotations=given),
        spec=PersistentVolumeClaimSpec(
            volume_mode=mode, resources=VolumeResourceRequirements(requests={"storage": size})
        ),
    )


def test_pod_runs_where_the_installation_and_its_source_want() -> None:
    made = pod(WORKERS, claim(), "importer", {}, {"nodeSelector": {"kubernetes.io/arch": "arm64"}})
    assert made["spec"]["nodeSelector"] == {"a": "b", "kubernetes.io/arch": "arm64"}
    assert made["metadata"]["namespace"] == "ns"


def test_pod_of_a_populator_is_pinned_to_the_selected_node() -> None:
    node = {"volume.kubernetes.io/selected-node": "n1"}
    kind = {"cdi.kubevirt.io/storage.populator.kind": "VolumeImportSource"}
    assert pod(WORKERS, claim(**node, **kind), "p", {}, {})["spec"]["nodeName"] == "n1"
    assert "nodeName" not in pod(WORKERS, claim(**node), "p", {}, {})["spec"]


def test_claim_says_priority_account_and_networks_of_its_pods_and_nothing_else() -> None:
    given = {
        "cdi.kubevirt.io/storage.pod.priorityclassname": "high",
        "cdi.kubevirt.io/storage.pod.serviceAccountName": "importer",
        "k8s.v1.cni.cncf.io/networks": "net",
        "sidecar.istio.io/inject": "true",
        "other.example/x": "y",
    }
    spec = pod(WORKERS, claim(**given), "p", {}, {})["spec"]
    assert (spec["priorityClassName"], spec["serviceAccountName"]) == ("high", "importer")
    assert pod_annotations(claim(**given), {}) == {
        "k8s.v1.cni.cncf.io/networks": "net",
        "sidecar.istio.io/inject": "true",
        "linkerd.io/inject": "disabled",
    }


def test_container_has_no_privilege() -> None:
    security = container(WORKERS, "importer", "importer:1")["securityContext"]
    assert security["runAsUser"] == 107
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_device_is_no_folder() -> None:
    assert data_access(claim(mode="Block"))["volumeDevices"][0]["devicePath"] == "/dev/cdi-block-volume"
    assert data_access(claim())["volumeMounts"][0]["mountPath"] == "/data"


def test_scratch_claim_holds_what_the_target_can_and_goes_with_the_pod() -> None:
    size = scratch_size(claim(), 0.06, 0.06)
    assert size == 1138753536
    assert scratch_size(claim(str(GIB), "Block"), 0.0, 0.06) == 1138753536
    owner = {"metadata": {"name": "importer-prime-1", "uid": "2"}}
    made = scratch_claim(claim(), owner, "fast", size, {})
    assert made["metadata"]["name"] == "prime-1-scratch"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "2"
    assert made["spec"]["resources"]["requests"]["storage"] == "1138753536"
