"""Paths inside a container's root, as the container itself would follow them."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtplane.compute.handler.storage.rooted import TooManyLinks, resolve_inside


def test_absolute_links_lead_inside_the_root(tmp_path: Path) -> None:
    (tmp_path / "run/disks").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    assert resolve_inside(tmp_path, "/var/run/disks/a.img") == tmp_path / "run/disks/a.img"


def test_relative_links_cannot_climb_out(tmp_path: Path) -> None:
    (tmp_path / "escape").symlink_to("../../../etc")
    assert resolve_inside(tmp_path, "escape/passwd") == tmp_path / "etc/passwd"
    assert resolve_inside(tmp_path, "../../etc") == tmp_path / "etc"


def test_circles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(TooManyLinks):
        resolve_inside(tmp_path, "a")


def test_missing_parts_are_kept(tmp_path: Path) -> None:
    assert resolve_inside(tmp_path, "/no/such/file") == tmp_path / "no/such/file"
