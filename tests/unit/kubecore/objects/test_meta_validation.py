"""Metadata is validated as the Kubernetes API does, in the same order and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects import meta_validation, names
from kubecore.objects.fields import FieldError, FieldPath


def _messages(errors: Sequence[FieldError]) -> list[str]:
    return [error.message() for error in errors]


def _create(namespaced: bool = True, **metadata: Any) -> list[str]:
    document: JsonObject = {
        "metadata": {"name": "a", **({"namespace": "n"} if namespaced else {}), **metadata}
    }
    return _messages(meta_validation.validate_object_meta(document, namespaced))


def test_plain_metadata_is_fine() -> None:
    assert _create() == []
    assert _create(namespaced=False) == []
    assert _create(labels={"a": "b"}, annotations={"Example.com/x": "y"}, finalizers=["a/b"]) == []


def test_a_name_is_required() -> None:
    assert _create(name="") == ["metadata.name: Required value: name or generateName is required"]


def test_the_rule_for_names_is_the_kind_s() -> None:
    document: JsonObject = {"metadata": {"name": "a.b", "namespace": "n"}}
    errors = meta_validation.validate_object_meta(document, True, names.is_dns1035_label)
    assert [error.field for error in errors] == ["metadata.name"]


def test_a_prefix_for_names_is_checked_beside_the_name() -> None:
    fields = [message.partition(":")[0] for message in _create(name="Bad_x", generateName="Bad_")]
    assert fields == ["metadata.generateName", "metadata.name"]


def test_namespaces_are_required_or_forbidden() -> None:
    assert _create(namespace="") == ["metadata.namespace: Required value"]
    assert _create(namespaced=False, namespace="x") == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_label_errors_name_the_map_and_quote_the_key_or_value() -> None:
    (message,) = _create(labels={"ok": "bad value"})
    assert message.startswith('metadata.labels: Invalid value: "bad value": a valid label must be')


def test_annotations_may_not_be_too_long_together() -> None:
    assert _create(annotations={"big": "a" * 262142}) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]
    assert _create(annotations={"big": "a" * 262141}) == []


def test_owners_are_complete_and_one_controls() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    assert _create(ownerReferences=[owner]) == []
    (two,) = _create(ownerReferences=[owner, {**owner, "name": "q"}])
    assert two.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for Pod/p and Pod/q'
    )
    assert _create(ownerReferences=[{"apiVersion": "a/b/c"}]) == [
        'metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty',
        *(
            f'metadata.ownerReferences.{field}: Invalid value: "": must not be empty'
            for field in ("kind", "name", "uid")
        ),
    ]
    (event,) = _create(ownerReferences=[{**owner, "kind": "Event"}])
    assert event.endswith("/v1, Kind=Event is disallowed from being an owner")


def test_finalizers_exclude_each_other() -> None:
    (message,) = _create(finalizers=["orphan", "foregroundDeletion"])
    assert message.endswith("finalizer orphan and foregroundDeletion cannot be both set")


def _update(old: JsonObject, new: JsonObject) -> list[str]:
    base = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 2}
    errors = meta_validation.validate_object_meta_update(
        {"metadata": {**base, **new}}, {"metadata": {**base, **old}}
    )
    return _messages(errors)


def test_identity_cannot_change() -> None:
    assert _update({}, {}) == []
    assert _update({}, {"uid": "other"}) == ['metadata.uid: Invalid value: "other": field is immutable']
    assert _update({}, {"generation": 1}) == [
        "metadata.generation: Invalid value: 1: must not be decremented"
    ]
    assert _update({}, {"resourceVersion": ""}) == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update'
    ]


def test_finalizers_cannot_be_added_to_what_is_being_deleted() -> None:
    deleting = {"deletionTimestamp": "t", "finalizers": ["example.com/one"]}
    assert _update(deleting, {**deleting, "finalizers": ["example.com/one", "example.com/three"]}) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/three"}'
    ]
    assert _update(deleting, {**deleting, "finalizers": []}) == []


def test_managers_have_printable_short_names() -> None:
    assert _messages(meta_validation.validate_field_manager("a" * 129, "fieldManager")) == [
        "fieldManager: Too long: may not be more than 128 bytes"
    ]
    (message,) = _messages(meta_validation.validate_field_manager("a\x07", "fieldManager"))
    assert message.endswith("invalid character U+0007 (at position 1)")


def test_entries_of_managed_fields_are_checked() -> None:
    assert _create(managedFields=[{"operation": "Odd"}, {}, {"operation": "Apply", "fieldsType": "X"}]) == [
        'metadata.managedFields[0].operation: Unsupported value: "Odd": supported values: "Apply", "Update"',
        "metadata.managedFields[1].operation: Required value: must not be empty",
        'metadata.managedFields[2].fieldsType: Invalid value: "X": must be `FieldsV1`',
    ]


def test_request_options_accept_known_values_only() -> None:
    assert meta_validation.validate_dry_run(["All"]) == []
    assert _messages(meta_validation.validate_dry_run(["x"])) == [
        'dryRun: Unsupported value: ["x"]: supported values: "All"'
    ]
    assert meta_validation.validate_field_validation("Strict") == []
    assert meta_validation.validate_field_validation("x") != []


def test_conditions_of_the_standard_form_are_checked() -> None:
    good = {"type": "Ready", "status": "True", "lastTransitionTime": "t", "reason": "R"}
    path = meta_validation.METADATA.child("x")
    assert meta_validation.validate_conditions([good], path) == []
    assert _messages(
        meta_validation.validate_conditions([good, {**good, "status": "Maybe", "reason": ""}], path)
    ) == [
        'metadata.x[1]: Duplicate value: "Ready"',
        'metadata.x[1].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
        "metadata.x[1].reason: Required value",
    ]


def test_a_very_long_name_of_a_manager_is_refused_for_its_length_alone() -> None:
    (error,) = meta_validation.validate_field_manager("\x01" * 100_000, "manager")
    assert "may not be more than 128 bytes" in error.message()


def test_very_many_controllers_are_not_each_told_with_all_owners() -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}] * 10_000
    assert len(meta_validation.validate_owner_references(owners, FieldPath("ownerReferences"))) < 20
