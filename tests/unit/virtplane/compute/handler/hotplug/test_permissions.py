"""Devices of a launcher's cgroup: plugged ones come and go, its container's own stay."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from virtplane.compute.handler.hotplug import filters, mapped, permissions
from virtplane.compute.handler.hotplug.permissions import ForeignDevices, NoCgroup
from virtplane.compute.handler.rooted import Root

_OWN, _PLUGGED, _OTHER = os.makedev(7, 240), os.makedev(7, 241), os.makedev(7, 242)


@dataclass
class _Launcher:
    """A process, with the file system of its container."""

    pid: int
    container: Path

    def cgroups(self) -> str:
        return Path(f"/proc/{self.pid}/cgroup").read_text()

    def root(self) -> Root:
        return Root(self.container)


def test_a_cgroup_is_found_below_the_root_that_the_node_has_mounted(tmp_path: Path) -> None:
    group = tmp_path / "root/sys/devices/kubepods/pod1/c"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("1\n77\n")
    breaks = "\r\v\f\x1c\x85\u2028"  # of which the kernel escapes none
    table = (
        "30 25 0:26 /outer /sys/memory rw - cgroup cgroup rw,memory\n"
        f"33 25 0:29 /a{breaks}b /pods/p rw - ext4 /dev/vda rw\n"
        "31 25 0:27 /outer /sys/devices rw,nosuid shared:9 - cgroup cgroup rw,devices\n"
    )
    (tmp_path / "mountinfo").write_bytes(table.encode() + b"34 25 0:30 /\xff /pods/q rw - ext4 /dev/vda rw\n")

    class Named(_Launcher):
        def cgroups(self) -> str:
            return "9:memory:/x\n5:devices:/outer/kubepods/pod1/c\n0::/\n"

    found = permissions.cgroup_of(Named(77, tmp_path), tmp_path)  # type: ignore[arg-type]
    assert (found.path, found.is_unified) == (group, False)
    with pytest.raises(NoCgroup, match="launcher 78"):
        permissions.cgroup_of(Named(78, tmp_path), tmp_path)  # type: ignore[arg-type]


def test_the_runtimes_mount_of_the_containers_own_cgroup_is_passed_over(tmp_path: Path) -> None:
    group = tmp_path / "root/node/devices/kubepods/pod1/c"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("77\n")
    (tmp_path / "root/sys/devices").mkdir(parents=True)
    (tmp_path / "root/sys/devices/cgroup.procs").write_text("5\n")
    (tmp_path / "mountinfo").write_text(
        "30 25 0:27 /kubepods/handler/h /sys/devices rw shared:8 - cgroup cgroup rw,devices\n"
        "31 25 0:27 / /node/devices rw,nosuid shared:9 - cgroup cgroup rw,devices\n"
    )

    class Named(_Launcher):
        def cgroups(self) -> str:
            return "5:devices:/kubepods/pod1/c\n"

    found = permissions.cgroup_of(Named(77, tmp_path), tmp_path)  # type: ignore[arg-type]
    assert found.path == group


@contextmanager
def _group() -> Iterator[Path]:
    base = Path("/sys/fs/cgroup/devices")
    if os.geteuid() != 0 or not (base / "devices.list").exists():
        pytest.skip("needs root and cgroup v1 with the device controller")
    group = base / f"virtplane-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


@contextmanager
def _devices(place: Path) -> Iterator[Path]:
    """A container's ``/dev`` as its runtime makes it."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.host
def test_devices_that_the_container_runtime_has_made_are_the_containers_own(tmp_path: Path) -> None:
    with _devices(tmp_path / "dev") as devices:
        os.mknod(devices / "permanent", stat.S_IFBLK | 0o600, _OWN)
        with Root(tmp_path) as root:
            assert list(permissions._nodes(root)) == [(filters.BLOCK, _OWN)]


@pytest.mark.host
def test_the_devices_of_an_image_in_the_place_of_dev_are_not_allowed(tmp_path: Path) -> None:
    """A container that was added to the pod may mount a claim, or the image of a disk, there."""
    if os.geteuid() != 0 or subprocess.check_output(["stat", "-fc%T", tmp_path]).strip() == b"tmpfs":
        pytest.skip("needs root, and files of tests that are not in memory")
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/sda", stat.S_IFBLK | 0o666, os.makedev(8, 0))
    with Root(tmp_path) as root, pytest.raises(ForeignDevices):
        list(permissions._nodes(root))


@pytest.mark.host
def test_what_is_no_longer_plugged_is_taken_back_though_nobody_remembers_it(tmp_path: Path) -> None:
    with _group() as group, _devices(tmp_path / "dev") as devices:
        os.mknod(devices / "permanent", stat.S_IFBLK | 0o600, _OWN)
        (group / "devices.deny").write_text("a")
        for number in (_OWN, _OTHER):
            (group / "devices.allow").write_text(f"b {os.major(number)}:{os.minor(number)} rwm")
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            launcher = _Launcher(process.pid, tmp_path)
            host = Path("/proc/self")
            for _ in range(2):
                permissions.allow(launcher, [_PLUGGED], [_OWN], host)  # type: ignore[arg-type]
                assert _listed(group) == {_OWN, _PLUGGED}
            permissions.allow(launcher, [], [_OWN], host)  # type: ignore[arg-type]
            assert _listed(group) == {_OWN}
            assert process.stdin is not None
            process.stdin.close()


def _listed(group: Path) -> set[int]:
    lines = (line.split() for line in (group / "devices.list").read_text().splitlines())
    found = [numbers.split(":") for kind, numbers, _ in lines if kind == "b"]
    return {os.makedev(int(major), int(minor)) for major, minor in found}


@pytest.mark.host
@pytest.mark.parametrize("unified", [True, False])
def test_nodes_that_the_launcher_has_made_are_no_devices_of_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unified: bool
) -> None:
    group, container = tmp_path / "group", tmp_path / "container"
    group.mkdir()
    container.mkdir()
    lines = [f"b {os.major(each)}:{os.minor(each)} rwm\n" for each in (_OWN, _OTHER)]
    (group / "devices.list").write_text("".join(lines))
    monkeypatch.setattr(permissions, "cgroup_of", lambda *_: permissions.Cgroup(group, unified))
    enforced: list[filters.Rule] = []
    monkeypatch.setattr(filters, "enforce", lambda _, rules: enforced.extend(rules))
    with _devices(container / "dev") as devices:
        os.mknod(devices / "permanent", stat.S_IFBLK | 0o600, _OWN)
        os.mknod(devices / "forged", stat.S_IFBLK | 0o600, _OTHER)
        permissions.allow(_Launcher(1, container), [], [_OWN])  # type: ignore[arg-type]
    if unified:
        numbers = {
            os.makedev(each.major, each.minor)
            for each in enforced
            if each.kind == filters.BLOCK and each.major >= 0
        }
        assert numbers == {_OWN}
    else:
        assert (group / "devices.deny").read_text() == lines[1].strip()


def test_the_kubelets_folders_say_which_devices_a_pod_has(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make device nodes")
    pod = tmp_path / "pods/uid"
    plugins = tmp_path / "plugins/kubernetes.io"
    for place, number in (
        (plugins / "csi/volumeDevices/pvc-1/dev/uid", _OWN),
        (plugins / "csi/volumeDevices/pvc-2/dev/other", _OTHER),
        (plugins / "local-volume/volumeDevices/disk/uid", _PLUGGED),
    ):
        place.parent.mkdir(parents=True)
        os.mknod(place, stat.S_IFBLK | 0o600, number)
    linked = pod / "volumeDevices/kubernetes.io~csi"
    linked.mkdir(parents=True)
    (linked / "pvc-3").symlink_to("/elsewhere/nothing")
    os.mknod(tmp_path / "sdz", stat.S_IFBLK | 0o600, os.makedev(7, 243))
    (linked / "pvc-4").symlink_to(tmp_path / "sdz")
    assert mapped.devices_of(pod) == {_OWN, _PLUGGED, os.makedev(7, 243)}
    assert mapped.devices_of(tmp_path / "pods/nobody") == frozenset()
