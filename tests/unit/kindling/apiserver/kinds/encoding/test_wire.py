"""The wire form: which empty values stay, and canonical quantities and times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindling.apiserver.kinds.encoding import wire
from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kubecore.json import JsonObject, deep_copy


def normal(group: str, version: str, kind: str, document: JsonObject) -> JsonObject:
    return wire.normalize(document, builtin_schemas().kind(group, version, kind))


def test_empty_optional_values_vanish() -> None:
    found = normal("", "v1", "ConfigMap", {"metadata": {"labels": {}, "generateName": ""}, "data": {}})
    assert found == {"metadata": {}}


def test_null_is_the_same_as_absent_but_a_zero_value_in_maps() -> None:
    found = normal("", "v1", "ConfigMap", {"metadata": {}, "immutable": None, "data": {"a": None, "b": ""}})
    assert found == {"metadata": {}, "data": {"a": "", "b": ""}}


def test_pointers_keep_their_zero_values() -> None:
    spec = {"replicas": 0, "minReadySeconds": 0, "paused": False}
    found = normal("apps", "v1", "Deployment", {"metadata": {}, "spec": spec})
    assert found["spec"]["replicas"] == 0
    assert "minReadySeconds" not in found["spec"]
    assert "paused" not in found["spec"]


def test_structs_by_value_are_always_there() -> None:
    found = normal("", "v1", "Pod", {"metadata": {}, "spec": {"containers": [{"name": "a"}]}})
    assert found["status"] == {}
    assert found["spec"]["containers"] == [{"name": "a", "resources": {}}]


def test_counts_without_omission_show_as_zero() -> None:
    found = normal("apps", "v1", "DaemonSet", {"metadata": {}})
    assert found["status"] == {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }


def test_lists_without_omission_show_as_null_even_when_empty() -> None:
    found = normal("discovery.k8s.io", "v1", "EndpointSlice", {"metadata": {}, "endpoints": []})
    assert found["endpoints"] is None
    assert found["ports"] is None


def test_an_empty_selector_is_not_an_absent_one() -> None:
    given_empty = normal("apps", "v1", "Deployment", {"metadata": {}, "spec": {"selector": {}}})
    absent = normal("apps", "v1", "Deployment", {"metadata": {}, "spec": {}})
    assert given_empty["spec"]["selector"] == {}
    assert absent["spec"]["selector"] is None


def test_an_amount_of_zero_or_a_number_in_an_int_or_string_stays() -> None:
    found = normal("policy", "v1", "PodDisruptionBudget", {"metadata": {}, "spec": {"minAvailable": 0}})
    assert found["spec"] == {"minAvailable": 0}


def test_unknown_fields_are_left_to_others() -> None:
    found = normal("", "v1", "ConfigMap", {"metadata": {}, "surprise": {"a": ""}})
    assert found["surprise"] == {"a": ""}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1000Mi", "1000Mi"),
        (2, "2"),
        ("nonsense", "nonsense"),
    ],
)
def test_quantities_become_canonical(written: Any, canonical: str) -> None:
    assert wire.canonical_quantity(written) == canonical


@pytest.mark.parametrize(
    ("written", "rounded"), [("1n", "1m"), ("1500u", "2m"), ("100m", "100m"), ("7Gi", "7Gi")]
)
def test_amounts_of_resources_are_rounded_up_to_thousandths(written: str, rounded: str) -> None:
    spec = {"hard": {"cpu": written}}
    assert normal("", "v1", "ResourceQuota", {"metadata": {}, "spec": spec})["spec"]["hard"]["cpu"] == rounded


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01T02:00:00+02:00", "2024-01-01T00:00:00Z"),
        ("2024-01-01T00:00:00.75Z", "2024-01-01T00:00:00Z"),
        ("soon", "soon"),
    ],
)
def test_times_are_in_utc_with_whole_seconds(written: str, shown: str) -> None:
    assert wire.canonical_time(written) == shown


def test_micro_times_keep_six_digits() -> None:
    assert wire.canonical_micro_time("2024-01-01T00:00:00Z") == "2024-01-01T00:00:00.000000Z"
    assert wire.canonical_micro_time("2024-01-01T00:00:00.5+01:00") == "2023-12-31T23:00:00.500000Z"


def test_an_unset_status_has_its_wire_form() -> None:
    schema = builtin_schemas().kind("", "v1", "Service")
    assert wire.empty(schema, "status") == {"loadBalancer": {}}
    assert wire.empty(schema, "nothing") == {}


_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5),
        st.sampled_from(["", "a", "1Gi", "2024-01-01T00:00:00Z"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["name", "limits", "containers", "selector", "metadata", "labels", "replicas", "template"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(spec=_VALUES)
def test_normalizing_twice_is_normalizing_once_whatever_the_document(spec: Any) -> None:
    once = normal("apps", "v1", "Deployment", {"metadata": {}, "spec": spec})
    assert normal("apps", "v1", "Deployment", deep_copy(once)) == once
