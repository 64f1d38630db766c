"""The operator's rights: whoever grants rights must have them."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject
from virtplane.operators.hostpath import cluster_objects, rights
from virtplane.operators.hostpath.product import Settings

SETTINGS = Settings("kubevirt", "image", "compact", "v1")


def _single(rules: Iterable[JsonObject]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_has_every_right_that_it_grants() -> None:
    own = _single(rights.operator_rules())
    granted = [
        *rights.cluster_rights(SETTINGS, legacy=True, snapshots=True),
        *rights.namespace_rights(SETTINGS),
        *cluster_objects.monitoring(SETTINGS),
    ]
    for document in granted:
        if document["kind"] in ("Role", "ClusterRole"):
            assert _single(document["rules"]) <= own, document["metadata"]["name"]


def test_the_drivers_rights_are_upstreams_and_those_of_expansion() -> None:
    beyond = {
        ("", "persistentvolumeclaims/status", "patch"),
        ("", "persistentvolumeclaims/status", "update"),
        ("", "persistentvolumeclaims", "patch"),
        *(("", "pods", verb) for verb in ("get", "list", "watch")),
    }
    rules = _single(rights.driver_rules(snapshots=False))
    assert beyond <= rules
    assert ("snapshot.storage.k8s.io", "volumesnapshotcontents", "create") not in rules
    assert ("snapshot.storage.k8s.io", "volumesnapshotcontents", "create") in _single(
        rights.driver_rules(snapshots=True)
    )
    assert not any(verb == "*" or resource == "secrets" for _, resource, verb in rules)
