"""Devices of claims: what drivers describe in files of the container becomes devices of the domain."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.hostdevices import render_host_devices
from virtplane.compute.handler.launchers.claimeddevices import (
    FOLDER,
    UndescribedDevice,
    claimed_devices,
    device_of,
)
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod

_ADDRESS = "0000:81:00.0"
_UUID = "0b2f7a0e-1111-2222-3333-444455556666"
_PCI: JsonObject = {"resource.kubernetes.io/pciBusID": {"string": _ADDRESS}}
_CLAIMS = [
    {"name": "card", "resourceClaimName": "card-7"},
    {"name": "gpus", "resourceClaimTemplateName": "two-gpus"},
]


def _vmi(**devices: Any) -> VirtualMachineInstance:
    domain = {"devices": devices, "memory": {"guest": "64Mi"}}
    metadata = {"name": "vm", "namespace": "ns", "uid": "u"}
    spec = {"domain": domain, "resourceClaims": _CLAIMS}
    return decode(VirtualMachineInstance, {"metadata": metadata, "spec": spec})


def _file(*devices: JsonObject, request: str = "gpu") -> str:
    described = [
        {"driver": "gpu.example", "pool": "node", "name": f"d{number}", "attributes": attributes}
        for number, attributes in enumerate(devices)
    ]
    return json.dumps(
        {
            "kind": "DeviceMetadata",
            "apiVersion": "metadata.resource.k8s.io/v1alpha1",
            "requests": [{"name": request, "devices": described}],
        }
    )


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Process]:
    folder, ended = os.open(tmp_path, os.O_PATH), os.pidfd_open(os.getpid())
    process = Process(os.getpid(), ended, folder, os.dup(folder))
    yield process
    process.close()


def _describe(root: Path, place: str, text: str, driver: str = "gpu.example") -> None:
    folder = root / FOLDER / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{driver}-metadata.json").write_text(text)


_HOST_DEVICE = {"name": "nic", "claimName": "card", "requestName": "port"}
_GPU = {"name": "gpu0", "claimName": "gpus", "requestName": "gpu"}


def test_devices_of_claims_and_of_templates_are_in_the_domain(tmp_path: Path, launcher: Process) -> None:
    vmi = _vmi(hostDevices=[_HOST_DEVICE], gpus=[_GPU])
    _describe(tmp_path, "resourceclaims/card-7/port", _file(_PCI, request="port"))
    _describe(tmp_path, "resourceclaimtemplates/gpus/gpu", _file({"mdevUUID": {"string": _UUID}}))
    context = DomainContext(emulation=False, claimed=claimed_devices(vmi, launcher))
    nic, gpu = render_host_devices(vmi.spec.domain.devices, context)
    address = nic.find("source/address")
    assert address is not None
    assert (nic.get("type"), address.get("bus")) == ("pci", "0x81")
    uuid = gpu.find("source/address")
    assert uuid is not None
    assert (gpu.get("type"), uuid.get("uuid"), gpu.get("display")) == ("mdev", _UUID, "on")


def test_their_pod_has_the_claims() -> None:
    vmi = _vmi(hostDevices=[_HOST_DEVICE], gpus=[_GPU])
    pod = render_launcher_pod(RenderInputs(vmi, ClusterConfig(), Images("launcher", "sidecar")))
    assert pod["spec"]["resourceClaims"] == _CLAIMS
    [compute] = [each for each in pod["spec"]["containers"] if each["name"] == "compute"]
    wanted = [{"name": "gpus", "request": "gpu"}, {"name": "card", "request": "port"}]
    assert compute["resources"]["claims"] == wanted


def test_guests_without_claims_ask_no_launcher(launcher: Process) -> None:
    launcher.close()
    assert claimed_devices(_vmi(gpus=[{"name": "g", "deviceName": "vendor.com/gpu"}]), launcher) == {}


def test_a_device_needs_exactly_one_driver_that_describes_it(tmp_path: Path, launcher: Process) -> None:
    vmi = _vmi(gpus=[_GPU])
    with pytest.raises(UndescribedDevice, match="0 drivers"):
        claimed_devices(vmi, launcher)
    for driver in ("one", "two"):
        _describe(tmp_path, "resourceclaimtemplates/gpus/gpu", _file(_PCI), driver)
    with pytest.raises(UndescribedDevice, match="2 drivers"):
        claimed_devices(vmi, launcher)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ("[]", "does not describe devices"),
        ('{"apiVersion": "v1"}', "does not describe devices"),
        (_file(), "0 devices"),
        (_file(_PCI, _PCI), "2 devices"),
        (_file(_PCI, request="other"), "0 devices"),
        (_file({"model": {"string": "x"}}), "no attribute"),
        (_file({"resource.kubernetes.io/pciBusID": {"string": 7}}), "no attribute"),
    ],
)
def test_files_that_describe_no_single_device_are_refused(
    tmp_path: Path, launcher: Process, text: str, problem: str
) -> None:
    _describe(tmp_path, "resourceclaimtemplates/gpus/gpu", text)
    with pytest.raises(UndescribedDevice, match=problem):
        claimed_devices(_vmi(gpus=[_GPU]), launcher)


def test_an_address_that_is_none_is_refused_by_the_domain(tmp_path: Path, launcher: Process) -> None:
    wrong = {"resource.kubernetes.io/pciBusID": {"string": "../../etc"}}
    _describe(tmp_path, "resourceclaimtemplates/gpus/gpu", _file(wrong))
    vmi = _vmi(gpus=[_GPU])
    context = DomainContext(emulation=False, claimed=claimed_devices(vmi, launcher))
    with pytest.raises(ValueError, match="etc"):
        render_host_devices(vmi.spec.domain.devices, context)


def test_the_first_of_several_versions_is_read_and_subrequests_count() -> None:
    text = f"{_file(_PCI, request='gpu/large')}\n{_file(request='gpu')}".encode()
    assert device_of(text, "gpu").name == _ADDRESS


def test_links_of_the_launcher_lead_nowhere_outside(tmp_path: Path, launcher: Process) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "gpu.example-metadata.json").write_text(_file(_PCI))
    folder = tmp_path / FOLDER / "resourceclaimtemplates/gpus"
    folder.mkdir(parents=True)
    (folder / "gpu").symlink_to(outside)
    with pytest.raises(UndescribedDevice):
        claimed_devices(_vmi(gpus=[_GPU]), launcher)
