"""Imports into a folder, with disks made by qemu-img."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from virtplane.storage.cdi.importer.main import attempt
from virtplane.storage.cdi.importer.progress import Progress
from virtplane.storage.cdi.importer.settings import Paths, read_settings

MIB = 1 << 20


@dataclass(frozen=True)
class Ended:
    """How an import ended, and what is in the volume now."""

    code: int
    text: str
    disk: Path
    percent: float

    @property
    def message(self) -> str:
        """The message in the termination message."""
        return str(json.loads(self.text).get("message", "")) if self.text.startswith("{") else self.text


@dataclass(frozen=True)
class Volume:
    """A volume and a scratch volume in a folder of the test."""

    paths: Paths

    async def run(self, source: str, endpoint: str, **environment: str) -> Ended:
        """Import from `endpoint` with more of the environment in `environment`."""
        variables = {
            "IMPORTER_SOURCE": source,
            "IMPORTER_ENDPOINT": endpoint,
            "IMPORTER_IMAGE_SIZE": str(20 * MIB),
            **environment,
        }
        progress = Progress("uid")
        code, text = await attempt(read_settings(variables, self.paths), progress)
        return Ended(code, text, self.paths.data / "disk.img", progress.percent)

    def give_scratch(self) -> None:
        """Mount a scratch volume."""
        self.paths.scratch.mkdir()


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    (tmp_path / "data").mkdir()
    return Volume(
        Paths(
            data=tmp_path / "data",
            device=tmp_path / "no-device",
            scratch=tmp_path / "scratch",
            extra_headers=tmp_path / "extraheaders",
            google=tmp_path / "credentials.json",
            termination=tmp_path / "termination-log",
        )
    )


@pytest.fixture(scope="session")
def raw_disk() -> bytes:
    """A disk of 8 MiB with data, holes, and an end that is no whole block of 32 KiB."""
    source = random.Random(7)
    content = bytearray(8 * MIB + 512)
    content[: 2 * MIB] = source.randbytes(2 * MIB)
    content[5 * MIB : 5 * MIB + 700] = source.randbytes(700)
    content[-512:] = source.randbytes(512)
    return bytes(content)


@pytest.fixture
def converted(tmp_path: Path, raw_disk: bytes) -> Callable[..., bytes]:
    """Makes the raw disk in a format of QEMU."""

    def convert(disk_format: str, *options: str) -> bytes:
        raw, made = tmp_path / "source.raw", tmp_path / f"source.{disk_format}"
        raw.write_bytes(raw_disk)
        command = ["qemu-img", "convert", "-f", "raw", "-O", disk_format, *options, str(raw), str(made)]
        subprocess.run(command, check=True)
        return made.read_bytes()

    return convert
