"""The image of ``virtctl guestfs``: what is in it, and that it is what virtctl starts."""

from __future__ import annotations

import json
import os
import tarfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from virtplane.api import guestfs
from virtplane.cli import image as command
from virtplane.cli.virtctl.guestfs import pod
from virtplane.image import distribution
from virtplane.image.debian import packages
from virtplane.image.guestfs import build, tree


def _system(folder: Path) -> Path:
    """A root file system as the packages leave it."""
    made = folder / "tree"
    for name in ("boot", "etc", "usr/lib/modules/6.1", "usr/share/man/man1", "var/tmp", "usr/bin"):
        (made / name).mkdir(parents=True)
    (made / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (made / "boot/vmlinuz-6.1").touch(mode=0o600)
    (made / "usr/bin/guestfish").touch(mode=0o755)
    (made / "vmlinuz").symlink_to("boot/vmlinuz-6.1")
    (made / "var/tmp/.guestfs-0").touch()
    return made


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where images are kept; nothing is downloaded, and nobody is root."""
    release = tmp_path / "os-release"
    release.write_text("ID=debian\nVERSION_ID=12\n")
    monkeypatch.setattr(build, "_OS_RELEASE", release)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(distribution, "architecture", lambda: "amd64")
    monkeypatch.setattr(packages, "missing_tools", lambda which: [])

    def fetch(debs: Path, included: object) -> int:
        debs.mkdir()
        return 1

    def make(debs: Path, work: Path) -> Path:
        assert work.stat().st_mode & 0o777 == 0o700, "nobody else reaches programs that run as root"
        made = _system(work)
        tree.complete(made)
        return made

    monkeypatch.setattr(packages, "fetch", fetch)
    monkeypatch.setattr(tree, "make", make)
    return tmp_path / "state/images"


def _read(archive: Path) -> tuple[str, dict[str, Any], dict[str, tarfile.TarInfo]]:
    """Name, configuration and files of an image."""
    with tarfile.open(archive) as tar:

        def blob(digest: str) -> Any:
            return tar.extractfile(f"blobs/{digest.replace(':', '/')}") or pytest.fail("no blob")

        [entry] = json.load(tar.extractfile("index.json") or pytest.fail("no index"))["manifests"]
        manifest = json.load(blob(entry["digest"]))
        config = json.load(blob(manifest["config"]["digest"]))["config"]
        [layer] = manifest["layers"]
        with tarfile.open(fileobj=blob(layer["digest"])) as content:
            files = {member.name: member for member in content}
    return entry["annotations"]["io.containerd.image.name"], config, files


def test_the_image_starts_as_virtctl_starts_it(folder: Path) -> None:
    name, config, files = _read(build.ensure(folder, lambda text: nullcontext()))
    assert name == guestfs.LOADED_IMAGE
    given = {"pull_policy": "IfNotPresent", "kvm": False}
    spec = pod("c", name, {"runAsNonRoot": True}, {}, is_block=False, given=given)["spec"]
    [entrypoint] = spec["containers"][0]["command"]
    assert files[entrypoint.lstrip("/")].mode == 0o755
    assert config["User"] == "107", "a number that the kubelet can tell from root, and the owner of disks"
    assert files["var/tmp"].mode == 0o1777
    assert files["usr/bin/guestfish"].mode == 0o755


def test_the_image_leaves_out_what_only_machines_need(folder: Path) -> None:
    _, _, files = _read(build.ensure(folder, lambda text: nullcontext()))
    left = {"boot/vmlinuz-6.1", "vmlinuz", "usr/lib/modules", "usr/share/man", "var/tmp/.guestfs-0"}
    assert left.isdisjoint(files)


def test_the_appliance_becomes_as_small_as_it_can_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tmp_path / f"{guestfs.APPLIANCE}/root".lstrip("/")
    root.parent.mkdir(parents=True)
    ran: list[list[str]] = []

    def run(words: list[str], what: str) -> str:
        ran.append(words)
        if words[:2] == ["resize2fs", "-M"]:
            root.write_bytes(bytes(4096))
        return ""

    monkeypatch.setattr(tree, "run", run)
    tree.make_appliance(tmp_path)
    assert ran[0][-4:] == ["chroot", str(tmp_path), "libguestfs-make-fixed-appliance", guestfs.APPLIANCE]
    assert ran[1:] == [
        ["e2fsck", "-fy", str(root)],
        ["resize2fs", "-M", str(root)],
        ["resize2fs", str(root), f"{4 + tree.ROOM_MIB * 1024}K"],
    ]


def test_the_command_prints_the_path_alone_and_builds_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_built in (True, False):
        assert command.main(["build", "guestfs", "--state", str(folder.parent)]) == 0
        printed = capsys.readouterr()
        archive = Path(printed.out.removesuffix("\n"))
        assert archive.name.startswith("libguestfs-tools-12-")
        assert ("Packing the image ..." in printed.err) is is_built
