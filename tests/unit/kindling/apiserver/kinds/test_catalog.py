"""All kinds together: names, verbs, schemas and tables fit."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, deep_copy

DEFINITIONS = builtin_definitions()


def identity(definition: ResourceDefinition) -> str:
    return f"{definition.resource.api_version}/{definition.resource.plural}"


def test_every_resource_is_listed_once() -> None:
    names = [identity(definition) for definition in DEFINITIONS]
    assert len(names) == len(set(names))


def test_short_names_do_not_clash_within_the_stable_groups() -> None:
    owners: dict[str, set[str]] = {}
    for definition in DEFINITIONS:
        for short in definition.short_names:
            owners.setdefault(short, set()).add(definition.resource.plural)
    assert {short: plurals for short, plurals in owners.items() if len(plurals) > 1} == {}


@pytest.mark.parametrize("definition", DEFINITIONS, ids=identity)
def test_an_empty_object_of_every_kind_takes_defaults_twice_without_change(
    definition: ResourceDefinition,
) -> None:
    obj: JsonObject = {"metadata": {"name": "x"}}
    definition.strategy.default(obj)
    first = deep_copy(obj)
    definition.strategy.default(obj)
    assert obj == first


@pytest.mark.parametrize("definition", DEFINITIONS, ids=identity)
def test_every_kind_prints_even_an_empty_object(definition: ResourceDefinition) -> None:
    if definition.table is None:
        return
    obj: JsonObject = {"metadata": {"name": "x"}, "apiVersion": definition.resource.api_version}
    definition.strategy.default(obj)
    without_column = definition.resource.kind == "IPAddress"  # Kubernetes sends its age under no heading
    assert len(definition.table.cells(obj)) == len(definition.table.columns) + without_column
    assert definition.table.conditions(obj) == []


@pytest.mark.parametrize("definition", DEFINITIONS, ids=identity)
def test_the_schema_is_published_under_its_name(definition: ResourceDefinition) -> None:
    published = definition.openapi[definition.openapi_name]
    kinds = published["x-kubernetes-group-version-kind"]
    assert any(kind["kind"] == definition.resource.kind for kind in kinds)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=identity)
def test_declared_field_labels_are_the_ones_computed(definition: ResourceDefinition) -> None:
    obj: JsonObject = {"metadata": {"name": "x"}}
    definition.strategy.default(obj)
    computed = set(definition.strategy.selectable_fields(obj))
    assert set(definition.field_labels) <= computed


def test_events_of_both_groups_share_their_storage() -> None:
    prefixes = {d.storage_prefix for d in DEFINITIONS if d.resource.plural == "events"}
    assert prefixes == {"core/events"}


def test_namespaces_are_not_deleted_in_bulk() -> None:
    namespaces = next(d for d in DEFINITIONS if d.resource.plural == "namespaces")
    assert "deletecollection" not in namespaces.verbs
    assert set(namespaces.subresources) == {"status", "finalize"}


def test_pods_have_all_their_subresources() -> None:
    pods = next(d for d in DEFINITIONS if d.resource.plural == "pods")
    assert set(pods.subresources) == {
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "log",
        "portforward",
        "proxy",
        "resize",
        "status",
    }
