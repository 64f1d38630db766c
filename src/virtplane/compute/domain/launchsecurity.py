"""``<launchSecurity>``: guests whose memory the node cannot read (AMD SEV)."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.compute.domain.xml import Element, element

_NO_DEBUG, _ENCRYPTED_STATE = 1 << 0, 1 << 2
_WITH_DRIVER = ("controller", "filesystem", "interface", "memballoon", "rng")


def render_launch_security(domain: DomainSpec) -> list[Element]:
    """The element of guests that SEV encrypts; libvirt 9 knows neither SEV-SNP nor TDX."""
    security = domain.launch_security
    if security is None or security.sev is None:
        return []
    sev = security.sev
    policy = _NO_DEBUG
    if sev.policy is not None and sev.policy.encrypted_state:
        policy |= _ENCRYPTED_STATE
    node = element("launchSecurity", {"type": "sev"}, element("policy", {}, f"0x{policy:04x}"))
    if sev.dh_cert:
        node.append(element("dhCert", {}, sev.dh_cert))
    if sev.session:
        node.append(element("session", {}, sev.session))
    return [node]


def let_devices_share(domain: DomainSpec, devices: Element) -> None:
    """Have the virtio devices of an encrypted guest use the memory alone that it shares with them."""
    security = domain.launch_security
    if security is None or security.sev is None:
        return
    for device in devices:
        if not _is_virtio(device):
            continue
        driver = device.find("driver")
        if driver is None:
            driver = element("driver")
            device.append(driver)
        driver.set("iommu", "on")


def _is_virtio(device: Element) -> bool:
    tag, model = str(device.tag), device.get("model", "")
    if tag in ("disk", "input"):
        target = device.find("target") if tag == "disk" else device
        return target is not None and target.get("bus") == "virtio"
    if tag == "interface":
        kind = device.find("model")
        model = "" if kind is None else kind.get("type", "")
    if tag == "controller" and device.get("type") not in ("scsi", "virtio-serial"):
        return False
    return tag in _WITH_DRIVER and (tag == "filesystem" or model.startswith("virtio"))
