"""virt-freezer: file systems that stand still while a backup is taken."""

from __future__ import annotations

import os
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


_SLEEP = """#!/bin/sh
echo $PPID >{folder}/$1.pid
read -r _ <{folder}/$1
"""


class Timers:
    """The time of freezes: their ``sleep`` ends when the test says so."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        program = folder / "sleep"
        program.write_text(_SLEEP.format(folder=folder))
        program.chmod(0o755)
        for seconds in (60, 300):
            os.mkfifo(folder / str(seconds))

    def elapse(self, seconds: int) -> None:
        """End the sleep of `seconds` and wait until its timer, a child of this process, has ended."""
        (self._folder / str(seconds)).write_text("\n")
        os.waitpid(int((self._folder / f"{seconds}.pid").read_text()), 0)


@pytest.fixture
def timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timers:
    folder = tmp_path / "timers"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Timers(folder)


@pytest.mark.feature("SNP-06")
def test_a_freeze_and_its_end_reach_the_guest(virsh: Virsh, tmp_path: Path) -> None:
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "0")
    assert virsh.names == ["dumpxml", "domstate", "guest-fsfreeze-status", "domfsfreeze"]
    assert virsh.asked[-1] == ["domfsfreeze", "ns_vm"]
    _run(virsh, tmp_path, "--unfreeze")
    assert virsh.names[-1] == "domfsthaw"


def test_a_freeze_ends_by_itself(virsh: Virsh, timers: Timers, tmp_path: Path) -> None:
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "60")
    assert "domfsthaw" not in virsh.names
    timers.elapse(60)
    assert virsh.asked[-1] == ["domfsthaw", "ns_vm"]


def test_the_timer_of_an_earlier_freeze_leaves_a_later_one_alone(
    virsh: Virsh, timers: Timers, tmp_path: Path
) -> None:
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "60")
    _run(virsh, tmp_path, "--unfreeze")
    _run(virsh, tmp_path, "--freeze", "--unfreezeTimeoutSeconds", "300")
    timers.elapse(60)
    assert virsh.names.count("domfsthaw") == 1, "by --unfreeze alone"
    assert (tmp_path / "state").exists()
    timers.elapse(300)
    assert virsh.names.count("domfsthaw") == 2
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
