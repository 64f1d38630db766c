"""Reading the kernel's table of mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubecore import mountinfo
from kubecore.mountinfo import mount_points, mount_points_below

_ROOT = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"


def _table(*points: bytes) -> bytes:
    lines = [b"30 22 0:25 /a %b rw master:1 - tmpfs none rw" % point for point in points]
    return b"\n".join([_ROOT, *lines, b""])


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (rb"/a\040b", "/a b"),
        (rb"/a\134040b", r"/a\040b"),
        ("/Gäste".encode(), "/Gäste"),
        (b"/\xff", os.fsdecode(b"/\xff")),
    ],
    ids=["blank", "backslash", "UTF-8", "no UTF-8"],
)
def test_mount_points_are_read_as_they_are_called(written: bytes, name: str) -> None:
    assert mount_points(_table(written)) == [Path("/"), Path(name)]


def test_names_that_break_lines_elsewhere_hide_no_mount_point() -> None:
    bound = b"31 22 254:0 /vol/a\rb\x0c\x85c /pods/x rw - ext4 /dev/vda rw\n"
    assert mount_points(_table(b"/d\re") + bound) == [Path("/"), Path("/d\re"), Path("/pods/x")]


def test_only_what_is_below_a_directory_is_found_the_deepest_first() -> None:
    table = _table(b"/v", b"/v/a", b"/v/a/b", b"/very", rb"/v/c\040d")
    assert mount_points_below(Path("/v"), table) == [Path(p) for p in ("/v/a/b", "/v/a", "/v/c d", "/v")]
    assert mount_points_below(Path("/v/c d"), table) == [Path("/v/c d")]
    assert len(mount_points_below(Path("/"), table)) == 6


@pytest.mark.parametrize(
    ("path", "is_one"), [("/v/c d", True), ("/v/a", True), ("/v/ab", False), ("/", True)]
)
def test_what_is_mounted_at_a_path_is_known(path: str, is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mountinfo, "_own", lambda: _table(b"/v/a", rb"/v/c\040d", b"/v/ab/c"))
    assert mountinfo.is_mount_point(Path(path)) is is_one


def test_the_table_of_this_process_is_read() -> None:
    assert Path("/proc") in mount_points()
