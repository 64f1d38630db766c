"""The guest's serial console in files of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from virtplane.compute.launcher.seriallog import BACKUPS, SerialLog

_LIMIT = 1000


@pytest.fixture
def log(tmp_path: Path) -> SerialLog:
    made = SerialLog(str(tmp_path), _LIMIT)
    made.open()
    return made


@pytest.fixture
def say(log: SerialLog, tmp_path: Path) -> Callable[[bytes], None]:
    """QEMU, which appends to what it takes for a file."""

    def write(data: bytes) -> None:
        descriptor = os.open(tmp_path / "virt-serial0-log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, data)
        os.close(descriptor)
        log.collect()

    return write


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_what_the_guest_says_is_in_the_file(say: Callable[[bytes], None], tmp_path: Path) -> None:
    say(b"login: ")
    say(b"root\n")
    assert _files(tmp_path) == {"virt-serial0.log": b"login: root\n"}


def test_a_guest_that_talks_for_ever_fills_four_files(say: Callable[[bytes], None], tmp_path: Path) -> None:
    for number in range(100):
        say(f"{number:04}".encode() * 100)
    files = _files(tmp_path)
    assert len(files) == 1 + BACKUPS
    assert all(len(content) <= _LIMIT for content in files.values())
    order = [f"virt-serial0-log.{number}" for number in (2, 1, 0)] + ["virt-serial0.log"]
    kept = b"".join(files[name] for name in order)
    assert kept == b"".join(f"{number:04}".encode() * 100 for number in range(100))[-len(kept) :]


def test_a_file_that_cannot_be_written_stops_neither_guest_nor_launcher(
    say: Callable[[bytes], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "virt-serial0.log").mkdir()
    say(b"lost")
    say(b"lost")
    assert capsys.readouterr().err.count("the guest's serial console is not logged") == 1
    (tmp_path / "virt-serial0.log").rmdir()
    say(b"kept")
    assert _files(tmp_path) == {"virt-serial0.log": b"kept"}


def test_an_empty_pipe_is_nothing_to_wait_for(log: SerialLog, tmp_path: Path) -> None:
    log.collect()
    assert not _files(tmp_path)


def test_the_file_is_no_link_to_elsewhere(say: Callable[[bytes], None], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    (tmp_path / "virt-serial0.log").symlink_to(elsewhere)
    say(b"over there")
    assert elsewhere.read_bytes() == b"untouched"
