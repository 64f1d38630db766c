"""The order of plugging and unplugging, with a domain and a folder that keep what they are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode, encode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.hotplug import permissions, plugs, reports
from virtplane.compute.handler.hotplug.plugs import Guest, Plugs
from virtplane.compute.handler.hotplug.sources import NotOnNode
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage import claims
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.volumes import VolumeNotReady
from virtplane.compute.handler.threads import Steps

_NUMBER = 0x0702
_TREE, _READ_ONLY_TREE = 8, 9


class _Domain:
    """A running domain; disks leave at once, or when the guest releases them."""

    def __init__(self) -> None:
        self.disks: dict[str, str] = {}
        self.releases = True
        self.fails: str = ""

    async def description(self, _name: str) -> str:
        return f"<domain><devices>{''.join(self.disks.values())}</devices></domain>"

    async def attach_device(self, _name: str, xml: str) -> None:
        self._check("attach")
        self.disks[self._alias(xml)] = xml

    async def detach_device(self, _name: str, alias: str) -> bool:
        self._check("detach")
        if self.releases:
            del self.disks[alias]
        return True

    async def update_device(self, _name: str, xml: str) -> None:
        self._check("update")
        self.disks[self._alias(xml)] = xml

    def _alias(self, xml: str) -> str:
        found = re.search(r'<alias name="([^"]+)"', xml)
        assert found is not None
        return found[1]

    def _check(self, operation: str) -> None:
        if self.fails == operation:
            raise HypervisorError(operation, "the daemon was killed")


class _Folder:
    """What the launcher's folder has; a launcher may hide device nodes."""

    def __init__(self) -> None:
        self.mounts: set[str] = set()
        self.nodes: dict[str, int] = {}
        """The numbers of devices by volume."""
        self.trees: dict[str, int] = {}

    def mounted(self) -> tuple[set[str], set[str]]:
        return set(self.mounts), set(self.trees)

    def files(self) -> set[str]:
        return self.mounted()[0]

    def devices(self) -> set[str]:
        return set(self.nodes)

    def folders(self) -> set[str]:
        return self.mounted()[1]

    def mount_folder(self, volume: str, tree: int) -> None:
        self.trees[volume] = tree

    def remove_folder(self, volume: str) -> None:
        del self.trees[volume]

    def mount(self, volume: str, _tree: int) -> None:
        self.mounts.add(volume)

    def make_device(self, volume: str, number: int) -> None:
        self.nodes.setdefault(volume, number)

    def remove(self, volume: str) -> None:
        self.mounts.discard(volume)
        self.nodes.pop(volume, None)


class _Claim:
    def __init__(self, number: int) -> None:
        self._number = number

    def device(self) -> int:
        return self._number

    def prepare_file(self, _info: object, _settings: object) -> str:
        return ""

    def clone_file(self) -> int:
        return -1

    def clone_folder(self, read_only: bool) -> int:
        return _READ_ONLY_TREE if read_only else _TREE


class _Node:
    """One guest; `attachments` are the volumes that attachment pods have."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.domain, self.folder = _Domain(), _Folder()
        self.attachments: set[str] = {"files", "blocks", "drive"}
        self.number = _NUMBER
        """Of the device of any block claim."""
        self.allowed: list[set[int]] = []
        self.paths = PodPaths("pod", tmp_path)
        self.steps = Steps("vm", lambda: None)
        monkeypatch.setattr(plugs, "held_claim", self._held)
        monkeypatch.setattr(permissions, "allow", self._allow)
        monkeypatch.setattr(Root, "takes_direct_io", lambda *_, **__: True)
        monkeypatch.setattr(claims, "is_allocated", lambda *_: False)
        self.paths.hotplug_disks.mkdir(parents=True)
        self.plugs = self.restarted()

    def restarted(self) -> Plugs:
        """What virt-handler knows after it was started anew: nothing."""
        self.plugs = Plugs("ns_vm", "ns/vm", self.paths, self.steps, lambda _: None)
        folder: Any = self.folder
        self.plugs._folder = folder
        return self.plugs

    async def follow(self, vmi: VirtualMachineInstance) -> None:
        guest: Any = Guest
        await self.plugs.follow(vmi, guest(object(), self.domain), ClaimSettings())

    @contextmanager
    def _held(self, _pod: Path, volume: str, *, block: bool, proc: Path) -> Iterator[_Claim]:
        del block, proc
        if volume not in self.attachments:
            raise NotOnNode(volume)
        yield _Claim(self.number)

    def _allow(
        self, _launcher: object, numbers: Collection[int], _given: Collection[int], _host: Path
    ) -> None:
        self.allowed.append(set(numbers))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Node:
    return _Node(tmp_path, monkeypatch)


def _vmi(
    *wanted: str,
    known: Collection[str] = (),
    utility: Sequence[JsonObject] = (),
    preallocated: bool = False,
) -> VirtualMachineInstance:
    """An instance whose spec has `wanted` and whose status has them, `known` and the volumes `utility`."""
    disks: list[JsonObject] = [
        {"name": name, "cdrom": {"bus": "sata"}}
        if name == "drive"
        else {"name": name, "disk": {"bus": "scsi"}}
        for name in wanted
    ]
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}} for name in wanted
    ]
    entries = [
        {
            "name": name,
            "target": "",
            "phase": "AttachedToNode",
            "hotplugVolume": {"attachPodName": "hp", "attachPodUID": "u"},
            "persistentVolumeClaimInfo": {
                "claimName": name,
                "volumeMode": "Block" if name in ("blocks", "more") else "Filesystem",
                "preallocated": preallocated,
            },
        }
        for name in (*wanted, *known, *(each["name"] for each in utility))
    ]
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": volumes, "utilityVolumes": list(utility)}
    return decode(VirtualMachineInstance, {"spec": spec, "status": {"volumeStatus": entries}})


@pytest.mark.feature("VML-29", "VML-30")
async def test_what_is_plugged_leaves_domain_pod_and_permissions_in_this_order(node: _Node) -> None:
    await node.follow(_vmi("files", "blocks"))
    assert set(node.domain.disks) == {"ua-files", "ua-blocks"}
    assert node.allowed[-1] == {_NUMBER}
    assert dict(node.plugs.found.in_guest or {}) == {"files": "sda", "blocks": "sdb"}
    node.domain.releases = False
    await node.follow(_vmi(known=("files", "blocks")))
    assert node.folder.mounts | set(node.folder.nodes) == {"files", "blocks"}
    assert node.allowed[-1] == {_NUMBER}
    node.domain.releases = True
    await node.follow(_vmi(known=("files", "blocks")))
    assert not node.domain.disks
    assert not node.folder.mounts | set(node.folder.nodes)
    assert node.allowed[-1] == set()
    assert node.plugs.found == plugs.Plugged(frozenset(), {})


@pytest.mark.feature("STO-49")
@pytest.mark.parametrize("preallocated", [False, True])
async def test_discards_of_the_guest_leave_preallocated_claims_their_blocks(
    node: _Node, preallocated: bool
) -> None:
    await node.follow(_vmi("files", "blocks", preallocated=preallocated))
    assert set(node.domain.disks) == {"ua-files", "ua-blocks"}
    assert all(('discard="unmap"' in xml) is not preallocated for xml in node.domain.disks.values())


@pytest.mark.parametrize("step", ["attach", "detach"])
async def test_a_step_that_was_interrupted_is_taken_by_the_next_process(node: _Node, step: str) -> None:
    if step == "detach":
        await node.follow(_vmi("files", "blocks"))
    node.domain.fails = step
    vmi = _vmi("files", "blocks") if step == "attach" else _vmi(known=("files", "blocks"))
    with pytest.raises(HypervisorError):
        await node.follow(vmi)
    node.domain.fails = ""
    node.restarted()
    await node.follow(vmi)
    assert (
        len(node.domain.disks)
        == len(node.folder.mounts | set(node.folder.nodes))
        == (2 if step == "attach" else 0)
    )
    assert node.allowed[-1] == ({_NUMBER} if step == "attach" else set())


async def test_a_volume_that_is_not_on_the_node_holds_up_no_other(node: _Node) -> None:
    node.attachments.remove("files")
    with pytest.raises(VolumeNotReady, match="files"):
        await node.follow(_vmi("files", "blocks"))
    assert set(node.domain.disks) == {"ua-blocks"}


async def test_media_are_inserted_and_ejected_and_the_drive_stays(node: _Node) -> None:
    empty = '<disk type="file" device="cdrom"><target dev="sda" bus="sata"/><alias name="ua-drive"/></disk>'
    node.domain.disks["ua-drive"] = empty
    await node.follow(_vmi("drive"))
    assert dict(node.plugs.found.in_guest or {}) == {"drive": "sda"}
    await node.follow(_vmi(known=("drive",)))
    assert set(node.domain.disks) == {"ua-drive"}
    assert dict(node.plugs.found.in_guest or {}) == {}
    assert not node.folder.mounts


async def test_permissions_are_kept_while_the_numbers_of_devices_in_use_are_unknown(node: _Node) -> None:
    """After a restart, a guest that keeps its disk must not lose it because the attachment pod is gone."""
    await node.follow(_vmi("blocks"))
    node.restarted()
    before, volumes = list(node.allowed), set(node.attachments)
    node.attachments.clear()
    await node.follow(_vmi("blocks"))
    assert node.allowed == before
    assert node.allowed[-1] == {_NUMBER}
    node.attachments |= volumes
    await node.follow(_vmi("blocks"))
    assert node.allowed[len(before) :] == [{_NUMBER}]


async def test_another_claim_behind_a_volume_is_another_device(node: _Node) -> None:
    """Also while permissions stay as they are, because the device of another disk is unknown."""
    node.attachments.add("more")
    await node.follow(_vmi("blocks", "more"))
    node.restarted()
    node.attachments.remove("more")
    await node.follow(_vmi("blocks", "more"))
    await node.follow(_vmi("more", known=("blocks",)))
    assert set(node.domain.disks) == {"ua-more"} and set(node.folder.nodes) == {"more"}
    node.number = _NUMBER + 1
    await node.follow(_vmi("blocks", "more"))
    assert node.folder.nodes == {"blocks": _NUMBER + 1, "more": _NUMBER}


async def test_a_guest_starts_once_all_its_volumes_are_there(node: _Node) -> None:
    vmi, launcher = _vmi("files", "blocks"), object()
    node.attachments.remove("blocks")
    bring: Any = node.plugs.bring_all
    with pytest.raises(VolumeNotReady, match="blocks"):
        await bring(vmi, launcher, ClaimSettings())
    node.attachments.add("blocks")
    found = await bring(vmi, launcher, ClaimSettings())
    assert {name: source.path for name, source in found.items()} == {
        "files": "/var/run/kubevirt/hotplug-disks/files.img",
        "blocks": "/var/run/kubevirt/hotplug-disks/blocks",
    }
    assert node.allowed[-1] == {_NUMBER}


async def test_nothing_is_left_after_a_guest_that_has_ended(node: _Node) -> None:
    await node.follow(_vmi("files", "blocks"))
    await node.plugs.clear()
    assert not node.folder.mounts | set(node.folder.nodes)


def test_events_tell_each_step_once() -> None:
    vmi = _vmi("files")
    there = plugs.Plugged(frozenset({"files"}), {"files": "sda"})
    status = decode(
        VirtualMachineInstance,
        {"status": {"volumeStatus": [encode(each) for each in reports.reported(vmi, {}, there)]}},
    ).status
    told = [
        ("VolumeMountedToPod", "Volume files has been mounted in virt-launcher pod"),
        ("VolumeReady", "Successfully attach hotplugged volume files to VM"),
    ]
    assert list(reports.events(vmi.status, status)) == told
    assert list(reports.events(status, status)) == []


def _beside(name: str, **more: object) -> JsonObject:
    return {"name": name, "claimName": name, **more}


@pytest.mark.parametrize("is_read_only", [False, True])
async def test_a_utility_volume_is_the_pods_and_not_the_guests(node: _Node, is_read_only: bool) -> None:
    vmi = _vmi(utility=[_beside("files", readOnly=is_read_only)])
    await node.follow(vmi)
    assert node.folder.trees == {"files": _READ_ONLY_TREE if is_read_only else _TREE}
    assert not node.domain.disks and not node.folder.mounts
    (entry,) = reports.reported(vmi, {}, node.plugs.found)
    assert (entry.phase, entry.reason, entry.target) == ("MountedToPod", "VolumeMountedToPod", "")
    node.restarted()
    await node.follow(vmi)
    assert node.folder.trees
    gone = _vmi(known=("files",))
    await node.follow(gone)
    assert not node.folder.trees
    (entry,) = reports.reported(gone, {}, node.plugs.found)
    assert entry.phase == "UnMountedFromPod"


async def test_a_utility_volume_waits_for_its_attachment_pod_and_holds_up_no_disk(node: _Node) -> None:
    node.attachments = {"blocks"}
    with pytest.raises(VolumeNotReady, match="files"):
        await node.follow(_vmi("blocks", utility=[_beside("files")]))
    assert set(node.domain.disks) == {"ua-blocks"}
    assert not node.folder.trees


async def test_a_block_device_beside_the_guests_stays_permitted_while_disks_are_plugged(node: _Node) -> None:
    with_device = [_beside("blocks")]
    await node.follow(_vmi(utility=with_device))
    assert (set(node.folder.nodes), node.allowed) == ({"blocks"}, [{_NUMBER}])
    await node.follow(_vmi("files", utility=with_device))
    assert set(node.domain.disks) == {"ua-files"}
    node.restarted()
    node.attachments.clear()
    with pytest.raises(VolumeNotReady, match="blocks"):
        await node.follow(_vmi("files", utility=with_device))
    assert (set(node.folder.nodes), node.allowed) == ({"blocks"}, [{_NUMBER}])
    node.attachments.add("blocks")
    await node.follow(_vmi(known=("files", "blocks")))
    assert not node.folder.nodes and node.allowed[-1] == set()


async def test_a_claim_that_was_beside_the_guest_can_become_its_disk(node: _Node) -> None:
    await node.follow(_vmi(utility=[_beside("files")]))
    await node.follow(_vmi("files"))
    assert (node.folder.trees, node.folder.mounts) == ({}, {"files"})
    assert set(node.domain.disks) == {"ua-files"}


async def test_nothing_is_left_of_utility_volumes_after_a_guest_that_has_ended(node: _Node) -> None:
    await node.follow(_vmi(utility=[_beside("files")]))
    await node.plugs.clear()
    assert not node.folder.trees
