"""Shims that containerd lost are ended; those that it knows, or that run something, are not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kindling.node.runtime.shims import LostShims

_ADDRESS = "/run/test/containerd.sock"
_PROGRAM = Path(sys.executable).resolve().name
_WAITS = "import sys; print(flush=True); sys.stdin.read()"
_HAS_A_CHILD = f"import subprocess; subprocess.run(['{sys.executable}', '-c', \"{_WAITS}\"])"

Start: TypeAlias = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with the command line of a shim, and waits until it runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(id: str, code: str = _WAITS, address: str = _ADDRESS) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, "-namespace", "k8s.io", "-id", id, "-address", address]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def test_a_shim_that_nothing_belongs_to_is_ended(start: Start) -> None:
    lost, known = start("lost"), start("known")
    shims = LostShims(_ADDRESS, _PROGRAM, grace_seconds=0)
    found = shims.find()
    assert {shim.id for shim in found} == {"lost", "known"}
    assert [shim.pid for shim in shims.end(found, {"known"})] == [lost.pid]
    assert lost.wait(10) < 0
    assert known.poll() is None


def test_a_shim_that_runs_something_is_left_to_the_runtime(start: Start) -> None:
    busy = start("busy", _HAS_A_CHILD)
    shims = LostShims(_ADDRESS, _PROGRAM, grace_seconds=0)
    assert shims.end(shims.find(), set()) == []
    assert busy.poll() is None


def test_a_young_shim_and_one_of_another_runtime_are_not_looked_at(start: Start) -> None:
    start("elsewhere", address="/run/containerd/containerd.sock")
    assert LostShims(_ADDRESS, _PROGRAM, grace_seconds=0).find() == []
    start("young")
    assert LostShims(_ADDRESS, _PROGRAM).find() == []


def test_a_process_that_took_the_number_of_a_shim_is_not_ended(start: Start) -> None:
    shims = LostShims(_ADDRESS, _PROGRAM, grace_seconds=0)
    start("first")
    (seen,) = shims.find()
    other = start("second")
    assert shims.end([type(seen)(other.pid, seen.id, seen.age_seconds)], set()) == []
    assert other.poll() is None
