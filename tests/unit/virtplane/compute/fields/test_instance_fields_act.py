"""Each field of an instance of which the table says that it acts changes what is made of the instance."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from tests.support import every_field
from tests.support.network_plans import plan_network

import virtplane
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver import eviction
from virtplane.compute.apiserver.admission.mutation.instance import default_instance
from virtplane.compute.controller.vmi.storage import needs_state_claim
from virtplane.compute.controller.vmi.volumes import volume_status
from virtplane.compute.domain import devicetags, document, placement
from virtplane.compute.domain.context import (
    BlockSizes,
    BootFiles,
    ClaimedDevice,
    DiskSource,
    DomainContext,
    FirmwareImage,
    HostCpu,
    InterfaceLink,
)
from virtplane.compute.domain.hostdevices import MDEV_PREFIX, PCI_PREFIX
from virtplane.compute.handler import decisions
from virtplane.compute.handler.agent import credentials
from virtplane.compute.handler.launchers import privileges
from virtplane.compute.handler.network import lease, passt, plan
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.storage import bootfiles
from virtplane.compute.handler.storage.cloudinit import (
    config_drive_files,
    no_cloud_files,
    public_keys,
    read_data,
)
from virtplane.compute.hotplug import all_volumes
from virtplane.compute.launcherpod import containerpaths
from virtplane.compute.launcherpod.inputs import Images, RenderInputs
from virtplane.compute.launcherpod.render import render_launcher_pod
from virtplane.compute.podlinks import wires

_ADDRESSES = (ipaddress.IPv4Interface("10.1.0.5/24"), ipaddress.IPv6Interface("fd00::5/64"))
_POD = plan.PodInterface("02:00:00:00:00:01", 1500, _ADDRESSES)
_RESOLVER = lease.Resolver(("10.0.0.53",), ("ns.svc.cluster.local",))
_SETTINGS = ClusterConfig(
    {
        "status": {"phase": "Deployed"},
        "spec": {
            "configuration": {
                "developerConfiguration": {"featureGates": ["HypervStrictCheck"]},
                "network": {"binding": {"plugin": {"networkAttachmentDefinition": "nad"}}},
            }
        },
    }
)


def _instance(spec: JsonObject) -> JsonObject:
    return {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": spec}


def _typed(spec: JsonObject) -> VirtualMachineInstance:
    return decode(VirtualMachineInstance, _instance(spec))


def _pod(spec: JsonObject) -> JsonObject:
    return render_launcher_pod(RenderInputs(_typed(spec), _SETTINGS, Images("launcher", "sidecar")))


def _shared(spec: JsonObject) -> list[JsonObject]:
    """The servers of folders that somebody else has mounted into the launcher."""
    mounts = [{"name": "theirs", "mountPath": "/"}]
    pod = {
        "containers": [{"name": "compute", "volumeMounts": mounts}],
        "volumes": [{"name": "theirs", "emptyDir": {}}],
    }
    inputs = RenderInputs(_typed(spec), _SETTINGS, Images("launcher", "sidecar"))
    return containerpaths.added_servers(inputs, {"spec": pod})


def _domain(spec: JsonObject) -> str:
    wanted = get_list(spec, "domain", "devices", "disks")
    disks = {get_str(disk, "name"): DiskSource("/d", block_sizes=BlockSizes(4096, 4096)) for disk in wanted}
    names = (get_str(each, "name") for each in get_list(spec, "domain", "devices", "interfaces"))
    links = {name: InterfaceLink("tap0", "02:00:00:00:00:01") for name in names}
    cpus = tuple(HostCpu(number, node=number % 2) for number in range(32))
    address, identity = "0000:01:00.0", "5d307ca9-b3ef-428c-8861-06e72d69f223"
    given = {"PCI_RESOURCE_VENDOR_COM_CARD": address, "MDEV_PCI_RESOURCE_VENDOR_COM_GPU": identity}
    claimed = {
        ("c", "gpu"): ClaimedDevice(MDEV_PREFIX, identity),
        ("c", "card"): ClaimedDevice(PCI_PREFIX, address),
    }
    boot = BootFiles(FirmwareImage("/code", "/variables"))
    context = DomainContext(
        emulation=False,
        disks=disks,
        interfaces=links,
        functions=dict.fromkeys(links, "0000:02:00.1"),
        cpus=cpus,
        given=given,
        claimed=claimed,
        boot=boot,
    )
    return document.render(_typed(spec), context)


def _told(spec: JsonObject) -> object:
    """What the guest is told of its devices."""
    return devicetags.tagged_devices(_typed(spec), _domain(spec), lambda _: ())


def _network(spec: JsonObject) -> tuple[object, ...]:
    behind = [
        passt.arguments(wire, _POD, passt.forwarded(_typed(spec), wire.interface))
        for wire in wires(_typed(spec))
        if passt.is_passt(wire)
    ]
    found = plan_network(_typed(spec), _POD)
    return behind, found, lease.lease(found, _typed(spec), _RESOLVER) if found else None


def _decisions(spec: JsonObject) -> tuple[object, ...]:
    evicted = eviction.evaluate(_typed(spec), {"spec": {"nodeName": ""}}, "None")
    movable = decisions.migratability(_typed(spec), emulation=False)
    scheduled = placement.realtime_vcpus(_typed(spec).spec.domain)
    locked = privileges.locks_memory(_typed(spec))
    grace = decisions.grace_seconds(_typed(spec))
    volumes = volume_status(_typed(spec), {}, None)
    beside = all_volumes(_typed(spec))[len(_typed(spec).spec.volumes) :]
    return evicted, movable, grace, needs_state_claim(_typed(spec)), scheduled, locked, volumes, beside


def _defaults(spec: JsonObject) -> JsonObject:
    vmi = deep_copy(_instance(spec))
    default_instance(vmi, _SETTINGS, "2026-01-01T00:00:00Z")
    devices: JsonObject = vmi["spec"]["domain"]["devices"]
    return {"interfaces": devices.get("interfaces"), "inputs": devices.get("inputs")}


_STORAGE = "compute/handler/storage"
READ_BY = {
    "volumes[].configMap.volumeLabel": ".volume_label",
    "volumes[].containerDisk.path": ".path",
    "volumes[].downwardAPI.volumeLabel": ".volume_label",
    "volumes[].emptyDisk.capacity": ".capacity",
    "volumes[].hostDisk.capacity": ".capacity",
    "volumes[].secret.volumeLabel": ".volume_label",
}
"""What the node reads when it makes disks; only the disks show it."""


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """A launcher's file system with the secrets that kubelet mounts there."""
    for name in ("keys-access-cred/key", "words-access-cred/ann"):
        path = tmp_path / "var/run/kubevirt-private/secret" / name
        path.parent.mkdir(parents=True)
        path.write_text("ssh-ed25519 AAAA")
    for name in ("boot/vmlinuz", "boot/initrd"):
        _write(tmp_path / "var/run/kubevirt-kernel-boot" / name, b"kernel")
    for kind in ("secboot.fd", "fd"):
        _write(tmp_path / f"usr/share/edk2/ovmf/OVMF_CODE.{kind}", b"code")
        _write(tmp_path / f"usr/share/edk2/ovmf/OVMF_VARS.{kind}", b"variables")
    for signature in (b"SLIC", b"MSDM"):
        table = signature + (36).to_bytes(4, "little") + bytes(28)
        folder = "var/run/kubevirt-private/secret/kept"
        _write(tmp_path / folder / f"{signature.decode().lower()}.bin", table)
    return tmp_path


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _cloud_init(spec: JsonObject, root: Root) -> list[object]:
    """The files of each cloud-init disk."""
    made: list[object] = []
    secrets = "/var/run/kubevirt-private/secret"
    vmi = _typed(spec)
    for volume in vmi.spec.volumes:
        for source, files in (
            (volume.cloud_init_no_cloud, no_cloud_files),
            (volume.cloud_init_config_drive, config_drive_files),
        ):
            if source is not None:
                data = read_data(source, root, f"{secrets}/{volume.name}")
                made.append(files(vmi, data, public_keys(vmi, root, secrets)))
    return made


def test_every_field_of_an_instance_that_acts_changes_what_is_made_of_it(launcher: Path) -> None:
    with Root(launcher) as root:
        effects: list[every_field.Effect] = [
            *(_pod, _shared, _domain, _told, _network, _decisions, _defaults),
            lambda spec: _cloud_init(spec, root),
            lambda spec: bootfiles.find(_typed(spec), root, PodPaths("", launcher), "/usr/share/edk2/ovmf"),
            lambda spec: credentials.wanted(_typed(spec), root),
        ]
        for effect in effects:
            effect(deep_copy(every_field.INSTANCE))  # It can be carried out.
        samples = every_field.documents(every_field.INSTANCE, every_field.ALTERNATIVES)
        assert set(every_field.silent(INSTANCE, samples, effects)) == set(READ_BY)


def test_fields_that_only_disks_show_are_read_where_disks_are_made() -> None:
    folder = Path(virtplane.__file__).parent / _STORAGE
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    assert [path for path, name in READ_BY.items() if name not in text] == []
