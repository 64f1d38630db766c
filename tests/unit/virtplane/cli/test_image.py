"""``virtplane image``: its arguments, its exit codes, and what it leaves behind."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from virtplane.cli import image
from virtplane.image import distribution, product
from virtplane.image.commands import BuildError


@pytest.fixture(autouse=True)
def _folder_for_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))


@pytest.fixture
def _small_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """No downloads: the distribution is a Python link, the pinned packages are one file."""
    here = sys.version_info

    def unpack(debs: list[Path], tree: Path) -> None:
        (tree / "usr/bin").mkdir(parents=True)
        (tree / "usr/bin/python3").symlink_to(f"python{here.major}.{here.minor}")

    def fetch(folder: Path) -> list[Path]:
        folder.mkdir()
        return []

    def install(root: Path, tree: Path, python: str) -> None:
        (tree / product.FOLDER).mkdir(parents=True)

    monkeypatch.setattr(distribution, "fetch", fetch)
    monkeypatch.setattr(distribution, "unpack", unpack)
    monkeypatch.setattr(distribution, "architecture", lambda: "amd64")
    monkeypatch.setattr(product, "install_dependencies", install)
    monkeypatch.setattr(product, "compile_python", lambda tree, python: None)


@pytest.mark.parametrize(
    "name", ["localhost/virtplane:latest", "registry.example.com:5000/a/b-c:v1.2", "example.com/x:A_b"]
)
def test_whole_image_names_are_accepted(name: str) -> None:
    assert image.is_reference(name)


@pytest.mark.parametrize(
    "name", ["virtplane", "localhost/virtplane", "localhost/Upper:v1", "localhost/a:", "a b/c:d", "/x:y"]
)
def test_a_name_that_nodes_could_not_find_is_refused(name: str, tmp_path: Path) -> None:
    assert not image.is_reference(name)
    assert image.main([str(tmp_path / "x.tar"), "--name", name]) == 2


def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert image.main([str(tmp_path)]) == 2
    assert image.main([str(tmp_path / "missing/x.tar")]) == 2
    assert f"There is no folder {tmp_path / 'missing'}." in capsys.readouterr().err


@pytest.mark.usefixtures("_small_distribution")
def test_the_archive_has_three_layers_and_starts_as_root_with_a_search_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "x.tar"
    assert image.main([str(archive), "--name", "localhost/a:b"]) == 0
    documents = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            blob = tar.extractfile(member)
            content = blob.read() if blob else b""
            if content.startswith(b"{"):
                documents[member.name] = json.loads(content)
    (config,) = (entry for entry in documents.values() if "rootfs" in entry)
    assert len(config["rootfs"]["diff_ids"]) == 3
    assert config["config"]["User"] == "1001"
    assert "Entrypoint" not in config["config"]
    assert any(entry.startswith("PATH=") for entry in config["config"]["Env"])
    assert config["config"]["Labels"]["org.opencontainers.image.title"] == "virtplane"
    assert not list((tmp_path / "work").iterdir())
    assert "Packing the layer product ..." in capsys.readouterr().err


@pytest.mark.usefixtures("_small_distribution")
@pytest.mark.parametrize(
    ("error", "code"), [(BuildError("a", "b", "c"), 1), (KeyboardInterrupt(), 130), (OSError(28, "full"), 1)]
)
def test_nothing_is_left_behind_by_a_build_that_fails(
    error: BaseException,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(tree: Path, python: str) -> None:
        raise error

    monkeypatch.setattr(product, "compile_python", fail)
    assert image.main([str(tmp_path / "x.tar")]) == code
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.usefixtures("_small_distribution")
def test_too_little_space_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image, "_NEEDED_BYTES", 10**18)
    assert image.main([str(tmp_path / "x.tar")]) == 1
    assert "TMPDIR" in capsys.readouterr().err
