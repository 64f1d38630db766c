"""What containers of the host image see of the machine, and what is kept from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kindling.node.images import host_image


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files as packages leave them: for everybody, for one group, for root."""
    root = tmp_path / "usr"
    for name, mode in (
        ("bin/tool", 0o755),
        ("lib/helper", 0o4750),
        ("share/rules/key", 0o644),
        ("own/key", 0o600),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("content")
        path.chmod(mode)
    (root / "share/rules").chmod(0o700)
    (root / "share/link").symlink_to("rules")
    root.chmod(0o755)
    return root


def test_what_not_everybody_may_read_is_hidden(tree: Path) -> None:
    found = host_image.hidden([tree], own=[tree / "own"])
    assert set(found) == {tree / "lib/helper", tree / "share/rules"}


def test_a_place_that_cannot_be_searched_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="must hide"):
        host_image.hidden([tmp_path / "missing"])


def test_the_machines_keys_are_not_among_the_files() -> None:
    for path in host_image.bind_paths():
        assert not Path("/etc/ssl/private").is_relative_to(path)


_ASK_FOR_PROGRAMS = """
import os, sys
from pathlib import Path
from kindling.node.images import host_image
sys.prefix = sys.argv[1]
host_image._OVERLAYS = Path(sys.argv[2])
files = host_image.HostFiles()
folder = files.programs()
assert folder == files.programs()
print((folder / "own-tool").read_text(), (folder / "sh").read_bytes() == Path("/usr/bin/sh").read_bytes())
print(Path("/proc/self/mountinfo").read_text().count(str(folder)))
shown = [each["host_path"] for each in files.mounts([]) if each["container_path"] == "/usr/bin"]
print(shown == [str(folder)])
"""


@pytest.mark.host
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_programs_of_the_environment_are_in_usr_bin_behind_the_machines_own(tmp_path: Path) -> None:
    own = tmp_path / "environment/bin"
    own.mkdir(parents=True)
    (own / "own-tool").write_text("tool")
    (own / "sh").write_text("not this one")
    command = [sys.executable, "-c", _ASK_FOR_PROGRAMS, str(own.parent), str(tmp_path / "overlays")]
    done = subprocess.run(["unshare", "--mount", *command], capture_output=True, text=True, check=True)
    first, count, shown = done.stdout.splitlines()
    assert (first, count, shown) == ("tool True", "1", "True")


def test_containers_get_covers_after_what_they_cover(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_image, "bind_paths", lambda: [tree])
    monkeypatch.setattr(host_image, "_EMPTY", tree.parent / "empty")
    mounts = host_image.HostFiles().mounts(taken=[])
    places = [mount["container_path"] for mount in mounts]
    assert places[0] == str(tree)
    covers = {mount["container_path"]: mount["host_path"] for mount in mounts}
    assert covers[str(tree / "lib/helper")] == "/dev/null"
    assert covers[str(tree / "share/rules")] == str(tree.parent / "empty")
    assert all(mount["readonly"] for mount in mounts)


def test_files_of_new_packages_are_hidden(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tree.parent / "status"
    packages.write_text("one")
    monkeypatch.setattr(host_image, "bind_paths", lambda: [tree])
    monkeypatch.setattr(host_image, "_EMPTY", tree.parent / "empty")
    monkeypatch.setattr(host_image, "_PACKAGES", packages)
    files = host_image.HostFiles()
    files.covered()
    (tree / "bin/secret").write_text("new")
    (tree / "bin/secret").chmod(0o640)
    os.utime(packages, ns=(1, 1))
    assert tree / "bin/secret" in files.covered()


_LOOK = """
import sys
from pathlib import Path
from kindling.node.images import host_image
tree, target = Path(sys.argv[1]), Path(sys.argv[2])
host_image.bind_paths = lambda: [tree]
host_image._EMPTY = tree.parent / "empty"
files = host_image.HostFiles()
files.mount_tree(target)
files.mount_tree(target)
inside = target / tree.relative_to("/")
print((inside / "bin/tool").read_text(), repr((inside / "lib/helper").read_text()))
print(list((inside / "share/rules").iterdir()))
print(Path("/proc/self/mountinfo").read_text().count(str(inside)))
"""


@pytest.mark.host
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_volume_of_the_host_image_hides_the_same(tree: Path, tmp_path: Path) -> None:
    command = ["unshare", "--mount", sys.executable, "-c", _LOOK, str(tree), str(tmp_path / "volume")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0] == "content ''"
    assert told[1] == "[]"
    # The tree, and a cover for each of helper, rules and the key.
    assert told[2] == "4"
