"""The KVM probe: its firmware really runs, and a device that cannot run guests is found out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from virtplane.compute.handler.node import kvm

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


async def test_a_guest_that_only_burns_its_processor_is_given_up_long_before_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "qemu-system-x86_64"
    program.write_text("#!/bin/sh\nwhile :; do :; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(kvm, "PROBE_SECONDS", 3600.0)
    verdict = await kvm.probe(tmp_path)
    assert verdict == kvm.KvmVerdict(False, "KVM exists but does not execute a guest's code")
