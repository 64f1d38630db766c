"""Guests whose memory the node cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DiskSource, DomainContext, InterfaceLink

_SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


def rendered(security: JsonObject | None) -> etree._Element:
    disks = [{"name": "v", "disk": {"bus": "virtio"}}, {"name": "s", "disk": {"bus": "sata"}}]
    domain: JsonObject = {"memory": {"guest": "1Gi"}, "devices": {"disks": disks, "rng": {}}}
    domain["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    if security is not None:
        domain["launchSecurity"] = security
    spec = {"domain": domain, "networks": [{"name": "default", "pod": {}}]}
    vmi = decode(
        VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": spec}
    )
    sources = {name: DiskSource(f"/{name}") for name in "vs"}
    links = {"default": InterfaceLink("tap0", "02:00:00:00:00:01")}
    context = DomainContext(emulation=False, disks=sources, interfaces=links)
    return etree.fromstring(document.render(vmi, context))


@pytest.mark.parametrize(
    ("sev", "policy"),
    [({}, "0x0001"), ({"policy": {"encryptedState": True}}, "0x0005"), ({"policy": {}}, "0x0001")],
)
def test_the_policy_of_sev_forbids_debugging_and_may_encrypt_registers(sev: JsonObject, policy: str) -> None:
    root = rendered({"sev": sev})
    assert root.findtext("launchSecurity[@type='sev']/policy") == policy


def test_the_owners_session_is_handed_on() -> None:
    root = rendered({"sev": {"dhCert": "AA==", "session": "BB=="}})
    assert root.findtext("launchSecurity/dhCert") == "AA=="
    assert root.findtext("launchSecurity/session") == "BB=="


def test_virtio_devices_of_encrypted_guests_use_shared_memory_alone() -> None:
    root = rendered({"sev": {}})
    found = {
        (str(device.tag), device.get("type", "")): driver.get("iommu")
        for device in root.iterfind("devices/*")
        for driver in device.iterfind("driver")
    }
    assert found["interface", "ethernet"] == "on"
    assert found["controller", "scsi"] == "on"
    assert found["controller", "virtio-serial"] == "on"
    assert found["memballoon", ""] == found["rng", ""] == "on"
    disks = [driver.get("iommu") for driver in root.iterfind("devices/disk/driver")]
    assert disks == ["on", None]


@pytest.mark.skipif(not _SCHEMA.exists(), reason="libvirt's schema is not installed")
def test_the_domain_of_an_encrypted_guest_is_valid() -> None:
    etree.RelaxNG(file=str(_SCHEMA)).assertValid(rendered({"sev": {"dhCert": "AA==", "session": "BB=="}}))


def test_other_guests_are_not_encrypted() -> None:
    root = rendered(None)
    assert root.find("launchSecurity") is None
    assert [driver for driver in root.iterfind("devices/*/driver") if driver.get("iommu")] == []
