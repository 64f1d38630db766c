"""Container disks without image volumes: the disk is mounted out of the container that holds its image."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubecore.mountinfo import mount_points_below
from virtplane.api.launcherpods import image_holder
from virtplane.compute.handler.storage import heldimages
from virtplane.compute.handler.storage.heldimages import HeldImage, NotHeld, mount_disk
from virtplane.compute.handler.storage.images import BadImage

_POD = "0d3ad4b8-6a3b-4f3c-9a58-6b4f0c0c9f11"
_OTHER_POD = "11111111-2222-3333-4444-555555555555"
_HELD = HeldImage(_POD, "root")


@dataclass
class _Node:
    """A process in a mount namespace of its own, as a container is, and a /proc that lists it."""

    image: Path
    proc: Path
    folder: Path

    def listed(self, number: int, pid: int, *, pod: str = _POD, volume: str = "root") -> None:
        entry = self.proc / str(number)
        (entry / "ns").mkdir(parents=True)
        (entry / "cgroup").write_text(f"0::/kubepods/pod{pod}/4b1c\n")
        command = ("/virtplane-tools/busybox", "sh", "-c", "hold", image_holder(volume))
        (entry / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in command))
        (entry / "root").symlink_to(f"/proc/{pid}/root")
        (entry / "ns/mnt").symlink_to(f"/proc/{pid}/ns/mnt")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[_Node]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    image, folder = tmp_path / "image", tmp_path / "container-disks"
    for path in (image / "disk", image / "bin", folder):
        path.mkdir(parents=True)
    shutil.copy("/bin/busybox", image / "bin/busybox")
    node = _Node(image, tmp_path / "proc", folder)
    # A tmpfs that only the container's namespace has shows that the mount does not come from the node's.
    # It is ready once it is inside: before that, its root is the node's.
    script = "mount -t tmpfs none disk && echo guest >disk/guest.img"
    script += " && exec chroot . bin/busybox sh -c 'echo ready; exec /bin/busybox cat'"
    container = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", script],
        cwd=image, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert container.stdin is not None
    assert container.stdout is not None
    assert container.stdout.readline() == b"ready\n"
    node.listed(7, container.pid)
    try:
        yield node
    finally:
        heldimages.unmount_all(folder)
        container.stdin.close()
        container.stdout.close()
        container.wait(10)


@pytest.mark.host
def test_the_disk_of_a_held_image_appears_read_only(node: _Node) -> None:
    mount_disk(_HELD, node.folder, "disk_0.img", node.proc)
    disk = node.folder / "disk_0.img"
    assert disk.read_text() == "guest\n"
    with pytest.raises(OSError, match="Read-only file system"):
        disk.open("w")


@pytest.mark.host
def test_a_cluster_inside_a_pod_knows_its_own_pods(node: _Node) -> None:
    (node.proc / "7/cgroup").write_text(f"0::/kubepods/pod{_OTHER_POD}/4b1c/kubepods/pod{_POD}/77aa\n")
    mount_disk(_HELD, node.folder, "disk_0.img", node.proc)
    assert (node.folder / "disk_0.img").read_text() == "guest\n"


@pytest.mark.host
def test_mounting_again_changes_nothing(node: _Node) -> None:
    for _ in range(2):
        mount_disk(_HELD, node.folder, "disk_0.img", node.proc)
    assert mount_points_below(node.folder) == [node.folder / "disk_0.img"]


@pytest.mark.host
def test_nothing_is_left_mounted_after_the_pod(node: _Node) -> None:
    mount_disk(_HELD, node.folder, "disk_0.img", node.proc)
    heldimages.unmount_all(node.folder)
    assert mount_points_below(node.folder) == []
    assert (node.folder / "disk_0.img").read_bytes() == b""


@pytest.mark.host
@pytest.mark.parametrize("runs", [True, False])
def test_disks_of_pods_without_processes_are_unmounted_at_start(
    node: _Node, tmp_path: Path, runs: bool
) -> None:
    folder = tmp_path / "pods" / _POD / "volumes/kubernetes.io~empty-dir/container-disks"
    folder.mkdir(parents=True)
    mount_disk(_HELD, folder, "disk_0.img", node.proc)
    if not runs:
        shutil.rmtree(node.proc / "7")
    (node.proc / "8").mkdir()
    (node.proc / "8/cgroup").write_bytes(b"0::/user.slice/\xff\n")
    try:
        assert heldimages.unmount_orphans(tmp_path / "pods", node.proc) == ([] if runs else [_POD])
        assert (mount_points_below(folder) == []) is not runs
    finally:
        heldimages.unmount_all(folder)


def test_a_pod_whose_disks_stay_mounted_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    emptied = "volumes/kubernetes.io~empty-dir"
    below = f"{emptied}/container-disks"
    unmounted: list[Path] = []

    def unmount(folder: Path) -> None:
        if folder == tmp_path / _POD / below:
            raise OSError("device or resource busy")
        unmounted.append(folder)

    disks = [tmp_path / uid / below / "disk_0.img" for uid in (_POD, _OTHER_POD)]
    monkeypatch.setattr(heldimages, "mount_points_below", lambda _: disks)
    monkeypatch.setattr(heldimages, "unmount_all", unmount)
    (tmp_path / "proc").mkdir()
    assert heldimages.unmount_orphans(tmp_path, tmp_path / "proc") == [_OTHER_POD]
    assert unmounted == [tmp_path / _OTHER_POD / below, tmp_path / _OTHER_POD / emptied / "hotplug-disks"]
    assert [record.__dict__["pod"] for record in caplog.records] == [_POD]


@pytest.mark.host
@pytest.mark.parametrize("held", [HeldImage(_OTHER_POD, "root"), HeldImage(_POD, "other")])
def test_an_image_of_another_pod_or_volume_is_never_taken(node: _Node, held: HeldImage) -> None:
    with pytest.raises(NotHeld):
        mount_disk(held, node.folder, "disk_0.img", node.proc)
    assert not (node.folder / "disk_0.img").exists()


@pytest.mark.host
def test_a_link_out_of_the_image_is_refused(node: _Node, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the node's own")
    (node.image / "way-out.img").symlink_to("../secret")
    with pytest.raises((BadImage, OSError)):
        mount_disk(HeldImage(_POD, "root", "/way-out.img"), node.folder, "disk_0.img", node.proc)
    assert mount_points_below(node.folder) == []


@pytest.mark.host
def test_a_device_in_the_disk_s_place_is_refused(node: _Node) -> None:
    os.mknod(node.image / "null.img", 0o600 | 0o020000, os.makedev(1, 3))
    with pytest.raises(BadImage):
        mount_disk(HeldImage(_POD, "root", "/null.img"), node.folder, "disk_0.img", node.proc)
    assert mount_points_below(node.folder) == []
