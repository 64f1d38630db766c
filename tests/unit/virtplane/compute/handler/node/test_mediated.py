"""Mediated devices: which are made and removed, on a tree of files as the kernel has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.resources import NODES
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.device_configuration import MediatedDevicesConfiguration, PermittedHostDevices
from virtplane.compute.handler.node.hostdevices import permitted
from virtplane.compute.handler.node.mediated import (
    KernelDevices,
    MediatedDevices,
    Offer,
    names_of,
    plan,
    wanted_types,
)


def _configuration(text: JsonObject) -> MediatedDevicesConfiguration:
    return decode(MediatedDevicesConfiguration, text)


_BY_NODE: JsonObject = {
    "mediatedDeviceTypes": ["all"],
    "nodeMediatedDeviceTypes": [
        {"nodeSelector": {"gpu": "a"}, "mediatedDeviceTypes": ["x", "y"]},
        {"nodeSelector": {"gpu": "a", "zone": "1"}, "mediatedDevicesTypes": ["y", "z"]},
    ],
}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({}, ("all",)), ({"gpu": "a"}, ("x", "y")), ({"gpu": "a", "zone": "1"}, ("x", "y", "z"))],
)
def test_entries_for_a_node_count_more_than_those_for_all(
    labels: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert wanted_types(_configuration(_BY_NODE), labels) == expected


def test_nothing_is_said_of_devices_where_the_handling_is_off() -> None:
    assert wanted_types(None, {}) is None
    assert wanted_types(_configuration({"enabled": False, "mediatedDeviceTypes": ["x"]}), {}) is None
    assert wanted_types(_configuration({"mediatedDevicesTypes": ["old"]}), {}) == ("old",)


def _made(offers: Sequence[Offer], types: Sequence[str]) -> list[tuple[str, str, int]]:
    return [(offer.parent, offer.type, count) for offer, count in plan(offers, types).make]


def test_parents_get_the_types_in_turn_and_all_that_they_can_have() -> None:
    offers = [Offer(parent, kind, "", 2) for parent in ("p1", "p2", "p3") for kind in ("x", "y")]
    assert _made(offers, ["x", "y"]) == [("p1", "x", 2), ("p2", "y", 2), ("p3", "x", 2)]


def test_a_parent_keeps_to_the_type_that_it_has() -> None:
    offers = [Offer("p1", "x", "", 1), Offer("p1", "y", "GRID Y", 1, ("someone's",)), Offer("p2", "x", "", 1)]
    assert _made(offers, ["x", "GRID_Y"]) == [("p1", "y", 1), ("p2", "x", 1)]


class Tree(KernelDevices):
    """Files as those below /sys: what is written to them takes effect, as in the kernel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        super().__init__(root / "sys", root / "proc")
        self.groups = 0

    def add(self, parent: str, kind: str, name: str, free: int) -> None:
        folder = self._folder(parent, kind)
        (folder / "devices").mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "available_instances").write_text(f"{free}\n")

    def _folder(self, parent: str, kind: str) -> Path:
        return self.root / "sys/class/mdev_bus" / parent / "mdev_supported_types" / kind

    def make(self, offer: Offer, device: str) -> None:
        super().make(offer, device)
        folder = self._folder(offer.parent, offer.type)
        assert (folder / "create").read_text() == device
        self.place(folder, device)

    def place(self, folder: Path, device: str) -> None:
        """A new device of the type whose files are in `folder`."""
        free = int((folder / "available_instances").read_text())
        if not free:
            raise OSError("no room")
        (folder / "available_instances").write_text(str(free - 1))
        own = self.root / "sys/bus/mdev/devices" / device
        own.mkdir(parents=True)
        self.groups += 1
        (own / "iommu_group").symlink_to(f"../../groups/{self.groups}")
        (own / "mdev_type").symlink_to(folder)
        (folder / "devices" / device).symlink_to(own)

    def remove(self, device: str) -> None:
        super().remove(device)
        own = self.root / "sys/bus/mdev/devices" / device
        folder = (own / "mdev_type").readlink()
        (folder / "devices" / device).unlink()
        (folder / "available_instances").write_text(
            str(int((folder / "available_instances").read_text()) + 1)
        )
        for each in own.iterdir():
            each.unlink()
        own.rmdir()

    def use(self, device: str) -> Path:
        """A process has the device open."""
        group = (self.root / "sys/bus/mdev/devices" / device / "iommu_group").readlink().name
        folder = self.root / "proc/77/fd"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "9").symlink_to(f"/dev/vfio/{group}")
        return folder / "9"

    def devices(self) -> list[str]:
        return sorted(path.name for path in (self.root / "sys/bus/mdev/devices").glob("*"))


class Node:
    """A node with one card that makes vGPUs of two types."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.tree.add("0000:65:00.0", "nvidia-222", "GRID T4-1B", 2)
        self.tree.add("0000:65:00.0", "nvidia-223", "GRID T4-2B", 1)
        self.api = MemoryApi()
        self.api.put(NODES, {"metadata": {"name": "node01", "labels": {"gpu": "t4"}}})
        self.configuration: JsonObject = {}
        self.changes = 0
        self.keeper = MediatedDevices(
            self.api.client(), "node01", self.config, self.note_change, kernel=self.tree
        )

    def note_change(self) -> None:
        self.changes += 1

    def config(self) -> ClusterConfig:
        return ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": self.configuration}})

    async def keep(self, *types: str, **more: object) -> list[str]:
        self.configuration = {"mediatedDevicesConfiguration": {"mediatedDeviceTypes": list(types), **more}}
        await self.keeper.keep()
        return self.tree.devices()


async def test_wanted_devices_are_made_offered_and_made_only_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    made = await node.keep("GRID_T4-1B")
    assert len(made) == 2
    settings = decode(
        PermittedHostDevices,
        {"mediatedDevices": [{"mdevNameSelector": "GRID T4-1B", "resourceName": "nvidia.com/T4"}]},
    )
    [resource] = permitted(settings, tmp_path / "sys")
    assert [device.id for device in resource.devices] == made
    assert await node.keep("GRID_T4-1B") == made
    assert node.changes == 1


async def test_devices_of_another_type_take_their_place_once_nobody_uses_them(tmp_path: Path) -> None:
    node = Node(tmp_path)
    made = await node.keep("nvidia-222")
    used = node.tree.use(made[0])
    assert made[0] in await node.keep("nvidia-223")
    assert made[1] not in node.tree.devices()
    used.unlink()
    assert made[0] not in await node.keep("nvidia-223")


async def test_devices_of_others_stay(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.tree.place(tmp_path / "sys/class/mdev_bus/0000:65:00.0/mdev_supported_types/nvidia-222", "by-hand")
    assert await node.keep() == ["by-hand"]
    assert "by-hand" in await node.keep("nvidia-223")


async def test_an_installation_that_says_nothing_any_more_removes_its_own(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert await node.keep("nvidia-222")
    node.configuration = {}
    await node.keeper.keep()
    assert node.tree.devices() == []


@pytest.mark.parametrize("gates", [["DisableMDEVConfiguration"], []])
async def test_the_handling_can_be_switched_off(tmp_path: Path, gates: list[str]) -> None:
    node = Node(tmp_path)
    made = await node.keep("nvidia-222")
    mediated: JsonObject = {"mediatedDeviceTypes": ["nvidia-223"], "enabled": bool(gates)}
    node.configuration = {
        "mediatedDevicesConfiguration": mediated,
        "developerConfiguration": {"featureGates": gates},
    }
    await node.keeper.keep()
    assert node.tree.devices() == made


async def test_a_device_that_the_driver_refuses_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)

    def refuse(offer: Offer, device: str) -> None:
        raise OSError("no licence")

    with monkeypatch.context() as patched:
        patched.setattr(node.tree, "make", refuse)
        with pytest.raises(OSError, match="no licence"):
            await node.keep("nvidia-222")
    assert len(await node.keep("nvidia-222")) == 2


def test_devices_have_other_names_on_each_parent_and_of_each_type() -> None:
    names = [next(names_of(Offer(parent, kind, "", 1))) for parent in "pq" for kind in "xy"]
    assert len(set(names)) == 4
