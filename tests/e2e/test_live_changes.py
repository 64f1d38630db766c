"""CPU sockets and memory change while a guest runs: in its pod, on its node, and as the guest sees them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(200)]

_NAME = "grows"


@pytest.fixture
def grows(cluster: Cluster) -> Iterator[Machine]:
    """A machine whose guest can have a second CPU and twice its memory."""
    wanted = manifest(_NAME, memory="1Gi", grace=1)
    domain = wanted["spec"]["template"]["spec"]["domain"]
    domain["cpu"] = {"sockets": 1, "maxSockets": 2}
    domain["memory"]["maxGuest"] = "2Gi"
    machine = cluster.create(wanted)
    yield machine
    clean_up([machine])


def _change(cluster: Cluster, domain: Document) -> None:
    path = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines/{_NAME}"
    cluster.request("PATCH", path, {"spec": {"template": {"spec": {"domain": domain}}}})


def _status(machine: Machine) -> Document:
    found: Document = (machine.instance() or {}).get("status", {})
    return found


def _pod_memory(machine: Machine) -> int:
    (container,) = (each for each in machine.pod()["spec"]["containers"] if each["name"] == "compute")
    return int(str(container["resources"]["requests"]["memory"]).removesuffix("Mi"))


def _has(machine: Machine, sockets: int, memory: str) -> bool:
    status = _status(machine)
    changes = {each["type"] for each in status["conditions"]} & {"HotVCPUChange", "HotMemoryChange"}
    shown = (status["currentCPUTopology"]["sockets"], status["memory"]["guestCurrent"])
    return not changes and shown == (sockets, memory)


@pytest.mark.feature("VML-24", "VML-25", "VML-21")
def test_sockets_and_memory_are_plugged_into_a_running_guest_and_memory_out_of_it(
    cluster: Cluster, grows: Machine
) -> None:
    machine = grows
    machine.wait_running()
    process, small = machine.qemu(), _pod_memory(machine)
    with machine.console() as console:

        def kilobytes() -> int:
            return int(console.run("awk '/^MemTotal/ {print $2}' /proc/meminfo").split()[-1])

        at_boot = kilobytes()
        assert console.run("cat /sys/devices/system/cpu/online").split()[-1] == "0"
        _change(cluster, {"cpu": {"sockets": 2}, "memory": {"guest": "1536Mi"}})
        wait_for("both are plugged in", lambda: _has(machine, 2, "1536Mi"), 40)
        wait_for(
            "the guest uses the CPU",
            lambda: console.run("cat /sys/devices/system/cpu/online").split()[-1] == "0-1",
            20,
        )
        wait_for("the guest uses the memory", lambda: kilobytes() >= at_boot + 500 * 1024, 20)
        assert _pod_memory(machine) >= small + 512
        _change(cluster, {"memory": {"guest": "1Gi"}})
        wait_for("the memory is given back", lambda: _has(machine, 2, "1Gi"), 40)
        assert kilobytes() <= at_boot + 16 * 1024
    wait_for("the pod is small again", lambda: _pod_memory(machine) <= small + 16, 20)
    assert machine.qemu() == process
    _change(cluster, {"cpu": {"sockets": 1}})
    wait_for("a restart is asked for", lambda: "Reduction of CPU socket count" in _restart(machine), 10)


def _restart(machine: Machine) -> str:
    conditions = machine.vm()["status"].get("conditions", ())
    return next((str(each.get("message")) for each in conditions if each["type"] == "RestartRequired"), "")
