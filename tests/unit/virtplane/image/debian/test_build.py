"""When the Debian disk is built, and what a build leaves behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from virtplane.cli import image as command
from virtplane.image import distribution
from virtplane.image.commands import BuildError, NotRoot
from virtplane.image.debian import boot, build, disk, packages, tree


class Builder:
    """Stands for the programs of a build; what each is to do can be set."""

    def __init__(self) -> None:
        self.builds = 0
        self.error: BaseException | None = None
        self.began, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def compress(self, raw: Path, image: Path) -> None:
        """Write an image with the number of the build."""
        self.builds += 1
        self.began.set()
        assert self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        image.write_text(f"image {self.builds}")


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    """No downloads, no root."""
    made = Builder()
    release = tmp_path / "os-release"
    release.write_text("ID=debian\nVERSION_ID=12\n")
    monkeypatch.setattr(build, "_OS_RELEASE", release)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(distribution, "architecture", lambda: "amd64")
    monkeypatch.setattr(packages, "missing_tools", lambda which: [])
    monkeypatch.setattr(packages, "fetch", lambda folder, included: 0)
    monkeypatch.setattr(tree, "make", lambda debs, work, names, identities: work)
    monkeypatch.setattr(boot, "make_loader", lambda root, work, identities: None)
    monkeypatch.setattr(disk, "write", lambda raw, root, loader, identities: None)
    monkeypatch.setattr(disk, "compress", made.compress)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state/images"


def ensure(folder: Path, *, force: bool = False) -> Path:
    return build.ensure(folder, lambda text: nullcontext(), force=force)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.feature("NEW-10")
def test_it_is_built_once_and_anew_on_demand(builder: Builder, folder: Path) -> None:
    image = ensure(folder)
    assert image.name.startswith("debian-12-")
    assert ensure(folder) == image
    assert builder.builds == 1
    assert ensure(folder, force=True) == image
    assert image.read_text() == "image 2"
    assert names(folder) == ["CACHEDIR.TAG", image.name, "debian.lock"]


def test_it_needs_root_only_to_be_built(
    builder: Builder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = ensure(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ensure(folder) == image
    with pytest.raises(NotRoot):
        ensure(folder, force=True)
    assert image.read_text() == "image 1"


def test_a_folder_that_was_there_gets_no_tag_that_lets_it_be_removed(builder: Builder, folder: Path) -> None:
    (folder / "holiday").mkdir(parents=True)
    image = ensure(folder)
    assert names(folder) == [image.name, "debian.lock", "holiday"]


@pytest.mark.parametrize("error", [BuildError("a"), OSError(28, "full"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_the_image_before_it(
    error: BaseException, builder: Builder, folder: Path
) -> None:
    builder.error = error
    with pytest.raises(type(error)):
        ensure(folder)
    assert names(folder) == ["CACHEDIR.TAG", "debian.lock"]
    builder.error = None
    image = ensure(folder)
    builder.error = error
    with pytest.raises(type(error)):
        ensure(folder, force=True)
    assert image.read_text() == "image 2"
    assert names(folder) == ["CACHEDIR.TAG", image.name, "debian.lock"]


def test_the_next_build_removes_what_a_killed_one_left_and_images_of_other_versions(
    builder: Builder, folder: Path
) -> None:
    (folder / ".debian-killed/private/tree").mkdir(parents=True)
    (folder / "debian-11-0123.qcow2").touch()
    (folder / "demo-guest-0123.tar").touch()
    image = ensure(folder)
    assert names(folder) == [image.name, "debian.lock", "demo-guest-0123.tar"]


@pytest.mark.parametrize("force", [False, True])
def test_of_two_builds_at_once_the_second_takes_what_the_first_has_built(
    builder: Builder, folder: Path, force: bool
) -> None:
    builder.may_end.clear()
    waiting = threading.Event()
    found: list[Path] = []

    @contextmanager
    def step(text: str) -> Iterator[None]:
        if "another" in text:
            waiting.set()
        yield

    def run() -> None:
        found.append(build.ensure(folder, step, force=force))

    first, second = threading.Thread(target=run), threading.Thread(target=run)
    first.start()
    assert builder.began.wait(10)
    second.start()
    assert waiting.wait(10)
    builder.may_end.set()
    first.join(10)
    second.join(10)
    assert found == [found[0]] * 2
    assert builder.builds == 1
    assert found[0].read_text() == "image 1"


def test_too_little_space_is_said_before_the_work(
    builder: Builder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_NEEDED_BYTES", 10**18)
    with pytest.raises(BuildError, match="--state"):
        ensure(folder)
    assert builder.builds == 0


def test_nobody_else_reaches_the_programs_of_the_tree(
    builder: Builder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    def make(debs: Path, work: Path, names: object, identities: object) -> Path:
        modes.append(work.stat().st_mode & 0o777)
        return work

    monkeypatch.setattr(tree, "make", make)
    ensure(folder)
    assert modes == [0o700]


def test_the_command_prints_the_path_alone(
    builder: Builder, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["build", "debian", "--state", str(folder.parent)]) == 0
    printed = capsys.readouterr()
    assert Path(printed.out.removesuffix("\n")).read_text() == "image 1"
    assert "Compressing the disk ..." in printed.err
    image = Path(printed.out.removesuffix("\n"))
    os.utime(image, (0, image.stat().st_mtime - 3 * 86400 - 60))
    assert command.main(["build", "debian", "--state", str(folder.parent)]) == 0
    assert "3 days old" in capsys.readouterr().err
    assert builder.builds == 1


@pytest.mark.parametrize(
    ("error", "code"), [(BuildError("a"), 1), (OSError(28, "full"), 1), (KeyboardInterrupt(), 130)]
)
def test_the_commands_exit_code_says_what_became_of_it(
    error: BaseException, code: int, builder: Builder, folder: Path
) -> None:
    builder.error = error
    assert command.main(["build", "debian", "--state", str(folder.parent)]) == code


def test_the_command_says_that_only_root_builds(
    builder: Builder, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command.main(["build", "debian", "--state", str(folder.parent)]) == 3
    assert "sudo" in capsys.readouterr().err
    assert not folder.exists()


def test_the_command_builds_nothing_else() -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["build", "fedora"])
    assert caught.value.code == 2
