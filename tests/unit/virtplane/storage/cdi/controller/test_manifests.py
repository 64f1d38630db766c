"""The DataVolumes and storage profiles of users' guides, given to CDI's webhooks and controllers."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
import yaml
from tests.support.cdi import CdiCluster, cdi_cluster
from tests.support.cdi_claims import claim_document
from tests.support.cdi_controllers import cdi_controllers
from tests.support.waiting import until

from kubecore import errors
from kubecore import resources as core
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api import crds, volumesnapshot_crds
from virtplane.api import resources as kinds
from virtplane.api.storage_labels import DEFAULT_CLASS

_MANIFESTS = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "reference/manifests.yaml"
NAMESPACE = "default"
_CLASSES = {
    "hostpath-csi": "kubevirt.io.hostpath-provisioner",
    "unknown-provisioner-class": "unknown.csi.example.com",
    "example-provisioner-class": "example.csi.example.com",
    "ocs-storagecluster-ceph-rbd-virtualization": "openshift-storage.rbd.csi.ceph.com",
}


def _documents(kind: str) -> list[JsonObject]:
    found = yaml.safe_load_all(_MANIFESTS.read_text())
    return [each for each in found if each and each["kind"] == kind]


async def _profile_follows(cluster: CdiCluster, document: JsonObject) -> None:
    """What a profile's spec says is what its status says once the controller has seen it."""
    name, wanted = meta.name(document), get_object(document, "spec")

    async def is_there() -> bool:
        found = await cluster.client.list(kinds.STORAGE_PROFILES)
        return any(meta.name(each) == name and each.get("status") for each in found["items"])

    await until(is_there)
    await cluster.client.patch(kinds.STORAGE_PROFILES, name, {"spec": wanted}, type="merge")

    async def follows() -> bool:
        status = get_object(await cluster.client.get(kinds.STORAGE_PROFILES, name), "status")
        return all(status.get(key) == value for key, value in wanted.items())

    await until(follows)


async def _claim(cluster: CdiCluster, name: str) -> JsonObject:
    async def is_there() -> bool:
        found = await cluster.client.list(core.PERSISTENT_VOLUME_CLAIMS, NAMESPACE)
        return any(meta.name(each) == name for each in found["items"])

    await until(is_there)
    return await cluster.client.get(core.PERSISTENT_VOLUME_CLAIMS, name, NAMESPACE)


async def _create(cluster: CdiCluster, kind: ResourceType, document: JsonObject) -> str:
    """Empty, or why the document is refused."""
    try:
        await cluster.client.create(kind, document, NAMESPACE)
    except StatusError as error:
        return error.message
    return ""


@pytest.mark.skipif(not _MANIFESTS.exists(), reason="VIRTPLANE_REFERENCE names no directory with manifests")
@pytest.mark.feature("STO-08", "STO-44")
@pytest.mark.timeout(120)
async def test_manifests_of_guides_do_what_the_guides_say(tmp_path: Path) -> None:
    async with cdi_cluster(tmp_path, controllers=True) as cluster:
        for definition in volumesnapshot_crds.custom_resource_definitions():
            await cluster.client.create(core.CUSTOM_RESOURCE_DEFINITIONS, definition)
        authority = {"metadata": {"annotations": {"cdi.kubevirt.io/configAuthority": ""}}}
        await cluster.client.patch(kinds.CDIS, "cdi", authority, type="merge")
        for name, provisioner in _CLASSES.items():
            is_default = str(name == "hostpath-csi").lower()
            metadata = {"name": name, "annotations": {DEFAULT_CLASS: is_default}}
            document = {"metadata": metadata, "provisioner": provisioner}
            await cluster.client.create(core.STORAGE_CLASSES, document)
            driver = {"metadata": {"name": provisioner}, "spec": {}}
            await cluster.client.create(core.CSI_DRIVERS, driver)
        async with cluster.server.client() as client, cdi_controllers(client):
            for document in _documents("StorageProfile"):
                await _profile_follows(cluster, document)
            table = await cluster.client.get(
                kinds.STORAGE_PROFILES, "ocs-storagecluster-ceph-rbd-virtualization"
            )
            shown = next(each for each in _documents("StorageProfile") if meta.name(each) == meta.name(table))
            for key in ("claimPropertySets", "cloneStrategy", "provisioner", "storageClass"):
                assert table["status"][key] == shown["status"][key]
            namespace: JsonObject = {"metadata": {"name": "source-namespace"}}
            await cluster.client.create(core.NAMESPACES, namespace)
            source = claim_document("my-vm-disk")
            source["metadata"] = {"name": "my-vm-disk"}
            await cluster.client.create(core.PERSISTENT_VOLUME_CLAIMS, source, "source-namespace")
            refusals = {
                meta.name(document): await _create(cluster, kinds.DATA_VOLUMES, document)
                for document in _documents("DataVolume")
            }
            assert refusals == {
                "cloned-datavolume": "",
                "blank-image-datavolume": "",
                "preallocated-datavolume": "",
                # A fragment that shows an annotation.
                "datavolume-example": 'DataVolume.cdi.kubevirt.io "datavolume-example" is invalid: spec:'
                " Required value",
            }
            blank = await _claim(cluster, "blank-image-datavolume")
            assert blank["spec"]["storageClassName"] == "hostpath-csi"
            assert get_str(blank, "spec", "dataSourceRef", "kind") == "VolumeImportSource"
            whole = await _claim(cluster, "preallocated-datavolume")
            filled = await cluster.client.get(
                kinds.VOLUME_IMPORT_SOURCES, get_str(whole, "spec", "dataSourceRef", "name"), NAMESPACE
            )
            assert filled["spec"]["preallocation"] is True
            assert "registry" in filled["spec"]["source"]


_STORAGE: dict[str, ResourceType] = {
    each.kind: each
    for each in (
        core.CLUSTER_ROLES,
        core.PERSISTENT_VOLUME_CLAIMS,
        core.ROLE_BINDINGS,
        core.STORAGE_CLASSES,
        kinds.DATA_VOLUMES,
        kinds.STORAGE_PROFILES,
        kinds.HOSTPATH_PROVISIONERS,
        kinds.VIRTUAL_MACHINE_EXPORTS,
        kinds.VIRTUAL_MACHINE_RESTORES,
        kinds.VIRTUAL_MACHINE_SNAPSHOTS,
        kinds.VOLUME_SNAPSHOT_CLASSES,
    )
}
_REFUSED = {
    ("DataVolume", "datavolume-example"): "spec: Required value",
    ("DataVolume", "rhel-rootdisk"): "Data volume should have either Source or SourceRef, or be externally",
    ("PersistentVolumeClaim", "test-target"): "at least 1 access mode is required",
    ("StorageProfile", "ocs-storagecluster-ceph-rbd-virtualization"): 'uid: Invalid value: "": must not be',
}
"""What guides show in part, or as output: refused as an input, and why."""


def _storage_documents() -> list[JsonObject]:
    """The documents of storage, and the DataVolumes that machines have as templates."""
    found = []
    for document in yaml.safe_load_all(_MANIFESTS.read_text()):
        if not document:
            continue
        if document["kind"] in _STORAGE:
            found.append(document)
        for template in get_list(document, "spec", "dataVolumeTemplates"):
            # Controllers make today's kind of what an old template names.
            made = {**template, "apiVersion": kinds.DATA_VOLUMES.api_version, "kind": "DataVolume"}
            found.append(made)
    return found


async def _give_source(cluster: CdiCluster, reference: JsonObject) -> None:
    """Make the DataSource that a document refers to, which the webhook looks up."""
    if not reference:
        return
    where = get_str(reference, "namespace") or NAMESPACE
    source: JsonObject = {
        "apiVersion": kinds.DATA_SOURCES.api_version,
        "kind": kinds.DATA_SOURCES.kind,
        "metadata": {"name": reference["name"]},
        "spec": {"source": {"pvc": {"name": "disk", "namespace": where}}},
    }
    with errors.ignoring(409):
        await cluster.client.create(core.NAMESPACES, {"metadata": {"name": where}})
    with errors.ignoring(409):
        await cluster.client.create(kinds.DATA_SOURCES, source, where)


@pytest.mark.skipif(not _MANIFESTS.exists(), reason="VIRTPLANE_REFERENCE names no directory with manifests")
async def test_storage_documents_of_guides_are_let_in(tmp_path: Path) -> None:
    async with cdi_cluster(tmp_path) as cluster:
        definitions = [
            each
            for each in (
                *crds.custom_resource_definitions(),
                *volumesnapshot_crds.custom_resource_definitions(),
            )
            if each["spec"]["names"]["kind"] in _STORAGE
        ]
        definitions.append(crds.custom_resource_definition(crds.HOSTPATH_PROVISIONER))
        for definition in definitions:
            await cluster.client.create(core.CUSTOM_RESOURCE_DEFINITIONS, definition)
        namespace: JsonObject = {"metadata": {"name": "source-namespace"}}
        await cluster.client.create(core.NAMESPACES, namespace)
        documents, refused = _storage_documents(), dict[tuple[str, str], str]()
        for document in documents:
            key = document["kind"], meta.name(document)
            resource = dataclasses.replace(
                _STORAGE[key[0]], version=get_str(document, "apiVersion").rpartition("/")[2]
            )
            document["metadata"].pop("namespace", None)
            await _give_source(cluster, get_object(document, "spec", "sourceRef"))
            try:
                await cluster.client.create(resource, document, NAMESPACE, dry_run=True)
            except StatusError as error:
                refused[key] = error.message
        assert refused.keys() == _REFUSED.keys(), refused
        assert all(why in refused[key] for key, why in _REFUSED.items()), refused
        assert {each["kind"] for each in documents} == _STORAGE.keys()
