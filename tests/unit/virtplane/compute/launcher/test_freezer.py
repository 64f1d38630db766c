"""virt-freezer: file systems that stand still while a backup is taken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.guest_agent import Virsh

from virtplane.compute.launcher import freezer
from virtplane.compute.launcher.virsh import GuestError


@pytest.fixture
def virsh(tmp_path: Path) -> Virsh:
    virsh = Virsh(tmp_path)
    virsh.returns("guest-fsfreeze-status", "thawed")
    virsh.says("domfsfreeze", "Froze 1 filesystem(s)\n")
    virsh.says("domfsthaw", "Thawed 1 filesystem(s)\n")
    return virsh


def _run(virsh: Virsh, tmp_path: Path, *arguments: str) -> None:
    words = [*arguments, "--name", "vm", "--namespace", "ns"]
    freezer.run(words, virsh.path, str(tmp_path / "state"))


def _until_thawed(virsh: Virsh, times: int) -> None:
    deadline = time.monotonic() + 10
    while virsh.names.count("domfsthaw") < times:
        assert time.monotonic() < deadline, virsh.names
        time.sleep(0.02)


@pytest.mark.feature("SNP-06")
def test_a_freeze_and_its_end_reach_the_guest(virsh: Virsh, tmp_path: Path) -> None:
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "0")
    assert virsh.names == ["dumpxml", "domstate", "guest-fsfreeze-status", "domfsfreeze"]
    assert virsh.asked[-1] == ["domfsfreeze", "ns_vm"]
    _run(virsh, tmp_path, "--unfreeze")
    assert virsh.names[-1] == "domfsthaw"


def test_a_freeze_ends_by_itself(virsh: Virsh, tmp_path: Path) -> None:
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "1")
    _until_thawed(virsh, 1)
    assert virsh.asked[-1] == ["domfsthaw", "ns_vm"]


def test_the_timer_of_an_earlier_freeze_leaves_a_later_one_alone(virsh: Virsh, tmp_path: Path) -> None:
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "1")
    first = (tmp_path / "state").read_text()
    _run(virsh, tmp_path, "--unfreeze")
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "2")
    assert (tmp_path / "state").read_text() != first
    _until_thawed(virsh, 2)
    assert virsh.names.count("domfsthaw") == 2, "one by --unfreeze, one by the later timer"
    assert not (tmp_path / "state").exists()


def test_a_guest_that_is_frozen_already_is_not_frozen_again(virsh: Virsh, tmp_path: Path) -> None:
    virsh.returns("guest-fsfreeze-status", "frozen")
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "0")
    assert "domfsfreeze" not in virsh.names


def test_a_guest_without_an_agent_is_left_as_it_is(virsh: Virsh, tmp_path: Path) -> None:
    virsh.says("dumpxml", "<target type='virtio' name='org.qemu.guest_agent.0' state='disconnected'/>")
    _run(virsh, tmp_path, "--freeze")
    assert virsh.names == ["dumpxml"]


def test_a_paused_guest_is_not_frozen(virsh: Virsh, tmp_path: Path) -> None:
    virsh.says("domstate", "paused (user)\n")
    _run(virsh, tmp_path, "--freeze")
    assert virsh.names == ["dumpxml", "domstate"]


def test_a_freeze_that_fails_fails_the_hook(virsh: Virsh, tmp_path: Path) -> None:
    (tmp_path / "domfsfreeze").unlink()
    with pytest.raises(GuestError, match="domfsfreeze ended with 1"):
        _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "0")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--freeze"],
        ["--freeze", "--unfreeze", "--name", "v", "--namespace", "n"],
        ["--freeze", "--name", "v", "--namespace", "n", "--unfreezeTimeoutSeconds", "soon"],
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(freezer.Usage):
        freezer.run(arguments)
