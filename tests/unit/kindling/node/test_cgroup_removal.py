"""Taking cgroups away, in a plain tree of directories."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from kindling.node.pods import cgroup_removal
from kindling.node.pods.cgroup_removal import remove_tree


def nested(directory: Path, depth: int) -> None:
    """Directories in each other; paths may not be as long."""
    directory.mkdir()
    current = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)


def open_below(directory: Path) -> list[str]:
    """What this process has open of a tree, removed directories included."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own is closed by now
            targets.append(str(link.readlink()))
    return [target for target in targets if target.startswith(f"{directory}/")]


def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    nested(tmp_path / "pod", 10_000)
    remove_tree(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()
    assert open_below(tmp_path) == []


def test_a_wide_tree_is_removed(tmp_path: Path) -> None:
    for outer in range(20):
        for inner in range(20):
            (tmp_path / "pod" / f"o{outer}" / f"i{inner}" / "leaf").mkdir(parents=True)
    remove_tree(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()


def test_what_is_in_use_stays_and_the_rest_goes(tmp_path: Path) -> None:
    """A directory with a file is as busy as a cgroup with a process."""
    used = tmp_path / "pod" / "b" / "used"
    used.mkdir(parents=True)
    (used / "process").touch()
    for free in ("a/free", "b/free", "c/free"):
        (tmp_path / "pod" / free).mkdir(parents=True)
    remove_tree(tmp_path / "pod")
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["pod", "pod/b", "pod/b/used", "pod/b/used/process"]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "kept").mkdir(parents=True)
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "link").symlink_to(tmp_path / "elsewhere")
    remove_tree(tmp_path / "pod")
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_nothing_to_remove_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "pod")
    (tmp_path / "file").touch()
    remove_tree(tmp_path / "file")
    assert (tmp_path / "file").exists()


def test_pods_are_known_by_their_cgroups_of_any_hierarchy_and_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cgroup_removal, "hierarchies", lambda: [tmp_path / name for name in ("cpu", "pids", "gone")]
    )
    for place in (
        "cpu/k/kubepods/poda-1",
        "cpu/k/kubepods/burstable/podb-2",
        "pids/k/kubepods/besteffort/podc-3",
    ):
        (tmp_path / place / "container").mkdir(parents=True)
    (tmp_path / "pids/other/kubepods/podd-4").mkdir(parents=True)
    assert cgroup_removal.pods_with_cgroups("/k") == {"a-1", "b-2", "c-3"}
