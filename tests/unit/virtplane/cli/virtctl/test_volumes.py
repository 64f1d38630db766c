"""``addvolume`` and ``removevolume``: what they look up, ask for and say."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SUB, FakeServer, Virtctl

_CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
_DATA_VOLUME = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes/data"
_VM, _VMI = f"{SUB}/default/virtualmachines/vm", f"{SUB}/default/virtualmachineinstances/vm"
_OF_CLAIM = {"persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
_PASSING = "the server rejected our request due to an error in our request"


def _added(disk: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": disk["name"], "disk": disk, "volumeSource": _OF_CLAIM, **more}


@pytest.mark.feature("CTL-39", "VML-32", "VML-33")
@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ("", _added({"name": "data", "disk": {"bus": "scsi"}, "serial": "data"})),
        ("--persist --bus virtio", _added({"name": "data", "disk": {"bus": "virtio"}, "serial": "data"})),
        (
            "--disk-type lun --serial s --disk-name d --cache none",
            _added({"name": "d", "lun": {"bus": "scsi"}, "serial": "s", "cache": "none"}),
        ),
        (
            "--dry-run",
            _added({"name": "data", "disk": {"bus": "scsi"}, "serial": "data"}, dryRun=["All"]),
        ),
    ],
)
def test_a_claim_is_added_as_a_disk(
    api: FakeServer, virtctl: Virtctl, arguments: str, body: dict[str, Any]
) -> None:
    api.refuse("GET", _DATA_VOLUME, 404, "not found")
    result = virtctl("addvolume", "vm", "--volume-name=data", *arguments.split())
    assert result.code == 0
    assert result.out.splitlines()[-1] == (
        "Successfully submitted add volume request to VM vm for volume data"
    )
    assert api.requests[-1] == ("PUT", f"{_VM}/addvolume", body)


@pytest.mark.feature("CTL-39")
def test_a_data_volume_is_found_first(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("addvolume", "vm", "--volume-name=data").code == 0
    body = api.requests[-1][2]
    assert body["volumeSource"] == {"dataVolume": {"name": "data", "hotpluggable": True}}


@pytest.mark.feature("CTL-39", "CTL-40")
@pytest.mark.parametrize("action", ["addvolume", "removevolume"])
def test_an_instance_without_a_vm_is_asked_itself(api: FakeServer, virtctl: Virtctl, action: str) -> None:
    api.refuse("PUT", f"{_VM}/{action}", 404, "not found")
    assert virtctl(action, "vm", "--volume-name=data").code == 0
    assert api.requests[-1][:2] == ("PUT", f"{_VMI}/{action}")


@pytest.mark.feature("CTL-40", "VML-30")
def test_a_volume_is_removed_by_its_name(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("removevolume", "vm", "--volume-name=data", "--persist")
    assert "Successfully submitted remove volume request to VM vm for volume data" in result.out
    assert api.requests == [("PUT", f"{_VM}/removevolume", {"name": "data"})]


@pytest.mark.feature("CTL-39")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--bus sata", "Invalid bus type 'sata' for disk. Only 'scsi' and 'virtio' are supported."),
        (
            "--disk-type lun --bus virtio",
            "Invalid bus type 'virtio' for LUN disk. Only 'scsi' bus is supported.",
        ),
        (f"--disk-name {'n' * 64}", f"Invalid disk name {'n' * 64}, must not exceed 63 characters"),
        ("--disk-type cdrom", "Invalid disk type 'cdrom'. Only LUN and Disk are supported."),
    ],
)
def test_what_cannot_be_plugged_is_not_asked_for(
    api: FakeServer, virtctl: Virtctl, arguments: str, said: str
) -> None:
    result = virtctl("addvolume", "vm", "--volume-name=data", *arguments.split())
    assert result.code == 1
    assert result.err.strip() == said
    assert all(method == "GET" for method, _, _ in api.requests)


@pytest.mark.feature("CTL-39")
def test_a_volume_that_is_neither_is_named(api: FakeServer, virtctl: Virtctl) -> None:
    for path in (_DATA_VOLUME, _CLAIM):
        api.refuse("GET", path, 404, "not found")
    result = virtctl("addvolume", "vm", "--volume-name=data")
    text = "error adding volume, Volume data is not a DataVolume or PersistentVolumeClaim"
    assert (result.code, result.err.strip()) == (1, text)


@pytest.mark.parametrize(
    ("message", "tries", "said"),
    [
        (_PASSING, 15, "error adding volume after 15 retries"),
        ("no", 1, "error adding volume, no"),
    ],
)
def test_only_one_failure_is_tried_again(
    api: FakeServer, virtctl: Virtctl, message: str, tries: int, said: str
) -> None:
    api.refuse("PUT", f"{_VM}/addvolume", 400, message)
    result = virtctl("addvolume", "vm", "--volume-name=data")
    assert (result.code, result.err.strip().splitlines()[-1]) == (1, said)
    assert sum(method == "PUT" for method, _, _ in api.requests) == tries
