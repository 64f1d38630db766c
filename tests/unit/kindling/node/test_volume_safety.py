"""subPath and fsGroup in volumes that containers change while the agent works on them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.support.waiting import until

from kindling.node import files
from kindling.node.pods import identity
from kindling.node.volumes import mounts, ownership, subpath
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.manager import Prepared, VolumeManager

GROUP = 4711
_RENAME_EXCHANGE = 2
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def pod(**security: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u"}, "spec": {"securityContext": {"fsGroup": GROUP, **security}}}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    path.chmod(0o2775)
    return path


@contextlib.contextmanager
def opened(base: Path, relative: str) -> Iterator[Path]:
    descriptor = subpath.open_inside(base, relative)
    try:
        yield files.through(descriptor).readlink()
    finally:
        os.close(descriptor)


def test_missing_directories_of_a_subpath_get_the_permissions_of_the_volume(volume: Path) -> None:
    with opened(volume, "a/./b//c") as found:
        assert found == volume / "a/b/c"
    assert [stat.S_IMODE((volume / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")] == [0o2775] * 3


def test_links_that_stay_in_the_volume_are_followed(volume: Path) -> None:
    (volume / "..data_1").mkdir()
    (volume / "..data_1/key").write_text("v")
    (volume / "..data").symlink_to("..data_1")
    (volume / "key").symlink_to("..data/key")
    with opened(volume, "key") as found:
        assert found == volume / "..data_1/key"
    with opened(volume, "..data/new") as found:
        assert found == volume / "..data_1/new"


@pytest.mark.parametrize("target", ["/", "/etc", "..", "../outside", "../volume/../outside"])
@pytest.mark.parametrize("relative", ["link", "link/below", "link/not/yet/there"])
def test_links_out_of_the_volume_are_refused_and_nothing_is_made_there(
    volume: Path, target: str, relative: str
) -> None:
    outside = volume.parent / "outside"
    (outside / "below").mkdir(parents=True)
    (volume / "link").symlink_to(target)
    with pytest.raises(ContentProblem):
        subpath.open_inside(volume, relative)
    assert sorted(outside.iterdir()) == [outside / "below"]


@pytest.mark.parametrize("relative", ["../x", "a/../../x", "/etc"])
def test_subpaths_that_leave_the_volume_by_name_are_refused(volume: Path, relative: str) -> None:
    with pytest.raises(ContentProblem, match="must stay inside the volume"):
        subpath.open_inside(volume, relative)


def test_a_link_to_nowhere_is_not_made_into_a_directory_elsewhere(volume: Path) -> None:
    (volume / "link").symlink_to(volume.parent / "made")
    with pytest.raises(ContentProblem):
        subpath.open_inside(volume, "link/x")
    assert not (volume.parent / "made").exists()


def test_a_container_that_swaps_directories_for_links_gains_nothing(volume: Path) -> None:
    """Directories are swapped for links out of the volume, as fast as can be, while subPaths are made."""
    outside = volume.parent / "outside"
    outside.mkdir()
    outside.chmod(0o700)
    (volume / "a").mkdir()
    (volume / "link").symlink_to(outside)
    done = threading.Event()

    names = [os.fsencode(volume / name) for name in ("a", "link")]
    libc = ctypes.CDLL(None)

    def swap() -> None:
        while not done.is_set():
            libc.renameat2(-100, names[0], -100, names[1], _RENAME_EXCHANGE)

    attacker = threading.Thread(target=swap)
    attacker.start()
    reached = refused = 0
    try:
        for number in range(20_000):
            try:
                with opened(volume, f"a/{number}/x") as found:
                    reached += 1
                    assert outside not in found.parents
            except ContentProblem:
                refused += 1
            if number > 1000 and reached and refused:
                break
    finally:
        done.set()
        attacker.join()
    assert list(outside.iterdir()) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    assert reached and refused


@pytest.mark.host
def test_a_subpath_is_bound_for_the_container(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    (volume / "f").write_text("v")
    target = subpath.prepare("u", "vol", "c", 0, volume, "f")
    try:
        assert target == tmp_path / "k/pods/u/volume-subpaths/vol/c/0"
        assert target.read_text() == "v"
    finally:
        mounts.unmount(target)


async def test_the_group_gets_the_volume_and_not_what_links_lead_to(volume: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    (volume / "d").mkdir(mode=0o700)
    (volume / "d/f").write_text("x")
    (volume / "d/f").chmod(0o600)
    (volume / "d/link").symlink_to(secret)
    (volume / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(volume / "pipe")
    await ownership.apply(pod(), volume)
    for path, mode in ((volume, 0o2775), (volume / "d", 0o2770), (volume / "d/f", 0o660)):
        assert (path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (GROUP, mode)
    assert (volume / "pipe").stat().st_gid == GROUP
    for path in (secret, tmp_path):
        assert path.stat().st_gid == 0
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


async def test_a_volume_whose_root_is_right_is_left_alone_where_the_pod_says_so(volume: Path) -> None:
    (volume / "f").write_text("x")
    os.chown(volume, -1, GROUP)
    volume.chmod(0o2770)
    await ownership.apply(pod(fsGroupChangePolicy="OnRootMismatch"), volume)
    assert (volume / "f").stat().st_gid == 0
    await ownership.apply(pod(), volume)
    assert (volume / "f").stat().st_gid == GROUP


def test_an_interrupted_walk_leaves_the_root_wrong_so_that_it_is_done_again(volume: Path) -> None:
    for number in range(20):
        (volume / str(number)).mkdir()
    steps = iter(range(10))

    def check() -> None:
        if next(steps, None) is None:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        ownership.hand_over(volume, GROUP, check)
    assert volume.stat().st_gid == 0


@pytest.mark.host
def test_mounts_inside_a_volume_keep_their_group(volume: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("x")
    (volume / "m").mkdir()
    mounts.bind(str(other), volume / "m")
    try:
        ownership.hand_over(volume, GROUP)
    finally:
        mounts.unmount(volume / "m")
    assert (other.stat().st_gid, (other / "f").stat().st_gid) == (0, 0)
    assert volume.stat().st_gid == GROUP


async def test_the_agent_goes_on_while_a_large_volume_changes_hands(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk waits for what the event loop does: both must go on at once."""
    (volume / "f").write_text("x")
    released, given = threading.Event(), files.through

    def waiting(descriptor: int) -> Path:
        assert released.wait(5), "the event loop stands still"
        return given(descriptor)

    monkeypatch.setattr(files, "through", waiting)
    walk = asyncio.create_task(ownership.apply(pod(), volume))
    await asyncio.sleep(0)
    released.set()
    await walk
    assert (volume / "f").stat().st_gid == GROUP


@pytest.mark.parametrize("depth", [0, ownership._OPEN_LEVELS + 3])
def test_every_level_of_a_volume_is_handed_over(volume: Path, depth: int) -> None:
    place = volume
    for _ in range(depth):
        place = place / "d"
    for name in ("a/b", "c"):
        (place / name).mkdir(parents=True)
        (place / name / "f").write_text("x")
    ownership.hand_over(volume, GROUP)
    for each in (volume, *volume.rglob("*")):
        assert each.stat().st_gid == GROUP


@pytest.mark.parametrize("is_deep", [False, True])
def test_only_so_many_directories_are_remembered(
    volume: Path, monkeypatch: pytest.MonkeyPatch, is_deep: bool
) -> None:
    """A volume may hold millions, whose paths would fill the agent's memory."""
    monkeypatch.setattr(ownership, "_MOST_WAITING", 5)
    place = volume
    for number in range(ownership._OPEN_LEVELS + 3 if is_deep else 0):
        place = place / f"d{number}"
    place.mkdir(parents=True, exist_ok=True)
    for number in range(20):
        (place / str(number)).mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    if is_deep:
        with pytest.raises(OSError, match="directories, 32 levels deep"):
            ownership.hand_over(volume, GROUP)
    else:
        ownership.hand_over(volume, GROUP)
        assert {each.stat().st_gid for each in (place, *place.iterdir())} == {GROUP}
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_the_agent_goes_on_while_the_server_of_a_volume_does_not_answer(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a file there then waits for ever, in the kernel."""
    answering, waiting = threading.Event(), threading.Event()

    def hang(*_: object) -> Any:
        waiting.set()
        assert answering.wait(10), "the event loop stands still"
        raise OSError("stale")

    monkeypatch.setattr(subpath, "prepare", hang)
    monkeypatch.setattr(Path, "lstat", hang)
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}]}
    manager = VolumeManager(Mock())
    for work in (
        manager.container_mounts(pod(), container, {"v": Prepared(volume)}, {}),
        ownership.apply(pod(), volume),
    ):
        task = asyncio.create_task(work)
        await until(waiting.is_set)
        answering.set()
        with pytest.raises(OSError, match="stale"):
            await task
        answering.clear()
        waiting.clear()


def test_a_volume_too_deep_to_name_is_an_error_of_this_volume(volume: Path) -> None:
    current = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(2200):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)
    try:
        with pytest.raises(OSError, match="name too long"):
            ownership.hand_over(volume, GROUP)
    finally:
        files.remove_tree(volume)
