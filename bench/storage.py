"""The hostpath driver's calls: `python -m bench.storage`, as root.

A pool on an XFS of its own, and two volumes of 10 GiB: one allocated in one go, as an import leaves it, and
one with 20 000 blocks scattered all over it. What sharing blocks costs grows with the number of extents.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.xfspool import DEVICE, FILES, GIB, MIB, Driver, xfs_pool

from bench import figures

_SIZE = 10 * GIB
_WRITES = 20_000
_BLOCK = 4096
_TARGETS = {"snapshot": 100, "clone": 150}
"""Milliseconds."""
_FIO_SHARE = 0.9
"""Of what the file system under the volumes reaches."""


def _scatter(image: Path) -> None:
    """Write blocks all over an image."""
    places = random.Random(1)
    with image.open("r+b", buffering=0) as file:
        for _ in range(_WRITES):
            os.pwrite(file.fileno(), b"x" * _BLOCK, places.randrange(_SIZE // _BLOCK) * _BLOCK)
        os.fsync(file.fileno())


def _times(action: Callable[[int], Any], rounds: int) -> list[float]:
    taken = []
    for number in range(rounds):
        begun = time.monotonic()
        action(number)
        taken.append((time.monotonic() - begun) * 1000)
    return taken


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each call, by what it is."""
    with xfs_pool(folder, 60 * GIB) as disk:
        driver = Driver(disk, "node1")
        driver.create("whole", _SIZE, DEVICE)
        with driver.pool.image("whole").open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, _SIZE)
        driver.create("scattered", _SIZE, DEVICE)
        _scatter(driver.pool.image("scattered"))

        def snapshot(source: str, number: int) -> None:
            driver.call("CreateSnapshot", {"name": f"{source}-s{number}", "source_volume_id": source})

        def clone(source: str, number: int) -> None:
            origin: dict[str, Any] = {"volume_content_source": {"volume": {"volume_id": source}}}
            driver.create(f"{source}-c{number}", _SIZE, DEVICE, **origin)

        def delete(number: int) -> None:
            driver.call("DeleteVolume", {"volume_id": f"whole-c{number}"})

        def stage(number: int) -> None:
            driver.stage(f"files{number}", folder / f"s{number}")

        return {
            "provision Block": _times(lambda n: driver.create(f"disk{n}", _SIZE, DEVICE), rounds),
            "provision Filesystem": _times(lambda n: driver.create(f"files{n}", _SIZE, FILES), rounds),
            "stage Filesystem": _times(stage, rounds),
            "snapshot": _times(partial(snapshot, "whole"), rounds),
            "clone": _times(partial(clone, "whole"), rounds),
            "snapshot, scattered": _times(partial(snapshot, "scattered"), rounds),
            "clone, scattered": _times(partial(clone, "scattered"), rounds),
            "delete": _times(delete, rounds),
        }


_FIO_SECONDS = 10
_FIO_JOBS = {
    "sequential write, 1 MiB": ("--rw=write", "--bs=1M", "--iodepth=8"),
    "sequential read, 1 MiB": ("--rw=read", "--bs=1M", "--iodepth=8"),
    "random write, 4 KiB": ("--rw=randwrite", "--bs=4k", "--iodepth=32"),
    "random read, 4 KiB": ("--rw=randread", "--bs=4k", "--iodepth=32"),
}


def _throughput(file: Path, *job: str) -> float:
    """MiB a second that fio reaches on a file."""
    common = ["--direct=1", "--ioengine=libaio", "--size=1G", "--time_based", f"--runtime={_FIO_SECONDS}"]
    command = ["fio", "--name=job", f"--filename={file}", "--output-format=json", *common, *job]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)["jobs"][0]
    return float(result["read"]["bw_bytes"] + result["write"]["bw_bytes"]) / MIB


def compare_throughput(folder: Path) -> dict[str, tuple[float, float]]:
    """MiB a second on a file of a volume and on one of the pool's own file system, by the kind of job."""
    with xfs_pool(folder, 20 * GIB) as disk:
        driver = Driver(disk, "node1")
        driver.create("files", 4 * GIB, FILES)
        places = (driver.stage("files", folder / "staging") / "disk.img", disk / "bare.img")
        for place in places:
            with place.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, GIB)
            _throughput(place, *_FIO_JOBS["sequential write, 1 MiB"])
        found = {}
        for what, job in _FIO_JOBS.items():
            volume, bare = (_throughput(place, *job) for place in places)
            found[what] = (volume, bare)
        return found


def _report_throughput() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-storage-") as name:
        figures.heading(f"fio, {_FIO_SECONDS} s each", "volume", "pool's XFS", "target")
        for what, (volume, bare) in compare_throughput(Path(name)).items():
            beside = f"{bare:.0f} MiB/s"
            met = volume >= _FIO_SHARE * bare
            figures.row(what, f"{volume:.0f} MiB/s", beside=beside, target=f"{_FIO_SHARE:.0%}", met=met)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench.storage", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="bench-storage-") as name:
        figures.say(figures.machine())
        figures.heading(f"driver call, volume of 10 GiB, {rounds} rounds", "median", "slowest", "target")
        for what, taken in measure(Path(name), rounds).items():
            target = _TARGETS.get(what)
            figures.row(
                what,
                f"{statistics.median(taken):.1f} ms",
                beside=f"{max(taken):.1f} ms",
                target=f"{target} ms" if target else "",
                met=max(taken) <= target if target else None,
            )
    if shutil.which("fio") is None:
        figures.say("fio is not installed: what volumes carry is not measured (apt-get install fio)")
    else:
        _report_throughput()


if __name__ == "__main__":
    main()
