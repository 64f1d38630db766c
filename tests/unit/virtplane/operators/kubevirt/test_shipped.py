"""What an installation brings: components, roles, instance types and preferences."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from virtplane.api.config import ClusterConfig
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kubevirt.strategy.installation import installation
from virtplane.operators.kubevirt.strategy.instancetypes import common_instancetypes
from virtplane.operators.kubevirt.strategy.parameters import Parameters

_SUB = "subresources.kubevirt.io"


@pytest.fixture(scope="module")
def installed() -> Installation:
    config = ClusterConfig({"spec": {}, "status": {"phase": "Deployed"}})
    return installation(Parameters("kubevirt", "reg.test/v:1", "distributed", config, "PEM", {}, 3))


def _named(found: Installation, kind: str, name: str) -> JsonObject:
    every = (*found.foundation, *found.components, *found.entry, *found.content)
    return next(item for item in every if item["kind"] == kind and item["metadata"]["name"] == name)


def _container(document: JsonObject) -> JsonObject:
    container: JsonObject = document["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.feature("INS-41")
def test_virt_api_is_a_deployment_behind_the_aggregated_api(installed: Installation) -> None:
    deployment = _named(installed, "Deployment", "virt-api")
    assert _container(deployment)["command"][:3] == ["virtplane", "run", "virt-api"]
    service = _named(installed, "Service", "virt-api")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    api = _named(installed, "APIService", "v1.subresources.kubevirt.io")
    assert api["spec"]["service"]["name"] == "virt-api"
    assert (api["spec"]["group"], api["spec"]["version"]) == (_SUB, "v1")


@pytest.mark.feature("INS-42")
def test_virt_controller_is_a_deployment(installed: Installation) -> None:
    deployment = _named(installed, "Deployment", "virt-controller")
    assert _container(deployment)["command"][:3] == ["virtplane", "run", "virt-controller"]


@pytest.mark.feature("INS-43")
def test_virt_handler_runs_once_on_every_node_and_knows_it(installed: Installation) -> None:
    document = _named(installed, "DaemonSet", "virt-handler")
    container = _container(document)
    assert container["command"][:3] == ["virtplane", "run", "virt-handler"]
    fields = [entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for entry in container["env"]]
    assert "spec.nodeName" in fields


def _rights(role: JsonObject) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _role(installed: Installation, name: str) -> tuple[set[tuple[str, str, str]], dict[str, str]]:
    role = _named(installed, "ClusterRole", f"kubevirt.io:{name}")
    return _rights(role), role["metadata"]["labels"]


@pytest.mark.feature("INS-49")
def test_viewers_read_and_do_nothing_else(installed: Installation) -> None:
    rights, labels = _role(installed, "view")
    assert labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert {("kubevirt.io", "virtualmachines", verb) for verb in ("get", "list", "watch")} <= rights
    assert {verb for group, _, verb in rights if group != _SUB} == {"get", "list", "watch"}
    assert [right for right in rights if right[0] == _SUB and right[2] == "update"] == [
        (_SUB, "expand-vm-spec", "update")
    ]
    assert not [right for right in rights if right[1].endswith(("/console", "/vnc", "/portforward"))]


@pytest.mark.feature("INS-50")
def test_editors_create_delete_start_and_look_at_consoles(installed: Installation) -> None:
    rights, labels = _role(installed, "edit")
    assert labels["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    machines = {verb for group, name, verb in rights if (group, name) == ("kubevirt.io", "virtualmachines")}
    assert {"create", "delete", "update", "patch", "get", "list", "watch"} <= machines
    assert "deletecollection" not in machines
    assert (_SUB, "virtualmachineinstances/console", "get") in rights
    assert (_SUB, "virtualmachineinstances/vnc", "get") in rights
    assert (_SUB, "virtualmachines/start", "update") in rights


def test_administrators_also_delete_collections(installed: Installation) -> None:
    rights, labels = _role(installed, "admin")
    assert labels["rbac.authorization.k8s.io/aggregate-to-admin"] == "true"
    kinds = ("virtualmachines", "virtualmachineinstances")
    for kind in kinds:
        assert {("kubevirt.io", kind, verb) for verb in ("create", "delete", "deletecollection")} <= rights


def _types() -> dict[str, JsonObject]:
    found = common_instancetypes()
    kind = "VirtualMachineClusterInstancetype"
    return {item["metadata"]["name"]: item["spec"] for item in found if item["kind"] == kind}


def _preferences() -> dict[str, JsonObject]:
    found = common_instancetypes()
    kind = "VirtualMachineClusterPreference"
    return {item["metadata"]["name"]: item["spec"] for item in found if item["kind"] == kind}


@pytest.mark.feature("INS-45")
def test_the_operator_ships_instance_types_and_preferences(installed: Installation) -> None:
    shipped = {(item["kind"], item["metadata"]["name"]) for item in installed.content}
    assert ("VirtualMachineClusterInstancetype", "u1.medium") in shipped
    assert ("VirtualMachineClusterPreference", "rhel.9") in shipped


@pytest.mark.feature("VMC-25")
def test_the_documented_instance_type_and_preference_are_there() -> None:
    spec = _types()["u1.medium"]
    assert (spec["cpu"]["guest"], spec["memory"]["guest"]) == (1, "4Gi")
    assert "rhel.9" in _preferences()


@pytest.mark.parametrize(
    ("name", "cpus", "memory", "special"),
    [
        pytest.param("u1.medium", 1, "4Gi", {}, marks=pytest.mark.feature("VMC-26")),
        pytest.param(
            "o1.small", 1, "2Gi", {"memory": ("overcommitPercent",)}, marks=pytest.mark.feature("VMC-27")
        ),
        pytest.param(
            "cx1.2xlarge",
            8,
            "16Gi",
            {"memory": ("hugepages",), "cpu": ("dedicatedCPUPlacement", "isolateEmulatorThread", "numa")},
            marks=pytest.mark.feature("VMC-28"),
        ),
        pytest.param("m1.large", 2, "16Gi", {"memory": ("hugepages",)}, marks=pytest.mark.feature("VMC-30")),
        pytest.param(
            "n1.medium",
            4,
            "4Gi",
            {"memory": ("hugepages",), "cpu": ("dedicatedCPUPlacement",)},
            marks=pytest.mark.feature("VMC-31"),
        ),
    ],
)
def test_the_series_have_their_sizes_and_properties(
    name: str, cpus: int, memory: str, special: dict[str, tuple[str, ...]]
) -> None:
    spec = _types()[name]
    assert (spec["cpu"]["guest"], spec["memory"]["guest"]) == (cpus, memory)
    for part, fields in special.items():
        assert all(spec[part].get(field) for field in fields)
    if not special:
        assert set(spec["cpu"]) == set(spec["memory"]) == {"guest"}


@pytest.mark.parametrize(
    ("series", "ratio"),
    [
        pytest.param("u1", 4, marks=pytest.mark.feature("VMC-26")),
        pytest.param("cx1", 2, marks=pytest.mark.feature("VMC-28")),
        pytest.param("m1", 8, marks=pytest.mark.feature("VMC-30")),
    ],
)
def test_memory_grows_with_virtual_cpus(series: str, ratio: int) -> None:
    for size in ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge"):
        spec = _types()[f"{series}.{size}"]
        assert Quantity.parse(spec["memory"]["guest"]).value == ratio * spec["cpu"]["guest"] << 30


@pytest.mark.feature("VMC-32")
def test_names_are_series_version_and_size() -> None:
    sizes = {"nano", "micro", "small", "medium", "large", "xlarge", "2xlarge", "4xlarge", "8xlarge"}
    for name in _types():
        series, _, size = name.partition(".")
        assert series.rstrip("0123456789").isalpha() and series[-1] == "1"
        assert size.removesuffix("1gi") in sizes | {"2xmedium"}
    assert {name.partition(".")[2] for name in _types() if name.startswith("u1.")} >= sizes


def _schema(kind: str) -> dict[str, Any]:
    from virtplane.api import crds
    from virtplane.api.schema import object_schema

    found = next(entry for entry in crds.DEFINITIONS if entry.resource.kind == kind)
    return object_schema(found.struct)


@pytest.mark.feature("VMC-20", "VMC-21")
def test_namespaced_and_cluster_wide_instance_types_share_their_spec() -> None:
    from virtplane.api import resources

    own, whole = resources.VIRTUAL_MACHINE_INSTANCETYPES, resources.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES
    assert own.api_version == whole.api_version == "instancetype.kubevirt.io/v1beta1"
    assert (own.kind, whole.kind) == ("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")
    assert own.namespaced and not whole.namespaced
    assert _schema(own.kind)["properties"]["spec"] == _schema(whole.kind)["properties"]["spec"]


@pytest.mark.feature("VMC-22")
@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ({"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}}, ""),
        ({"memory": {"guest": "128Mi"}}, "spec.cpu"),
        ({"cpu": {}, "memory": {"guest": "128Mi"}}, "spec.cpu.guest"),
        ({"cpu": {"guest": 1}, "memory": {}}, "spec.memory.guest"),
    ],
)
def test_an_instance_type_says_how_many_cpus_and_how_much_memory(spec: JsonObject, missing: str) -> None:
    from kubecore.objects.fields import FieldPath
    from kubecore.schema.model import Schema
    from kubecore.schema.validation import validate

    schema = Schema(_schema("VirtualMachineInstancetype"))
    found = [error.message() for error in validate({"spec": spec}, schema, FieldPath(""))]
    assert [message.removeprefix("<nil>.") for message in found] == (
        [f"{missing}: Required value"] if missing else []
    )


@pytest.mark.feature("VMC-34")
def test_preferences_are_cluster_wide_and_namespaced_and_speak_of_systems() -> None:
    from virtplane.api import resources

    own, whole = resources.VIRTUAL_MACHINE_PREFERENCES, resources.VIRTUAL_MACHINE_CLUSTER_PREFERENCES
    assert own.namespaced and not whole.namespaced
    assert _schema(own.kind)["properties"]["spec"] == _schema(whole.kind)["properties"]["spec"]
    assert _preferences()["rhel.9"]["devices"]["preferredDiskBus"] == "virtio"
