"""The definitions of CDI's kinds, beside what CDI serves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.virtplane.api.test_crds import REFERENCE, needs_reference

from kubecore.json import JsonObject
from kubecore.objects.fields import FieldPath
from kubecore.schema.structural import check_structural
from virtplane.api import cdi_crds
from virtplane.api.cdi_v1beta1.upload import UploadTokenRequest
from virtplane.api.crds import Definition
from virtplane.api.schema import object_schema

ORACLE = REFERENCE / "reference/cdi/openapi.json" if REFERENCE else None
RECORDED = REFERENCE / "conformance/cases-cdi/api/crds.json" if REFERENCE else None

ALL = (*cdi_crds.DEFINITIONS, cdi_crds.CDI)


def generated() -> dict[str, JsonObject]:
    documents = [*cdi_crds.custom_resource_definitions(), cdi_crds.installation_definition()]
    return {document["metadata"]["name"]: document for document in documents}


def recorded_definitions() -> list[Any]:
    if not RECORDED or not RECORDED.exists():
        return []
    bodies = [
        (step["path"].rpartition("/")[2], step["expect"]["body"])
        for step in json.loads(RECORDED.read_text())["steps"]
    ]
    return [pytest.param(name, body, id=name) for name, body in bodies]


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_every_schema_is_structural(entry: Definition) -> None:
    errors = check_structural(object_schema(entry.struct), FieldPath("openAPIV3Schema"))
    assert [error.message() for error in errors] == []


@needs_reference
@pytest.mark.parametrize(("name", "body"), recorded_definitions() or [(None, None)])
def test_names_versions_and_columns_equal_the_recorded_ones(name: str, body: JsonObject) -> None:
    ours = generated()[name]["spec"]
    del ours["conversion"]
    for version in ours["versions"]:
        del version["schema"]
        for column in version.get("additionalPrinterColumns", []):
            column.pop("description", None)
    for version in body["spec"]["versions"]:
        for column in version.get("additionalPrinterColumns", []):
            column.pop("description", None)
    assert ours == body["spec"]


@needs_reference
@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_schemas_equal_the_published_ones(entry: Definition) -> None:
    assert ORACLE
    published = json.loads(ORACLE.read_text())["crds"][entry.name]
    ours = generated()[entry.name]["spec"]
    assert (ours["names"], ours["scope"]) == (published["names"], published["scope"])
    theirs = published["versions"]["v1beta1"]["schema"]
    assert _normal(ours["versions"][0]["schema"]["openAPIV3Schema"]) == _normal(theirs)


@needs_reference
def test_upload_token_requests_have_the_published_members() -> None:
    assert ORACLE
    definitions = json.loads(ORACLE.read_text())["uploadApi"]["definitions"]
    ours = object_schema(UploadTokenRequest)["properties"]
    for part in ("spec", "status"):
        theirs = definitions[f"v1beta1.UploadTokenRequest{part.capitalize()}"]
        assert set(ours[part]["properties"]) == set(theirs["properties"])
        assert ours[part].get("required") == theirs.get("required")


def _normal(schema: Any) -> Any:
    """Without descriptions, and with lists whose order means nothing sorted."""
    if isinstance(schema, list):
        return [_normal(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _normal(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }
    for key in ("required", "enum"):
        if isinstance(found.get(key), list):
            found[key] = sorted(found[key])
    return found
