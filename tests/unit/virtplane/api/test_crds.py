"""Definitions generated from the structs, beside what KubeVirt serves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.fields import FieldPath
from kubecore.schema.structural import check_structural
from virtplane.api import crds
from virtplane.api.markers import REQUEST_ENUM
from virtplane.api.schema import object_schema, request_schema

REFERENCE = Path(os.environ.get("VIRTPLANE_REFERENCE", "")) if "VIRTPLANE_REFERENCE" in os.environ else None
ORACLE = REFERENCE / "reference/kubevirt/openapi.json" if REFERENCE else None
RECORDED = REFERENCE / "conformance/cases-kubevirt/api" if REFERENCE else None

needs_reference = pytest.mark.skipif(
    not (ORACLE and ORACLE.exists()), reason="VIRTPLANE_REFERENCE names no directory with recorded API facts"
)

PUBLISHED_DEFINITION = {
    "VirtualMachine": "v1.VirtualMachine",
    "VirtualMachineInstance": "v1.VirtualMachineInstance",
    "VirtualMachineInstancePreset": "v1.VirtualMachineInstancePreset",
    "VirtualMachineInstanceReplicaSet": "v1.VirtualMachineInstanceReplicaSet",
    "VirtualMachineInstanceMigration": "v1.VirtualMachineInstanceMigration",
    "KubeVirt": "v1.KubeVirt",
    "VirtualMachineExport": "v1.VirtualMachineExport",
    "MigrationPolicy": "v1alpha1.MigrationPolicy",
    "VirtualMachineBackup": "v1alpha1.VirtualMachineBackup",
}


def definition(kind: str) -> crds.Definition:
    return next(entry for entry in crds.DEFINITIONS if entry.resource.kind == kind)


@pytest.mark.parametrize("entry", crds.DEFINITIONS, ids=lambda entry: entry.name)
def test_every_schema_is_structural(entry: crds.Definition) -> None:
    errors = check_structural(object_schema(entry.struct), FieldPath("openAPIV3Schema"))
    assert [error.message() for error in errors] == []


@pytest.mark.parametrize("entry", crds.DEFINITIONS, ids=lambda entry: entry.name)
def test_every_object_type_has_a_description(entry: crds.Definition) -> None:
    def undescribed(schema: JsonObject, path: str) -> list[str]:
        missing = [path] if "properties" in schema and not schema.get("description") else []
        for name, child in schema.get("properties", {}).items():
            missing += undescribed(child, f"{path}.{name}")
        if isinstance(schema.get("items"), dict):
            missing += undescribed(schema["items"], path + "[]")
        return missing

    assert undescribed(object_schema(entry.struct), entry.resource.kind) == []


def test_exactly_one_version_of_every_kind_is_stored() -> None:
    for entry in crds.DEFINITIONS:
        assert [version.storage for version in entry.versions].count(True) == 1, entry.name


def test_served_schemas_leave_open_what_only_webhooks_restrict() -> None:
    vmi = definition("VirtualMachineInstance").struct
    served = object_schema(vmi)["properties"]["spec"]["properties"]["dnsPolicy"]
    requested = request_schema(vmi)["properties"]["spec"]["properties"]["dnsPolicy"]
    assert "enum" not in served and REQUEST_ENUM not in served
    assert requested["enum"] == ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]


def test_printable_status_defaults_to_stopped() -> None:
    schema = object_schema(definition("VirtualMachine").struct)
    assert schema["properties"]["status"]["properties"]["printableStatus"]["default"] == "Stopped"


def recorded_definitions() -> list[Any]:
    if not RECORDED or not RECORDED.exists():
        return []
    steps = [
        step for path in sorted(RECORDED.glob("crd-*.json")) for step in json.loads(path.read_text())["steps"]
    ]
    bodies = [step["expect"]["body"] for step in steps if step["expect"]["status"] == 200]
    return [pytest.param(body, id=body["metadata"]["name"]) for body in bodies]


@needs_reference
@pytest.mark.parametrize("body", recorded_definitions() or [None])
def test_names_versions_and_columns_equal_the_recorded_ones(body: JsonObject) -> None:
    generated = next(
        crd
        for crd in crds.custom_resource_definitions()
        if crd["metadata"]["name"] == body["metadata"]["name"]
    )
    for version in generated["spec"]["versions"]:
        del version["schema"]
    assert generated["spec"] == body["spec"]


@needs_reference
@pytest.mark.parametrize("kind", sorted(PUBLISHED_DEFINITION))
def test_fields_types_and_requirements_equal_the_published_ones(kind: str) -> None:
    assert ORACLE
    oracle = json.loads(ORACLE.read_text())["definitions"]
    root = oracle[PUBLISHED_DEFINITION[kind]]
    ours = object_schema(definition(kind).struct)
    for part in ("spec", "status"):
        if part in root["properties"]:
            assert differences(ours["properties"][part], root["properties"][part], oracle, part) == []


def differences(ours: JsonObject, theirs: JsonObject, oracle: JsonObject, path: str) -> list[str]:
    """Where a generated schema and a published one disagree on fields, types, lists and required members."""
    if "$ref" in theirs:
        name = theirs["$ref"].removeprefix("#/definitions/")
        if name.endswith(("ObjectMeta", "Quantity", "IntOrString", "Time", "meta.v1.Condition")):
            return []
        theirs = oracle[name]
    found = []
    if "properties" in theirs:
        names = set(ours.get("properties", {})), set(theirs["properties"])
        found += [f"{path}.{name} differs" for name in names[0] ^ names[1]]
        for name in names[0] & names[1]:
            found += differences(
                ours["properties"][name], theirs["properties"][name], oracle, f"{path}.{name}"
            )
        if sorted(ours.get("required", [])) != sorted(theirs.get("required", [])):
            found.append(f"{path} requires {ours.get('required')}, not {theirs.get('required')}")
    published = theirs.get("type")
    if isinstance(published, str) and ours.get("type") != published:
        found.append(f"{path} is {ours.get('type')}, not {published}")
    if published == "array":
        for key in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys"):
            if ours.get(key) != theirs.get(key):
                found.append(f"{path} {key}")
        found += differences(ours["items"], theirs["items"], oracle, path + "[]")
    if isinstance(theirs.get("additionalProperties"), dict):
        found += differences(
            ours["additionalProperties"], theirs["additionalProperties"], oracle, path + "{}"
        )
    return found


def test_kinds_that_are_read_together_have_the_schemas_that_each_has_alone() -> None:
    alone = [crds.custom_resource_definition(definition) for definition in crds.DEFINITIONS]
    assert crds.custom_resource_definitions() == alone
