"""Storage profiles: the table of provisioners, and profiles that follow their storage classes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.cdi_rights import for_controllers
from tests.support.managers import working
from tests.support.waiting import until

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.resources import PERSISTENT_VOLUMES, STORAGE_CLASSES
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import StorageClass
from virtplane.storage.cdi.controller.profiles.capabilities import CAPABILITIES
from virtplane.storage.cdi.controller.profiles.decisions import capability_of, recognition
from virtplane.storage.cdi.controller.profiles.reconciler import ProfileController

RWX_BLOCK = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}
RWO_BLOCK = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}
RWO_FILE = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
INSTALLED = {"app.kubernetes.io/part-of": "hyperconverged-cluster", "app.kubernetes.io/version": "4.17.4"}
"""Labels of the CDI object."""


def storage_class(provisioner: str, **parameters: str) -> StorageClass:
    return StorageClass(metadata=ObjectMeta(name="c"), provisioner=provisioner, parameters=parameters)


@pytest.mark.parametrize(
    ("found", "row"),
    [
        (storage_class("csi.trident.netapp.io", backendType="ontap-nas-economy"), "/ontap-nas"),
        (storage_class("csi.trident.netapp.io", backendType="ontap-san"), "/ontap-san"),
        (
            storage_class(
                "csi.trident.netapp.io",
                backendType="google-cloud-netapp-volumes",
                selector="a=b; performance=flex",
            ),
            "/gcnv-flex",
        ),
        (storage_class("pxd.portworx.com", backend="pure_block"), "/pure_block"),
        (storage_class("pxd.portworx.com", backend="x", sharedv4_mount_options="vers=3.0,nolock"), ""),
        (storage_class("pxd.portworx.com", sharedv4_mount_options="vers=3.0,nolock"), "/nfs"),
        (storage_class("csi-unity.dellemc.com", protocol="NFS"), "/nfs"),
        (storage_class("csi.san.synology.com"), "/iscsi"),
        (storage_class("driver.longhorn.io", migratable="true"), "/migratable"),
        (storage_class("driver.longhorn.io", migratable="false"), ""),
        (storage_class("kubevirt.io.hostpath-provisioner", overlayCSI="x"), "/overlay"),
        (storage_class("kubevirt.io.hostpath-provisioner", volumeFormat="image"), "/image"),
        (
            storage_class("kubevirt.io.hostpath-provisioner", overlayCSI="x", volumeFormat="image"),
            "/overlay/image",
        ),
        (storage_class("vpc.file.csi.ibm.io", profile="dp2", vmState="true"), "/dp2-rwo"),
        (storage_class("vpc.file.csi.ibm.io", profile="dp2"), "/dp2"),
        (storage_class("ebs.csi.aws.com", type="gp3"), "/gp"),
    ],
)
def test_parameters_choose_the_row_of_a_provisioner(found: StorageClass, row: str) -> None:
    assert capability_of(found) == CAPABILITIES[found.provisioner + row]
    assert recognition(found)[1] == "RecognizedProvisioner"


def test_what_is_not_in_the_table_is_not_recognised() -> None:
    assert recognition(storage_class("csi.trident.netapp.io"))[1] == "UnrecognizedStorageClassParameters"
    assert recognition(storage_class("example.com"))[1] == "UnrecognizedProvisioner"
    assert recognition(storage_class("kubernetes.io/no-provisioner"))[1] == "UnrecognizedProvisioner"


class Cluster:
    """An API server with the controller at work."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def create(self, kind: Any, name: str, **members: Any) -> None:
        await self.client.create(
            kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **members}
        )

    async def profile(self, name: str) -> dict[str, Any]:
        try:
            return await self.client.get(kinds.STORAGE_PROFILES, name)
        except StatusError as error:
            if is_not_found(error):
                return {}
            raise

    async def gone(self, name: str) -> None:
        """Return once there is no such profile."""

        async def is_gone() -> bool:
            return not await self.profile(name)

        await until(is_gone)

    async def until(self, name: str, **status: Any) -> dict[str, Any]:
        """The profile once its status has all of `status`."""

        async def look() -> dict[str, Any] | None:
            found = await self.profile(name)
            return found if status.items() <= found.get("status", {}).items() else None

        found: dict[str, Any] = await until(look)
        return found


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    api = MemoryApi([kinds.CDIS, kinds.STORAGE_PROFILES, kinds.VOLUME_SNAPSHOT_CLASSES])
    with for_controllers(api) as restricted:
        async with restricted.client() as client, api.client() as administrator:
            manager = Manager(client)
            ProfileController(client, manager)
            async with working(manager):
                cdi = {"apiVersion": kinds.CDIS.api_version, "kind": "CDI", "spec": {}}
                metadata = {"name": "cdi", "labels": INSTALLED}
                await administrator.create(kinds.CDIS, {**cdi, "metadata": metadata})
                yield Cluster(administrator)


@pytest.mark.feature("STO-27")
@pytest.mark.parametrize(
    ("provisioner", "strategy"),
    [
        ("csi-vxflexos.dellemc.com", "csi-clone"),
        ("csi-isilon.dellemc.com", "csi-clone"),
        ("csi-powermax.dellemc.com", "csi-clone"),
        ("csi-powerstore.dellemc.com", "copy"),  # csi-clone until CDI 1.60
        ("hspc.csi.hitachi.com", "csi-clone"),
        ("csi.hpe.com", "csi-clone"),
        ("spectrumscale.csi.ibm.com", "csi-clone"),
        ("rook-ceph.rbd.csi.ceph.com", "csi-clone"),
        ("openshift-storage.rbd.csi.ceph.com", "csi-clone"),
        ("cephfs.csi.ceph.com", "csi-clone"),
        ("openshift-storage.cephfs.csi.ceph.com", "csi-clone"),
    ],
)
async def test_provisioners_have_their_clone_strategy_whether_or_not_they_have_snapshots(
    provisioner: str, strategy: str
) -> None:
    async with cluster() as made:
        await made.create(kinds.VOLUME_SNAPSHOT_CLASSES, "snap", driver=provisioner, deletionPolicy="Delete")
        await made.create(STORAGE_CLASSES, "c", provisioner=provisioner)
        found = await made.until("c", provisioner=provisioner)
        assert found["status"]["cloneStrategy"] == strategy


@pytest.mark.feature("STO-26")
@pytest.mark.parametrize("provisioner", ["rook-ceph.rbd.csi.ceph.com", "openshift-storage.rbd.csi.ceph.com"])
async def test_ceph_keeps_images_as_snapshots_and_clones_by_its_driver(provisioner: str) -> None:
    async with cluster() as made:
        await made.create(kinds.VOLUME_SNAPSHOT_CLASSES, "snap", driver=provisioner, deletionPolicy="Delete")
        await made.create(STORAGE_CLASSES, "c", provisioner=provisioner)
        found = await made.until("c", provisioner=provisioner)
        status = found["status"]
        assert (status["cloneStrategy"], status["dataImportCronSourceFormat"]) == ("csi-clone", "snapshot")


@pytest.mark.feature("STO-08", "STO-09")
async def test_profile_is_made_for_a_class_and_goes_with_it() -> None:
    async with cluster() as made:
        await made.create(STORAGE_CLASSES, "c", provisioner="rbd.csi.ceph.com")
        found = await made.until("c", provisioner="rbd.csi.ceph.com", cloneStrategy="csi-clone")
        assert found["metadata"]["labels"] == {
            "app": "containerized-data-importer",
            "app.kubernetes.io/component": "storage",
            "app.kubernetes.io/managed-by": "cdi-controller",
            "cdi.kubevirt.io": "",
            **INSTALLED,
        }
        assert found["metadata"]["ownerReferences"][0]["kind"] == "CDI"
        assert found["status"]["claimPropertySets"][0] == RWX_BLOCK
        assert found["status"]["dataImportCronSourceFormat"] == "pvc"
        assert found["status"]["conditions"][0]["reason"] == "RecognizedProvisioner"
        await made.client.delete(kinds.STORAGE_PROFILES, "c")
        await made.until("c", provisioner="rbd.csi.ceph.com")
        await made.client.delete(STORAGE_CLASSES, "c")
        await made.gone("c")


@pytest.mark.feature("STO-11")
async def test_own_sets_replace_those_of_the_table_and_incomplete_ones_change_nothing() -> None:
    async with cluster() as made:
        await made.create(STORAGE_CLASSES, "c", provisioner="rbd.csi.ceph.com")
        await made.until("c", cloneStrategy="csi-clone")
        own = {"spec": {"claimPropertySets": [RWO_FILE], "cloneStrategy": "copy"}}
        await made.client.patch(kinds.STORAGE_PROFILES, "c", own, type="merge")
        found = await made.until("c", cloneStrategy="copy")
        assert found["status"]["claimPropertySets"] == [RWO_FILE]
        own = {"spec": {"dataImportCronSourceFormat": "snapshot"}}
        await made.client.patch(kinds.STORAGE_PROFILES, "c", own, type="merge")
        await made.until("c", dataImportCronSourceFormat="snapshot", cloneStrategy="copy")
        wrong = {"spec": {"snapshotClass": "none", "cloneStrategy": "snapshot"}}
        await made.client.patch(kinds.STORAGE_PROFILES, "c", wrong, type="merge")
        await made.create(STORAGE_CLASSES, "later", provisioner="example.com")
        await made.until("later", cloneStrategy="copy")
        assert (await made.profile("c"))["status"]["cloneStrategy"] == "copy"


@pytest.mark.feature("STO-12")
async def test_snapshot_class_of_the_driver_makes_snapshots_the_strategy() -> None:
    async with cluster() as made:
        await made.create(STORAGE_CLASSES, "c", provisioner="openshift-storage.rbd.csi.ceph.com")
        await made.create(STORAGE_CLASSES, "d", provisioner="example.com")
        await made.until("c", dataImportCronSourceFormat="pvc")
        for name, driver in (("b", "example.com"), ("a", "openshift-storage.rbd.csi.ceph.com")):
            await made.create(kinds.VOLUME_SNAPSHOT_CLASSES, name, driver=driver, deletionPolicy="Delete")
        shown = await made.until("c", dataImportCronSourceFormat="snapshot", snapshotClass="a")
        assert {key: value for key, value in shown["status"].items() if key != "conditions"} == {
            "claimPropertySets": [RWX_BLOCK, RWO_BLOCK, RWO_FILE],
            "cloneStrategy": "csi-clone",
            "dataImportCronSourceFormat": "snapshot",
            "provisioner": "openshift-storage.rbd.csi.ceph.com",
            "snapshotClass": "a",
            "storageClass": "c",
        }
        await made.until("d", cloneStrategy="snapshot", snapshotClass="b")
        await made.client.delete(kinds.VOLUME_SNAPSHOT_CLASSES, "b")
        found = await made.until("d", cloneStrategy="copy")
        assert found["status"]["snapshotClass"] == "b"


async def test_class_without_provisioner_has_the_modes_of_its_volumes() -> None:
    async with cluster() as made:
        await made.create(STORAGE_CLASSES, "c", provisioner="kubernetes.io/no-provisioner")
        spec = {
            "storageClassName": "c",
            "volumeMode": "Block",
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Gi"},
        }
        await made.create(PERSISTENT_VOLUMES, "v", spec=spec)
        await made.until("c", claimPropertySets=[RWX_BLOCK])


async def test_least_size_of_a_class_is_annotated_once() -> None:
    async with cluster() as made:
        await made.create(STORAGE_CLASSES, "c", provisioner="ebs.csi.aws.com", parameters={"type": "io2"})
        found = await made.until("c", cloneStrategy="copy")
        assert found["metadata"]["annotations"]["cdi.kubevirt.io/minimumSupportedPvcSize"] == "4Gi"
