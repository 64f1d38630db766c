"""A machine whose template has hotpluggable volumes: its guest starts without them."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode, encode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.compute.controller.vmi.hotplug import hotplug_volumes, with_attachment
from virtplane.compute.controller.vmi.volumes import volume_status
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.document import render
from virtplane.compute.handler import status
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.hotplug.plugs import Plugged
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage.volumes import VolumePreparer
from virtplane.compute.hotplug import plugged_volumes
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod

_DISKS = "var/run/kubevirt-private/vmi-disks"
_LATER: list[JsonObject] = [
    {"persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}},
    {"dataVolume": {"name": "c", "hotpluggable": True}},
    {"memoryDump": {"claimName": "c", "hotpluggable": True}},
]


def _instance(later: JsonObject, device: str = "disk") -> JsonObject:
    """A guest with a hotpluggable volume before the one that it boots from."""
    disks = [{"name": "later", device: {}, "dedicatedIOThread": True}, {"name": "root", "disk": {}}]
    volumes = [{"name": "later", **later}, {"name": "root", "persistentVolumeClaim": {"claimName": "r"}}]
    domain = {"devices": {"disks": disks}, "memory": {"guest": "128Mi"}}
    metadata = {"name": "vm", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"domain": domain, "volumes": volumes}}


def _started(vmi: JsonObject, folder: Path) -> ElementTree.Element:
    """The domain, from a node where the launcher pod has brought what is in its manifest."""
    settings = ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": {}}})
    pod = render_launcher_pod(
        RenderInputs(decode(VirtualMachineInstance, vmi), settings, Images("launcher:1", "sidecar:1"))
    )
    for name in (item["name"] for item in pod["spec"]["volumes"] if "persistentVolumeClaim" in item):
        (folder / "root" / _DISKS / name).mkdir(parents=True)
        (folder / "root" / _DISKS / name / "disk.img").write_bytes(b"")
    (folder / "scratch").mkdir()
    with Root(folder / "root") as root, Root(folder / "scratch") as scratch:
        sources = VolumePreparer(
            decode(VirtualMachineInstance, vmi), root, scratch, PodPaths("", folder)
        ).prepare()
    return ElementTree.fromstring(
        render(decode(VirtualMachineInstance, vmi), DomainContext(emulation=True, disks=sources))
    )


def _files(root: ElementTree.Element) -> list[str | None]:
    return [source.get("file") for source in root.findall("devices/disk/source")]


@pytest.fixture(autouse=True)
def _ownership_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root could change it."""
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)


@pytest.mark.parametrize("later", _LATER, ids=lambda volume: next(iter(volume)))
def test_a_guest_starts_without_its_hotpluggable_volumes(tmp_path: Path, later: JsonObject) -> None:
    root = _started(_instance(later), tmp_path)
    assert _files(root) == [f"/{_DISKS}/root/disk.img"]
    assert root.find("devices/disk/boot") is not None
    assert root.find("iothreads") is None


def test_the_drive_of_a_hotpluggable_cdrom_is_empty(tmp_path: Path) -> None:
    root = _started(_instance(_LATER[0], "cdrom"), tmp_path)
    assert [disk.get("device") for disk in root.findall("devices/disk")] == ["cdrom", "disk"]
    assert _files(root) == [f"/{_DISKS}/root/disk.img"]


def test_a_volume_stays_out_when_the_status_says_that_it_was_plugged(tmp_path: Path) -> None:
    """Whether it is still declared hotpluggable or not: the launcher pod does not have it."""
    vmi = _instance({"persistentVolumeClaim": {"claimName": "c"}})
    vmi["status"] = {"volumeStatus": [{"name": "later", "hotplugVolume": {}, "target": ""}]}
    assert _files(_started(vmi, tmp_path)) == [f"/{_DISKS}/root/disk.img"]


def _looked_at(
    vmi: JsonObject, attachments: list[JsonObject], plugged: Plugged | None = None
) -> list[JsonObject]:
    """The entries of volumes after virt-controller and virt-handler have written in turn."""
    report = status.Report(
        phase="Running",
        domain=DomainState("Running"),
        domain_known=True,
        facts=GuestFacts(),
        emulation=True,
        cards={},
        machine="q35",
        sync_error=None,
        credentials=None,
        plugged=plugged or Plugged(),
        now="2026-11-21T00:00:00Z",
    )
    for _ in range(2):
        read = decode(VirtualMachineInstance, vmi)
        entries = [
            encode(entry) for entry in with_attachment(volume_status(read, {}, None), read, attachments, {})
        ]
        vmi["status"]["volumeStatus"] = entries
        vmi["status"] = encode(status.render(decode(VirtualMachineInstance, vmi), report))
        found: list[JsonObject] = vmi["status"]["volumeStatus"]
    return found


def test_a_detached_volume_has_an_entry_until_launcher_and_attachment_pod_are_rid_of_it() -> None:
    vmi = _instance(_LATER[0])
    vmi["status"] = {"phase": "Running"}
    pod: JsonObject = {
        "metadata": {"name": "hp-volume-1", "uid": "p", "creationTimestamp": "2026-11-21T00:00:00Z"},
        "spec": {"volumes": [{"name": "later", "persistentVolumeClaim": {"claimName": "c"}}]},
    }
    attached = _looked_at(vmi, [pod])
    assert attached[0]["message"] == "Created hotplug attachment pod hp-volume-1, for volume later"
    assert [(entry["name"], entry.get("phase"), entry["target"]) for entry in attached] == [
        ("later", "AttachedToNode", ""),
        ("root", None, "vda"),
    ]
    mounted = _looked_at(vmi, [pod], Plugged(frozenset({"later"}), {}))
    assert (mounted[0]["phase"], mounted[0]["reason"]) == ("MountedToPod", "VolumeMountedToPod")
    assert mounted[0]["message"] == "Volume later has been mounted in virt-launcher pod"
    in_guest = Plugged(frozenset({"later"}), {"later": "sda"})
    ready = _looked_at(vmi, [pod], in_guest)
    assert (ready[0]["phase"], ready[0]["reason"], ready[0]["target"]) == ("Ready", "VolumeReady", "sda")
    assert ready[0]["message"] == "Successfully attach hotplugged volume later to VM"
    vmi["spec"]["volumes"] = vmi["spec"]["volumes"][1:]
    for attachments in ([pod], []):  # whoever deletes the pod, the guest has the disk still
        (detaching, _) = _looked_at(vmi, attachments, in_guest)
        assert (detaching["name"], detaching["phase"]) == ("later", "Detaching")
        assert detaching["message"] == "Deleted hotplug attachment pod hp-volume-1, for volume later"
    (unmounted, _) = _looked_at(vmi, [pod], Plugged(in_guest={}))
    assert (unmounted["phase"], unmounted["reason"]) == ("UnMountedFromPod", "VolumeUnMountedFromPod")
    assert unmounted["message"] == "Volume later has been unmounted from virt-launcher pod"
    assert [entry["name"] for entry in _looked_at(vmi, [])] == ["root"]


def test_a_volume_of_the_guest_names_its_last_attachment_pod_until_another_has_it() -> None:
    vmi = _instance(_LATER[0])
    vmi["status"] = {"phase": "Running"}
    pod: JsonObject = {
        "metadata": {"name": "hp-volume-1", "uid": "p", "creationTimestamp": "2026-11-21T00:00:00Z"},
        "spec": {"volumes": [{"name": "later", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"containerStatuses": [{"name": "hotplug-disk", "ready": True}]},
    }
    in_guest = Plugged(frozenset({"later"}), {"later": "sda"})
    attached = {"attachPodName": "hp-volume-1", "attachPodUID": "p"}
    assert _looked_at(vmi, [pod], in_guest)[0]["hotplugVolume"] == attached
    (kept, _) = _looked_at(vmi, [], in_guest)
    assert (kept["phase"], kept["hotplugVolume"]) == ("Ready", {"attachPodName": "hp-volume-1"})
    other = {**pod, "metadata": {**pod["metadata"], "name": "hp-volume-2", "uid": "q"}}
    (moved, _) = _looked_at(vmi, [other], in_guest)
    assert moved["hotplugVolume"] == {"attachPodName": "hp-volume-2", "attachPodUID": "q"}


def test_another_claim_takes_the_name_of_a_volume_once_the_first_has_gone() -> None:
    vmi = _instance(_LATER[0])
    info = {"claimName": "c"}
    entry = {"name": "later", "target": "sda", "phase": "Ready", "hotplugVolume": {}}
    vmi["status"] = {"phase": "Running", "volumeStatus": [{**entry, "persistentVolumeClaimInfo": info}]}
    vmi["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "other"
    read = decode(VirtualMachineInstance, vmi)
    assert [volume.name for volume in hotplug_volumes(read)] == []
    assert plugged_volumes(read) == {}
    (leaving, _) = _looked_at(vmi, [], Plugged(frozenset({"later"}), {"later": "sda"}))
    assert (leaving["phase"], leaving["persistentVolumeClaimInfo"]["claimName"]) == ("Detaching", "c")
    assert [entry["name"] for entry in _looked_at(vmi, [], Plugged(in_guest={}))] == ["root"]
    (fresh, _) = _looked_at(vmi, [])
    assert "persistentVolumeClaimInfo" not in fresh
    assert (fresh["phase"], fresh["message"]) == ("Pending", "PVC other not found")
    assert [volume.name for volume in hotplug_volumes(decode(VirtualMachineInstance, vmi))] == ["later"]


def test_a_utility_volume_has_an_attachment_pod_and_an_entry_of_its_own() -> None:
    vmi = _instance({"persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}})
    vmi["spec"] |= {"utilityVolumes": [{"name": "beside", "claimName": "target", "type": "Backup"}]}
    vmi["status"] = {"phase": "Running"}
    read = decode(VirtualMachineInstance, vmi)
    assert {each.name: claim_name(each) for each in hotplug_volumes(read)} == {
        "later": "c",
        "beside": "target",
    }
    claims: JsonObject = {"metadata": {"name": "target"}, "spec": {"volumeMode": "Filesystem"}}
    (entry,) = (each for each in volume_status(read, {"target": claims}, None) if each.name == "beside")
    assert entry.hotplug_volume is not None and entry.persistent_volume_claim_info is not None
    pod: JsonObject = {
        "metadata": {"name": "hp-volume-1", "uid": "p", "creationTimestamp": "2026-11-21T00:00:00Z"},
        "spec": {"volumes": [{"name": "beside", "persistentVolumeClaim": {"claimName": "target"}}]},
    }
    in_pod = Plugged(frozenset({"beside"}), {})
    mounted = {each["name"]: each for each in _looked_at(vmi, [pod], in_pod)}
    assert (mounted["beside"]["phase"], mounted["beside"]["target"]) == ("MountedToPod", "")
    assert plugged_volumes(decode(VirtualMachineInstance, vmi)).keys() == {"later"}
    del vmi["spec"]["utilityVolumes"]
    leaving = {each["name"]: each for each in _looked_at(vmi, [pod], in_pod)}
    assert leaving["beside"]["phase"] == "Detaching"
    assert "beside" not in {each["name"] for each in _looked_at(vmi, [], Plugged(in_guest={}))}
