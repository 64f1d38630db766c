"""The way of a claim's disk from its attachment pod to the launcher's folder; both pods may be hostile."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubecore.mountinfo import mount_points_below
from virtplane.api.kubevirt_v1.vmi_status import PersistentVolumeClaimInfo
from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.handler.hotplug.folder import Folder
from virtplane.compute.handler.hotplug.sources import NotOnNode, held_claim
from virtplane.compute.handler.storage import heldimages
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.images import BadImage

_POD = "0d3ad4b8-6a3b-4f3c-9a58-6b4f0c0c9f11"
_INFO = PersistentVolumeClaimInfo(claim_name="c", requests={"storage": "2Mi"}, filesystem_overhead="0")
_DEVICE = os.makedev(7, 243)


@dataclass
class _Node:
    """A container with a claim's file system that only its namespace has, and a launcher's folder."""

    claim: Path
    """The claim's folder, seen through the container's process."""
    root: Path
    proc: Path
    folder: Folder
    path: Path
    pod: Path
    """The kubelet's folder of the attachment pod."""

    def give(self, number: int) -> None:
        """Have the kubelet map a block device for the pod, as it does for claims of CSI drivers."""
        place = self.pod.parent.parent / "plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev" / _POD
        place.parent.mkdir(parents=True)
        os.mknod(place, stat.S_IFBLK | 0o600, number)

    def bring(self) -> None:
        """Mount the disk of the claim in the launcher's folder."""
        with held_claim(self.pod, "vol", block=False, proc=self.proc) as claim:
            claim.prepare_file(_INFO, ClaimSettings(reserved_bytes=0))
            self.folder.mount("vol", claim.clone_file())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[_Node]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    root, launcher, proc = tmp_path / "root", tmp_path / "hotplug-disks", tmp_path / "proc"
    for path in (root / "vol", root / "bin", root / "path/blk", launcher, proc / "7/ns"):
        path.mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    script = "mount -t tmpfs none vol && exec chroot . bin/busybox sh -c 'echo ready; exec /bin/busybox cat'"
    container = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", script],
        cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert container.stdin is not None
    assert container.stdout is not None
    assert container.stdout.readline() == b"ready\n"
    (proc / "7/cgroup").write_text(f"0::/kubepods/pod{_POD}/4b1c\n")
    for name in ("root", "ns/mnt", "ns/user"):
        (proc / "7" / name).symlink_to(f"/proc/{container.pid}/{name}")
    inside = Path(f"/proc/{container.pid}/root")
    try:
        yield _Node(
            inside / "vol", inside, proc, Folder(launcher), launcher, tmp_path / "kubelet/pods" / _POD
        )
    finally:
        heldimages.unmount_all(launcher)
        container.stdin.close()
        container.stdout.close()
        container.wait(10)


@pytest.mark.host
def test_a_dump_replaces_earlier_ones_and_nothing_else_of_the_claim(node: _Node, tmp_path: Path) -> None:
    suffix, outside = ".memory.dump", tmp_path / "outside"
    outside.write_text("the node's")
    for name in (f"vm-1{suffix}", "notes.txt"):
        (node.claim / name).write_text("the tenant's")
    (node.claim / f"folder{suffix}").mkdir()
    (node.claim / f"vm-2{suffix}").symlink_to(outside)
    (node.claim / f"vm-3{suffix}").symlink_to(outside)
    with held_claim(node.pod, "vol", block=False, proc=node.proc) as claim:
        claim.prepare_dump(f"vm-2{suffix}", suffix)
        node.folder.mount("vol", claim.clone_file(f"vm-2{suffix}"))
    names = {each.name for each in node.claim.iterdir()}
    assert names == {f"vm-2{suffix}", f"folder{suffix}", "notes.txt"}
    (node.path / "vol.img").write_bytes(b"memory")
    dump = node.claim / f"vm-2{suffix}"
    assert (dump.is_symlink(), dump.read_bytes()) == (False, b"memory")
    assert outside.read_text() == "the node's"
    assert dump.stat().st_uid == QEMU_USER


@pytest.mark.host
def test_an_empty_claim_gets_a_disk_that_both_see(node: _Node) -> None:
    node.bring()
    assert node.folder.files() == {"vol"}
    disk = node.path / "vol.img"
    assert disk.stat().st_size == 2 << 20
    assert disk.stat().st_uid == 107
    disk.write_bytes(b"guest")
    assert (node.claim / "disk.img").read_bytes() == b"guest"
    node.folder.remove("vol")
    assert mount_points_below(node.path) == []
    assert list(node.path.iterdir()) == []
    assert (node.claim / "disk.img").read_bytes() == b"guest"


@pytest.mark.host
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_a_claim_that_holds_something_else_than_a_disk_is_refused(
    node: _Node, tmp_path: Path, kind: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the node")
    secret.chmod(0o600)
    if kind == "link":
        (node.claim / "disk.img").symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(node.claim / "disk.img")
    else:
        os.mknod(node.claim / "disk.img", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    with pytest.raises(BadImage, match="not a disk"):
        node.bring()
    assert node.folder.files() == set()
    assert secret.stat().st_uid == 0


@pytest.mark.host
def test_what_the_launcher_plants_in_its_folder_is_neither_followed_nor_believed(
    node: _Node, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of the node")
    (node.path / "vol.img").symlink_to(outside)
    (node.path / ".vol.img.new").symlink_to(outside)
    (node.path / "other.img").write_text("no mount")
    node.bring()
    assert outside.read_text() == "of the node"
    assert outside.stat().st_uid == 0
    assert node.folder.files() == {"vol"}
    assert mount_points_below(node.path) == [node.path / "vol.img"]


@pytest.mark.host
def test_a_device_node_is_made_anew_whatever_the_launcher_has_put_in_its_place(
    node: _Node, tmp_path: Path
) -> None:
    os.mknod(node.root / "path/blk/uid", stat.S_IFBLK | 0o600, _DEVICE)
    node.give(_DEVICE)
    with held_claim(node.pod, "blk", block=True, proc=node.proc) as claim:
        number = claim.device()
    assert number == _DEVICE
    outside = tmp_path / "outside"
    outside.write_text("of the node")
    (node.path / "blk").symlink_to(outside)
    (node.path / ".blk.new").symlink_to(outside)
    node.folder.make_device("blk", number)
    made = (node.path / "blk").lstat()
    assert stat.S_ISBLK(made.st_mode)
    assert (made.st_rdev, made.st_uid) == (_DEVICE, 107)
    assert outside.stat().st_uid == 0
    node.folder.remove("blk")
    assert not (node.path / "blk").exists()


@pytest.mark.host
def test_a_device_that_the_attachment_pods_image_brings_is_not_taken_for_the_claims(node: _Node) -> None:
    os.mknod(node.root / "path/blk/a-disk-of-the-node", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    with held_claim(node.pod, "blk", block=True, proc=node.proc) as claim, pytest.raises(NotOnNode):
        claim.device()
    os.mknod(node.root / "path/blk/uid", stat.S_IFBLK | 0o600, _DEVICE)
    node.give(_DEVICE)
    with held_claim(node.pod, "blk", block=True, proc=node.proc) as claim:
        assert claim.device() == _DEVICE


@pytest.mark.host
@pytest.mark.parametrize("volume", ["other", "path"])
def test_a_volume_that_the_attachment_pod_does_not_have_is_waited_for(node: _Node, volume: str) -> None:
    with pytest.raises(NotOnNode):  # noqa: SIM117 - what is in the context must not run
        with held_claim(node.pod, volume, block=True, proc=node.proc):
            pytest.fail("there is none")


@pytest.mark.host
def test_a_process_of_another_user_namespace_is_not_asked(node: _Node) -> None:
    """Whoever has a user namespace of its own can make its root look like anything."""
    (node.proc / "7/ns/user").unlink()
    (node.proc / "7/ns/user").write_text("")
    with pytest.raises(NotOnNode):
        node.bring()


@pytest.mark.host
@pytest.mark.parametrize("is_read_only", [False, True])
def test_the_file_system_of_a_claim_is_mounted_beside_the_guests_disks(
    node: _Node, is_read_only: bool
) -> None:
    (node.claim / "kept").write_text("of the tenant")
    with held_claim(node.pod, "vol", block=False, proc=node.proc) as claim:
        node.folder.mount_folder("vol", claim.clone_folder(is_read_only))
    assert (node.folder.folders(), node.folder.files()) == ({"vol"}, set())
    assert node.folder.mounted() == (set(), {"vol"})
    assert (node.path / "vol/kept").read_text() == "of the tenant"
    if is_read_only:
        assert node.claim.stat().st_uid == 0
        with pytest.raises(OSError, match="Read-only"):
            (node.path / "vol/new").write_text("")
    else:
        assert (node.path / "vol").stat().st_uid == QEMU_USER
        (node.path / "vol/new").write_text("of QEMU")
        assert (node.claim / "new").read_text() == "of QEMU"
    node.folder.remove_folder("vol")
    assert mount_points_below(node.path) == list(node.path.iterdir()) == []
    assert (node.claim / "kept").exists()


@pytest.mark.host
@pytest.mark.parametrize("planted", ["link", "file", "folder"])
def test_no_file_system_is_mounted_where_the_launcher_leads(
    node: _Node, tmp_path: Path, planted: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = node.path / "vol"
    if planted == "link":
        place.symlink_to(outside)
    elif planted == "file":
        place.write_text("")
    else:
        (place / "below").mkdir(parents=True)
    with held_claim(node.pod, "vol", block=False, proc=node.proc) as claim:
        if planted == "folder":
            node.folder.mount_folder("vol", claim.clone_folder(False))
            node.folder.remove_folder("vol")
            assert (place / "below").is_dir()  # its own
        else:
            with pytest.raises(OSError):
                node.folder.mount_folder("vol", claim.clone_folder(False))
    assert outside.stat().st_uid == 0
    assert mount_points_below(tmp_path / "outside") == mount_points_below(node.path) == []
