"""From a storage class to claims and pods: what users write and read, with CDI's webhooks and controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.cdi import CdiCluster, cdi_cluster
from tests.support.cdi_claims import ended, pod_status
from tests.support.cdi_controllers import cdi_controllers
from tests.support.managers import working
from tests.support.waiting import until

from kindling.scheduler.loop import Scheduler
from kubecore import resources as core
from kubecore.errors import is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder, Manager
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.api import volumesnapshot_crds
from virtplane.storage.cdi.controller.crons.reconciler import CronController

NAMESPACE = "default"
MIB = 1 << 20
SIZE = 100 * MIB
_VIRTUALIZATION = "ocs-storagecluster-ceph-rbd-virtualization"
_RBD: JsonObject = {
    "metadata": {
        "name": _VIRTUALIZATION,
        "annotations": {
            "description": "Volumes for disks of machines",
            "reclaimspace.csiaddons.openshift.io/schedule": "@weekly",
            "storageclass.kubevirt.io/is-default-virt-class": "true",
        },
    },
    "allowVolumeExpansion": True,
    "parameters": {
        "clusterID": "openshift-storage",
        "csi.storage.k8s.io/controller-expand-secret-name": "rook-csi-rbd-provisioner",
        "csi.storage.k8s.io/controller-expand-secret-namespace": "openshift-storage",
        "csi.storage.k8s.io/fstype": "ext4",
        "csi.storage.k8s.io/node-stage-secret-name": "rook-csi-rbd-node",
        "csi.storage.k8s.io/node-stage-secret-namespace": "openshift-storage",
        "csi.storage.k8s.io/provisioner-secret-name": "rook-csi-rbd-provisioner",
        "csi.storage.k8s.io/provisioner-secret-namespace": "openshift-storage",
        "imageFeatures": "layering,deep-flatten,exclusive-lock,object-map,fast-diff",
        "imageFormat": "2",
        "mapOptions": "krbd:rxbounce",
        "mounter": "rbd",
        "pool": "ocs-storagecluster-cephblockpool",
    },
    "provisioner": "openshift-storage.rbd.csi.ceph.com",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}
_DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
_CEPHFS: JsonObject = {
    "metadata": {
        "name": "ocs-storagecluster-cephfs",
        "annotations": _DEFAULT,
    },
    "provisioner": "openshift-storage.cephfs.csi.ceph.com",
}
_UNKNOWN: JsonObject = {"metadata": {"name": "unknown"}, "provisioner": "unknown.example.com"}


class Storage:
    """What administrators and users do."""

    def __init__(self, cluster: CdiCluster) -> None:
        self.client = cluster.client

    async def storage_class(self, document: JsonObject, *, driver: bool = True) -> JsonObject:
        """Create a class, and its driver."""
        if driver:
            found = {"metadata": {"name": document["provisioner"]}, "spec": {}}
            await self.client.create(core.CSI_DRIVERS, found)
        return await self.client.create(core.STORAGE_CLASSES, document)

    async def configure(self, **config: object) -> None:
        """Change the config of the CDI object."""
        await self.client.patch(kinds.CDIS, "cdi", {"spec": {"config": config}}, type="merge")

    async def data_volume(self, name: str, **storage: object) -> JsonObject:
        """Create one; `storage` are more members of its ``spec.storage``, but for its source."""
        source = storage.pop("source", {"http": {"url": "http://files.example/x"}})
        wanted = {"resources": {"requests": {"storage": str(SIZE)}}, **storage}
        spec = {"source": source, "storage": wanted}
        document: JsonObject = {"apiVersion": kinds.DATA_VOLUMES.api_version, "kind": "DataVolume"}
        document |= {"metadata": {"name": name}, "spec": spec}
        return await self.client.create(kinds.DATA_VOLUMES, document, NAMESPACE)

    async def until(
        self,
        kind: ResourceType,
        name: str,
        holds: Callable[[JsonObject], bool] = lambda _: True,
        namespace: str = NAMESPACE,
    ) -> JsonObject:
        """The object once it is there and `holds`."""

        async def look() -> JsonObject | None:
            found = await self.client.get(kind, name, namespace)
            return found if holds(found) else None

        found: JsonObject = await until(look, not_yet=is_not_found)
        return found

    async def gone(self, kind: ResourceType, name: str) -> None:
        """Return once there is no such object."""

        async def is_gone() -> bool:
            found = await self.client.list(kind, NAMESPACE)
            return name not in {meta.name(each) for each in found["items"]}

        await until(is_gone)

    async def claim(self, name: str) -> JsonObject:
        """The spec of a claim once it is there."""
        found = await self.until(core.PERSISTENT_VOLUME_CLAIMS, name)
        spec: JsonObject = found["spec"]
        return spec

    async def config(self, holds: Callable[[JsonObject], bool]) -> JsonObject:
        """The status of CDIConfig once it `holds`."""
        found = await self.until(kinds.CDI_CONFIGS, "config", lambda each: holds(each["status"]), "")
        status: JsonObject = found["status"]
        return status


@asynccontextmanager
async def storage(directory: Path, *, kubernetes: bool = False) -> AsyncIterator[Storage]:
    """A cluster whose CDI object has the say; with `kubernetes`, volumes are bound."""
    async with cdi_cluster(directory, controllers=kubernetes) as cluster:
        for definition in volumesnapshot_crds.custom_resource_definitions():
            await cluster.client.create(core.CUSTOM_RESOURCE_DEFINITIONS, definition)
        authority = {"metadata": {"annotations": {"cdi.kubevirt.io/configAuthority": ""}}}
        await cluster.client.patch(kinds.CDIS, "cdi", authority, type="merge")
        async with cluster.server.client() as client, cdi_controllers(client):
            yield Storage(cluster)


def bytes_of(claim: JsonObject) -> int:
    """What a claim asks for."""
    return int(claim["resources"]["requests"]["storage"])


@pytest.mark.feature("STO-01", "STO-03", "STO-06", "STO-19")
async def test_modes_are_those_that_the_provisioner_of_the_class_has(tmp_path: Path) -> None:
    async with storage(tmp_path) as here:
        made = await here.storage_class(_RBD)
        assert {key: value for key, value in made.items() if key in _RBD and key != "metadata"} == {
            key: value for key, value in _RBD.items() if key != "metadata"
        }
        assert meta.annotations(made) == _RBD["metadata"]["annotations"]
        for other in (_CEPHFS, _UNKNOWN):
            await here.storage_class(other)
        await here.until(
            kinds.STORAGE_PROFILES, "unknown", lambda found: "provisioner" in found.get("status", {}), ""
        )
        # Machines get shared devices, although the class for everything else has file systems.
        await here.data_volume("disk")
        disk = await here.claim("disk")
        assert (disk["storageClassName"], disk["accessModes"], disk["volumeMode"]) == (
            _VIRTUALIZATION,
            ["ReadWriteMany"],
            "Block",
        )
        await here.data_volume("files", storageClassName="ocs-storagecluster-cephfs")
        files = await here.claim("files")
        assert (files["accessModes"], files["volumeMode"]) == (["ReadWriteMany"], "Filesystem")
        # Of what nobody knows, users must say the modes.
        await here.data_volume("guessed", storageClassName="unknown")
        await here.data_volume("said", storageClassName="unknown", accessModes=["ReadWriteOnce"])
        assert (await here.claim("said"))["accessModes"] == ["ReadWriteOnce"]
        waiting = await here.until(kinds.DATA_VOLUMES, "guessed", lambda found: "status" in found)
        [bound] = [each for each in waiting["status"]["conditions"] if each["type"] == "Bound"]
        assert (bound["status"], bound["reason"]) == ("False", "ErrClaimNotValid")
        assert "no accessMode specified in StorageProfile unknown" in bound["message"]
        claims = await here.client.list(core.PERSISTENT_VOLUME_CLAIMS, NAMESPACE)
        assert "guessed" not in {meta.name(each) for each in claims["items"]}


@pytest.mark.feature("STO-59", "STO-60")
async def test_overhead_of_file_systems_is_set_by_class_shown_and_added_to_claims(tmp_path: Path) -> None:
    async with storage(tmp_path) as here:
        for name in ("small", "usual"):
            document: JsonObject = {"metadata": {"name": name}, "provisioner": f"{name}.example.com"}
            await here.storage_class(document)
        default = await here.config(lambda status: "usual" in _overhead(status).get("storageClass", {}))
        assert _overhead(default) == {"global": "0.06", "storageClass": {"small": "0.06", "usual": "0.06"}}
        await here.configure(filesystemOverhead={"global": "0.07", "storageClass": {"small": "0.04"}})
        changed = await here.config(lambda status: _overhead(status).get("global") == "0.07")
        assert _overhead(changed) == {"global": "0.07", "storageClass": {"small": "0.04", "usual": "0.07"}}
        for name, share in (("small", 0.04), ("usual", 0.07)):
            files = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
            await here.data_volume(name, storageClassName=name, **files)
            # The disk is whole after the file system has taken its share.
            assert bytes_of(await here.claim(name)) * (1 - share) == pytest.approx(SIZE, abs=MIB)
        blocks = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}
        await here.data_volume("device", storageClassName="usual", **blocks)
        assert bytes_of(await here.claim("device")) == SIZE


def _overhead(status: JsonObject) -> JsonObject:
    found: JsonObject = status.get("filesystemOverhead", {})
    return found


@pytest.mark.feature("STO-61")
async def test_resources_of_the_installation_are_those_of_importer_pods(tmp_path: Path) -> None:
    async with storage(tmp_path, kubernetes=True) as here:
        await here.configure(featureGates=[])  # nobody needs to consume the claim first
        await here.storage_class({"metadata": {"name": "csi"}, "provisioner": "csi.example.com"})
        default = {
            "limits": {"cpu": "750m", "memory": "600M"},
            "requests": {"cpu": "100m", "memory": "60M"},
        }
        assert await _resources_of_importer(here, "before") == default
        wanted = {"limits": {"cpu": "500m", "memory": "2Gi"}, "requests": {"cpu": "250m", "memory": "1Gi"}}
        await here.configure(podResourceRequirements=wanted)
        await here.config(lambda status: status["defaultPodResourceRequirements"] == wanted)
        assert await _resources_of_importer(here, "after") == wanted


async def _resources_of_importer(here: Storage, name: str) -> JsonObject:
    modes = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}
    volume = await here.data_volume(name, storageClassName="csi", **modes)
    claim = await here.until(core.PERSISTENT_VOLUME_CLAIMS, name)
    assert meta.is_controlled_by(claim, volume)
    pod = await here.until(core.PODS, f"importer-prime-{meta.uid(claim)}")
    [container] = pod["spec"]["containers"]
    found: JsonObject = container["resources"]
    return found


@asynccontextmanager
async def scheduler(here: Storage) -> AsyncIterator[None]:
    """Pods are placed on a node, while the context lasts."""
    capacity = {"cpu": "4", "memory": "4Gi", "pods": "10", "ephemeral-storage": "10Gi"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": capacity, "allocatable": capacity, "conditions": ready}
    await here.client.create(core.NODES, {"metadata": {"name": "node"}, "status": status})
    manager = Manager(here.client)
    Scheduler(manager)
    async with working(manager):
        yield


def _volume(name: str, **spec: object) -> JsonObject:
    """A volume without class."""
    made = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "200Mi"}, "hostPath": {"path": "/x"}}
    return {"metadata": {"name": name}, "spec": {**made, **spec}}


@pytest.mark.feature("STO-57")
async def test_without_classes_scratch_space_is_any_volume_that_fits(tmp_path: Path) -> None:
    async with storage(tmp_path, kubernetes=True) as here, scheduler(here):
        claimed = {"claimRef": {"namespace": NAMESPACE, "name": "disk"}}
        await here.client.create(core.PERSISTENT_VOLUMES, _volume("for-the-disk", **claimed))
        source = {"registry": {"url": "docker://registry.example/disk"}}
        modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        await here.data_volume("disk", source=source, **modes)
        await here.until(
            core.PODS,
            "importer-disk",
            lambda found: "unbound immediate PersistentVolumeClaims" in _why_unscheduled(found),
        )
        scratch = await here.until(core.PERSISTENT_VOLUME_CLAIMS, "disk-scratch")
        assert scratch["status"]["phase"] == "Pending"
        told = await here.until(
            kinds.DATA_VOLUMES, "disk", lambda found: _reason(found, "Bound") != "Pending"
        )
        assert _reason(told, "Bound") == "CreatingScratchSpace"
        for name, size in (("small", "50Mi"), ("any", "200Mi")):
            await here.client.create(core.PERSISTENT_VOLUMES, _volume(name, capacity={"storage": size}))
        await here.until(
            core.PERSISTENT_VOLUME_CLAIMS,
            "disk-scratch",
            lambda found: found["spec"].get("volumeName") == "any" and found["status"]["phase"] == "Bound",
        )
        await here.until(core.PODS, "importer-disk", lambda found: found["spec"].get("nodeName") == "node")


def _reason(volume: JsonObject, kind: str) -> str:
    found = meta.get_condition(volume, kind) or {}
    return str(found.get("reason", ""))


def _why_unscheduled(pod: JsonObject) -> str:
    found = meta.get_condition(pod, "PodScheduled") or {}
    return str(found.get("message", ""))


@pytest.mark.feature("STO-54", "STO-56")
@pytest.mark.parametrize("is_aborted", [False, True])
async def test_scratch_space_of_a_device_is_files_until_the_import_ends(
    tmp_path: Path, is_aborted: bool
) -> None:
    async with storage(tmp_path, kubernetes=True) as here:
        for name in ("blocks", "files"):
            await here.storage_class({"metadata": {"name": name}, "provisioner": f"{name}.io"}, driver=False)
        await here.configure(
            featureGates=[], filesystemOverhead={"global": "0"}, scratchSpaceStorageClass="files"
        )
        await here.config(lambda status: status.get("scratchSpaceStorageClass") == "files")
        await here.data_volume(
            "disk",
            source={"registry": {"url": "docker://registry.example/disk"}},
            storageClassName="blocks",
            accessModes=["ReadWriteOnce"],
            volumeMode="Block",
        )
        assert (await here.claim("disk"))["volumeMode"] == "Block"
        scratch = await here.claim("disk-scratch")
        assert (scratch["storageClassName"], scratch["volumeMode"]) == ("files", "Filesystem")
        assert bytes_of(scratch) == bytes_of(await here.claim("disk")) == SIZE
        if is_aborted:
            await here.client.delete(kinds.DATA_VOLUMES, "disk", NAMESPACE)
        else:
            done = pod_status("Succeeded", ended())
            await here.client.patch(
                core.PODS, "importer-disk", done, NAMESPACE, type="merge", subresource="status"
            )
        await here.gone(core.PERSISTENT_VOLUME_CLAIMS, "disk-scratch")
        await here.gone(core.PODS, "importer-disk")


@asynccontextmanager
async def crons(here: Storage) -> AsyncIterator[None]:
    """DataImportCrons are followed, while the context lasts."""
    async with EventRecorder(here.client, "cdi-deployment") as recorder:
        manager = Manager(here.client)
        CronController(
            here.client, manager, recorder, namespace="cdi", image="importer:1", has_image_streams=False
        )
        async with working(manager):
            yield


@pytest.mark.feature("STO-43")
async def test_imports_of_a_cron_wait_for_a_default_class_with_a_profile(tmp_path: Path) -> None:
    async with storage(tmp_path) as here, crons(here):
        wanted = {"resources": {"requests": {"storage": str(SIZE)}}}
        source = {"registry": {"url": "docker://registry.example/disk"}}
        cron: JsonObject = {"apiVersion": kinds.DATA_IMPORT_CRONS.api_version, "kind": "DataImportCron"}
        cron["metadata"] = {
            "name": "cron",
            "annotations": {names.SOURCE_DESIRED_DIGEST: "sha256:" + "a" * 64},
        }
        template = {"spec": {"source": source, "storage": wanted}}
        cron["spec"] = {"schedule": "0 */12 * * *", "managedDataSource": "ds", "template": template}
        await here.client.create(kinds.DATA_IMPORT_CRONS, cron, NAMESPACE)
        name = "ds-" + "a" * 12
        await here.until(
            kinds.DATA_VOLUMES, name, lambda found: _reason(found, "Bound") == "ErrClaimNotValid"
        )
        await here.storage_class({**_UNKNOWN, "metadata": {"name": "unknown", "annotations": _DEFAULT}})
        await here.until(
            kinds.STORAGE_PROFILES, "unknown", lambda found: "provisioner" in found.get("status", {}), ""
        )
        await here.until(
            kinds.DATA_VOLUMES,
            name,
            lambda found: "no accessMode specified in StorageProfile" in str(found.get("status")),
        )
        assert not (await here.client.list(core.PERSISTENT_VOLUME_CLAIMS, NAMESPACE))["items"]
        found = await here.client.get(kinds.DATA_IMPORT_CRONS, "cron", NAMESPACE)
        assert (meta.get_condition(found, "UpToDate") or {})["status"] == "False"
        profile = {"claimPropertySets": [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}]}
        await here.client.patch(kinds.STORAGE_PROFILES, "unknown", {"spec": profile}, type="merge")
        assert (await here.claim(name))["volumeMode"] == "Block"
