"""Programs for cgroup v2: what they allow, decided by the kernel itself where it is there."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtplane.compute.handler.hotplug import filters
from virtplane.compute.handler.hotplug.filters import ANY, BLOCK, CHARACTER, MAKE, READ, WRITE, Rule

_PLACES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def test_a_program_is_made_of_whole_instructions_and_ends_with_a_refusal() -> None:
    code = filters.program([Rule(BLOCK, 8, 0), Rule(CHARACTER, 136, ANY)])
    assert len(code) % 8 == 0
    refusal, end = struct.unpack("=BBhi", code[-16:-8]), code[-8]
    assert refusal == (0xB7, 0, 0, 0)
    assert end == 0x95


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A new group of cgroup v2."""
    base = next((each for each in _PLACES if (each / "cgroup.controllers").exists()), None)
    if os.geteuid() != 0 or base is None:
        pytest.skip("needs root and cgroup v2")
    made = base / f"virtplane-test-{os.getpid()}"
    made.mkdir()
    yield made
    made.rmdir()


def _opens(group: Path, path: str, flags: int) -> bool:
    """Whether a process of the group may open a device."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            os.close(os.open(path, flags))
            code = 0
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


def _enforce(group: Path, *rules: Rule) -> None:
    descriptor = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    try:
        filters.enforce(descriptor, rules)
    finally:
        os.close(descriptor)


@pytest.mark.host
def test_the_kernel_allows_what_the_last_rules_say_and_nothing_else(cgroup: Path) -> None:
    null, zero = Rule(CHARACTER, 1, 3), Rule(CHARACTER, 1, 5, READ)
    _enforce(cgroup, null, zero)
    assert _opens(cgroup, "/dev/null", os.O_RDWR)
    assert _opens(cgroup, "/dev/zero", os.O_RDONLY)
    assert not _opens(cgroup, "/dev/zero", os.O_RDWR)
    assert not _opens(cgroup, "/dev/urandom", os.O_RDONLY)
    _enforce(cgroup, Rule(BLOCK, access=MAKE), Rule(CHARACTER, 1, ANY, READ | WRITE))
    assert _opens(cgroup, "/dev/urandom", os.O_RDONLY)
    _enforce(cgroup, null)
    assert not _opens(cgroup, "/dev/urandom", os.O_RDONLY)
    assert not _opens(cgroup, "/dev/zero", os.O_RDONLY)
    assert _opens(cgroup, "/dev/null", os.O_RDWR)
