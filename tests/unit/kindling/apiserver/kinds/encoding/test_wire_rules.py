"""Which fields are written although empty: the rules over the definitions, and that the tables fit them."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.encoding.wire_rules import TABLES, Rules, rules_of
from kindling.apiserver.kinds.schemas.builtin import builtin_schemas


def rules(definition: str) -> Rules:
    """Those of a definition such as ``apps.v1.DeploymentSpec``."""
    return rules_of(builtin_schemas().schema(f"io.k8s.api.{definition}"))


def test_the_frame_of_a_kind_is_always_there() -> None:
    assert rules("apps.v1.Deployment").objects == ("metadata", "spec", "status")


def test_required_scalars_are_written_as_zero_and_required_lists_as_null() -> None:
    assert set(rules("apps.v1.DaemonSetStatus").zeros) == {
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    }
    assert rules("core.v1.PodSpec").nulls == ("containers",)


def test_the_times_of_conditions_are_null_until_they_are_known() -> None:
    assert set(rules("apps.v1.DeploymentCondition").nulls) == {"lastTransitionTime", "lastUpdateTime"}


def test_numbers_of_a_spec_keep_their_zero_and_counts_of_a_status_do_not() -> None:
    assert "replicas" in rules("apps.v1.DeploymentSpec").keep
    assert "minReadySeconds" not in rules("apps.v1.DeploymentSpec").keep
    assert not {"replicas", "observedGeneration"} & rules("apps.v1.DeploymentStatus").keep
    assert "terminatingReplicas" in rules("apps.v1.DeploymentStatus").keep


def test_booleans_vanish_when_false_unless_they_have_three_values() -> None:
    keep = rules("core.v1.PodSpec").keep
    assert "automountServiceAccountToken" in keep
    assert "hostNetwork" not in keep


@pytest.mark.parametrize("table", TABLES)
def test_every_entry_of_a_table_names_a_field_that_exists(table: frozenset[str]) -> None:
    schemas = builtin_schemas()
    known: set[str] = set()
    for definition in schemas:
        parts = definition.split(".")
        for field in schemas.schema(definition).properties:
            known |= {field, f"{parts[-1]}.{field}", f"{'.'.join(parts[-3:])}.{field}"}
    assert not table - known
