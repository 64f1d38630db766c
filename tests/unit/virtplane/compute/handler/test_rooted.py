"""Files below a folder whose owner is not to be trusted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from virtplane.compute.handler import rooted
from virtplane.compute.handler.launchers.sockets import reachable
from virtplane.compute.handler.rooted import READ_LIMIT, Root

ME = os.getuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "pod"
    inside.mkdir()
    (tmp_path / "secret").write_text("the node's")
    return inside


@pytest.fixture
def root(folder: Path) -> Iterator[Root]:
    with Root(folder) as opened:
        yield opened


def test_absolute_links_lead_inside_the_folder(folder: Path, root: Root) -> None:
    (folder / "run/disks").mkdir(parents=True)
    (folder / "run/disks/a.img").write_text("a")
    (folder / "var").mkdir()
    (folder / "var/run").symlink_to("/run")
    assert root.read("/var/run/disks/a.img") == b"a"
    assert root.names("var/run/disks") == ["a.img"]


@pytest.mark.parametrize("target", ["../secret", "../../../../../../secret", "/secret"])
def test_links_cannot_climb_out(folder: Path, root: Root, target: str) -> None:
    (folder / "escape").symlink_to(target)
    assert root.mode("escape") == 0
    with pytest.raises(FileNotFoundError):
        root.read("escape")
    with pytest.raises(OSError, match="Too many levels"):
        root.give("escape", ME)


@pytest.mark.parametrize("target", ["../secret", "/etc/hostname"])
def test_links_out_are_refused_where_they_are_not_followed_inside(folder: Path, target: str) -> None:
    (folder / "escape").symlink_to(target)
    with Root(folder, beneath=True) as strict, pytest.raises(OSError, match="cross-device"):
        strict.read("escape")


def _write(content: bytes, descriptor: int) -> None:
    os.write(descriptor, content)


def test_a_new_file_takes_the_place_of_a_planted_link(folder: Path, root: Root) -> None:
    victim = folder.parent / "secret"
    (folder / "disk.img").symlink_to(victim)
    root.create("disk.img", partial(_write, b"new"), ME)
    assert victim.read_text() == "the node's"
    assert (folder / "disk.img").read_text() == "new"
    assert not (folder / "disk.img").is_symlink()


def test_a_planted_folder_keeps_new_files_inside(folder: Path, root: Root) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "disk-data").symlink_to("../outside")
    with pytest.raises(OSError, match="disk-data"):
        root.create("disk-data/a/disk.img", lambda descriptor: None, ME)
    assert list(outside.iterdir()) == []


def test_a_file_whose_writing_fails_does_not_take_its_name(folder: Path, root: Root) -> None:
    def fail(descriptor: int) -> None:
        os.write(descriptor, b"half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        root.create("a/b", fail, ME)
    assert root.mode("a/b") == 0
    root.create("a/b", partial(_write, b"whole"), ME)
    assert (folder / "a/b").read_text() == "whole"
    assert root.names("a") == ["b"]


def test_give_refuses_a_link_to_a_file_inside(folder: Path, root: Root) -> None:
    (folder / "token").write_text("others'")
    (folder / "disk.img").symlink_to("token")
    with pytest.raises(OSError, match="Too many levels") as caught:
        root.give("disk.img", ME)
    assert caught.value.errno == errno.ELOOP


def test_give_refuses_what_is_not_a_disk(folder: Path, root: Root) -> None:
    os.mkfifo(folder / "pipe")
    for name in ("pipe", "/"):
        with pytest.raises(OSError, match="No such device"):
            root.give(name, ME)


def test_only_regular_files_are_opened_as_disks(folder: Path, root: Root) -> None:
    """Opening a pipe would wait for its other end, in a thread of virt-handler."""
    os.mkfifo(folder / "pipe")
    (folder / "disk.img").write_bytes(b"x")
    (folder / "link").symlink_to("disk.img")
    for name, problem in (("pipe", "No such device"), ("link", "Too many levels"), ("/", "No such device")):
        with pytest.raises(OSError, match=problem), root.opened_disk(name, os.O_RDONLY):
            pass
    with pytest.raises(OSError, match="No such device"), root.opened_disk("disk.img", os.O_RDWR, block=True):
        pass
    with root.opened_disk("disk.img", os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 5)
    assert root.size("disk.img") == 5


def test_give_takes_a_device_by_its_number_only() -> None:
    with Root("/dev") as devices, pytest.raises(OSError, match="No such device"):
        devices.give("null", ME, device=os.makedev(10, 200))


def test_read_refuses_a_file_without_end(folder: Path, root: Root) -> None:
    with (folder / "userdata").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than") as caught:
        root.read("userdata")
    assert caught.value.errno == errno.EFBIG
    assert root.head("userdata", 10) == bytes(10)


def test_read_refuses_devices_and_pipes(folder: Path, root: Root) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        root.read("pipe")
    with Root("/dev") as devices, pytest.raises(OSError, match="not a regular file"):
        devices.read("zero")


def test_texts_are_bounded_in_all_files_together(folder: Path, root: Root) -> None:
    for name in ("a", "b"):
        with (folder / name).open("wb") as file:
            file.truncate(READ_LIMIT // 2 + 1)
    with pytest.raises(OSError, match="more than"):
        root.texts("/")


def test_texts_name_the_file_that_is_none(folder: Path, root: Root) -> None:
    (folder / "key").write_bytes(b"\xff")
    with pytest.raises(OSError, match=r"not text in UTF-8: '//key'"):
        root.texts("/")


def test_texts_leave_out_what_is_no_visible_file(folder: Path, root: Root) -> None:
    (folder / "..data").mkdir()
    (folder / "..data/key").write_text("k")
    (folder / "key").symlink_to("..data/key")
    os.mkfifo(folder / "pipe")
    assert root.texts("/") == {"key": "k"}


def test_names_refuses_a_folder_without_end(
    folder: Path, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooted, "NAMES_LIMIT", 2)
    for name in "abc":
        (folder / name).touch()
    with pytest.raises(OSError, match="more than 2 files"):
        root.names("/")


def test_circles_are_refused(folder: Path, root: Root) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        root.read("a")


def test_kinds_of_files_are_told_apart(folder: Path, root: Root) -> None:
    (folder / "file").write_text("12345")
    assert (root.is_file("file"), root.is_folder("file"), root.size("file")) == (True, False, 5)
    assert (root.is_file("/"), root.is_folder("/"), root.is_block_device("/")) == (False, True, False)
    assert (root.is_file("no"), root.is_file("file/no")) == (False, False)
    assert stat.S_ISREG(root.mode("file"))


def test_a_socket_behind_a_link_out_of_the_pod_is_not_reached(folder: Path) -> None:
    (folder / "uid").symlink_to(folder.parent)
    with pytest.raises(OSError, match="cross-device"), reachable(folder / "uid/secret", folder):
        pass


def test_what_is_no_socket_is_not_reached(folder: Path) -> None:
    (folder / "launcher-sock").write_text("")
    with pytest.raises(FileNotFoundError), reachable(folder / "launcher-sock"):
        pass
