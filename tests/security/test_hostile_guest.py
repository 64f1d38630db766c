"""A guest whose root is hostile: its disks, its agent."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import KUBEVIRT, Cluster, Machine, manifest
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_MEBIBYTES = 16
_HEADER = (
    # Magic, version 2, the backing file's name at 72, 11 bytes of it, clusters of 64 KiB, 1 GiB.
    r"QFI\373\000\000\000\002\000\000\000\000\000\000\000\110\000\000\000\013\000\000\000\020"
    r"\000\000\000\000\100\000\000\000"
)

_FIND_PORT = "port=$(basename $(dirname $(grep -l guest_agent /sys/class/virtio-ports/*/name)))"


def _has_agent(machine: Machine) -> bool:
    return machine.condition("AgentConnected") == "True"


@pytest.fixture
def host_disks(cluster: Cluster) -> Iterator[None]:
    """The feature gate of disks in files of the node."""

    def gates(names: list[str] | None) -> None:
        developer = {"developerConfiguration": {"featureGates": names}}
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": developer}})

    gates(["HostDisk"])
    yield
    gates(None)


def test_qcow2_header_in_a_raw_disk_opens_no_other_file(
    cluster: Cluster, host_disks: None, tmp_path: Path, new_machine: Callable[..., Machine]
) -> None:
    wanted = manifest("writes-headers", grace=0)
    spec = wanted["spec"]["template"]["spec"]
    file = tmp_path / "disks/data.img"
    source = {"type": "DiskOrCreate", "path": str(file), "capacity": f"{_MEBIBYTES}Mi"}
    spec["volumes"].append({"name": "data", "hostDisk": source})
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "virtio"}})
    machine = wait_for("the feature gate is known", lambda: cluster.create(wanted), 20)
    try:
        machine.wait_running()
        with machine.console() as console:
            size = console.run("blockdev --getsize64 /dev/vdc")
            console.run(f"printf '{_HEADER}' | dd of=/dev/vdc conv=notrunc 2>/dev/null; sync")
            console.run("printf '/etc/shadow' | dd of=/dev/vdc bs=1 seek=72 conv=notrunc 2>/dev/null; sync")
        assert file.read_bytes()[:4] == b"QFI\xfb"
        uid = machine.uid()
        cluster.virtctl("restart", machine.name)
        machine.wait_restarted(uid)
        with machine.console() as console:
            assert console.run("blockdev --getsize64 /dev/vdc") == size == str(_MEBIBYTES << 20)
            assert console.run("dd if=/dev/vdc bs=3 count=1 2>/dev/null") == "QFI"
            # Without zeros: grep holds a whole line, and the guest has little memory.
            assert console.run(r"tr -d '\0' < /dev/vdc | grep -c 'root:'") == "0"
    finally:
        machine.delete()
        machine.wait_gone()


_ANSWERS = {
    "lines": "yes '{\"return\": {}}' | head -c 104857600",
    "one line": "yes | tr -d '\\n' | head -c 104857600",
    "deep": "yes '{\"return\": [' | tr -d '\\n' | head -c 104857600",
    "in drops": "while true; do printf '{'; sleep 1; done",
    "lies": 'yes \'{"return": {"count": 9223372036854775807, "name": "\\u001b[2J\\ud800"}}\'',
}
"""What the agent sends for ever, as commands of the guest's shell."""


def test_agent_that_answers_without_end_or_sense_costs_nobody_else_anything(
    cluster: Cluster, new_machine: Callable[..., Machine]
) -> None:
    hostile, bystander = new_machine("talkative"), new_machine("patient")
    for machine in (hostile, bystander):
        machine.wait_running()
        wait_for("the agent is connected", partial(_has_agent, machine), 60)
    before = resident(cluster)
    with hostile.console() as console:
        console.run("printf '#!/bin/sh\\nexec sleep 3600\\n' >/etc/agent; killall qemu-ga")
        console.run(_FIND_PORT)
        for answer in _ANSWERS.values():
            # Written again and again: libvirt hangs up on an agent that says too much.
            script = base64.b64encode(f"while true; do ({answer}) >/dev/$1; done".encode()).decode()
            console.run(f"echo {script} | base64 -d >/tmp/answer")
            console.run("sh /tmp/answer $port >/dev/null 2>&1 & echo $! >/tmp/pid")
            _is_served(bystander)
            # With the shell go the programs that it has started.
            console.run("kill -9 $(cat /tmp/pid); killall -9 yes tr head sleep 2>/dev/null; true")
            assert hostile.phase() == "Running"
    assert resident(cluster) - before < 200


def _is_served(machine: Machine) -> None:
    machine.cluster.virtctl("pause", "vm", machine.name)
    wait_for("the pause is reported", lambda: machine.condition("Paused") == "True", 15)
    machine.cluster.virtctl("unpause", "vm", machine.name)
    wait_for("the end of the pause is reported", lambda: not machine.condition("Paused"), 15)
    assert "guestAgentVersion" in machine.cluster.virtctl("guestosinfo", machine.name)


def resident(cluster: Cluster) -> int:
    """MiB of memory that virt-handler holds."""
    status = Path(f"/proc/{cluster.component('virt-handler')}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) >> 10
