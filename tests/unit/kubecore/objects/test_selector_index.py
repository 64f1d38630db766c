"""Selectors of many conditions answer as their conditions do one by one."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from kubecore.objects.field_selectors import FieldRequirement, FieldSelector
from kubecore.objects.selectors import LabelSelector, Requirement, parse_label_selector

_KEYS = st.sampled_from("abc")
_VALUES = st.sampled_from(["", "x", "y", "1", "5", "9"])
_SETS = st.builds(
    Requirement,
    _KEYS,
    st.sampled_from(["in", "notin"]),
    st.lists(_VALUES, min_size=1, unique=True).map(lambda values: tuple(sorted(values))),
)
_SINGLE = st.builds(Requirement, _KEYS, st.sampled_from(["=", "==", "!="]), st.tuples(_VALUES))
_PRESENCE = st.builds(Requirement, _KEYS, st.sampled_from(["exists", "!"]), st.just(()))
_ORDER = st.builds(
    Requirement, _KEYS, st.sampled_from(["gt", "lt"]), st.tuples(st.sampled_from(["1", "5", "9"]))
)


@given(
    st.lists(_SETS | _SINGLE | _PRESENCE | _ORDER, min_size=9, max_size=20),
    st.dictionaries(_KEYS, _VALUES),
)
def test_conditions_on_labels_hold_together_as_they_do_alone(
    requirements: list[Requirement], labels: dict[str, str]
) -> None:
    expected = all(requirement.matches(labels) for requirement in requirements)
    assert LabelSelector(tuple(requirements)).matches(labels) is expected


@given(st.lists(_PRESENCE | _SINGLE, min_size=9, max_size=12), st.dictionaries(_KEYS, _VALUES))
def test_conditions_that_can_hold_do(requirements: list[Requirement], labels: dict[str, str]) -> None:
    true = tuple(each for each in requirements if each.matches(labels)) * 9
    assert LabelSelector(true).matches(labels)


@given(
    st.lists(st.builds(FieldRequirement, _KEYS, st.booleans(), _VALUES), max_size=10),
    st.dictionaries(_KEYS, _VALUES),
)
def test_conditions_on_fields_hold_together_as_they_do_alone(
    requirements: list[FieldRequirement], values: dict[str, str]
) -> None:
    expected = all((values.get(each.field, "") == each.value) is each.equal for each in requirements)
    assert FieldSelector(tuple(requirements)).matches(values) is expected


def test_many_conditions_cost_no_more_than_the_labels_they_are_asked_of() -> None:
    selector = parse_label_selector(",".join(f"!k{number}" for number in range(20_000)))
    labels = {"a": "b"}
    assert selector.matches(labels)
    begun = time.process_time()
    assert all(selector.matches(labels) for _ in range(1000))
    assert time.process_time() - begun < 0.5
