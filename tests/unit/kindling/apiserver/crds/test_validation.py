"""Definitions that are refused, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.apiserver.crds import validation
from kindling.apiserver.crds.strategy import definition
from kubecore.json import deep_copy

OBJECT: dict[str, Any] = {"type": "object"}


def crd(**changes: Any) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OBJECT}}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version],
    }
    name = {"name": "widgets.example.com"}
    doc = {"kind": "CustomResourceDefinition", "metadata": name, "spec": {**spec, **changes}}
    return deep_copy({"apiVersion": "apiextensions.k8s.io/v1", **doc})


def version(**changes: Any) -> dict[str, Any]:
    return {**crd()["spec"]["versions"][0], **changes}


def messages(doc: dict[str, Any]) -> list[str]:
    strategy = definition().strategy
    strategy.default(doc)
    doc["status"] = {"storedVersions": [each["name"] for each in doc["spec"]["versions"] if each["storage"]]}
    return [error.message() for error in validation.validate(doc)]


def test_a_plain_definition_is_fine_and_gets_its_names() -> None:
    doc = crd()
    assert messages(doc) == []
    assert doc["spec"]["names"]["listKind"] == "WidgetList"
    assert doc["spec"]["conversion"] == {"strategy": "None"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scope": "Odd"}, 'spec.scope: Unsupported value: "Odd": supported values: "Cluster", "Namespaced"'),
        (
            {"versions": [version(schema=None)]},
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            {
                "versions": [
                    version(additionalPrinterColumns=[{"name": "x", "type": "odd", "jsonPath": ".a"}])
                ]
            },
            'spec.additionalPrinterColumns[0].type: Invalid value: "odd": must be one of '
            "boolean,date,integer,number,string",
        ),
        (
            {
                "versions": [
                    version(
                        subresources={
                            "scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ".status.y"}
                        }
                    )
                ]
            },
            'spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": '
            "should be a json path under .spec",
        ),
        (
            {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}},
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
        (
            {"names": {"plural": "widgets", "kind": "Widget", "listKind": "Widget"}},
            'spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same',
        ),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, Any], expected: str) -> None:
    assert messages(crd(**changes)) == [expected]


def test_settings_that_versions_do_not_share_are_reported_where_they_stand() -> None:
    wrong = version(name="v2", storage=False, schema={"openAPIV3Schema": {"type": "string"}})
    assert messages(crd(versions=[version(), wrong])) == [
        'spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "string": must be object at the root'
    ]


def test_rules_must_compile_to_a_boolean() -> None:
    rules = [{"rule": "self.x +"}, {"rule": "'text'"}]
    schema = {**OBJECT, "x-kubernetes-validations": rules}
    first, second = messages(crd(versions=[version(schema={"openAPIV3Schema": schema})]))
    assert first.startswith(
        "spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value: "
    )
    assert "compilation failed: ERROR: <input>:1:9: Syntax error" in first
    assert second.endswith("cel expression must evaluate to a bool")


def test_the_group_cannot_change() -> None:
    old, new = crd(), crd(group="example.org")
    for doc in (old, new):
        doc["status"] = {"storedVersions": ["v1"]}
    texts = [error.message() for error in validation.validate_update(new, old)]
    assert 'spec.group: Invalid value: "example.org": field is immutable' in texts


def test_schemas_keep_the_zeros_that_say_something() -> None:
    schema = {**OBJECT, "properties": {"n": {"type": "integer", "minimum": 0, "default": 0}}}
    doc = crd(versions=[version(schema={"openAPIV3Schema": schema})])
    definition().strategy.default(doc)
    assert doc["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema


def test_rules_must_fit_the_schema() -> None:
    properties = {"n": {"type": "integer"}}
    for text, complaint in (
        ("self.n > 'x'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.none == 1", "undefined field 'none'"),
    ):
        schema = {**OBJECT, "properties": properties, "x-kubernetes-validations": [{"rule": text}]}
        (message,) = messages(crd(versions=[version(schema={"openAPIV3Schema": schema})]))
        assert complaint in message
    rules: list[dict[str, Any]] = [
        {"rule": "self.n >= oldSelf.n"},
        {"rule": "oldSelf.hasValue()", "optionalOldSelf": True},
    ]
    schema = {**OBJECT, "properties": properties, "x-kubernetes-validations": rules}
    assert messages(crd(versions=[version(schema={"openAPIV3Schema": schema})])) == []


def test_beside_a_status_the_root_has_no_branches() -> None:
    schema = {"type": "object", "oneOf": [{"required": ["spec"]}]}
    one = version(schema={"openAPIV3Schema": schema}, subresources={"status": {}})
    (found,) = messages(crd(versions=[one]))
    assert found.startswith(
        'spec.validation.openAPIV3Schema: Invalid value: {"ID":"","Schema":"","Ref":null,'
    )
    assert found.endswith("fields are allowed at the root of the schema if the status subresource is enabled")


def test_old_values_are_told_apart_by_keys_only() -> None:
    rule = [{"rule": "self == oldSelf", "message": "m"}]
    item = {"type": "string", "maxLength": 9, "x-kubernetes-validations": rule}
    spec = {"type": "array", "maxItems": 9, "items": item}
    one = version(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    (found,) = messages(crd(versions=[one]))
    assert found.endswith(
        '"self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within '
        "spec.validation.openAPIV3Schema.properties[spec]"
    )


def fields(doc: dict[str, Any]) -> list[str]:
    return [message.partition(": ")[0] for message in messages(doc)]


def test_what_is_wrong_with_a_version_is_told_with_the_version() -> None:
    columns = [{"name": "x", "type": "odd", "jsonPath": ".a"}]
    second = version(name="v2", storage=False, additionalPrinterColumns=columns, deprecationWarning="x")
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["W"], "categories": ["C"]}
    assert fields(crd(versions=[version(name="V"), second], names=names)) == [
        "spec.versions[0].name",
        "spec.versions[1].deprecationWarning",
        "spec.versions[1].additionalPrinterColumns[0].type",
        "spec.version",
        "spec.names.shortNames[0]",
        "spec.names.categories[0]",
    ]


def test_versions_are_quoted_with_their_settings_as_the_server_holds_them() -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    columns = [{"name": "x", "type": "string", "jsonPath": ".a"}]
    first = version(subresources={"status": {}, "scale": scale}, additionalPrinterColumns=columns)
    (found,) = messages(crd(versions=[first, version(name="v2")]))
    assert found.endswith("must have exactly one version marked as storage version")
    assert (
        '"Subresources":{"Status":{},"Scale":{"SpecReplicasPath":".spec.n","StatusReplicasPath":".status.n",'
        '"LabelSelectorPath":null}},"AdditionalPrinterColumns":[{"Name":"x","Type":"string","Format":"",'
        '"Description":"","Priority":0,"JSONPath":".a"}],"SelectableFields":null'
    ) in found


def test_unknown_fields_are_not_kept_everywhere() -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}}
    webhook = {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    doc = crd(preserveUnknownFields=True, versions=[version(schema=schema)], conversion=conversion)
    assert [message.rpartition(": ")[2][:24] for message in messages(doc)] == [
        "must be false in order t",
        "must be None if spec.pre",
        "cannot set to true, set ",
    ]


def test_accepted_names_are_names() -> None:
    doc = {"status": {"acceptedNames": {"plural": "A_", "kind": "Kind"}}}
    (problem,) = validation.validate_status(doc)
    assert problem.field == "status.acceptedNames.plural"


def test_what_never_changes_is_told_after_what_is_wrong_with_the_definition() -> None:
    doc = crd()
    messages(doc)
    doc["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    new = deep_copy(doc)
    new["spec"] |= {"scope": "Cluster", "group": "other.com"}
    new["status"]["storedVersions"] = []
    assert [error.field for error in validation.validate_update(new, doc)] == [
        "spec.scope",
        "spec.group",
        "status.storedVersions",
    ]
