"""The KVM probe: its firmware really runs, and a device that cannot run guests is found out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from virtplane.compute.handler import kvm

needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed")


@needs_qemu
@pytest.mark.guest
async def test_firmware_reaches_64_bit_mode_under_emulation() -> None:
    assert await kvm.probe(accelerator="tcg") == kvm.KvmVerdict(True)


async def test_missing_device_is_no_kvm(tmp_path: Path) -> None:
    verdict = await kvm.probe(tmp_path / "kvm")
    assert not verdict.usable
    assert "does not exist" in verdict.why


@needs_qemu
async def test_unknown_accelerator_is_reported_with_qemus_words() -> None:
    verdict = await kvm.probe(accelerator="nonsense")
    assert not verdict.usable
    assert "nonsense" in verdict.why
