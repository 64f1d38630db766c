"""Instance types and preferences put into an instance's spec."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetypeSpec
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.instancetypes.apply import Conflicts, apply
from virtplane.instancetypes.conflicts import conflicts
from virtplane.instancetypes.expansion import expand
from virtplane.instancetypes.requirements import Unmet, unmet_requirement
from virtplane.instancetypes.topology import spread_problem, topology

SMALL: JsonObject = {"cpu": {"guest": 4}, "memory": {"guest": "2Gi"}}


def applied(
    spec: JsonObject, instancetype: JsonObject | None = None, preference: JsonObject | None = None
) -> JsonObject:
    spec.setdefault("domain", {})
    apply(
        spec,
        {},
        decode(VirtualMachineInstancetypeSpec, instancetype) if instancetype is not None else None,
        decode(VirtualMachinePreferenceSpec, preference) if preference is not None else None,
    )
    domain: JsonObject = spec["domain"]
    return domain


def _preference(**fields: Any) -> VirtualMachinePreferenceSpec:
    return decode(VirtualMachinePreferenceSpec, fields)


def _conflicts(spec: JsonObject, annotations: dict[str, str], instancetype: JsonObject) -> list[str]:
    given = decode(VirtualMachineInstanceSpec, spec)
    return conflicts(given, annotations, decode(VirtualMachineInstancetypeSpec, instancetype))


def _unmet(spec: JsonObject, instancetype: JsonObject | None, requirements: JsonObject) -> Unmet | None:
    kind = decode(VirtualMachineInstancetypeSpec, instancetype) if instancetype is not None else None
    given = decode(VirtualMachineInstanceSpec, spec)
    return unmet_requirement(given, kind, _preference(requirements=requirements))


@pytest.mark.feature("VMC-21")
def test_an_instance_type_gives_cpus_and_memory() -> None:
    domain = applied({}, SMALL)
    assert domain["cpu"] == {"sockets": 4, "cores": 1, "threads": 1}
    assert domain["memory"] == {"guest": "2Gi"}


def test_overcommitment_lowers_the_request() -> None:
    domain = applied({}, {"cpu": {"guest": 1}, "memory": {"guest": "2Gi", "overcommitPercent": 50}})
    assert domain["resources"]["requests"]["memory"] == "1Gi"


def test_the_request_of_overcommitted_memory_is_computed_in_single_precision() -> None:
    domain = applied({}, {"cpu": {"guest": 1}, "memory": {"guest": "1Gi", "overcommitPercent": 15}})
    assert domain["resources"]["requests"]["memory"] == "912680576"


@pytest.mark.parametrize(
    ("wanted", "count", "expected"),
    [
        ("cores", 4, (1, 4, 1)),
        ("threads", 4, (1, 1, 4)),
        ("any", 4, (4, 1, 1)),
        ("preferCores", 2, (1, 2, 1)),
        ("spread", 4, (2, 2, 1)),
        ("cores", 1, (1, 1, 1)),
    ],
)
def test_virtual_cpus_are_laid_out_as_preferred(
    wanted: str, count: int, expected: tuple[int, int, int]
) -> None:
    found = topology(count, _preference(cpu={"preferredCPUTopology": wanted}))
    assert (found["sockets"], found["cores"], found["threads"]) == expected


def test_cpus_that_cannot_be_spread_are_told() -> None:
    preference = _preference(cpu={"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 3}})
    assert spread_problem(4, preference).startswith("4 vCPUs provided by the instance type are not divisible")
    assert spread_problem(6, preference) == ""


def test_cpus_that_cannot_be_spread_leave_a_remainder_in_expansions() -> None:
    options = {"across": "CoresThreads", "ratio": 2}
    preference = _preference(cpu={"preferredCPUTopology": "spread", "spreadOptions": options})
    assert topology(7, preference) == {"sockets": 1, "cores": 3, "threads": 2}


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        ({"cpu": {"cores": 2}}, "domain.cpu.cores"),
        ({"memory": {"guest": "1Gi"}}, "domain.memory.guest"),
        ({"resources": {"requests": {"cpu": "1"}}}, "domain.resources.requests.cpu"),
        ({"resources": {"limits": {"memory": "1Gi"}}}, "domain.resources.limits.memory"),
    ],
)
@pytest.mark.feature("VMC-23")
def test_what_the_instance_type_gives_conflicts_with_what_is_set(domain: JsonObject, field: str) -> None:
    assert _conflicts({"domain": domain}, {}, SMALL) == [f"spec.template.spec.{field}"]
    with pytest.raises(Conflicts):
        applied({"domain": domain}, SMALL)


def test_differing_annotations_conflict() -> None:
    wanted = {**SMALL, "annotations": {"a": "1"}}
    assert _conflicts({}, {"a": "2"}, wanted) == ["annotations.a"]
    assert _conflicts({}, {"a": "1"}, wanted) == []


@pytest.mark.feature("VMC-34")
def test_a_preference_fills_what_is_open_and_leaves_the_rest() -> None:
    devices: JsonObject = {
        "disks": [{"name": "a", "disk": {}}, {"name": "b", "disk": {"bus": "sata"}}],
        "interfaces": [{"name": "default", "bridge": {}}],
    }
    preference = {
        "devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "e1000e", "preferredRng": {}}
    }
    domain = applied({"domain": {"devices": devices}}, None, preference)
    assert [disk["disk"]["bus"] for disk in domain["devices"]["disks"]] == ["virtio", "sata"]
    assert domain["devices"]["interfaces"][0]["model"] == "e1000e"
    assert domain["devices"]["rng"] == {}


def test_firmware_is_taken_over_where_none_is_chosen() -> None:
    preference = {"firmware": {"preferredEfi": {"secureBoot": True}}}
    assert applied({}, None, preference)["firmware"]["bootloader"] == {"efi": {"secureBoot": True}}
    chosen: dict[str, Any] = {"domain": {"firmware": {"bootloader": {"bios": {}}}}}
    assert applied(chosen, None, preference)["firmware"]["bootloader"] == {"bios": {}}


@pytest.mark.parametrize(
    ("requirements", "lacking"),
    [
        ({"cpu": {"guest": 2}}, ""),
        ({"cpu": {"guest": 8}}, "insufficient CPU resources of 4 vCPU provided by instance type"),
        ({"memory": {"guest": "4Gi"}}, "insufficient Memory resources of 2Gi provided by instance type"),
        ({"architecture": "arm64"}, "preference requires architecture arm64 but amd64 is being requested"),
    ],
)
def test_requirements_are_measured_against_the_instance_type(requirements: JsonObject, lacking: str) -> None:
    found = _unmet({"architecture": "amd64"}, SMALL, requirements)
    assert found.problem.startswith(lacking) if found is not None else not lacking


def test_requirements_are_measured_against_the_machine_without_an_instance_type() -> None:
    spec = {"domain": {"cpu": {"sockets": 1, "cores": 1, "threads": 1}, "memory": {"guest": "1Gi"}}}
    found = _unmet(spec, None, {"cpu": {"guest": 2}})
    assert found == Unmet(
        "insufficient CPU resources of 1 vCPU provided by VirtualMachine,"
        " preference requires 2 vCPU provided as sockets",
        ("spec.template.spec.domain.cpu.sockets",),
    )


def test_a_preferred_video_type_fills_a_device_that_says_none() -> None:
    preference = {"devices": {"preferredVideoType": "virtio"}}
    for video, expected in ((None, "virtio"), ({}, "virtio"), ({"type": "vga"}, "vga")):
        devices: JsonObject = {"video": video, "autoattachGraphicsDevice": False}
        domain = applied({"domain": {"devices": devices}}, None, preference)
        assert domain["devices"]["video"] == {"type": expected}


def test_an_expanded_template_tells_what_would_run() -> None:
    template: JsonObject = {
        "metadata": {},
        "spec": {
            "domain": {"devices": {}},
            "volumes": [{"name": "root", "containerDisk": {"image": "img:1"}}],
        },
    }
    preference = _preference(
        devices={"preferredDiskBus": "virtio", "preferredInterfaceModel": "virtio"},
        machine={"preferredMachineType": "pc-q35-9.0"},
    )
    expand(template, decode(VirtualMachineInstancetypeSpec, SMALL), preference, ClusterConfig())
    spec = template["spec"]
    assert spec["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}}]
    assert spec["domain"]["devices"]["interfaces"][0]["model"] == "virtio"
    assert spec["domain"]["machine"] == {"type": "pc-q35-9.0"}
    assert spec["volumes"][0]["containerDisk"]["imagePullPolicy"] == "IfNotPresent"
    assert spec["architecture"]
