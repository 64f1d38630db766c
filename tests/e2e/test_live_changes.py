"""A VM changes while its guest runs: what reaches the guest at once, and what waits for a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, Machine, devices, manifest
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
    _change_template(Machine(cluster, _NAME), {"spec": {"domain": domain}})


def _change_template(machine: Machine, change: Document) -> None:
    path = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines/{machine.name}"
    machine.cluster.request("PATCH", path, {"spec": {"template": change}})


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


def _asks_for_restart(machine: Machine, message: str) -> bool:
    return _restart(machine) == message


_NOT_LIVE = "a non-live-updatable field was changed in the template spec"
_SPARE = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_TOLERATION = {"key": "spare", "operator": "Exists", "effect": "NoSchedule"}


def _affinity(value: str) -> Document:
    wanted = {"key": "kubernetes.io/os", "operator": "In", "values": [value]}
    terms = [{"matchExpressions": [wanted]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.feature("VML-21", "VML-22", "VML-28", "VML-63", "VML-65", "VML-66")
def test_where_a_guest_may_run_reaches_it_and_its_labels_wait_for_the_next(
    cluster: Cluster, new_machine: Callable[..., Machine]
) -> None:
    machine = new_machine("moved")
    machine.wait_running()
    first, pod = machine.uid(), machine.pod()["metadata"]["name"]
    placement = {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": _affinity("linux"),
        "tolerations": [_TOLERATION],
    }
    labels = {"app": "another"}
    _change_template(
        machine, {"metadata": {"labels": labels, "annotations": {_SPARE: ""}}, "spec": placement}
    )

    def follows() -> bool:
        spec = (machine.instance() or {})["spec"]
        return {key: spec.get(key) for key in placement} == placement

    wait_for("the instance may run elsewhere", follows, 10)
    wait_for("the pod is spared", lambda: _SPARE in machine.pod()["metadata"]["annotations"], 10)
    assert _restart(machine) == ""
    assert (machine.uid(), machine.pod()["metadata"]["name"]) == (first, pod)
    assert (machine.instance() or {})["metadata"]["labels"]["app"] == "moved"
    cluster.virtctl("restart", "moved", "--force", "--grace-period=0")
    machine.wait_restarted(first)
    assert machine.pod()["metadata"]["labels"]["app"] == "another"
    assert machine.pod()["spec"]["affinity"]["nodeAffinity"] is not None


def _boot_order(machine: Machine) -> list[str]:
    """The names of the devices that the guest boots from."""
    found = [each for each in devices(machine.command()) if "bootindex" in each]
    return [each["id"].removeprefix("ua-") for each in sorted(found, key=lambda each: each["bootindex"])]


@pytest.mark.feature("VML-21", "VML-39", "VML-40", "VML-41")
def test_another_boot_order_waits_for_a_restart_and_is_forgotten_when_it_is_taken_back(
    cluster: Cluster, new_machine: Callable[..., Machine]
) -> None:
    machine = new_machine("ordered")
    machine.wait_running()
    first = machine.uid()
    assert _boot_order(machine) == ["root"]
    disks = machine.vm()["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    swapped = [{**disk, "bootOrder": order} for disk, order in zip(disks, (2, 1), strict=True)]
    for wanted, message in ((swapped, _NOT_LIVE), (disks, ""), (swapped, _NOT_LIVE)):
        _change_template(machine, {"spec": {"domain": {"devices": {"disks": wanted}}}})
        wait_for("it is told", partial(_asks_for_restart, machine, message), 10)
    assert (machine.uid(), machine.is_running()) == (first, True)
    cluster.virtctl("restart", "ordered", "--force", "--grace-period=0")
    machine.wait_restarted(first)
    assert _boot_order(machine) == ["cloudinit", "root"]
    assert _restart(machine) == ""
