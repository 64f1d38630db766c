"""Numbers of strategic merge patches in the integer fields of built-in kinds."""

from __future__ import annotations

import pytest

from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kindling.apiserver.registry.go_numbers import restore_numbers

_DEPLOYMENTS = builtin_schemas().kind("apps", "v1", "Deployment")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (3, 3),
        (1.0, 1),
        (2**31, -(2**31)),
        (2**32 + 5, 5),
        (2**63 - 1, -1),
        (2**63, 0),
        (-(2**63) - 1, 0),
        (1.5, 1.5),
        ("3", "3"),
        (True, True),
    ],
)
def test_whole_numbers_keep_the_bits_that_fit_into_the_field(sent: object, kept: object) -> None:
    restored = restore_numbers({"spec": {"replicas": sent}}, _DEPLOYMENTS)
    assert restored == {"spec": {"replicas": kept}}
    assert type(restored["spec"]["replicas"]) is type(kept)


def test_a_wide_field_keeps_large_numbers() -> None:
    pod = {"terminationGracePeriodSeconds": 2**40, "containers": [{"ports": [{"containerPort": 80.0}]}]}
    restored = restore_numbers({"spec": {"template": {"spec": pod}}}, _DEPLOYMENTS)
    assert restored["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 2**40
    assert type(restored["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]) is int


def test_numbers_of_fields_that_also_take_text_stay() -> None:
    update = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 2**31}}}}
    assert restore_numbers(update, _DEPLOYMENTS)["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 2**31
