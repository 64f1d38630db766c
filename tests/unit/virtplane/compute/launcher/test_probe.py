"""virt-probe: guests' probes that need the guest's agent."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.guest_agent import ENDLESS, HANG, Virsh

from virtplane.compute.launcher import probe
from virtplane.compute.launcher.settings import paused_probes
from virtplane.compute.launcher.virsh import GuestError


@pytest.fixture
def virsh(tmp_path: Path) -> Virsh:
    return Virsh(tmp_path)


def _run(virsh: Virsh, *arguments: str) -> int:
    return probe.run(["--domainName", "ns_vm", "--timeoutSeconds", "5", *arguments], virsh.path)


@pytest.mark.feature("MON-43")
def test_a_ping_succeeds_when_the_agent_answers(virsh: Virsh) -> None:
    virsh.returns("guest-ping", {})
    assert _run(virsh, "--guestAgentPing") == 0
    assert virsh.asked[-1][:3] == ["qemu-agent-command", "ns_vm", "--timeout"]


@pytest.mark.feature("MON-43")
def test_a_ping_fails_without_an_agent(virsh: Virsh) -> None:
    with pytest.raises(GuestError, match="qemu-agent-command ended with 1"):
        _run(virsh, "--guestAgentPing")


def test_a_ping_succeeds_without_an_agent_while_probes_are_paused(virsh: Virsh, tmp_path: Path) -> None:
    socket = str(tmp_path / "libvirt-sock")
    Path(paused_probes(socket)).touch()
    assert _run(virsh, "--socket", socket, "--guestAgentPing") == 0
    assert virsh.names == []


def test_a_paused_guest_is_not_pinged_and_counts_as_healthy(virsh: Virsh) -> None:
    virsh.says("domstate", "paused (user)\n")
    assert _run(virsh, "--guestAgentPing") == 0
    assert virsh.names == ["domstate"]


def test_a_guest_that_stopped_for_a_failed_disk_is_not_healthy(virsh: Virsh) -> None:
    virsh.says("domstate", "paused (I/O error)\n")
    with pytest.raises(GuestError):
        _run(virsh, "--guestAgentPing")


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (3, 3), (256, 1), (-1, 255), (None, 1)])
def test_the_exit_code_of_the_command_in_the_guest_is_the_probes(
    virsh: Virsh, ended: int | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {"out-data": base64.b64encode(b"so it is").decode()}
    state = {"exited": True, **shown, **({} if ended is None else {"exitcode": ended})}
    virsh.returns("guest-exec", {"pid": 7})
    virsh.returns("guest-exec-status", {"exited": False}, state)
    arguments = ["--command", "sh", "--", "-c", "true", "--", "--timeoutSeconds"]
    assert probe.run(["--domainName", "ns_vm", "--timeoutSeconds", "2", *arguments], virsh.path) == code
    assert virsh.names == ["guest-exec", "guest-exec-status", "guest-exec-status"]
    asked = json.loads(virsh.asked[0][-1])["arguments"]
    assert (asked["path"], asked["arg"]) == ("sh", ["-c", "true", "--", "--timeoutSeconds"])
    assert capsys.readouterr().out == "so it is"


def test_a_command_that_does_not_end_in_time_fails(virsh: Virsh) -> None:
    virsh.returns("guest-exec", {"pid": 7})
    virsh.returns("guest-exec-status", {"exited": False})
    with pytest.raises(GuestError, match=r"Timed out waiting for guest pid 7|took too long"):
        probe.run(["--domainName", "d", "--timeoutSeconds", "0.3", "--command", "x"], virsh.path)


@pytest.mark.parametrize("answer", [HANG, ENDLESS])
def test_an_answer_without_end_is_given_up(virsh: Virsh, answer: str) -> None:
    virsh.says("guest-ping", answer)
    with pytest.raises(GuestError, match=r"took too long|printed more than"):
        probe.run(["--domainName", "d", "--timeoutSeconds", "0.5", "--guestAgentPing"], virsh.path)


@pytest.mark.parametrize("answer", ["", "[]", "null", '{"error": {}}', "{", "7"])
def test_an_answer_of_another_shape_is_an_error(virsh: Virsh, answer: str) -> None:
    virsh.says("guest-exec", answer)
    with pytest.raises(GuestError):
        _run(virsh, "--command", "x")


@pytest.mark.parametrize("value", [7, None, {"pid": "7"}, [], {}])
def test_an_agent_that_names_no_process_is_an_error(virsh: Virsh, value: object) -> None:
    virsh.returns("guest-exec", value)
    with pytest.raises(GuestError, match="did not say which process"):
        _run(virsh, "--command", "x")


def test_wrong_arguments_are_told_with_code_2() -> None:
    for arguments in ([], ["--domainName", "d"], ["--domainName", "d", "--timeoutSeconds", "x"]):
        command = [sys.executable, "-S", probe.__file__, *arguments]
        environment = {"PYTHONPATH": str(Path(probe.__file__).parents[3])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("virt-probe: ")
