"""Disk images and cloud-init data."""

from __future__ import annotations

import base64
import io
import struct
from pathlib import Path
from typing import Any

import pycdlib
import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volume_sources import CloudInitNoCloudSource
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.storage import cloudinit, images


def qcow2(path: Path, *, backing: int = 0, incompatible: int = 0, size: int = 1 << 20) -> Path:
    header = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, backing, 0, 16, size).ljust(72, b"\0")
    path.write_bytes((header + struct.pack(">Q", incompatible)).ljust(512, b"\0"))
    return path


@pytest.mark.feature("VMC-39")
def test_raw_and_qcow2_are_told_apart_by_content(tmp_path: Path) -> None:
    raw = tmp_path / "disk.qcow2"
    raw.write_bytes(b"\0" * 1000)
    qcow2(tmp_path / "disk.img")
    with Root(tmp_path) as root:
        assert images.inspect(root, "disk.qcow2") == images.ImageInfo("raw", 1024)
        assert images.inspect(root, "disk.img") == images.ImageInfo("qcow2", 1 << 20)


@pytest.mark.parametrize("trick", [{"backing": 1024}, {"incompatible": 4}])
def test_image_that_refers_to_other_files_is_refused(tmp_path: Path, trick: dict[str, int]) -> None:
    qcow2(tmp_path / "evil.qcow2", **trick)
    with Root(tmp_path) as root, pytest.raises(images.BadImage, match="not allowed"):
        images.inspect(root, "evil.qcow2")


@pytest.mark.feature("VMC-39")
def test_container_disk_is_the_only_file_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "image/disk").mkdir(parents=True)
    qcow2(tmp_path / "image/disk/a.img")
    with Root(tmp_path) as root:
        assert images.find_container_disk(root, "image", "") == "image/disk/a.img"
        qcow2(tmp_path / "image/disk/b.img")
        with pytest.raises(images.BadImage, match=r"exactly one disk in /disk; found: a\.img, b\.img"):
            images.find_container_disk(root, "image", "")
        assert images.find_container_disk(root, "image", "/disk/a.img") == "image/disk/a.img"
        with pytest.raises(images.BadImage, match="found: none"):
            images.find_container_disk(root, "image", "/disk/c.img")


def test_link_out_of_the_image_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    (tmp_path / "image/disk").mkdir(parents=True)
    (tmp_path / "image/disk/a.img").symlink_to(secret)
    with (
        Root(tmp_path) as root,
        pytest.raises(images.BadImage, match=r"/disk/a\.img in the image leads out of it"),
    ):
        images.find_container_disk(root, "image", "")


@pytest.mark.parametrize(
    "target",
    ["/etc", "../../..", "disk", "x" * 300 + "/" + "x" * 300],
    ids=["absolute", "upwards", "circle", "long name"],
)
def test_link_in_the_place_of_the_images_folder_is_told_as_such(tmp_path: Path, target: str) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image/disk").symlink_to(target)
    with Root(tmp_path) as root:
        for path in ("", "/disk/a.img"):
            with pytest.raises(images.BadImage, match=r"^/disk(/a\.img)? in the image leads"):
                images.find_container_disk(root, "image", path)


def test_names_in_an_image_do_not_fill_the_message(tmp_path: Path) -> None:
    folder = tmp_path / "image/disk"
    folder.mkdir(parents=True)
    for number in range(50):
        (folder / f"{'n' * 200}{number}").touch()
    with Root(tmp_path) as root, pytest.raises(images.BadImage) as refused:
        images.find_container_disk(root, "image", "")
    assert len(str(refused.value)) < 1000
    assert str(refused.value).endswith("and 46 more")


def _instance(**spec: Any) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"domain": {"devices": {}, "firmware": {"uuid": "f-1"}}, **spec},
    }
    return decode(VirtualMachineInstance, document)


VMI = _instance()


def _read(root: Root, secrets: str = "", **source: Any) -> cloudinit.CloudInitData:
    return cloudinit.read_data(decode(CloudInitNoCloudSource, source), root, secrets)


@pytest.mark.feature("VMC-38")
def test_no_cloud_image_carries_user_data_under_its_label(tmp_path: Path) -> None:
    source = {"userDataBase64": base64.b64encode(b"#cloud-config\n").decode(), "networkData": "version: 2\n"}
    path = tmp_path / "noCloud.iso"
    with Root(tmp_path) as root:
        data = _read(root, **source)
    with path.open("wb") as file:
        cloudinit.write_iso(file, "cidata", cloudinit.no_cloud_files(VMI, data, ["ssh-rsa K"]))
    assert path.read_bytes()[32808:32814] == b"cidata"
    image = pycdlib.PyCdlib()
    image.open(str(path))
    found = io.BytesIO()
    image.get_file_from_iso_fp(found, rr_path="/user-data")
    metadata = io.BytesIO()
    image.get_file_from_iso_fp(metadata, joliet_path="/meta-data")
    image.close()
    assert found.getvalue() == b"#cloud-config\n"
    assert metadata.getvalue().startswith(b'{"instance-id":"f-1","local-hostname":"vm",')


def test_config_drive_has_folders(tmp_path: Path) -> None:
    data = cloudinit.CloudInitData("#cloud-config\n", "")
    path = tmp_path / "c.iso"
    with path.open("wb") as file:
        cloudinit.write_iso(file, "config-2", cloudinit.config_drive_files(VMI, data, []))
    image = pycdlib.PyCdlib()
    image.open(str(path))
    found = io.BytesIO()
    image.get_file_from_iso_fp(found, rr_path="/openstack/latest/user_data")
    image.close()
    assert found.getvalue() == b"#cloud-config\n"


def test_a_config_drive_lists_what_guests_search_for_byte_by_byte() -> None:
    disk = {"type": "disk", "bus": "pci", "address": "0000:01:00.0", "tags": ["t"]}
    files = cloudinit.config_drive_files(VMI, cloudinit.CloudInitData("#", ""), [], [disk])
    listed = b'"devices":[{"type":"disk","bus":"pci","address":"0000:01:00.0","tags":["t"]}]'
    assert listed in files["openstack/latest/meta_data.json"]


def test_user_data_comes_from_the_mounted_secret(tmp_path: Path) -> None:
    (tmp_path / "userdata").write_text("from secret")
    with Root(tmp_path) as root:
        assert _read(root, "/", secretRef={"name": "s"}).user_data == "from secret"


GZIPPED = b"\x1f\x8b\x08\x00\xff\xfe packed"


@pytest.mark.feature("VMC-58")
@pytest.mark.parametrize("place", ["secret", "base64"])
def test_user_data_that_are_no_text_reach_the_guest_as_they_are(tmp_path: Path, place: str) -> None:
    """cloud-init unpacks user data that are compressed."""
    (tmp_path / "userdata").write_bytes(GZIPPED)
    secret = {"secretRef": {"name": "s"}}
    inline = {"userDataBase64": base64.b64encode(GZIPPED).decode()}
    with Root(tmp_path) as root:
        data = _read(root, "/", **(secret if place == "secret" else inline))
    assert cloudinit.no_cloud_files(VMI, data, [])["user-data"] == GZIPPED
    assert cloudinit.config_drive_files(VMI, data, [])["openstack/latest/user_data"] == GZIPPED


def test_missing_and_broken_data_are_refused(tmp_path: Path) -> None:
    with Root(tmp_path) as root:
        with pytest.raises(cloudinit.CloudInitError, match="is required for a cloud-init data source"):
            _read(root)
        with pytest.raises(cloudinit.CloudInitError, match="cannot be decoded"):
            _read(root, userDataBase64="%%")


@pytest.mark.feature("VMC-71", "VMC-72")
@pytest.mark.parametrize(
    "data",
    [
        "version: 2\nethernets:\n  eth1:\n    addresses: [10.10.10.14/24]\n",
        "version: 2\nethernets:\n  eth1:\n    dhcp4: true\n",
    ],
    ids=["static", "dynamic"],
)
def test_network_data_reaches_the_guest_as_it_is(tmp_path: Path, data: str) -> None:
    with Root(tmp_path) as root:
        read = _read(root, userData="#cloud-config\n", networkData=data)
    assert cloudinit.no_cloud_files(VMI, read, [])["network-config"].decode() == data


@pytest.mark.feature("VMC-59", "VMC-60")
def test_ssh_keys_of_a_secret_are_given_beside_the_users_data(tmp_path: Path) -> None:
    mounted = tmp_path / "keys-access-cred"
    mounted.mkdir()
    (mounted / "key").write_text("ssh-rsa AAA me\n")
    source = {"secret": {"secretName": "keys"}}
    credential = {"sshPublicKey": {"source": source, "propagationMethod": {"noCloud": {}}}}
    vmi = _instance(accessCredentials=[credential])
    with Root(tmp_path) as root:
        keys = cloudinit.public_keys(vmi, root, "")
    files = cloudinit.no_cloud_files(vmi, cloudinit.CloudInitData("#cloud-config\n", ""), keys)
    assert b'"public-keys":{"0":"ssh-rsa AAA me"}' in files["meta-data"]
    assert files["user-data"] == b"#cloud-config\n"


@pytest.mark.feature("NET-12")
@pytest.mark.parametrize(("spec", "name"), [({"hostname": "demo-vm"}, b"demo-vm"), ({}, b"vm")])
def test_the_guest_is_told_its_host_name(spec: dict[str, Any], name: bytes) -> None:
    files = cloudinit.no_cloud_files(_instance(**spec), cloudinit.CloudInitData("#", ""), [])
    assert b'"local-hostname":"%s"' % name in files["meta-data"]


@pytest.mark.parametrize("length", [1, 2049, 4097, 6145])
def test_size_of_an_iso_is_a_multiple_of_large_blocks(length: int) -> None:
    target = io.BytesIO()
    cloudinit.write_iso(target, "cidata", {"user-data": b"x" * length})
    assert len(target.getvalue()) % 4096 == 0
    image, found = pycdlib.PyCdlib(), io.BytesIO()
    image.open_fp(target)
    image.get_file_from_iso_fp(found, rr_path="/user-data")
    assert found.getvalue() == b"x" * length
