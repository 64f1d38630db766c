"""``load``: what is handed to the nodes, under which name, and what is refused before."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from virtplane.api import guestfs
from virtplane.cli import cluster, load, main
from virtplane.guest import build as guest
from virtplane.guest import oci
from virtplane.guest.variants import CLOUD, FULL, Variant
from virtplane.image.commands import BuildError, NotRoot
from virtplane.image.guestfs import build as guestfs_build
from virtplane.image.locking import Step

_RAW = b"\0" * 510 + b"\x55\xaa" + b"\0" * 512


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster's directory; the user is root."""
    folder = tmp_path / "state"
    (folder / "images").mkdir(parents=True)
    (folder / "instance.json").touch()
    monkeypatch.setenv("VIRTPLANE_STATE", str(folder))
    monkeypatch.setattr(load, "require_root", lambda _: None)
    return folder


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The image's name and the files in its layers, for each archive that was handed to the nodes."""
    seen: list[tuple[str, list[str]]] = []

    def kindling(command: str, *archives: str, state: Path) -> int:
        assert command == "load" and state.is_dir()
        for archive in archives:
            with tarfile.open(archive) as tar:
                index = json.load(tar.extractfile("index.json") or pytest.fail("no index"))
                entry = index["manifests"][0]
                algorithm, _, digest = entry["digest"].partition(":")
                manifest = json.load(
                    tar.extractfile(f"blobs/{algorithm}/{digest}") or pytest.fail("no manifest")
                )
                layer = manifest["layers"][0]["digest"].replace(":", "/")
                with tarfile.open(fileobj=tar.extractfile(f"blobs/{layer}")) as content:
                    seen.append((entry["annotations"]["io.containerd.image.name"], content.getnames()))
        return 0

    monkeypatch.setattr(cluster, "kindling", kindling)
    return seen


def test_a_disk_becomes_a_container_disk(
    state: Path, loaded: list[tuple[str, list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "debian.img"
    disk.write_bytes(_RAW)
    assert main.main(["load", str(disk)]) == 0
    assert main.main(["load", "--name", "virtplane.local/debian:12", str(disk)]) == 0
    assert loaded == [
        ("virtplane.local/debian:v1", ["disk", "disk/debian.img"]),
        ("virtplane.local/debian:12", ["disk", "disk/debian.img"]),
    ]
    assert "containerDisk: {image: virtplane.local/debian:12}" in capsys.readouterr().err
    assert list((state / "images").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "There is nothing to load."),
        (["absent"], "absent cannot be read."),
        (["--name", "Bad Name", "disk.img"], "is not the name of an image"),
        (["--name", "a.b/c:d", "disk.img", "disk.img", "other.img"], "--name is for one disk"),
        (["disk.img", "text"], "text cannot be loaded: it is neither"),
        (["--frobnicate"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_end_with_two_before_anything_is_loaded(
    state: Path,
    loaded: list[tuple[str, list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("disk.img", "other.img"):
        Path(name).write_bytes(_RAW)
    Path("text").write_text("hello")
    try:
        code = main.main(["load", *arguments])
    except SystemExit as ended:  # as argparse ends
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err
    assert loaded == []


def test_without_a_cluster_the_way_to_one_is_told(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "instance.json").unlink()
    assert main.main(["load", str(tmp_path / "x")]) == 1
    assert f"./virtplane up --state {state}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "variant", "older", "other"),
    [
        ("--demo-guest", CLOUD, "demo-guest-0123.tar", "demo-guest-full-0123.tar"),
        ("--demo-guest-full", FULL, "demo-guest-full-0123.tar", "demo-guest-0123.tar"),
    ],
)
def test_a_demo_guest_is_built_once_and_replaces_those_of_older_versions(
    state: Path,
    loaded: list[tuple[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    option: str,
    variant: Variant,
    older: str,
    other: str,
) -> None:
    built: list[Path] = []
    disk = tmp_path / "guest.qcow2"
    disk.write_bytes(_RAW)

    def build(archive: Path, built_variant: Variant) -> str:
        built.append(archive)
        return oci.write_archive(disk, archive, built_variant.reference)

    monkeypatch.setattr(guest, "build", build)
    for name in (older, other):
        (state / "images" / name).touch()
    for _ in range(2):
        assert main.main(["load", option]) == 0
    assert len(built) == 1
    assert [name for name, _ in loaded] == [variant.reference] * 2
    kept = {load.demo_guest_archive(state, variant), state / "images" / other}
    assert set((state / "images").iterdir()) == kept


def test_the_image_of_guestfs_is_built_and_loaded(
    state: Path, loaded: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = tmp_path / "disk.img"
    disk.write_bytes(_RAW)

    def ensure(folder: Path, step: Step) -> Path:
        archive = folder / "guestfs.tar"
        oci.write_archive(disk, archive, guestfs.LOADED_IMAGE)
        return archive

    monkeypatch.setattr(guestfs_build, "ensure", ensure)
    assert main.main(["load", "--guestfs"]) == 0
    assert [name for name, _ in loaded] == [guestfs.LOADED_IMAGE]


@pytest.mark.parametrize(
    ("error", "code"), [(BuildError("what", "why"), 1), (NotRoot("root"), 3), (OSError(28, "full"), 1)]
)
def test_an_image_of_guestfs_that_cannot_be_built_is_not_loaded(
    state: Path,
    loaded: list[tuple[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
) -> None:
    def ensure(folder: Path, step: Step) -> Path:
        raise error

    monkeypatch.setattr(guestfs_build, "ensure", ensure)
    assert main.main(["load", "--guestfs"]) == code
    assert loaded == []
