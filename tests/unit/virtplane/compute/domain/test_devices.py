"""Single wishes of a machine in its domain."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.configuration import KubeVirtConfiguration
from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import (
    BootFiles,
    DiskSource,
    DomainContext,
    FirmwareImage,
    InterfaceLink,
)
from virtplane.compute.domain.disks import render_disk
from virtplane.compute.handler.libvirtd.domainoptions import domain_options

OVMF = FirmwareImage("/ovmf/code.fd", "/ovmf/variables.fd")


def instance(*, devices: JsonObject | None = None, **domain: Any) -> JsonObject:
    body = {"memory": {"guest": "128Mi"}, **domain, "devices": devices or {}}
    spec = {"domain": body, "networks": [{"name": "default", "pod": {}}]}
    return {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": spec}


def rendered(
    vmi: JsonObject,
    *disks: str,
    emulation: bool = False,
    mtu: int = 1500,
    boot: BootFiles = BootFiles(),  # noqa: B008 - immutable
    options: dict[str, Any] | None = None,
) -> ElementTree.Element:
    sources = {
        name: DiskSource(f"/{name}.qcow2", "qcow2", backing_path=f"/{name}.img", backing_format="raw")
        for name in disks
    }
    links = {"default": InterfaceLink("tap0", "02:00:00:00:00:01", mtu)}
    context = DomainContext(
        emulation=emulation, disks=sources, interfaces=links, boot=boot, **(options or {})
    )
    return ElementTree.fromstring(document.render(decode(VirtualMachineInstance, vmi), context))


def only(root: ElementTree.Element, path: str) -> ElementTree.Element:
    (found,) = root.findall(path)
    return found


def test_usb_devices_of_clients_come_through_four_sockets_where_they_are_wanted() -> None:
    root = rendered(instance(devices={"clientPassthrough": {}}))
    assert [device.attrib for device in root.iter("redirdev")] == [{"type": "unix", "bus": "usb"}] * 4
    paths = [source.get("path") for source in root.findall("devices/redirdev/source")]
    assert [str(path).rpartition("/")[2] for path in paths] == [f"virt-usbredir-{slot}" for slot in range(4)]
    assert rendered(instance()).find("devices/redirdev") is None


@pytest.mark.parametrize(("emulation", "kind"), [(False, "kvm"), (True, "qemu")])
def test_guests_run_with_kvm_where_there_is_one(emulation: bool, kind: str) -> None:
    assert rendered(instance(), emulation=emulation).get("type") == kind


@pytest.mark.parametrize(
    ("memory", "mebibytes"), [("64Mi", "20"), ("128Mi", "21"), ("1Gi", "170"), ("64Gi", "512")]
)
def test_an_emulated_guest_gets_a_sixth_of_its_memory_for_translated_code(
    memory: str, mebibytes: str
) -> None:
    root = rendered(instance(memory={"guest": memory}), emulation=True)
    assert only(root, "features/tcg/tb-cache").text == mebibytes


@pytest.mark.parametrize(
    ("cpu", "emulation", "withheld"),
    [
        ({}, True, ["cpu-unavailable-features"]),
        ({"model": "host-passthrough"}, True, ["cpu-unavailable-features"]),
        ({"model": "Haswell"}, True, []),
        ({}, False, []),
    ],
)
def test_libvirt_reads_back_the_cpu_of_a_guest_only_where_it_has_a_model(
    cpu: JsonObject, emulation: bool, withheld: list[str]
) -> None:
    found = rendered(instance(cpu=cpu), emulation=emulation).findall(
        "{http://libvirt.org/schemas/domain/qemu/1.0}capabilities/*"
    )
    assert [(each.tag.rpartition("}")[2], each.get("capability")) for each in found] == [
        ("del", name) for name in withheld
    ]


def test_nothing_is_translated_with_kvm() -> None:
    assert rendered(instance()).find("features/tcg") is None


def _disks(*disks: JsonObject) -> list[tuple[str | None, ...]]:
    names = [str(disk["name"]) for disk in disks]
    root = rendered(instance(devices={"disks": list(disks)}), *names)
    result: list[tuple[str | None, ...]] = []
    for disk in root.findall("devices/disk"):
        target, boot = only(disk, "target"), disk.find("boot")
        order = boot.get("order") if boot is not None else None
        result.append((disk.get("device"), target.get("dev"), target.get("bus"), order))
    return result


@pytest.mark.feature("VMC-54")
def test_disks_are_attached_in_the_order_of_the_manifest() -> None:
    root = rendered(
        instance(devices={"disks": [{"name": name, "disk": {}} for name in ("b", "a", "c")]}), "a", "b", "c"
    )
    backing = [only(disk, "backingStore/source").get("file") for disk in root.findall("devices/disk")]
    assert backing == ["/b.img", "/a.img", "/c.img"]
    targets = [only(disk, "target").get("dev") for disk in root.findall("devices/disk")]
    assert targets == ["vda", "vdb", "vdc"]


@pytest.mark.feature("VMC-42")
@pytest.mark.parametrize(("bus", "device"), [("virtio", "vda"), ("sata", "sda"), ("scsi", "sda")])
def test_a_disk_is_on_the_bus_that_it_asks_for(bus: str, device: str) -> None:
    assert _disks({"name": "a", "disk": {"bus": bus}}) == [("disk", device, bus, "1")]


@pytest.mark.feature("VMC-41")
def test_a_volume_shows_as_disk_or_cdrom() -> None:
    found = _disks({"name": "a", "disk": {"bus": "virtio"}}, {"name": "b", "cdrom": {"bus": "sata"}})
    assert [kind for kind, *_ in found] == ["disk", "cdrom"]


@pytest.mark.feature("VMC-39")
def test_a_read_only_volume_lies_below_a_layer_that_is_written_to() -> None:
    root = rendered(instance(devices={"disks": [{"name": "a", "disk": {}}]}), "a")
    disk = only(root, "devices/disk")
    assert only(disk, "source").get("file") == "/a.qcow2"
    assert only(disk, "backingStore/source").get("file") == "/a.img"


@pytest.mark.feature("VML-39")
def test_boot_orders_are_given_to_disks_and_cards() -> None:
    devices = {
        "disks": [{"name": "a", "disk": {}, "bootOrder": 2}, {"name": "b", "disk": {}}],
        "interfaces": [{"name": "default", "masquerade": {}, "bootOrder": 1}],
    }
    root = rendered(instance(devices=devices), "a", "b")
    orders = [boot.get("order") for boot in root.findall("devices/*/boot")]
    assert orders == ["2", "1"]
    assert only(root, "devices/interface/boot").get("order") == "1"


@pytest.mark.feature("VML-33")
def test_every_machine_has_a_scsi_controller_to_plug_disks_into() -> None:
    controllers = rendered(instance()).findall("devices/controller[@type='scsi']")
    assert [controller.get("model") for controller in controllers] == ["virtio-non-transitional"]
    switched_off = rendered(instance(devices={"disableHotplug": True}))
    assert switched_off.findall("devices/controller[@type='scsi']") == []


def _firmware(runtime_user: int = 107, **efi: Any) -> ElementTree.Element:
    vmi = instance(firmware={"bootloader": {"efi": efi}}, features={"smm": {}})
    return rendered({**vmi, "status": {"runtimeUser": runtime_user}}, boot=BootFiles(OVMF))


@pytest.mark.feature("VML-42")
def test_uefi_comes_with_and_without_secure_boot() -> None:
    assert rendered(instance()).find("os/loader") is None
    plain, secure = only(_firmware(secureBoot=False), "os/loader"), only(_firmware(), "os/loader")
    assert (plain.get("secure"), secure.get("secure")) == ("no", "yes")
    assert plain.get("type") == secure.get("type") == "pflash"
    assert secure.text == OVMF.code


@pytest.mark.feature("VML-44")
@pytest.mark.parametrize(
    ("user", "folder"),
    [(107, "/var/run/kubevirt-private/libvirt/qemu/nvram"), (0, "/var/lib/libvirt/qemu/nvram")],
)
def test_uefi_has_its_variables_where_the_claim_is_mounted(user: int, folder: str) -> None:
    nvram = only(_firmware(user, persistent=True), "os/nvram")
    assert (nvram.get("template"), nvram.text) == (OVMF.variables, f"{folder}/vm_VARS.fd")


def test_a_kernel_from_outside_comes_with_its_command_line() -> None:
    boot = BootFiles(kernel="/boot/kernel", initrd="/boot/initrd")
    vmi = instance(firmware={"kernelBoot": {"kernelArgs": "console=ttyS0 quiet"}})
    found = {each.tag: each.text for each in only(rendered(vmi, boot=boot), "os")}
    expected = {"kernel": "/boot/kernel", "initrd": "/boot/initrd", "cmdline": "console=ttyS0 quiet"}
    assert found.items() >= expected.items()


def _arguments(root: ElementTree.Element) -> list[str | None]:
    path = "{http://libvirt.org/schemas/domain/qemu/1.0}commandline/*"
    return [each.get("value") for each in root.findall(path)]


def test_acpi_tables_come_from_their_files() -> None:
    root = rendered(instance(), boot=BootFiles(slic="/slic.bin", msdm="/msdm.bin"))
    table = only(root, "os/acpi/table")
    assert (table.get("type"), table.text) == ("slic", "/slic.bin")
    assert _arguments(root) == ["-acpitable", "file=/msdm.bin"]
    assert rendered(instance()).find("os/acpi") is None
    assert _arguments(rendered(instance())) == []


def test_a_panicking_guest_has_the_devices_that_it_asks_for() -> None:
    vmi = instance(
        devices={"panicDevices": [{"model": "hyperv"}, {"model": "pvpanic"}, {"model": "isa"}, {}]}
    )
    with_kvm, emulated = rendered(vmi), rendered(vmi, emulation=True)
    assert [each.get("model") for each in with_kvm.iter("panic")] == ["hyperv", "isa", None]
    assert [each.get("model") for each in emulated.iter("panic")] == ["isa", None]
    assert _arguments(with_kvm) == _arguments(emulated) == ["-device", "pvpanic-pci,addr=0x1c"]


def test_a_vsock_device_has_the_address_that_was_chosen() -> None:
    vmi = instance(devices={"autoattachVSOCK": True})
    assert rendered(vmi).find("devices/vsock") is None, "none was chosen yet"
    cid = only(rendered({**vmi, "status": {"VSOCKCID": 4711}}), "devices/vsock/cid")
    assert cid.attrib == {"auto": "no", "address": "4711"}
    assert rendered({**instance(), "status": {"VSOCKCID": 4711}}).find("devices/vsock") is None


@pytest.mark.feature("VML-45")
@pytest.mark.parametrize(
    ("tpm", "model", "state"), [({}, "tpm-tis", None), ({"persistent": True}, "tpm-crb", "yes")]
)
def test_a_tpm_keeps_its_state_where_it_is_asked_to(tpm: JsonObject, model: str, state: str | None) -> None:
    found = only(rendered(instance(devices={"tpm": tpm})), "devices/tpm")
    backend = only(found, "backend")
    assert (found.get("model"), backend.get("type"), backend.get("version")) == (model, "emulator", "2.0")
    assert backend.get("persistent_state") == state
    assert rendered(instance(devices={"tpm": {"enabled": False}})).find("devices/tpm") is None


@pytest.mark.feature("VML-43")
def test_secure_boot_comes_with_system_management_mode() -> None:
    root = _firmware(secureBoot=True)
    assert only(root, "features/smm").get("state") == "on"
    assert only(root, "os/loader").get("secure") == "yes"


@pytest.mark.feature("VML-49")
@pytest.mark.parametrize("action", ["poweroff", "reset", "shutdown"])
def test_a_watchdog_has_its_action(action: str) -> None:
    watchdog = {"name": "dog", "i6300esb": {"action": action}}
    found = only(rendered(instance(devices={"watchdog": watchdog})), "devices/watchdog")
    assert (found.get("model"), found.get("action")) == ("i6300esb", action)


@pytest.mark.feature("VML-52")
@pytest.mark.parametrize(("given", "expected"), [("", "q35"), ("pc-q35-rhel9.2.0", "pc-q35-rhel9.2.0")])
def test_the_machine_type_is_the_one_asked_for(given: str, expected: str) -> None:
    assert only(rendered(instance(machine={"type": given})), "os/type").get("machine") == expected


@pytest.mark.parametrize("policy", ["force", "require", "optional", "disable", "forbid"])
def test_cpu_features_have_their_policies(policy: str) -> None:
    root = rendered(instance(cpu={"features": [{"name": "apic", "policy": policy}]}))
    assert only(root, "cpu/feature[@name='apic']").get("policy") == policy


@pytest.mark.feature("VML-58")
def test_a_forced_feature_is_the_guests_whatever_the_host_has() -> None:
    root = rendered(instance(cpu={"features": [{"name": "apic", "policy": "force"}]}))
    assert only(root, "cpu/feature[@name='apic']").get("policy") == "force"


def test_a_feature_without_policy_is_required() -> None:
    root = rendered(instance(cpu={"features": [{"name": "apic"}]}))
    assert only(root, "cpu/feature[@name='apic']").get("policy") == "require"


def test_a_named_cpu_model_is_the_guests() -> None:
    root = rendered(instance(cpu={"model": "Conroe"}))
    assert only(root, "cpu").get("mode") == "custom"
    assert only(root, "cpu/model").text == "Conroe"


def test_the_hosts_model_is_the_guests() -> None:
    assert only(rendered(instance(cpu={"model": "host-model"})), "cpu").get("mode") == "host-model"


def _card(**card: Any) -> ElementTree.Element:
    devices = {"interfaces": [{"name": "default", "masquerade": {}, **card}]}
    return only(rendered(instance(devices=devices), mtu=8900), "devices/interface")


@pytest.mark.feature("NET-09")
@pytest.mark.parametrize(
    ("model", "rendered_model"),
    [
        ("", "virtio-non-transitional"),
        ("virtio", "virtio-non-transitional"),
        ("e1000", "e1000"),
        ("pcnet", "pcnet"),
        ("rtl8139", "rtl8139"),
    ],
)
def test_cards_have_the_model_that_was_asked_for(model: str, rendered_model: str) -> None:
    assert only(_card(model=model), "model").get("type") == rendered_model


@pytest.mark.feature("NET-08")
def test_the_card_tells_the_guest_the_pods_mtu() -> None:
    assert only(_card(), "mtu").get("size") == "8900"


@pytest.mark.feature("VML-17")
def test_a_guest_that_starts_paused_waits_for_a_key_at_boot() -> None:
    vmi = instance()
    vmi["spec"]["startStrategy"] = "Paused"
    assert only(rendered(vmi), "os/bootmenu").get("enable") == "yes"
    assert rendered(instance()).find("os/bootmenu") is None


@pytest.mark.parametrize(
    ("tpm", "model", "kept"), [({}, "tpm-tis", None), ({"persistent": True}, "tpm-crb", "yes")]
)
def test_a_tpm_is_there_when_it_is_asked_for(tpm: JsonObject, model: str, kept: str | None) -> None:
    found = only(rendered(instance(devices={"tpm": tpm})), "devices/tpm")
    backend = only(found, "backend")
    assert (found.get("model"), backend.get("type"), backend.get("version")) == (model, "emulator", "2.0")
    assert backend.get("persistent_state") == kept
    assert rendered(instance()).find("devices/tpm") is None


@pytest.mark.feature("SUP-14")
@pytest.mark.parametrize(("logged", "count"), [(True, 1), (False, 0)])
def test_the_serial_console_is_written_to_a_log_unless_switched_off(logged: bool, count: int) -> None:
    root = rendered(instance(devices={"logSerialConsole": logged}))
    assert len(root.findall("devices/serial/log")) == count


@pytest.mark.feature("SUP-13")
@pytest.mark.parametrize(
    ("options", "asked", "count"),
    [
        ({}, None, 1),
        ({"disableSerialConsoleLog": {}}, None, 0),
        ({"disableSerialConsoleLog": {}}, True, 1),
        ({}, False, 0),
    ],
)
def test_the_installation_switches_the_log_of_the_serial_console_off_unless_a_guest_asks_for_it(
    options: JsonObject, asked: bool | None, count: int
) -> None:
    configuration = decode(KubeVirtConfiguration, {"virtualMachineOptions": options})
    devices = {} if asked is None else {"logSerialConsole": asked}
    root = rendered(instance(devices=devices), options=domain_options(configuration))
    assert len(root.findall("devices/serial/log")) == count


def test_disks_with_threads_of_their_own_have_them_in_the_domain() -> None:
    own: JsonObject = {"dedicatedIOThread": True}
    disks = [
        {"name": "a", "disk": {"bus": "virtio"}, **own},
        {"name": "b", "disk": {"bus": "sata"}, **own},
        {"name": "c", "disk": {"bus": "virtio"}},
        {"name": "d", "disk": {"bus": "virtio"}, **own},
    ]
    root = rendered(instance(devices={"disks": disks}), "a", "b", "c", "d")
    assert only(root, "iothreads").text == "3"
    threads = [driver.get("iothread") for driver in root.findall("devices/disk/driver")]
    assert threads == ["2", None, "1", "3"]
    assert rendered(instance()).find("iothreads") is None


@pytest.mark.parametrize(("enabled", "state"), [(True, "on"), (False, "off")])
def test_enlightenments_with_a_value_can_be_switched_off(enabled: bool, state: str) -> None:
    hyperv = {
        "spinlocks": {"enabled": enabled, "spinlocks": 8191},
        "vendorid": {"enabled": enabled, "vendorid": "me"},
    }
    root = rendered(instance(features={"hyperv": hyperv}))
    spinlocks, vendor = only(root, "features/hyperv/spinlocks"), only(root, "features/hyperv/vendor_id")
    assert (spinlocks.get("state"), vendor.get("state")) == (state, state)
    assert (spinlocks.get("retries"), vendor.get("value")) == (("8191", "me") if enabled else (None, None))


@pytest.mark.parametrize("block", [True, False])
def test_what_backs_a_disk_is_named_as_what_it_is(block: bool) -> None:
    """QEMU opens no block device as a file."""
    source = DiskSource("/over.qcow2", "qcow2", backing_path="/dev/base", backing_block=block)
    disk = decode(Disk, {"name": "base", "disk": {"bus": "virtio"}})
    below = render_disk(disk, source, "vda", transitional=False).find("backingStore")
    assert below is not None
    kind, attribute = ("block", "dev") if block else ("file", "file")
    shown = below.find("source")
    assert shown is not None
    assert (below.get("type"), shown.get(attribute)) == (kind, "/dev/base")


@pytest.mark.parametrize(
    ("wanted", "model"), [(True, "virtio-transitional"), (False, "virtio-non-transitional")]
)
def test_a_guest_of_old_drivers_has_all_virtio_devices_for_them(wanted: bool, model: str) -> None:
    inputs = [{"name": "t", "type": "tablet", "bus": "virtio"}, {"name": "u", "type": "tablet", "bus": "usb"}]
    devices = {"useVirtioTransitional": wanted, "rng": {}, "inputs": inputs}
    root = rendered(instance(devices=devices))
    kinds = ("rng", "memballoon", "controller[@type='scsi']", "controller[@type='virtio-serial']")
    assert [only(root, f"devices/{kind}").get("model") for kind in kinds] == [model] * 4
    # Input devices are of virtio 1 only.
    assert [device.get("model") for device in root.findall("devices/input")] == ["virtio", None]
