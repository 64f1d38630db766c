"""The warm copy and libvirt's answers, made by the real launcher and libvirt."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from virtplane.compute.handler.launchers.control import LauncherGone
from virtplane.compute.handler.node import capabilities

_SCRIPT = """
import asyncio, json, sys, time
from pathlib import Path
from virtplane.compute.handler.libvirtd import calls
from virtplane.compute.handler.node import capabilities

async def main(folder, kvm):
    calls.start_events()
    await capabilities.warm(folder, kvm=kvm)
    start = time.monotonic()
    await capabilities.warm(folder, kvm=kvm)
    again = time.monotonic() - start
    found = capabilities.read_processor(folder, kvm=kvm)
    machines = capabilities.machine_types(folder)
    deprecated = capabilities.deprecated_machine_types(folder)
    print(json.dumps({"again": again, "machines": machines, "usable": found.usable_models,
        "deprecated": deprecated,
        "models": found.models, "features": found.features, "host": found.host_model}))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "kvm"))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("libvirtd", "qemu-system-x86_64")):
        pytest.skip("needs root, libvirtd and qemu-system-x86_64")
    if not all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(sys.executable).absolute().parents):
        pytest.skip(f"QEMU's user cannot reach {sys.executable}: a folder above it is closed to others")
    # QEMU's user has to reach it, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="virtplane-warm-") as made:
        yield Path(made)


def ask(folder: Path, kind: str) -> dict[str, Any]:
    """What virt-handler finds out; libvirt's events need a process of their own."""
    command = [sys.executable, "-c", _SCRIPT, str(folder), kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.host
@pytest.mark.feature("NOD-20")
def test_libvirt_tells_once_what_guests_can_have_under_emulation(folder: Path) -> None:
    found = ask(folder, "qemu")
    assert "q35" in found["machines"]
    assert found["deprecated"]
    assert set(found["deprecated"]) < set(found["machines"])
    assert "q35" not in found["deprecated"]
    assert {"qemu64", "Westmere"} <= set(found["usable"]) <= set(found["models"])
    assert {"sse4.2", "lm"} <= set(found["features"])
    assert found["host"] in found["models"]
    assert found["again"] < 0.5
    names = {entry.name for entry in folder.iterdir()}
    facts = capabilities.facts_location(folder, "qemu").name
    assert names == {capabilities.location(folder).name, facts}


@pytest.mark.host
def test_libvirt_tells_what_guests_can_have_with_kvm_whoever_owns_the_device(folder: Path) -> None:
    device = Path("/dev/kvm")
    if not device.exists():
        pytest.skip("this machine has no KVM")
    before = device.stat()
    found = ask(folder, "kvm")
    if not found["models"]:
        pytest.skip("this machine's KVM is of no use to libvirt")
    assert {"sse2", "lm"} <= set(found["features"])
    assert found["host"] in found["models"]
    after = device.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_answers_belong_to_programs_kind_of_guest_and_node(tmp_path: Path) -> None:
    emulated, direct = (capabilities.facts_location(tmp_path, kind) for kind in ("qemu", "kvm"))
    assert emulated != direct
    assert emulated.name.startswith(capabilities.location(tmp_path).name)
    assert not capabilities.read_processor(tmp_path, kvm=True).models


async def test_what_libvirt_prints_while_it_fails_is_part_of_the_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    program = tmp_path / "setpriv"
    program.write_text("#!/bin/sh\necho 'error : internal error: no QEMU' >&2\nexec sleep 3600\n")
    program.chmod(0o755)

    async def fail(work: Path, _kind: str) -> dict[str, str]:
        await until((work / "stderr").read_bytes)
        raise LauncherGone("the launcher has ended")

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(capabilities, "_ask", fail)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    await capabilities.warm(tmp_path / "cache", kvm=False)
    assert capfd.readouterr() == ("", "")
    (told,) = caplog.records
    assert told.__dict__["printed"] == "error : internal error: no QEMU"
