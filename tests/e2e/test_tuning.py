"""One guest with what makes guests fast, and with the node's figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(240)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_GATES = ("DownwardMetrics", "CPUManager")
_VIRSH = ("virsh", "-c", "qemu+unix:///session?socket=/var/run/libvirt/libvirt-sock")
_HUGE = "hugepages-2Mi"
_PORTS = "/sys/class/virtio-ports"


@pytest.fixture
def gates(cluster: Cluster) -> Iterator[None]:
    """Switches the features on; afterwards the installation has those that it had."""
    found = cluster.request("GET", _INSTALLATION)["spec"].get("configuration") or {}
    before = (found.get("developerConfiguration") or {}).get("featureGates")

    def configure(names: list[str] | None) -> None:
        developer = {"developerConfiguration": {"featureGates": names}}
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": developer}})

    configure([*(before or []), *_GATES])
    yield
    configure(before)


def _node(cluster: Cluster) -> Document:
    return cluster.items(f"{CORE}/nodes")[0]


def _dedicates_cpus(cluster: Cluster) -> bool:
    return bool(_node(cluster)["metadata"]["labels"].get("kubevirt.io/cpumanager") == "true")


def _has_huge_pages(cluster: Cluster) -> bool:
    return str(_node(cluster)["status"]["allocatable"].get(_HUGE, "0")) not in ("0", "")


def _tuned(cluster: Cluster) -> Document:
    wanted = manifest("tuned", grace=1)
    spec: Any = wanted["spec"]["template"]["spec"]
    domain, devices = spec["domain"], spec["domain"]["devices"]
    domain["ioThreadsPolicy"] = "auto"
    if _dedicates_cpus(cluster):
        domain["cpu"] = {"cores": 1, "dedicatedCpuPlacement": True}
        domain["resources"] = {}
    else:
        domain["cpu"] = {"cores": 2}
    if _has_huge_pages(cluster):
        domain["memory"]["hugepages"] = {"pageSize": "2Mi"}
    devices["blockMultiQueue"] = True
    sizes = {"custom": {"logical": 512, "physical": 4096, "discardGranularity": 65536}}
    devices["disks"] += [
        {"name": "blocks", "serial": "BLOCKS", "disk": {"bus": "virtio"}, "blockSize": sizes},
        {"name": "metrics", "serial": "METRICS", "disk": {"bus": "virtio"}},
    ]
    devices["downwardMetrics"] = {}
    spec["volumes"] += [
        {"name": "blocks", "emptyDisk": {"capacity": "64Mi"}},
        {"name": "metrics", "downwardMetrics": {}},
    ]
    return wanted


def _exec(machine: Machine, *command: str) -> str:
    name = machine.pod()["metadata"]["name"]
    return machine.cluster.kubectl("exec", "-n", NAMESPACE, name, "-c", "compute", "--", *command)


def _disk_of(console: Console, serial: str) -> str:
    return console.run(f"grep -l {serial} /sys/block/vd*/serial").split("/")[3]


@pytest.mark.usefixtures("gates")
@pytest.mark.feature("VML-71")
def test_a_guest_is_tuned_and_reads_its_nodes_figures(cluster: Cluster) -> None:
    dedicates = "CPUManager" in _GATES and _wait_for_labels(cluster)
    machine = cluster.create(_tuned(cluster))
    try:
        machine.wait_running(90)
        domain = ElementTree.fromstring(_exec(machine, *_VIRSH, "dumpxml", f"{NAMESPACE}_tuned"))
        _check_domain(domain, dedicates=dedicates)
        threads = _exec(
            machine, *_VIRSH, "qemu-monitor-command", f"{NAMESPACE}_tuned", "--hmp", "info iothreads"
        )
        assert threads.count("thread_id") == int(domain.findtext("iothreads") or 0)
        with machine.console() as console:
            _check_disks(console, queues=1 if dedicates else 2)
            _check_metrics(console, str(_node(cluster)["metadata"]["name"]))
    finally:
        clean_up([machine])


def _wait_for_labels(cluster: Cluster) -> bool:
    """Whether the node gives guests CPUs of their own, once its label can be trusted."""
    configured = any(
        "static" in str(process.traces) and "cpu-manager-policy" in str(process.traces)
        for process in cluster.processes()
    )
    if configured:
        wait_for("the node dedicates CPUs", lambda: _dedicates_cpus(cluster), 90)
    return _dedicates_cpus(cluster)


def _check_domain(domain: ElementTree.Element, *, dedicates: bool) -> None:
    assert domain.findtext("iothreads") == ("2" if dedicates else "4")
    pins = [pin.get("cpuset") for pin in domain.findall("cputune/vcpupin")]
    assert len(pins) == (1 if dedicates else 0)
    ports = domain.findall("devices/controller[@model='pcie-root-port']")
    taken = {address.get("bus") for address in domain.findall("devices/*/address[@type='pci']")}
    free = {int(str(port.get("index"))) for port in ports} - {int(str(bus), 16) for bus in taken}
    assert len(free) >= 3, "there is room for devices that are plugged in later"


def _check_disks(console: Console, *, queues: int) -> None:
    disk = _disk_of(console, "BLOCKS")
    queue = f"/sys/block/{disk}/queue"
    assert console.run(f"cat {queue}/logical_block_size {queue}/physical_block_size").split() == [
        "512",
        "4096",
    ]
    assert console.run(f"cat {queue}/discard_granularity") == "65536"
    assert console.run(f"ls /sys/block/{disk}/mq | wc -l") == str(queues)


def _check_metrics(console: Console, node: str) -> None:
    disk = _disk_of(console, "METRICS")
    read = f"dd if=/dev/{disk} bs=4096 count=2 iflag=direct 2>/dev/null"
    assert console.run(f"{read} | head -c 4") == "mvbd"

    def on_disk() -> bool:
        return node in console.run(f"{read} | grep -a -A1 HostName")

    wait_for("the disk has the node's metrics", on_disk, 30)
    port = console.run(f"grep -l vhostmd {_PORTS}/*/name").split("/")[4]
    ask = f"exec 3<>/dev/{port}; printf 'GET /metrics/XML\\n\\n' >&3; timeout 3 head -n 6 <&3; exec 3>&-"
    assert node in console.run(ask)
