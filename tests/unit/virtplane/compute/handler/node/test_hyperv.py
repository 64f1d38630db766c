"""KVM's answers about Hyper-V."""

from __future__ import annotations

import fcntl
import struct
from pathlib import Path
from typing import Any

import pytest

from virtplane.compute.handler.node import hyperv


def test_capabilities_and_registers_make_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def kvm(_descriptor: int, request: int, argument: Any, _mutate: bool = False) -> int:
        if request == 0xAE03:
            return 1 if argument in (44, 123) else 0
        struct.pack_into("4I", argument, 0, 3, 0x10, 0x40000010, 0x40000106)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", kvm)
    assert hyperv.interfaces(Path("/dev/null")) == ("base", "reenlightenment", "runtime", "synic")


def test_without_kvm_there_is_an_error() -> None:
    with pytest.raises(OSError, match="kvm"):
        hyperv.interfaces(Path("/nowhere/kvm"))


def test_a_device_that_is_not_kvm_is_an_error() -> None:
    with pytest.raises(OSError, match="ioctl"):
        hyperv.interfaces(Path("/dev/null"))


@pytest.mark.host
def test_this_machines_kvm_answers() -> None:
    if not Path("/dev/kvm").exists():
        pytest.skip("this machine has no KVM")
    known = {"base", "time", "synic", "synic2", "vpindex", "tlbflush", "ipi"}
    known |= {"reset", "runtime", "frequencies", "synictimer", "reenlightenment"}
    assert set(hyperv.interfaces()) <= known
