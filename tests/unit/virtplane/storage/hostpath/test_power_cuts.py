"""The power fails while volumes are made, written, grown, copied and removed: what was answered has happened.

The pool's file lies on another XFS. A copy of it that shares all blocks is what its file system has written
at one moment, without anything that was only in memory: what a power cut leaves. Mounting the copy replays
the log of the file system, and a driver starts on it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.xfspool import DEVICE, FILES, GIB, MIB, Driver, are_detached, mounted_pool, needs_pools
from tests.support.xfspool import xfs_pool as new_pool

from virtplane.storage.hostpath import images, pool, usage

pytestmark = [needs_pools, pytest.mark.timeout(300)]

_CUTS = int(os.environ.get("VIRTPLANE_POWER_CUTS", "2"))
_WORKERS = 3
_BLOCK = 4096

_Values = Mapping[str, Any]
Call = tuple[str, _Values]
Step = Callable[[], None]


@dataclass(frozen=True)
class Known:
    """What the driver has answered of a volume or a snapshot, and what is surely in it."""

    capability: Mapping[str, Any]
    form: str
    size: int
    token: str = ""
    is_snapshot: bool = False


@dataclass
class Ledger:
    """What is surely there, surely gone, or in doubt as the driver has not answered yet."""

    known: dict[str, Known] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    doubts: dict[str, Call] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, driver: Driver, name: str, after: Known | None, method: str, values: _Values) -> None:
        """Call the driver about `name`, of which `after` is true once it has answered."""
        with self.lock:
            self.known.pop(name, None)
            self.doubts[name] = method, values
        driver.call(method, values)
        self.settle(name, after)

    def settle(self, name: str, after: Known | None) -> None:
        """What is asked of `name` has happened."""
        with self.lock:
            self.doubts.pop(name, None)
            if after is None:
                self.gone.add(name)
            else:
                self.known[name] = after

    def copy(self) -> Ledger:
        """The ledger of this moment; the lock is held."""
        return Ledger(dict(self.known), set(self.gone), dict(self.doubts))


@dataclass(frozen=True)
class User:
    """Makes, uses, copies and removes volumes, one after the other."""

    driver: Driver
    ledger: Ledger
    mounted: Path
    name: str

    def run(self, stop: threading.Event) -> None:
        """Until told to stop."""
        chance = random.Random(self.name)
        for number in range(10**6):
            capability, form = chance.choice(((FILES, "image"), (DEVICE, "image"), (FILES, "directory")))
            known = Known(capability, form, 256 * MIB)
            for step in self._steps(f"{self.name}-{number}", known, keeps=number % 4 == 0):
                if stop.is_set():
                    return
                step()

    def _steps(self, one: str, known: Known, *, keeps: bool) -> Iterator[Step]:
        copy, snapshot = f"{one}-copy", f"{one}-snapshot"
        with_token, grown = replace(known, token=one), replace(known, token=one, size=known.size + 16 * MIB)
        yield self._call(one, known, "CreateVolume", {"name": one, **_wish(known)})
        yield lambda: self._write(one, known)
        yield lambda: self.ledger.settle(one, with_token)
        larger = {"volume_id": one, "capacity_range": {"required_bytes": grown.size}}
        yield self._call(one, grown, "ControllerExpandVolume", larger)
        taken = {"name": snapshot, "source_volume_id": one}
        yield self._call(snapshot, replace(grown, is_snapshot=True), "CreateSnapshot", taken)
        source = {"volume_content_source": {"volume": {"volume_id": one}}}
        yield self._call(copy, grown, "CreateVolume", {"name": copy, **_wish(grown), **source})
        if not keeps:
            yield self._call(one, None, "DeleteVolume", {"volume_id": one})
            yield self._call(snapshot, None, "DeleteSnapshot", {"snapshot_id": snapshot})
            yield self._call(copy, None, "DeleteVolume", {"volume_id": copy})

    def _call(self, name: str, after: Known | None, method: str, values: _Values) -> Step:
        return partial(self.ledger.call, self.driver, name, after, method, values)

    def _write(self, name: str, known: Known) -> None:
        with opened(self.driver, name, known, self.mounted) as file:
            os.pwrite(file, name.ljust(_BLOCK).encode(), 0)
            os.fsync(file)


@contextmanager
def opened(driver: Driver, name: str, known: Known, mounted: Path) -> Iterator[int]:
    """A file in a volume, or its device."""
    if known.form == "directory":
        with _file(driver.pool.directory(name) / "token") as file:
            yield file
        return
    staging = driver.stage(name, mounted / name, known.capability)
    try:
        if known.capability is DEVICE:
            target = driver.publish(name, staging, mounted / f"{name}-device", DEVICE)
            try:
                with _file(target) as file:
                    yield file
            finally:
                driver.unpublish(name, target)
        else:
            with _file(staging / "token") as file:
                yield file
    finally:
        driver.unstage(name, staging)


@contextmanager
def _file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _wish(known: Known) -> dict[str, Any]:
    return {
        "capacity_range": {"required_bytes": known.size},
        "volume_capabilities": [known.capability],
        "parameters": {"storagePool": "p", "volumeFormat": known.form},
    }


def check(driver: Driver, ledger: Ledger, mounted: Path) -> None:
    """Everything that was answered is true, what was not can be asked again, and all of it can go."""
    there = driver.pool
    for name in ledger.gone:
        assert there.volume(name) is None and there.snapshot(name) is None, f"{name} is back"
    for name, (method, values) in ledger.doubts.items():
        try:
            driver.call(method, values)
        except Exception as error:
            raise AssertionError(f"{method} of {name}, asked again: {error}") from error
    for name, known in ledger.known.items():
        if known.is_snapshot:
            assert there.snapshot(name) is not None, f"snapshot {name} is lost"
            source = {"volume_content_source": {"snapshot": {"snapshot_id": name}}}
            driver.call("CreateVolume", {"name": f"of-{name}", **_wish(known), **source})
            check_volume(driver, f"of-{name}", known, mounted)
        else:
            check_volume(driver, name, known, mounted)
    for snapshot in list(there.list_snapshots()):
        driver.call("DeleteSnapshot", {"snapshot_id": snapshot.id})
    for volume in list(there.list_volumes()):
        driver.call("DeleteVolume", {"volume_id": volume.id})
    assert are_detached(there.folder)
    left = {str(path.relative_to(there.folder)) for path in there.folder.rglob("*")}
    state = ".virtplane"
    assert left == {state, *(f"{state}/{name}" for name in ("reserve", "snapshots", "volumes", "pending"))}


def check_volume(driver: Driver, name: str, known: Known, mounted: Path) -> None:
    """A volume is whole, has its size and what was written to it."""
    volume = driver.pool.volume(name)
    assert volume is not None and volume.is_whole, f"volume {name} is lost"
    assert volume.content.size == known.size, f"volume {name} has {volume.content.size} bytes"
    if known.form == "image":
        assert driver.pool.image(name).stat().st_size >= known.size, f"the image of {name} is short"
    with opened(driver, name, known, mounted) as file:
        found = os.pread(file, _BLOCK, 0).decode(errors="replace").strip("\0 ")
    assert not known.token or found == known.token, f"volume {name} has {found!r}, not {known.token!r}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Where files can be copied by sharing their blocks."""
    with new_pool(tmp_path, 16 * GIB) as disk:
        yield disk


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """Where volumes are mounted."""
    (tmp_path / "mounted").mkdir()
    return tmp_path / "mounted"


def cut_power(disk: Path, name: str = "cut") -> Path:
    """The pool's file as a power cut at this moment leaves it."""
    images.clone(disk / "pool.img", disk / f"{name}.img")
    return disk / f"{name}.img"


@contextmanager
def restarted(cut: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "xfs") -> Iterator[Driver]:
    """A driver on what a power cut left, after another boot."""
    # The kernel may still know the file system that this is a copy of.
    options = ("nouuid",) if kind == "xfs" else ()
    boot = cut.with_suffix(".boot")
    boot.write_text(cut.name)
    monkeypatch.setattr(usage, "_BOOT", boot)
    with mounted_pool(cut, cut.with_suffix(""), *options) as folder:
        driver = Driver(folder, "node1")
        driver.recover()
        yield driver


def test_what_was_answered_before_a_power_cut_is_true_after_it(
    disk: Path, mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, stop, chance, cuts = Ledger(), threading.Event(), random.Random(), []
    with new_pool(disk) as folder, ThreadPoolExecutor(_WORKERS) as threads:
        driver = Driver(folder, "node1")
        users = [User(driver, ledger, mounted, f"user{number}") for number in range(_WORKERS)]
        running = [threads.submit(user.run, stop) for user in users]
        try:
            for number in range(_CUTS):
                # Not a wait for something: the moment of the cut is what varies.
                time.sleep(chance.uniform(0.1, 1.5))
                with ledger.lock:
                    cuts.append((cut_power(disk, f"cut{number}"), ledger.copy()))
        finally:
            stop.set()
        for each in running:
            each.result()
    assert any(before.known for _, before in cuts)
    for cut, before in cuts:
        with restarted(cut, monkeypatch) as driver:
            check(driver, before, mounted)


class Killed(BaseException):
    """The driver's process ends here."""


_ONE = Known(DEVICE, "image", 16 * MIB)
_VOLUME, _SNAPSHOT = {"volume_id": "there"}, {"snapshot_id": "taken"}
_GROWN = {"capacity_range": {"required_bytes": 32 * MIB}}


@pytest.mark.parametrize(
    ("method", "values", "killed_at"),
    [
        ("CreateVolume", {"name": "new", **_wish(_ONE)}, "volumes"),
        ("ControllerExpandVolume", {**_VOLUME, **_GROWN}, "volumes/there"),
        ("CreateSnapshot", {"name": "new", "source_volume_id": "there"}, "snapshots"),
        ("DeleteVolume", _VOLUME, "volumes"),
        ("DeleteSnapshot", _SNAPSHOT, "snapshots"),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_a_call_that_finds_done_what_a_killed_driver_did_waits_for_the_disk(
    disk: Path, monkeypatch: pytest.MonkeyPatch, method: str, values: _Values, killed_at: str
) -> None:
    with new_pool(disk) as folder:
        driver, synced = Driver(folder, "node1"), pool.sync_folder
        driver.create("there", 16 * MIB, DEVICE)
        driver.call("CreateSnapshot", {"name": "taken", "source_volume_id": "there"})

        def sync(place: Path) -> None:
            if place == folder / ".virtplane" / killed_at:
                raise Killed
            synced(place)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(pool, "sync_folder", sync)
            driver.call(method, values)
        driver.call(method, values)
        cut = cut_power(disk)
    with restarted(cut, monkeypatch) as driver:
        volumes = {each.id: each.content.size // MIB for each in driver.pool.list_volumes()}
        snapshots = {each.id for each in driver.pool.list_snapshots()}
    assert (volumes, snapshots) == {
        "CreateVolume": ({"there": 16, "new": 16}, {"taken"}),
        "ControllerExpandVolume": ({"there": 32}, {"taken"}),
        "CreateSnapshot": ({"there": 16}, {"taken", "new"}),
        "DeleteVolume": ({}, {"taken"}),
        "DeleteSnapshot": ({"there": 16}, set()),
    }[method]


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_copies_of_directories_have_their_files_after_a_power_cut(
    disk: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    known = Known(FILES, "directory", 16 * MIB)
    source = {"volume_content_source": {"volume": {"volume_id": "there"}}}
    with new_pool(disk, kind=kind) as folder:
        driver = Driver(folder, "node1")
        driver.create("there", 16 * MIB, form="directory")
        (folder / "there/file").write_text("content")
        driver.call("CreateVolume", {"name": "copy", **_wish(known), **source})
        driver.call("CreateSnapshot", {"name": "taken", "source_volume_id": "there"})
        cut = cut_power(disk)
    with restarted(cut, monkeypatch, kind) as driver:
        assert (driver.pool.directory("copy") / "file").read_text() == "content"
        assert (driver.pool.folder / ".virtplane/snapshots/taken/data/file").read_text() == "content"
