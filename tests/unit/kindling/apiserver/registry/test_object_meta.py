"""How often an error in the metadata of a change is listed, and what becomes of repeated owners."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry import object_meta
from kindling.apiserver.registry.object_meta import deduplicate_owners
from kubecore.json import JsonObject

_DEFINITIONS = {each.resource.kind: each for each in builtin_definitions()}


def _errors(kind: str, **changed: object) -> Counter[str]:
    """The fields that the errors of a change name, with their numbers."""
    definition = _DEFINITIONS[kind]
    metadata: JsonObject = {"name": "a", "uid": "1", "resourceVersion": "5"}
    if definition.resource.namespaced:
        metadata["namespace"] = "n"
    new: JsonObject = {"metadata": {**metadata, **changed}}
    found = object_meta.validate_update(definition, definition.strategy, new, {"metadata": metadata})
    return Counter(str(error.field) for error in found)


@pytest.mark.parametrize(
    ("kind", "as_change", "as_owner"),
    [
        ("Deployment", 2, 2),
        ("ConfigMap", 2, 3),
        ("NetworkPolicy", 2, 3),
        ("StorageClass", 2, 4),
        ("PriorityLevelConfiguration", 1, 2),
        ("MutatingWebhookConfiguration", 1, 2),
        ("PersistentVolume", 1, 3),
        ("PersistentVolumeClaim", 2, 3),
        ("Node", 2, 3),
        ("Namespace", 2, 3),
        ("LimitRange", 1, 2),
        ("EndpointSlice", 1, 2),
        ("CertificateSigningRequest", 2, 3),
        ("PodDisruptionBudget", 1, 1),
        ("Service", 2, 2),
    ],
)
def test_each_rule_that_judges_the_metadata_lists_its_errors(
    kind: str, as_change: int, as_owner: int
) -> None:
    assert _errors(kind, uid="2") == {"metadata.uid": as_change}
    owner = {"apiVersion": "", "kind": "K", "name": "k", "uid": "u"}
    assert _errors(kind, ownerReferences=[owner]) == {"metadata.ownerReferences.apiVersion": as_owner}


def test_kinds_that_judge_a_change_like_a_new_object_refuse_a_prefix_that_makes_no_name() -> None:
    assert _errors("FlowSchema", generateName="-") == {"metadata.generateName": 1}
    assert not _errors("Deployment", generateName="-")


@pytest.mark.parametrize("prefix", ["a-", "a--", "a.-"])
def test_what_precedes_the_dash_of_a_prefix_is_not_judged(prefix: str) -> None:
    assert not _errors("FlowSchema", generateName=prefix)


def test_a_change_without_errors_passes() -> None:
    assert not _errors("ConfigMap", labels={"a": "b"})


def _owner(number: int) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "name": f"n{number}", "uid": f"u{number}"}


def test_repeated_owners_are_dropped_whatever_the_order_of_their_fields() -> None:
    metadata: JsonObject = {"ownerReferences": [_owner(1), _owner(2), dict(reversed(_owner(1).items()))]}
    assert deduplicate_owners(metadata) == "u1"
    assert metadata["ownerReferences"] == [_owner(1), _owner(2)]


def test_very_many_owners_are_compared_in_linear_time() -> None:
    metadata: JsonObject = {"ownerReferences": [_owner(number) for number in range(30_000)]}
    begun = time.thread_time()
    assert not deduplicate_owners(metadata)
    assert time.thread_time() - begun < 1, "meanwhile the server answers nobody"
