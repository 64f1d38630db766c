"""``import``: a VM out of an image, an appliance or a URL."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virtplane.cli.virtctl.importing.plans import name_from
from virtplane.cli.virtctl.uploading import uploadclaims, uploadproxy

from .appliance_files import CPU, DISK, DRIVE, FILE, MEMORY, archive, descriptor
from .conftest import Result, Virtctl, running
from .uploads import CLAIMS, CONFIG, MACHINES, STORAGE, VOLUMES, CdiServer

MIB = 1 << 20


@pytest.fixture
def api() -> Iterator[CdiServer]:
    server = CdiServer()
    with running(server):
        server.objects[CONFIG] = {"status": {"uploadProxyURL": server.url}}
        yield server


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploadclaims, "POLL_SECONDS", 0)
    monkeypatch.setattr(uploadclaims, "PROCESSING_SECONDS", 3)
    monkeypatch.setattr(uploadproxy, "_LONGEST_PAUSE_SECONDS", 0)


def made(folder: Path, form: str, size: str = "5M") -> Path:
    path = folder / f"My Debian_12.{form}"
    subprocess.run(["qemu-img", "create", "-q", "-f", form, str(path), size], check=True)
    return path


def ova(folder: Path, *items: dict[str, str], **parts: str) -> Path:
    disk = made(folder, "vmdk").read_bytes()
    text = descriptor(*items, **parts)
    return archive(folder / "server.ova", {"s.ovf": text.encode(), "disk1.vmdk": disk, "disk2.vmdk": disk})


def run(virtctl: Virtctl, path: object, line: str = "") -> Result:
    return virtctl("import", str(path), *line.split())


def guest(api: CdiServer) -> dict[str, Any]:
    found: dict[str, Any] = api.made(MACHINES)["spec"]["template"]["spec"]
    return found


@pytest.mark.feature("NEW-09")
def test_an_image_becomes_a_machine(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    image = made(tmp_path, "qcow2", "5000000")
    result = run(virtctl, image)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0] == "VirtualMachine default/my-debian-12 created"
    assert result.out.splitlines()[-1] == (
        "VirtualMachine default/my-debian-12 is there; start it with: virtctl start my-debian-12 -n default"
    )
    assert [content for _, _, content in api.uploads] == [image.read_bytes()]
    disk = "my-debian-12-disk"
    assert api.made(MACHINES) == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "my-debian-12", "namespace": "default"},
        "spec": {
            "runStrategy": "Halted",
            "dataVolumeTemplates": [
                {
                    "metadata": {
                        "name": disk,
                        "annotations": {f"{STORAGE}bind.immediate.requested": ""},
                    },
                    "spec": {
                        "source": {"upload": {}},
                        "storage": {"resources": {"requests": {"storage": "5Mi"}}},
                    },
                }
            ],
            "template": {
                "metadata": {},
                "spec": {
                    "domain": {
                        "devices": {
                            "disks": [{"name": disk, "bootOrder": 1, "disk": {"bus": "virtio"}}],
                            "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
                        },
                        "cpu": {"cores": 1},
                        "memory": {"guest": "2Gi"},
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "terminationGracePeriodSeconds": 180,
                    "volumes": [{"name": disk, "dataVolume": {"name": disk}}],
                },
            },
        },
    }


@pytest.mark.feature("NEW-09")
@pytest.mark.parametrize(
    ("form", "bus"),
    [("raw", "virtio"), ("vmdk", "sata"), ("vhdx", "sata"), ("vdi", "sata"), ("vpc", "sata")],
)
def test_guests_of_other_hypervisors_get_devices_that_every_system_knows(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path, form: str, bus: str
) -> None:
    assert run(virtctl, made(tmp_path, form)).code == 0
    devices = guest(api)["domain"]["devices"]
    assert devices["disks"][0]["disk"] == {"bus": bus}
    assert devices["interfaces"][0]["model"] == ("virtio" if bus == "virtio" else "e1000e")


@pytest.mark.feature("NEW-09")
def test_an_appliance_becomes_the_machine_of_its_descriptor(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    drives = [DRIVE, {**DRIVE, "HostResource": "ovf:/disk/d2"}, {**DRIVE, "HostResource": "ovf:/disk/d3"}]
    wires = [{"ResourceType": "10"}] * 2
    path = ova(
        tmp_path,
        *(CPU, MEMORY, *drives, *wires),
        files=FILE + '<File ovf:id="f2" ovf:href="disk2.vmdk"/>',
        disks=f'{DISK}<Disk ovf:diskId="d2" ovf:fileRef="f2"/>'
        '<Disk ovf:diskId="d3" ovf:capacity="7" ovf:capacityAllocationUnits="byte * 2^30"/>',
        more='<vmw:Config vmw:key="firmware" vmw:value="efi"/>',
    )
    result = run(virtctl, path, "--run")
    assert (result.code, result.err) == (0, "")
    assert "The appliance has 2 network interfaces; its machine has one.\n" in result.out
    assert result.out.endswith("VirtualMachine default/my-server-2 starts\n")
    spec = api.made(MACHINES)["spec"]
    assert spec["runStrategy"] == "Always"
    assert [
        (each["spec"]["source"], each["spec"]["storage"]["resources"]["requests"]["storage"])
        for each in spec["dataVolumeTemplates"]
    ] == [({"upload": {}}, "5Mi"), ({"upload": {}}, "5Mi"), ({"blank": {}}, "7Gi")]
    domain = guest(api)["domain"]
    assert (domain["cpu"], domain["memory"]) == ({"cores": 2}, {"guest": "3Gi"})
    assert domain["firmware"] == {"bootloader": {"efi": {"secureBoot": False}}}
    assert [disk["bootOrder"] for disk in domain["devices"]["disks"]] == [1, 2, 3]
    inner = (tmp_path / "My Debian_12.vmdk").read_bytes()
    assert [content for _, _, content in api.uploads] == [inner, inner]


@pytest.mark.feature("NEW-09")
def test_a_url_is_imported_by_the_cluster(api: CdiServer, virtctl: Virtctl) -> None:
    asked = 0

    def advance(path: str) -> None:
        nonlocal asked
        if path == f"{VOLUMES}/debian-disk" and path in api.objects:
            asked += 1
            status = api.objects[path]["status"]
            status |= {"phase": "ImportInProgress", "progress": f"{asked * 40}.0%"}
            if asked == 2:
                running = {"type": "Running", "reason": "Error", "message": "no \x1b such host"}
                status["conditions"] = [running]
            if asked == 3:
                status["phase"] = "Succeeded"

    api.when_asked = advance
    line = "--size 9Gi --secret-ref s --cert-configmap c"
    result = run(virtctl, "https://images.example/debian.qcow2.xz", line)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[1:4] == [
        "Importing disk debian-disk: ImportInProgress 40.0%",
        "Importing disk debian-disk: ImportInProgress 80.0%: no   such host",
        "Imported disk debian-disk",
    ]
    (template,) = api.made(MACHINES)["spec"]["dataVolumeTemplates"]
    url = "https://images.example/debian.qcow2.xz"
    assert template["spec"]["source"] == {"http": {"url": url, "secretRef": "s", "certConfigMap": "c"}}
    assert guest(api)["domain"]["devices"]["disks"][0]["disk"] == {"bus": "virtio"}
    assert api.uploads == []


@pytest.mark.parametrize(
    ("url", "source", "bus"),
    [
        ("http://h/a.vmdk.gz", "http", "sata"),
        ("docker://quay.io/containerdisks/fedora:latest", "registry", "virtio"),
    ],
)
def test_what_is_behind_a_url_is_known_by_its_form(
    api: CdiServer, virtctl: Virtctl, url: str, source: str, bus: str
) -> None:
    assert run(virtctl, url, "--size 9Gi --no-force-bind").code == 0
    (template,) = api.made(MACHINES)["spec"]["dataVolumeTemplates"]
    assert template["spec"]["source"] == {source: {"url": url}}
    assert "annotations" not in template["metadata"]
    assert guest(api)["domain"]["devices"]["disks"][0]["disk"] == {"bus": bus}


def test_an_import_that_cannot_succeed_ends(api: CdiServer, virtctl: Virtctl) -> None:
    api.phase = "Failed"
    result = run(virtctl, "https://h/a", "--size 1Gi")
    assert result.err == (
        "The import is not complete. Repeat it, or remove it: kubectl delete vm a -n default\n"
        "DataVolume a-disk failed: CDI gives no reason\n"
    )


def test_flags_come_before_what_the_appliance_says(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    path = ova(tmp_path, more='<vmw:Config vmw:key="firmware" vmw:value="efi"/>')
    line = "--name n --size 1Gi --cpu 4 --memory 4096Mi --firmware bios --disk-bus scsi --nic-model igb"
    assert run(virtctl, path, f"{line} --volume-mode Block --access-mode ReadWriteMany").code == 0
    domain = guest(api)["domain"]
    assert (domain["cpu"], domain["memory"]) == ({"cores": 4}, {"guest": "4Gi"})
    assert domain["firmware"] == {"bootloader": {"bios": {}}}
    assert domain["devices"]["disks"] == [{"name": "n-disk", "bootOrder": 1, "disk": {"bus": "scsi"}}]
    assert domain["devices"]["interfaces"][0]["model"] == "igb"
    (template,) = api.made(MACHINES)["spec"]["dataVolumeTemplates"]
    assert template["spec"]["storage"] == {
        "resources": {"requests": {"storage": "1Gi"}},
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block",
    }


def test_instance_types_and_preferences_decide_what_is_theirs(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    line = "--instancetype u1.small --preference virtualmachinepreference/windows"
    assert run(virtctl, ova(tmp_path), line).code == 0
    spec = api.made(MACHINES)["spec"]
    assert spec["instancetype"] == {"name": "u1.small"}
    assert spec["preference"] == {"name": "windows", "kind": "virtualmachinepreference"}
    domain = guest(api)["domain"]
    assert set(domain) == {"devices"}
    assert domain["devices"]["disks"][0]["disk"] == {}
    assert "model" not in domain["devices"]["interfaces"][0]


def test_secure_boot_of_an_appliance_is_kept(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    settings = {"firmware": "efi", "bootOptions.efiSecureBootEnabled": "true"}
    more = "".join(f'<vmw:Config vmw:key="{key}" vmw:value="{value}"/>' for key, value in settings.items())
    assert run(virtctl, ova(tmp_path, more=more)).code == 0
    domain = guest(api)["domain"]
    assert domain["firmware"] == {"bootloader": {"efi": {"secureBoot": True}}}
    assert domain["features"] == {"smm": {"enabled": True}}


def test_an_import_that_broke_off_is_taken_up(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    image = made(tmp_path, "raw")
    api.statuses = [500]
    result = run(virtctl, image, "--name n")
    assert result.err.splitlines() == [
        "The import is not complete. Repeat it, or remove it: kubectl delete vm n -n default",
        "error uploading image after 5 retries: unexpected return value 500, why",
    ]
    api.statuses = [200]
    result = run(virtctl, image, "--name n")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("VirtualMachine default/n exists: its import is continued\n")
    assert len(api.uploads) == 6
    result = run(virtctl, image, "--name n")
    assert "Disk n-disk is filled\n" in result.out
    assert len(api.uploads) == 6


def test_other_machines_of_the_name_are_left_alone(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    api.objects[f"{MACHINES}/n"] = {"metadata": {"name": "n"}, "spec": {}}
    result = run(virtctl, made(tmp_path, "raw"), "--name n")
    text = "VirtualMachine default/n already exists, with other disks: choose another --name\n"
    assert (result.code, result.err) == (1, text)
    assert f"{CLAIMS}/n-disk" not in api.objects


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{VOLUMES}/n-disk", "DataVolume default/n-disk already exists"),
        (f"{CLAIMS}/n-disk", "PersistentVolumeClaim default/n-disk already exists"),
    ],
)
def test_volumes_of_others_do_not_become_disks(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path, path: str, said: str
) -> None:
    api.objects[path] = {"metadata": {"name": "n-disk", "annotations": {f"{STORAGE}pod.phase": "Succeeded"}}}
    result = run(virtctl, made(tmp_path, "raw"), "--name n")
    assert (result.code, result.err) == (1, f"{said}: choose another --name\n")
    assert not [path for method, path, _ in api.requests if method != "GET"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--size 4Mi", "its disk has 5.0 MiB (5242880 bytes), more than --size 4Mi"),
        ("--secret-ref s", "--secret-ref and --cert-configmap are for URLs"),
        ("--size 5x", 'failed to parse "--size" flag: quantities must match'),
        ("--memory 5x", 'failed to parse "--memory" flag: quantities must match'),
        ("--firmware cfe", 'invalid firmware "cfe", supported values are: bios, efi'),
        ("--volume-mode x", 'invalid volume mode "x", supported values are: block, filesystem'),
        ("--instancetype a --memory 1Gi", "if any flags in the group [instancetype memory] are set"),
        ("--instancetype a --cpu 1", "if any flags in the group [instancetype cpu] are set"),
        ("--storage-class none", 'storageclasses "none" not found'),
        ("--access-mode ReadOnlyMany", "cannot upload to a readonly volume"),
    ],
)
def test_flags_that_do_not_fit_are_told_before_anything_is_made(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path, line: str, said: str
) -> None:
    result = run(virtctl, made(tmp_path, "raw"), line)
    assert result.code == 1
    assert said in result.err
    assert not [path for method, path, _ in api.requests if method != "GET"]


@pytest.mark.parametrize(
    ("url", "line", "said"),
    [
        ("https://h/a.qcow2", "", "the size of a disk from a URL must be specified (--size)"),
        ("ftp://h/a.qcow2", "--size 1Gi", "http, https and docker are supported"),
        ("https://h/a.OVA", "--size 1Gi", "download it first"),
        ("https://[x", "--size 1Gi", "https://[x: Invalid IPv6 URL"),
        ("https://user:secret@h/a", "--size 1Gi", "use --secret-ref"),
    ],
)
def test_urls_that_cannot_be_imported_are_told(
    api: CdiServer, virtctl: Virtctl, url: str, line: str, said: str
) -> None:
    result = run(virtctl, url, line)
    assert result.code == 1
    assert said in result.err
    assert "secret@" not in result.err
    assert api.requests == []


def test_files_that_cannot_be_imported_are_told(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    packed = tmp_path / "a.raw.gz"
    packed.write_bytes(gzip.compress(b"x"))
    said = f"{packed}: it is compressed, so the size of its disk must be specified (--size)\n"
    assert run(virtctl, packed).err == said
    assert run(virtctl, packed, "--size 1Gi").code == 0
    assert run(virtctl, tmp_path / "none").err == f"open {tmp_path / 'none'}: no such file or directory\n"
    plain = archive(tmp_path / "a.tar", {"disk.img": b"x"})
    assert run(virtctl, plain).err == f"{plain}: the archive has no descriptor (.ovf)\n"


def test_one_size_does_not_fit_several_disks(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    path = ova(tmp_path, DRIVE, DRIVE)
    result = run(virtctl, path, "--size 9Gi")
    assert result.err == f"{path}: the appliance has 2 disks, so --size cannot be given\n"


def test_whoever_imports_one_of_several_configurations_is_told(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    section = '<DeploymentOptionSection><Configuration ovf:id="small"/></DeploymentOptionSection>'
    path = ova(tmp_path, more=section)
    assert "The appliance has configurations; this is small.\n" in run(virtctl, path).out


def test_a_disk_in_an_appliance_is_held_to_its_own_header(
    api: CdiServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    layer = ["create", "-q", "-u", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", str(tmp_path / "x"), "1M"]
    subprocess.run(["qemu-img", *layer], check=True)
    content = (tmp_path / "x").read_bytes()
    path = archive(tmp_path / "a.ova", {"a.ovf": descriptor().encode(), "disk1.vmdk": content})
    result = run(virtctl, path)
    assert result.err == f"{path}: disk d1: it has invalid backing file /etc/passwd\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Debian 12 (x86_64).qcow2.xz", "debian-12-x86-64"),
        ("9front.iso", "vm-9front"),
        ("a" * 80, "a" * 50),
    ],
)
def test_names_are_those_of_files_as_far_as_objects_can_have_them(text: str, name: str) -> None:
    assert name_from(text) == name


def test_a_name_of_which_nothing_is_left_is_a_random_one() -> None:
    assert name_from("_.img") != name_from("_.img")
    assert name_from("日本.img").startswith("vm-")
