"""Config maps, secrets and the like as disks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pycdlib
import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.storage import configuration
from virtplane.compute.handler.storage.images import BadImage

PRIVATE = "var/run/kubevirt-private"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    (tmp_path / PRIVATE).mkdir(parents=True)
    with Root(tmp_path) as opened:
        yield opened


def _mount(root_path: Path, folder: str, **files: str) -> None:
    """Files as a kubelet mounts them: behind a link that it exchanges."""
    mounted = root_path / folder
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..data").symlink_to("..2026")
    for name, text in files.items():
        (mounted / "..2026" / name).write_text(text)
        (mounted / name).symlink_to(f"..data/{name}")


def _content(disk: Path) -> tuple[str, dict[str, str]]:
    image = pycdlib.PyCdlib()
    image.open(str(disk))
    files = {}
    for folder, _, names in image.walk(rr_path="/"):
        for name in names:
            text = io.BytesIO()
            path = f"{folder.rstrip('/')}/{name}"
            image.get_file_from_iso_fp(text, rr_path=path)
            files[path] = text.getvalue().decode()
    label = image.pvd.volume_identifier.decode().strip()
    image.close()
    return label, files


def _create(root: Root, **volume: Any) -> str:
    return configuration.create_disk(root, decode(Volume, {"name": "v", **volume}))


@pytest.mark.feature("VMC-55", "VML-27")
@pytest.mark.parametrize(
    ("volume", "folder", "disk"),
    [
        ({"configMap": {"name": "c"}}, f"{PRIVATE}/config-map/v", "config-map-disks/v.iso"),
        ({"secret": {"secretName": "s"}}, f"{PRIVATE}/secret/v", "secret-disks/v.iso"),
        (
            {"downwardAPI": {"fields": [{"path": "key"}]}},
            f"{PRIVATE}/downwardapi/v",
            "downwardapi-disks/v.iso",
        ),
        (
            {"serviceAccount": {"serviceAccountName": "default"}},
            "var/run/secrets/kubernetes.io/serviceaccount",
            "service-account-disk/service-account.iso",
        ),
    ],
    ids=["config map", "secret", "downward API", "service account"],
)
def test_mounted_files_become_a_disk(
    root: Root, tmp_path: Path, volume: dict[str, Any], folder: str, disk: str
) -> None:
    _mount(tmp_path, folder, key="value", other="more")
    path = _create(root, **volume)
    assert path == f"/{PRIVATE}/{disk}"
    assert _content(tmp_path / PRIVATE / disk) == ("cfgdata", {"/key": "value", "/other": "more"})


def test_a_disk_has_the_label_that_is_asked_for_and_folders(root: Root, tmp_path: Path) -> None:
    folder = tmp_path / PRIVATE / "downwardapi/v/etc"
    folder.mkdir(parents=True)
    (folder / "labels").write_text("a=b")
    _create(root, downwardAPI={"fields": [{"path": "labels"}], "volumeLabel": "facts"})
    found = _content(tmp_path / PRIVATE / "downwardapi-disks/v.iso")
    assert found == ("facts", {"/etc/labels": "a=b"})


@pytest.mark.feature("VMC-66", "VMC-67")
@pytest.mark.parametrize("name", ["autounattend.xml", "Unattend.xml"])
def test_answers_for_windows_are_on_a_disk_with_its_label(root: Root, tmp_path: Path, name: str) -> None:
    _mount(tmp_path, f"{PRIVATE}/sysprep/v", **{name: "<xml/>"})
    _create(root, sysprep={"configMap": {"name": "c"}})
    label, files = _content(tmp_path / PRIVATE / "sysprep-disks/v.iso")
    assert (label, files) == ("unattendCD", {f"/{name}": "<xml/>"})


def test_answers_under_another_name_are_refused(root: Root, tmp_path: Path) -> None:
    _mount(tmp_path, f"{PRIVATE}/sysprep/v", answers="<xml/>")
    with pytest.raises(BadImage, match=r"autounattend\.xml or unattend\.xml"):
        _create(root, sysprep={"secret": {"name": "s"}})


def test_a_name_that_no_cd_can_have_is_refused_and_leaves_no_disk(root: Root, tmp_path: Path) -> None:
    _mount(tmp_path, f"{PRIVATE}/config-map/v", **{"k" * 200: "value"})
    with pytest.raises(BadImage, match="cannot be written to an ISO image"):
        _create(root, configMap={"name": "c"})
    assert not root.is_file(f"{PRIVATE}/config-map-disks/v.iso")


def test_folders_without_end_are_refused(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "NAMES_LIMIT", 5)
    for number in range(6):
        (tmp_path / PRIVATE / f"config-map/v/a/{number}").mkdir(parents=True)
    with pytest.raises(BadImage, match="holds more than 5 files"):
        _create(root, configMap={"name": "c"})


def test_a_disk_that_is_there_is_kept(root: Root, tmp_path: Path) -> None:
    _mount(tmp_path, f"{PRIVATE}/config-map/v", key="value")
    _create(root, configMap={"name": "c"})
    (tmp_path / PRIVATE / "config-map/v/..2026/key").write_text("changed")
    _create(root, configMap={"name": "c"})
    assert _content(tmp_path / PRIVATE / "config-map-disks/v.iso")[1] == {"/key": "value"}
