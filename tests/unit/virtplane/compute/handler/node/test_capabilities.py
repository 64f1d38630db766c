"""The warm copy and libvirt's answers, made by the real launcher and libvirt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virtplane.compute.handler.node import capabilities

_SCRIPT = """
import asyncio, json, sys, time
from pathlib import Path
from virtplane.compute.handler import hypervisor
from virtplane.compute.handler.node import capabilities

async def main(folder):
    hypervisor.use_event_loop()
    await capabilities.warm(folder, kvm=False)
    start = time.monotonic()
    await capabilities.warm(folder, kvm=False)
    again = time.monotonic() - start
    found = capabilities.read_processor(folder, kvm=False)
    machines = capabilities.machine_types(folder)
    print(json.dumps({"again": again, "machines": machines, "usable": found.usable_models,
        "models": found.models, "features": found.features, "host": found.host_model}))

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("libvirtd", "qemu-system-x86_64")):
        pytest.skip("needs root, libvirtd and qemu-system-x86_64")
    # QEMU's user has to reach it, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="virtplane-warm-") as made:
        yield Path(made)


@pytest.mark.host
@pytest.mark.feature("NOD-20")
def test_libvirt_tells_once_what_guests_can_have_under_emulation(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert "q35" in found["machines"]
    assert {"qemu64", "Westmere"} <= set(found["usable"]) <= set(found["models"])
    assert {"sse4.2", "lm"} <= set(found["features"])
    assert found["host"] in found["models"]
    assert found["again"] < 0.5
    names = {entry.name for entry in folder.iterdir()}
    facts = capabilities.facts_location(folder, "qemu").name
    assert names == {capabilities.location(folder).name, facts}


def test_answers_belong_to_programs_kind_of_guest_and_node(tmp_path: Path) -> None:
    emulated, direct = (capabilities.facts_location(tmp_path, kind) for kind in ("qemu", "kvm"))
    assert emulated != direct
    assert emulated.name.startswith(capabilities.location(tmp_path).name)
    assert not capabilities.read_processor(tmp_path, kvm=True).models
