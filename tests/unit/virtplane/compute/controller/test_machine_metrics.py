"""The metrics of virt-controller about VMs and snapshots, from an API server in memory."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support.controller_metrics import (
    VM,
    VMI,
    api_without_objects,
    instance,
    machine,
    pin,
    samples,
    served,
)
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.runtime.metrics import exposition
from virtplane.api import resources as kinds
from virtplane.compute.controller.metrics import NAMES

_OWN = {"name": "vm", "namespace": "ns"}


async def test_a_machine_tells_what_it_is_and_only_public_names() -> None:
    api = api_without_objects()
    vm = machine("vm", "CrashLoopBackOff", instancetype={"name": "u1.small"}, preference={"name": "mine"})
    vm["status"]["instancetypeRef"] = pin(api, "u1.small", "kubevirt.io")
    vm["status"]["preferenceRef"] = pin(api, "mine", "us")
    api.put(VM, vm)
    expected = {
        "name": "vm",
        "namespace": "ns",
        "os": "fedora",
        "workload": "server",
        "machine_type": "q35",
        "instance_type": "u1.small",
        "preference": "<other>",
        "status": "crashloopbackoff",
        "status_group": "error",
    }
    assert await samples(api, "kubevirt_vm_info") == [(expected, 1)]
    [(labels, created)] = await samples(api, "kubevirt_vm_create_date_timestamp_seconds")
    assert labels == {"name": "vm", "namespace": "ns"}
    assert created > 1_700_000_000


def _whole_machine() -> JsonObject:
    """A VM with all that metrics tell of it."""
    vm = machine("vm", "Running")
    vm["metadata"]["labels"] = {"team": "blue"}
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"] = {"interfaces": [{"name": "default", "masquerade": {}}]}
    spec["domain"]["resources"] = {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi", "cpu": "1500m"}}
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}]
    return vm


def _claim(name: str, size: str, mode: str = "Filesystem") -> JsonObject:
    resources = {"requests": {"storage": size}}
    metadata = {"name": name, "namespace": "ns"}
    return {"metadata": metadata, "spec": {"volumeMode": mode, "resources": resources}}


def _snapshot(name: str, phase: str) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
        "status": {"phase": phase, "creationTime": "2026-11-27T10:00:00Z"},
    }


async def test_a_machine_tells_since_when_it_is_in_its_state() -> None:
    api = api_without_objects()
    vm = machine("vm", "Running")
    vm["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-27T10:00:00Z"},
        {"type": "Paused", "status": "False", "lastTransitionTime": "2026-11-27T10:00:05Z"},
        {"type": "AgentConnected", "status": "True", "lastTransitionTime": "2026-11-27T11:00:00Z"},
    ]
    api.put(VM, vm)
    told = {}
    for group in ("starting", "running", "migrating", "non_running", "error"):
        name = f"kubevirt_vm_{group}_status_last_transition_timestamp_seconds"
        [(labels, told[group])] = await samples(api, name)
        assert labels == _OWN
    since = datetime(2026, 11, 27, 10, 0, 5, tzinfo=UTC).timestamp()
    assert told == {"starting": 0, "running": since, "migrating": 0, "non_running": 0, "error": 0}
    async with served(api) as registry:
        text = exposition(registry).decode()
    assert "# TYPE kubevirt_vm_running_status_last_transition_timestamp_seconds counter\n" in text


async def test_a_machine_whose_state_nobody_knows_counts_as_an_error() -> None:
    api = api_without_objects()
    api.put(VM, machine("vm", "Odd"))
    assert await samples(api, "kubevirt_vm_error_status_last_transition_timestamp_seconds") == [(_OWN, -1)]


def _asked(found: list[tuple[dict[str, str], float]]) -> dict[tuple[str, ...], float]:
    keys = ("resource", "unit", "source")
    return {tuple(labels[key] for key in keys if key in labels): value for labels, value in found}


async def test_a_machine_tells_what_it_asks_for() -> None:
    api = api_without_objects()
    api.put(VM, _whole_machine())
    assert _asked(await samples(api, "kubevirt_vm_resource_requests")) == {
        ("memory", "bytes", "domain"): 1 << 30,
        ("memory", "bytes", "guest_effective"): 1 << 30,
        ("cpu", "cores", "default"): 1,
        ("cpu", "threads", "default"): 1,
        ("cpu", "sockets", "default"): 1,
        ("cpu", "cores", "guest_effective"): 1,
    }
    assert _asked(await samples(api, "kubevirt_vm_resource_limits")) == {
        ("memory", "bytes"): 2 << 30,
        ("cpu", "cores"): 1.5,
    }


async def test_a_machine_tells_what_its_instance_type_asks_for() -> None:
    api = api_without_objects()
    vm = machine("vm", "Running", instancetype={"name": "u1.small"})
    vm["spec"]["template"]["spec"]["domain"]["memory"] = {"hugepages": {"pageSize": "2Mi"}}
    vm["status"]["instancetypeRef"] = {
        **pin(api, "u1.small", "kubevirt.io", {"cpu": {"guest": 3}, "memory": {"guest": "2Gi"}}),
        "name": "u1.small",
    }
    api.put(VM, vm)
    async with served(api) as registry:
        for _ in range(2):  # once from what is remembered
            samples = [sample for metric in registry.collect() for sample in metric.samples]
            found = [(s.labels, s.value) for s in samples if s.name == "kubevirt_vm_resource_requests"]
            assert _asked(found) == {
                ("memory", "bytes", "guest"): 2 << 30,
                ("memory", "bytes", "hugepages"): 2 << 20,
                ("memory", "bytes", "guest_effective"): 2 << 30,
                ("cpu", "cores", "domain"): 1,
                ("cpu", "threads", "domain"): 1,
                ("cpu", "sockets", "domain"): 3,
                ("cpu", "cores", "guest_effective"): 3,
            }
        changed = {**vm, "spec": {**vm["spec"]}}
        del changed["spec"]["instancetype"]
        api.put(VM, changed)
        default = {**_OWN, "resource": "cpu", "unit": "cores", "source": "default"}
        name = "kubevirt_vm_resource_requests"
        await until(lambda: registry.get_sample_value(name, default) == 1)


async def test_a_machines_disks_have_the_sizes_of_their_claims() -> None:
    api = api_without_objects()
    vm = _whole_machine()
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    volumes += [{"name": name, "dataVolume": {"name": name}} for name in ("made", "other", "missing")]
    vm["spec"]["dataVolumeTemplates"] = [
        {"metadata": {"name": "made"}, "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}}}
    ]
    api.put(VM, vm)
    for name, size, mode in (("data", "2Gi", "Block"), ("made", "1100Mi", "Filesystem"), ("other", "3G", "")):
        api.put(resources.PERSISTENT_VOLUME_CLAIMS, _claim(name, size, mode))
    found = await samples(api, "kubevirt_vm_disk_allocated_size_bytes")
    assert [({**labels, **_OWN} == labels, labels["device"], value) for labels, value in found] == [
        (True, "root", 2 << 30),
        (True, "made", 1 << 30),
        (True, "other", 3 * 10**9),
    ]
    claims = [(labels["persistentvolumeclaim"], labels.get("volume_mode")) for labels, _ in found]
    assert claims == [("data", "Block"), ("made", "Filesystem"), ("other", None)]


async def test_machines_and_instances_tell_their_cards() -> None:
    api = api_without_objects()
    networks = [
        {"name": "default", "pod": {}},
        {"name": "blue", "multus": {"networkName": "ns/blue"}},
        {"name": "red", "multus": {"networkName": "red"}},
    ]
    interfaces = [
        {"name": "default", "masquerade": {}},
        {"name": "blue", "bridge": {}, "model": "e1000"},
        {"name": "red", "binding": {"name": "own"}},
        {"name": "stray", "bridge": {}},
    ]
    vm, vmi = machine("vm", "Running"), instance("vm")
    for spec in (vm["spec"]["template"]["spec"], vmi["spec"]):
        spec["networks"] = networks
        spec["domain"]["devices"] = {"interfaces": interfaces}
    api.put(VM, vm)
    api.put(VMI, vmi)
    keys = ("vnic_name", "binding_type", "network", "binding_name", "model")
    for name in ("kubevirt_vm_vnic_info", "kubevirt_vmi_vnic_info"):
        found = await samples(api, name)
        assert all(labels.items() >= _OWN.items() and value == 1 for labels, value in found)
        assert [tuple(labels[key] for key in keys) for labels, _ in found] == [
            ("default", "core", "pod networking", "masquerade", "<none>"),
            ("blue", "core", "ns/blue", "bridge", "e1000"),
            ("red", "plugin", "red", "own", "<none>"),
        ]


async def test_the_labels_of_machines_are_told_as_the_installation_says() -> None:
    api = api_without_objects()
    vm = machine("vm", "Running")
    vm["metadata"]["labels"] = {"team": "blue", "example.com/tier": "1", "secret": "x"}
    vm["spec"]["template"]["metadata"]["labels"] = {"team": "red", "0-first": "y"}
    api.put(VM, vm)
    every = {"label_team": "red", "label_example_com_tier": "1", "label_secret": "x", "label__0_first": "y"}
    assert await samples(api, "kubevirt_vm_labels") == [({**_OWN, **every}, 1)]

    def choose(**data: str) -> None:
        metadata = {"name": "kubevirt-vm-labels-config", "namespace": "kubevirt"}
        api.put(resources.CONFIG_MAPS, {"metadata": metadata, "data": data})

    choose(ignorelist="secret, 0-first")
    del every["label_secret"], every["label__0_first"]
    assert await samples(api, "kubevirt_vm_labels") == [({**_OWN, **every}, 1)]
    choose(allowlist="team,secret", ignorelist="secret")
    assert await samples(api, "kubevirt_vm_labels") == [({**_OWN, "label_team": "red"}, 1)]
    choose(allowlist="")
    assert await samples(api, "kubevirt_vm_labels") == []


async def test_one_machine_cannot_have_as_many_values_as_its_owner_likes() -> None:
    api = api_without_objects()
    vm = machine("vm", "Running")
    vm["metadata"]["labels"] = {f"label-{number:05}": "x" for number in range(2000)}
    template = vm["spec"]["template"]
    template["metadata"]["annotations"] = {"vm.kubevirt.io/os": "x" * 100_000}
    template["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": "data"}} for number in range(2000)
    ]
    names = [f"n{number}" for number in range(2000)]
    template["spec"]["networks"] = [{"name": name, "pod": {}} for name in names]
    template["spec"]["domain"]["devices"] = {"interfaces": [{"name": name, "bridge": {}} for name in names]}
    api.put(VM, vm)
    cards = [{"interfaceName": f"eth{number}", "ipAddress": "10.0.0.2"} for number in range(1000)]
    api.put(VMI, instance("vm", interfaces=cards))
    api.put(resources.PERSISTENT_VOLUME_CLAIMS, _claim("data", "1Gi"))
    async with served(api) as registry:
        found = {metric.name: metric.samples for metric in registry.collect()}
    for name in ("vm_disk_allocated_size_bytes", "vm_vnic_info", "vmi_status_addresses"):
        assert len(found[f"kubevirt_{name}"]) == 64, name
    [labels] = [sample.labels for sample in found["kubevirt_vm_labels"]]
    assert len(labels) == 64 + 2
    [info] = [sample.labels for sample in found["kubevirt_vm_info"]]
    assert len(info["os"]) == 256


async def test_what_is_no_amount_or_no_time_is_left_out() -> None:
    api = api_without_objects()
    vm = _whole_machine()
    vm["spec"]["template"]["spec"]["domain"]["memory"] = {"hugepages": {"pageSize": "large"}}
    vm["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": "noon"}]
    api.put(VM, vm)
    sources = {labels["source"] for labels, _ in await samples(api, "kubevirt_vm_resource_requests")}
    assert sources == {"domain", "default", "guest_effective"}
    name = "kubevirt_vm_running_status_last_transition_timestamp_seconds"
    assert await samples(api, name) == [(_OWN, -1)]


async def test_snapshots_tell_when_they_were_taken() -> None:
    api = api_without_objects()
    for name, phase in (("good", "Succeeded"), ("bad", "Failed"), ("new", "InProgress")):
        api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, _snapshot(name, phase))
    taken = datetime(2026, 11, 27, 10, tzinfo=UTC).timestamp()
    labels = {**_OWN, "snapshot_name": "good"}
    assert await samples(api, "kubevirt_vmsnapshot_succeeded_timestamp_seconds") == [(labels, taken)]


async def test_the_names_are_those_that_the_alerts_are_checked_against() -> None:
    api = api_without_objects()
    api.put(VM, _whole_machine())
    api.put(resources.PERSISTENT_VOLUME_CLAIMS, _claim("data", "1Gi"))
    api.put(VMI, instance("vm", interfaces=[{"name": "default", "ipAddress": "10.0.0.2"}]))
    api.put(kinds.VIRTUAL_MACHINE_SNAPSHOTS, _snapshot("s", "Succeeded"))
    async with served(api) as registry:
        found = {metric.name for metric in registry.collect()}
    wanted = {name for name in NAMES if name != "kubevirt_vmi_vnic_info"}
    assert {name for name in found if "phase_transition" not in name} == wanted
