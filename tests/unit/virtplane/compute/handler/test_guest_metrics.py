"""The metrics of guests, from what libvirt counts; with libvirt's real daemon at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.samples import Sample
from tests.support.launcher_daemon import launched

from kubecore.objects.structs import decode
from kubecore.runtime.metrics import collected
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler import guestmetrics
from virtplane.compute.handler.guestmetrics import NAMES, Guest, GuestMetrics, agent_samples, samples
from virtplane.compute.handler.libvirtd import calls
from virtplane.compute.handler.libvirtd.agentanswers import AgentFigures, FileSystem
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.daemonconnection import DaemonConnection
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.podlinks import pod_interface_name

_COUNTED: dict[str, Any] = {
    "cpu.time": 2_500_000_000,
    "cpu.user": 2_000_000_000,
    "cpu.system": 500_000_000,
    "balloon.current": 1024,
    "balloon.maximum": 2048,
    "balloon.swap_in": 3,
    "balloon.swap_out": 5,
    "balloon.major_fault": 7,
    "dirtyrate.calc_status": 2,
    "dirtyrate.megabytes_per_second": 3,
    "vcpu.current": 2,
    "vcpu.0.state": 1,
    "vcpu.0.time": 1_000_000_000,
    "vcpu.0.wait": 250_000_000,
    "vcpu.1.state": 2,
    "vcpu.1.time": 500_000_000,
    "net.count": 2,
    "net.0.name": "tap0",
    "net.0.rx.bytes": 10,
    "net.0.tx.pkts": 4,
    "net.1.name": "tap" + pod_interface_name("blue").removeprefix("pod"),
    "net.1.rx.drop": 5,
    "block.count": 2,
    "block.0.name": "vda",
    "block.0.rd.reqs": 6,
    "block.0.rd.times": 1_500_000_000,
    "block.1.name": "sdb",
    "block.1.fl.reqs": 9,
}


def _vmi(name: str = "vm") -> VirtualMachineInstance:
    interfaces = [{"name": "default", "masquerade": {}}, {"name": "blue", "bridge": {}}]
    networks = [{"name": "default", "pod": {}}, {"name": "blue", "multus": {"networkName": "n"}}]
    return decode(
        VirtualMachineInstance,
        {
            "metadata": {"name": name, "namespace": "ns", "labels": {"app.kubernetes.io/part-of": "shop"}},
            "spec": {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks},
            "status": {"phase": "Running", "volumeStatus": [{"name": "root", "target": "vda"}]},
        },
    )


_OWN = {
    "node": "n",
    "namespace": "ns",
    "name": "vm",
    "kubernetes_vmi_label_app_kubernetes_io_part_of": "shop",
}


def _values(counted: Mapping[str, Any]) -> dict[tuple[str, tuple[str, ...]], float]:
    """The values by metric and by the labels that not every metric has."""
    found = {}
    for figure, labels, value in samples(_vmi(), "n", counted, cpus=8):
        assert labels.items() >= _OWN.items()
        found[figure.name, tuple(labels[key] for key in labels if key not in _OWN)] = value
    return found


def _agent() -> AgentFigures:
    root = FileSystem("vda1", "ext4", "/", 4096, 1024)
    return AgentFigures((root, FileSystem("vdb", "xfs", "/data", 10, 3)), {"load1m": 0.5, "load15m": 2})


def test_what_the_agent_has_measured_becomes_metrics() -> None:
    found = [(figure.name, labels, value) for figure, labels, value in agent_samples(_vmi(), "n", _agent())]
    root = {**_OWN, "disk_name": "vda1", "mount_point": "/", "file_system_type": "ext4"}
    data = {**_OWN, "disk_name": "vdb", "mount_point": "/data", "file_system_type": "xfs"}
    assert found == [
        ("filesystem_capacity_bytes", root, 4096),
        ("filesystem_used_bytes", root, 1024),
        ("filesystem_capacity_bytes", data, 10),
        ("filesystem_used_bytes", data, 3),
        ("guest_load_1m", _OWN, 0.5),
        ("guest_load_15m", _OWN, 2),
    ]


async def test_the_agents_figures_are_told_even_if_libvirt_is_silent() -> None:
    broken = _Libvirt(HypervisorError("statistics", "gone"))
    found = await GuestMetrics("n", lambda: [Guest(_vmi(), "ns_vm", broken, _agent())]).ask()
    assert [(metric.name, metric.type, len(metric.samples)) for metric in found] == [
        ("kubevirt_vmi_filesystem_capacity_bytes", "gauge", 2),
        ("kubevirt_vmi_filesystem_used_bytes", "gauge", 2),
        ("kubevirt_vmi_guest_load_1m", "gauge", 1),
        ("kubevirt_vmi_guest_load_15m", "gauge", 1),
    ]


def test_pinned_processors_have_one_place_each() -> None:
    vmi = _vmi()
    pinned = CPU(dedicated_cpu_placement=True)
    spec = structs.replace(vmi.spec, domain=structs.replace(vmi.spec.domain, cpu=pinned))
    for instance, places in ((vmi, 16), (structs.replace(vmi, spec=spec), 2)):
        found = {figure.name: value for figure, _, value in samples(instance, "n", _COUNTED, cpus=8)}
        assert found["node_cpu_affinity"] == places


def test_only_so_many_labels_of_an_instance_are_repeated_by_its_metrics() -> None:
    labels = {f"label-{number:05}": "x" * 63 for number in range(15_000)}
    document = {"metadata": {"name": "vm", "namespace": "ns", "labels": labels}, "status": {}}
    found = guestmetrics.labels_of(decode(VirtualMachineInstance, document), "n")
    kept = [f"kubernetes_vmi_label_label_{number:05}" for number in range(64)]
    assert sorted(found) == sorted([*kept, "name", "namespace", "node"])


@pytest.mark.feature("MON-18", "MON-19")
def test_counts_become_metrics_in_seconds_and_bytes() -> None:
    assert _values(_COUNTED) == pytest.approx(
        {
            ("cpu_usage_seconds_total", ()): 2.5,
            ("cpu_user_usage_seconds_total", ()): 2.0,
            ("cpu_system_usage_seconds_total", ()): 0.5,
            ("memory_actual_balloon_bytes", ()): 1 << 20,
            ("memory_domain_bytes", ()): 2 << 20,
            ("memory_swap_in_traffic_bytes", ()): 3072,
            ("memory_swap_out_traffic_bytes", ()): 5120,
            ("memory_pgmajfault_total", ()): 7,
            ("vcpu_seconds_total", ("0", "running")): 1.0,
            ("vcpu_wait_seconds_total", ("0",)): 0.25,
            ("vcpu_seconds_total", ("1", "blocked")): 0.5,
            ("node_cpu_affinity", ()): 16,
            ("dirty_rate_bytes_per_second", ()): 3 << 20,
            ("network_receive_bytes_total", ("default",)): 10,
            ("network_traffic_bytes_total", ("default", "rx")): 10,
            ("network_transmit_packets_total", ("default",)): 4,
            ("network_receive_packets_dropped_total", ("blue",)): 5,
            ("storage_iops_read_total", ("root",)): 6,
            ("storage_read_times_seconds_total", ("root",)): 1.5,
            ("storage_flush_requests_total", ("sdb",)): 9,
        }
    )


def test_what_is_no_number_has_no_name_or_anothers_is_left_out() -> None:
    hostile = {
        "cpu.time": "much",
        "balloon.current": True,
        "vcpu.0.state": 99,
        "vcpu.0.time": 1_000_000_000,
        "net.0.name": 7,
        "net.0.rx.bytes": 1,
        "block.0.name": "x" * 5000,
        "block.0.rd.reqs": 1,
        "block.1.name": "x" * 64,
        "block.1.rd.reqs": 2,
    }
    assert _values(hostile) == {
        ("vcpu_seconds_total", ("0", "unknown")): 1.0,
        ("node_cpu_affinity", ()): 8,
        ("storage_iops_read_total", ("x" * 64,)): 1,
    }


class _Libvirt:
    """A connection that answers, refuses, or does not come back."""

    def __init__(self, answer: Mapping[str, Any] | Exception | None) -> None:
        self._answer = answer

    async def statistics(self, name: str) -> Mapping[str, Any]:
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        assert self._answer is not None
        return self._answer


@pytest.mark.looptime
async def test_a_guest_that_does_not_answer_costs_the_others_nothing() -> None:
    guests = [
        Guest(_vmi("silent"), "ns_silent", _Libvirt(None)),
        Guest(_vmi("broken"), "ns_broken", _Libvirt(HypervisorError("statistics", "gone"))),
        Guest(_vmi("vm"), "ns_vm", _Libvirt(_COUNTED)),
    ]
    found = await GuestMetrics("n", lambda: guests).ask()
    assert {sample.labels["name"] for metric in found for sample in metric.samples} == {"vm"}


@pytest.mark.looptime
async def test_however_many_guests_are_silent_the_others_have_metrics() -> None:
    silent = [Guest(_vmi(f"silent-{number}"), f"ns_silent-{number}", _Libvirt(None)) for number in range(100)]
    others = [Guest(_vmi(f"vm-{number}"), f"ns_vm-{number}", _Libvirt(_COUNTED)) for number in range(20)]
    metrics = GuestMetrics("n", lambda: [*others[:10], *silent, *others[10:]])

    async def told() -> set[str]:
        async with asyncio.timeout(10):  # as long as Prometheus waits
            found = {sample.labels["name"] for metric in await metrics.ask() for sample in metric.samples}
        return found & {guest.vmi.metadata.name for guest in others}

    assert len(await told()) == 10
    for _ in range(len(silent) // 32):
        await told()
    assert len(await told()) == 20


async def test_a_daemon_that_keeps_its_counts_costs_no_thread_for_each_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guestmetrics, "_ANSWER_SECONDS", 0.02)
    daemon = _Stuck()
    connection = Hypervisor(DaemonConnection(daemon, Mock(), lambda: None))
    metrics = GuestMetrics("n", lambda: [Guest(_vmi(), "ns_vm", connection)])
    for _ in range(20):
        assert await metrics.ask() == []
    try:
        assert 0 < daemon.waiting <= 2
    finally:
        daemon.answers.set()


async def test_a_daemon_is_given_up_when_those_who_asked_it_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.1)
    daemon, gone = _Stuck(), asyncio.Event()
    connection = Hypervisor(DaemonConnection(daemon, Mock(), gone.set))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connection.statistics("ns_vm"), 0.02)
    try:
        await asyncio.wait_for(gone.wait(), 30)
    finally:
        daemon.answers.set()
    assert not connection.is_open


class _Stuck:
    """A connection of libvirt that finds its domain, and does not come back with its counts."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.waiting = 0

    def lookupByName(self, _name: str) -> _Stuck:
        return self

    def domainListGetStats(self, _domains: object, _wanted: int) -> list[Any]:
        self.waiting += 1
        self.answers.wait()
        return []


async def test_prometheus_reads_them_from_a_thread() -> None:
    registry = CollectorRegistry(auto_describe=True)
    metrics = GuestMetrics("n", lambda: [Guest(_vmi(), "ns_vm", _Libvirt(_COUNTED))])
    with collected(registry, metrics):
        text = (await asyncio.to_thread(generate_latest, registry)).decode()
    assert "# TYPE kubevirt_vmi_cpu_usage_seconds_total counter" in text
    [line] = [each for each in text.splitlines() if each.startswith("kubevirt_vmi_cpu_usage_seconds_total{")]
    assert 'kubernetes_vmi_label_app_kubernetes_io_part_of="shop"' in line
    assert line.endswith(" 2.5")
    assert await asyncio.to_thread(generate_latest, registry) == b""


_DISK = """
<disk type='file'><driver name='qemu' type='raw'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>
"""
_DOMAIN = """
<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>32</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{}</devices></domain>
"""


async def _told(
    metrics: GuestMetrics, name: str = "kubevirt_vmi_cpu_usage_seconds"
) -> dict[str, list[Sample]]:
    """The samples by metric, once `name` is there: a busy machine may be late with them."""
    async with asyncio.timeout(40):
        while True:
            found = {metric.name: metric.samples for metric in await metrics.ask()}
            if name in found:
                return found


@pytest.mark.host
@pytest.mark.timeout(60)
async def test_qemu_tells_the_metrics_of_a_guest() -> None:
    async with launched() as daemon:
        disk = daemon.socket.parent / "disk.img"
        disk.write_bytes(bytes(1 << 20))
        disk.chmod(0o666)
        connection = await Hypervisor.open(daemon.socket, lambda: None)
        await connection.start(_DOMAIN.format(_DISK.format(disk)), paused=False)
        metrics = GuestMetrics("n", lambda: [Guest(_vmi(), "ns_vm", connection)])
        found = await _told(metrics)
        changing = "kubevirt_vmi_dirty_rate_bytes_per_second"
        [changed] = (await _told(metrics, changing))[changing]
        pins = await connection._daemon.on("ns_vm", "pins", lambda domain: domain.vcpuPinInfo())
        await connection.destroy("ns_vm")
        await connection.close()
    [used] = found["kubevirt_vmi_cpu_usage_seconds"]
    assert used.value > 0
    assert changed.value >= 0
    [places] = found["kubevirt_vmi_node_cpu_affinity"]
    assert places.value == sum(sum(each) for each in pins)
    [memory] = found["kubevirt_vmi_memory_domain_bytes"]
    assert memory.value == 32 << 20
    assert sorted(sample.labels["id"] for sample in found["kubevirt_vmi_vcpu_seconds"]) == ["0", "1"]
    [read] = found["kubevirt_vmi_storage_iops_read"]
    assert read.labels["drive"] == "root"
    assert set(found) <= {name.removesuffix("_total") for name in NAMES}
