"""Disks and volumes that users may ask for, and the words of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.virtplane.compute.apiserver.admission.answers import INTERFACE, causes, instance

from kubecore.json import JsonObject


def _disk(volume: JsonObject | None = None, **disk: Any) -> JsonObject:
    source = volume or {"containerDisk": {"image": "i"}}
    return instance(devices={"disks": [{"name": "root", **disk}]}, volumes=[{"name": "root", **source}])


_DISK = "spec.domain.devices.disks[0]"


@pytest.mark.feature("VMC-42")
@pytest.mark.parametrize("bus", ["virtio", "sata", "scsi"])
async def test_disks_are_on_one_of_the_known_buses(bus: str) -> None:
    assert await causes(_disk(disk={"bus": bus})) == []


@pytest.mark.feature("VMC-42")
@pytest.mark.parametrize(
    ("bus", "text"),
    [
        ("ide", "IDE bus is not supported"),
        (
            "nvme",
            f"{_DISK} is set with an unrecognized bus nvme, must be one of: [virtio scsi sata usb]",
        ),
    ],
)
async def test_other_buses_are_refused(bus: str, text: str) -> None:
    assert await causes(_disk(disk={"bus": bus})) == [(f"{_DISK}.disk.bus", text)]


@pytest.mark.feature("VMC-41")
async def test_a_volume_shows_as_a_disk_or_a_cdrom_and_not_as_both() -> None:
    assert await causes(_disk(disk={"bus": "virtio"})) == []
    assert await causes(_disk(cdrom={"bus": "sata"})) == []
    text = f"{_DISK} can only have a single target type defined"
    assert await causes(_disk(disk={}, cdrom={"bus": "sata"})) == [(_DISK, text)]
    wrong = "Bus type virtio is invalid for CD-ROM device"
    assert await causes(_disk(cdrom={"bus": "virtio"})) == [(f"{_DISK}.cdrom.bus", wrong)]


@pytest.mark.feature("VMC-43")
@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("root-1", True),
        ("1", True),
        ("x" * 63, True),
        ("x" * 64, False),
        ("Root", False),
        ("root disk", False),
        ("root_disk", False),
        ("-root", False),
        ("root-", False),
        ("root.disk", False),
    ],
)
async def test_names_of_disks_are_labels_of_dns(name: str, is_valid: bool) -> None:
    volume = {"name": name, "containerDisk": {"image": "i"}}
    found = await causes(instance(devices={"disks": [{"name": name, "disk": {}}]}, volumes=[volume]))
    refused = [field for field, _ in found]
    assert not refused if is_valid else refused[0].endswith("disks[0].name")


@pytest.mark.feature("VML-39")
async def test_boot_orders_begin_with_one_and_are_had_once_over_disks_and_cards() -> None:
    assert await causes(_disk(disk={}, bootOrder=1)) == []
    text = f"{_DISK} must have a boot order > 0, if supplied"
    assert await causes(_disk(disk={}, bootOrder=0)) == [(f"{_DISK}.bootOrder", text)]
    both = _disk(disk={}, bootOrder=1)
    both["spec"]["networks"] = [{"name": "default", "pod": {}}]
    both["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}, "bootOrder": 1}]
    where = f"{INTERFACE}.bootOrder"
    assert await causes(both) == [(where, f"Boot order for {where} already set for a different device.")]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"persistentVolumeClaim": {"claimName": "c"}}, marks=pytest.mark.feature("VMC-36")),
        {"dataVolume": {"name": "d"}},
        pytest.param({"containerDisk": {"image": "i"}}, marks=pytest.mark.feature("VMC-39")),
        {"emptyDisk": {"capacity": "1Gi"}},
        {"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
        pytest.param(
            {"cloudInitNoCloud": {"userData": "#cloud-config"}}, marks=pytest.mark.feature("VMC-38")
        ),
        pytest.param(
            {"cloudInitNoCloud": {"networkData": "version: 2"}}, marks=pytest.mark.feature("VMC-38")
        ),
    ],
    ids=lambda source: next(iter(source)),
)
async def test_the_kinds_of_volumes_are_accepted(source: JsonObject) -> None:
    assert await causes(_disk(source, disk={})) == []


async def test_a_volume_has_exactly_one_source() -> None:
    two = {"containerDisk": {"image": "i"}, "emptyDisk": {"capacity": "1Gi"}}
    text = "spec.volumes[0] must have exactly one source type set"
    assert await causes(_disk(two, disk={})) == [("spec.volumes[0]", text)]


@pytest.mark.feature("VMC-59")
async def test_ssh_keys_need_a_way_into_the_guest() -> None:
    def credential(**method: Any) -> JsonObject:
        source = {"secret": {"secretName": "keys"}}
        found = _disk(disk={})
        key = {"sshPublicKey": {"source": source, "propagationMethod": method}}
        found["spec"]["accessCredentials"] = [key]
        return found

    field = "spec.accessCredentials[0].sshPublicKey.propagationMethod"
    assert await causes(credential(noCloud={})) == [
        (
            field,
            "spec.accessCredentials[0] requires a noCloud volume to exist"
            " when the noCloud propagationMethod is in use.",
        )
    ]
    with_volume = credential(noCloud={})
    with_volume["spec"]["volumes"].append({"name": "ci", "cloudInitNoCloud": {"userData": "#"}})
    with_volume["spec"]["domain"]["devices"]["disks"].append({"name": "ci", "disk": {}})
    assert await causes(with_volume) == []
    assert await causes(credential(qemuGuestAgent={"users": ["cloud-user"]})) == []
    users = f"{field}.qemuGuestAgent.users"
    assert await causes(credential(qemuGuestAgent={"users": []})) == [
        (users, "spec.accessCredentials[0] requires at least one user to be present in the users list")
    ]
