"""Where a guest's threads run: pins, I/O threads, NUMA nodes, huge pages, real time."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DiskSource, DomainContext, HostCpu
from virtplane.compute.domain.placement import realtime_vcpus

CPUS = tuple(HostCpu(number, node=number // 4, core=number % 4) for number in range(8))
"""Two nodes; CPUs 0 and 4 are not siblings, for they are on different nodes."""


def rendered(
    *, disks: list[JsonObject] | None = None, context: JsonObject | None = None, **domain: Any
) -> ElementTree.Element:
    spec = {"domain": {"memory": {"guest": "128Mi"}, **domain}}
    spec["domain"].setdefault("devices", {})["disks"] = disks or []
    document_of = {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": spec}
    status = spec["domain"].pop("status", None)
    vmi = decode(VirtualMachineInstance, document_of | ({"status": status} if status else {}))
    sources = {disk["name"]: DiskSource(f"/{disk['name']}") for disk in disks or []}
    settings: dict[str, Any] = {"emulation": False, "cpus": CPUS, **(context or {})}
    return ElementTree.fromstring(document.render(vmi, DomainContext(disks=sources, **settings)))


def virtio(name: str, **more: object) -> JsonObject:
    return {"name": name, "disk": {"bus": "virtio"}, **more}


def attributes(root: ElementTree.Element, path: str) -> list[dict[str, str]]:
    return [dict(found.attrib) for found in root.findall(path)]


def threads(root: ElementTree.Element) -> list[str | None]:
    return [driver.get("iothread") for driver in root.findall("devices/disk/driver")]


@pytest.mark.feature("VML-71")
def test_each_virtual_cpu_has_a_cpu_of_its_own_and_the_emulator_what_is_left() -> None:
    root = rendered(cpu={"cores": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True})
    assert attributes(root, "cputune/vcpupin") == [
        {"vcpu": "0", "cpuset": "0"},
        {"vcpu": "1", "cpuset": "1"},
    ]
    assert attributes(root, "cputune/emulatorpin") == [{"cpuset": "2,3,4,5,6,7"}]


def test_nothing_is_pinned_in_a_guest_that_shares_cpus() -> None:
    root = rendered(cpu={"cores": 2})
    assert root.find("cputune") is None
    assert root.find("numatune") is None


def test_threads_of_one_core_are_neighbours_in_the_guest() -> None:
    siblings = (HostCpu(0, 0, 0), HostCpu(1, 0, 1), HostCpu(4, 0, 0), HostCpu(5, 0, 1))
    cpu = {"cores": 2, "threads": 2, "dedicatedCpuPlacement": True}
    root = rendered(cpu=cpu, context={"cpus": siblings})
    assert [pin["cpuset"] for pin in attributes(root, "cputune/vcpupin")] == ["0", "4", "1", "5"]


def test_a_guest_whose_pod_has_too_few_cpus_does_not_start() -> None:
    with pytest.raises(ValueError, match="needs 3 CPUs of its own, but its pod has 2"):
        rendered(cpu={"cores": 3, "dedicatedCpuPlacement": True}, context={"cpus": CPUS[:2]})


@pytest.mark.feature("VML-71")
def test_the_guest_sees_the_numa_nodes_that_its_cpus_are_on() -> None:
    root = rendered(
        cpu={"cores": 6, "dedicatedCpuPlacement": True, "numa": {"guestMappingPassthrough": {}}},
        memory={"guest": "130Mi", "hugepages": {"pageSize": "2Mi"}},
    )
    assert attributes(root, "cpu/numa/cell") == [
        {"id": "0", "cpus": "0,1,2,3", "memory": str(66 << 20), "unit": "b"},
        {"id": "1", "cpus": "4,5", "memory": str(64 << 20), "unit": "b"},
    ]
    assert attributes(root, "numatune/memory") == [{"mode": "strict", "nodeset": "0,1"}]
    assert attributes(root, "numatune/memnode") == [
        {"cellid": "0", "mode": "strict", "nodeset": "0"},
        {"cellid": "1", "mode": "strict", "nodeset": "1"},
    ]
    assert attributes(root, "memoryBacking/hugepages/page") == [{"size": str(2 << 20), "unit": "b"}]


@pytest.mark.parametrize(
    ("mask", "vcpus"), [("", (0, 1, 2, 3)), ("0-2,^1", (0, 2)), ("3", (3,)), ("^0,0-3", (1, 2, 3))]
)
def test_the_mask_says_which_virtual_cpus_are_scheduled_in_real_time(mask: str, vcpus: tuple[int]) -> None:
    cpu = {"cores": 4, "dedicatedCpuPlacement": True, "realtime": {"mask": mask}}
    assert realtime_vcpus(decode(DomainSpec, {"cpu": cpu})) == vcpus
    assert attributes(rendered(cpu=cpu), "features/pmu") == [{"state": "off"}]


@pytest.mark.parametrize("mask", ["0-9", "a", "-", "1-"])
def test_a_mask_that_names_no_cpus_of_the_guest_is_refused(mask: str) -> None:
    domain = decode(DomainSpec, {"cpu": {"cores": 4, "realtime": {"mask": mask}}})
    with pytest.raises(ValueError, match="the mask"):
        realtime_vcpus(domain)


def test_huge_pages_are_anonymous_files_unless_an_annotation_forbids_it() -> None:
    root = rendered(memory={"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}})
    assert attributes(root, "memoryBacking/source") == [{"type": "memfd"}]
    assert root.find("memoryBacking/access") is None


def test_disks_share_one_thread() -> None:
    root = rendered(disks=[virtio("a"), virtio("b")], ioThreadsPolicy="shared")
    assert (root.findtext("iothreads"), threads(root)) == ("1", ["1", "1"])


def test_disks_have_a_thread_each_up_to_twice_the_virtual_cpus() -> None:
    disks = [virtio(name) for name in "abc"]
    assert threads(rendered(disks=disks, ioThreadsPolicy="auto", cpu={"cores": 2})) == ["1", "2", "3"]
    root = rendered(disks=disks, ioThreadsPolicy="auto", cpu={"cores": 1})
    assert (root.findtext("iothreads"), threads(root)) == ("2", ["1", "2", "1"])


def test_a_disk_with_a_thread_of_its_own_shares_it_with_none() -> None:
    disks = [virtio("a", dedicatedIOThread=True), virtio("b"), virtio("c")]
    root = rendered(disks=disks, ioThreadsPolicy="auto", cpu={"cores": 1})
    assert (root.findtext("iothreads"), threads(root)) == ("2", ["2", "1", "1"])


def test_a_pool_of_threads_has_cpus_of_its_own() -> None:
    root = rendered(
        disks=[virtio("a"), virtio("b"), virtio("c")],
        ioThreadsPolicy="supplementalPool",
        ioThreads={"supplementalPoolThreadCount": 2},
        cpu={"cores": 2, "dedicatedCpuPlacement": True},
    )
    assert (root.findtext("iothreads"), threads(root)) == ("2", ["1", "2", "1"])
    assert attributes(root, "cputune/iothreadpin") == [
        {"iothread": "1", "cpuset": "2"},
        {"iothread": "2", "cpuset": "3"},
    ]


def test_threads_without_a_pool_share_the_cpus_of_the_guest() -> None:
    cpu = {"cores": 4, "dedicatedCpuPlacement": True}
    root = rendered(disks=[virtio("a"), virtio("b")], ioThreadsPolicy="auto", cpu=cpu)
    assert [pin["cpuset"] for pin in attributes(root, "cputune/iothreadpin")] == ["0,2", "1,3"]


def test_the_frequency_that_the_cluster_has_chosen_is_the_guests() -> None:
    hints = {"topologyHints": {"tscFrequency": 2400000000}}
    root = rendered(status=hints)
    assert {"name": "tsc", "frequency": "2400000000"} in attributes(root, "clock/timer")
    emulated = rendered(status=hints, context={"emulation": True})
    assert [timer for timer in attributes(emulated, "clock/timer") if timer["name"] == "tsc"] == []


def test_enlightenments_can_all_be_passed_through() -> None:
    root = rendered(features={"hypervPassthrough": {"enabled": True}})
    assert attributes(root, "features/hyperv") == [{"mode": "passthrough"}]


@pytest.mark.parametrize(("model", "hints"), [("host-passthrough", 1), ("Penryn", 0)])
def test_a_guest_that_sees_the_nodes_own_cpu_knows_that_it_is_its_own(model: str, hints: int) -> None:
    root = rendered(cpu={"dedicatedCpuPlacement": True, "model": model})
    assert len(root.findall("features/kvm/hint-dedicated")) == hints


@pytest.mark.parametrize(("seconds", "found"), [(10, ["10"]), (3, ["3"]), (0, [])])
def test_the_balloon_reports_as_often_as_the_installation_wants(seconds: int, found: list[str]) -> None:
    root = rendered(context={"balloon_seconds": seconds})
    assert [stats.get("period") for stats in root.findall("devices/memballoon/stats")] == found


def test_free_pages_are_not_reported_where_the_installation_forbids_it() -> None:
    root = rendered(context={"free_page_reporting": False})
    assert [found.get("freePageReporting") for found in root.findall("devices/memballoon")] == ["off"]
