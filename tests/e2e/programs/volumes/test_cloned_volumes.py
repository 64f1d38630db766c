"""Copies of volumes: by the driver, of snapshots, by pods, into other namespaces, and by the hour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.claims import CLAIMS
from tests.e2e.clusters import CORE, NAMESPACE, Cluster
from tests.e2e.failures import Document
from tests.e2e.programs import registries
from tests.e2e.programs.manifests import document
from tests.e2e.programs.volumes import disks
from tests.e2e.programs.volumes.disks import (
    DATA_VOLUMES,
    SIZE,
    Disks,
    arrived,
    create,
    data_volume,
    from_http,
    wait_phase,
)
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

_SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
_CDI_KINDS = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}"
_OTHER = "clones"


@pytest.fixture
def other_namespace(filled: Cluster) -> Iterator[str]:
    filled.request("POST", f"{CORE}/namespaces", {"metadata": {"name": _OTHER}})
    yield _OTHER
    filled.request("DELETE", f"{CORE}/namespaces/{_OTHER}")
    wait_for("the namespace is gone", lambda: filled.find(f"{CORE}/namespaces/{_OTHER}") is None, 60)


def _clone(
    name: str, kind: str = "pvc", source: str = "origin", *, size: int = SIZE, mode: str = ""
) -> Document:
    return data_volume(name, {kind: {"name": source, "namespace": NAMESPACE}}, size=size, mode=mode)


def _annotations(cluster: Cluster, claim: str) -> dict[str, str]:
    found: dict[str, str] = cluster.request("GET", f"{CLAIMS}/{claim}")["metadata"]["annotations"]
    return found


@pytest.fixture
def without_snapshots(filled: Cluster) -> Iterator[None]:
    """Deletes snapshots after the test, before the claims that they were made of."""
    yield
    for each in filled.items(_SNAPSHOTS):
        filled.request("DELETE", f"{_SNAPSHOTS}/{each['metadata']['name']}")


@pytest.mark.usefixtures("without_snapshots")
@pytest.mark.feature("STO-20", "STO-21", "STO-23", "STO-53", "VMC-47")
def test_copies_have_the_disk_whichever_way_they_are_made(
    filled: Cluster, images: Disks, other_namespace: str
) -> None:
    create(filled, data_volume("origin", from_http("disk.qcow2")))
    wait_phase(filled, "origin", "Succeeded")
    spec = {"source": {"persistentVolumeClaimName": "origin"}}
    filled.request(
        "POST", _SNAPSHOTS, document("VolumeSnapshot", "kept", "snapshot.storage.k8s.io/v1", spec=spec)
    )
    create(
        filled,
        _clone("same"),
        _clone("device", mode="Block"),
        _clone("restored", "snapshot", "kept", size=0),
        _clone("larger", size=3 * SIZE),
    )
    elsewhere = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{other_namespace}/datavolumes"
    filled.request("POST", elsewhere, _clone("far"))
    modes = dict.fromkeys(("same", "restored", "larger"), "Filesystem") | {"device": "Block"}
    arrived(filled, images, modes)
    wait_for(
        "the copy in the other namespace is there",
        lambda: filled.request("GET", f"{elsewhere}/far")["status"]["phase"] == "Succeeded",
        60,
    )
    assert _annotations(filled, "same")["cdi.kubevirt.io/cloneType"] == "csi-clone"
    assert _annotations(filled, "device")["cdi.kubevirt.io/cloneType"] == "copy"
    names = {each["metadata"]["name"] for each in filled.items(CLAIMS)}
    assert names - {registries.NAME} == {disks.NAME, "origin", *modes}, "nothing temporary is left"


@pytest.mark.feature("STO-35", "VMC-02", "VMC-07")
def test_cron_keeps_a_data_source_at_what_the_registry_has(
    filled: Cluster, images: Disks, container_image: str
) -> None:
    spec = {
        "schedule": "0 0 1 1 *",
        "managedDataSource": "kept",
        "retentionPolicy": "None",
        "template": {"spec": data_volume("unused", {"registry": {"url": container_image}})["spec"]},
    }
    cron = document("DataImportCron", "kept", "cdi.kubevirt.io/v1beta1", spec=spec)
    filled.request("POST", f"{_CDI_KINDS}/dataimportcrons", cron)
    try:

        def is_ready() -> bool:
            found = filled.request("GET", f"{_CDI_KINDS}/datasources/kept").get("status") or {}
            conditions = found.get("conditions") or ()
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        wait_for("the DataSource is ready", is_ready, 90)
        wanted = data_volume("of-cron", {})
        del wanted["spec"]["source"]
        wanted["spec"]["sourceRef"] = {"kind": "DataSource", "name": "kept"}
        create(filled, wanted)
        arrived(filled, images, {"of-cron": "Filesystem"})
    finally:
        filled.request("DELETE", f"{_CDI_KINDS}/dataimportcrons/kept")
    wait_for("the import goes with its cron", lambda: len(filled.items(DATA_VOLUMES)) == 2, 60)
