"""What the agent does, as root, below directories that pods write to."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kindling.node import files
from kindling.node.threads import Abandoned, in_thread
from kindling.node.volumes import mounts
from kubecore import mountinfo

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def nest(directory: Path, depth: int) -> None:
    """Directories inside of each other, deeper than any path can name."""
    current = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)


@contextmanager
def mounted(source: Path, target: Path) -> Iterator[None]:
    target.mkdir(parents=True, exist_ok=True)
    mounts.bind(str(source), target)
    try:
        yield
    finally:
        mounts.unmount(target)


def test_a_tree_is_removed_without_following_its_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "data").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/link").symlink_to(kept)
    (tree / "direct").symlink_to(kept, target_is_directory=True)
    (tree / "a/b/file").write_text("y")
    os.mkfifo(tree / "a/pipe")
    files.remove_tree(tree)
    assert not tree.exists()
    assert (kept / "data").read_text() == "x"
    files.remove_tree(tree)


def test_a_tree_deeper_than_any_path_is_removed_with_few_descriptors(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 3000)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - Path.iterdir holds a descriptor itself
    most = 0

    def check() -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")) - before)  # noqa: PTH208

    files.remove_tree(tree, check)
    assert not tree.exists()
    assert most <= 3


def test_a_link_in_place_of_the_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/data").write_text("x")
    (tmp_path / "tree").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="tree"):
        files.remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept/data").exists()


@needs_root
@pytest.mark.host
def test_a_mount_inside_keeps_a_tree_and_what_is_mounted(tmp_path: Path) -> None:
    data, tree = tmp_path / "data", tmp_path / "tree"
    data.mkdir()
    (data / "file").write_text("x")
    with mounted(data, tree / "a/mount"):
        with pytest.raises(OSError, match="something is mounted here"):
            files.remove_tree(tree)
        assert (tree / "a/mount/file").exists()
    files.remove_tree(tree)
    assert (data / "file").read_text() == "x"
    assert not tree.exists()


@needs_root
@pytest.mark.host
@pytest.mark.parametrize("place", ["mount", "a/mount", "a/b/mount"])
def test_a_mount_that_appears_during_the_removal_keeps_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    data, tree = tmp_path / "data", tmp_path / "tree"
    (data / "inner").mkdir(parents=True)
    (data / "inner/file").write_text("x")
    (tree / "a/b").mkdir(parents=True)
    with mounted(data, tree / place), monkeypatch.context() as late:
        late.setattr(mountinfo, "mount_points_below", lambda _directory: [])
        with pytest.raises(OSError):
            files.remove_tree(tree)
        assert (data / "inner/file").read_text() == "x"
        late.undo()
        for point in mountinfo.mount_points_below(tree):
            mounts.unmount(point)
    files.remove_tree(tree)
    assert (data / "inner/file").read_text() == "x"


def test_only_the_end_of_a_file_is_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as stream:
        stream.seek(1 << 40)
        stream.write(b"end")
    assert files.read_end(huge, 5) == b"\0\0end"
    assert files.read_end(huge, 1) == b"d"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname"), Path.mkdir])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "file")
    with pytest.raises(OSError):
        files.read_end(tmp_path / "file", 10)


@needs_root
@pytest.mark.host
def test_mount_points_of_any_name_are_found(tmp_path: Path) -> None:
    names = ["plain", "with blank", "back\\slash", "ümläut", os.fsdecode(b"not\xffutf8"), "tab\tand\nline"]
    (tmp_path / "source").mkdir()
    for name in names:
        (tmp_path / "t" / name).mkdir(parents=True)
        mounts.bind(str(tmp_path / "source"), tmp_path / "t" / name)
    try:
        assert {point.name for point in mountinfo.mount_points_below(tmp_path / "t")} == set(names)
    finally:
        for name in names:
            mounts.unmount(tmp_path / "t" / name)
    assert mountinfo.mount_points_below(tmp_path / "t") == []


async def test_cancelled_work_has_ended_when_the_cancellation_goes_on() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(check: files.Check) -> None:
        begun.set()
        try:
            while True:
                check()
        except Abandoned:
            ended.set()
            raise

    task = asyncio.create_task(in_thread("test", work))
    await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_work_in_a_thread_returns_and_raises() -> None:
    assert await in_thread("test", lambda _check: 42) == 42

    def fail(_check: files.Check) -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await in_thread("test", fail)


def test_modes_are_what_open_files_have(tmp_path: Path) -> None:
    (tmp_path / "f").touch(mode=0o600)
    descriptor = os.open(tmp_path / "f", os.O_PATH)
    try:
        files.through(descriptor).chmod(0o640)
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640
    finally:
        os.close(descriptor)
