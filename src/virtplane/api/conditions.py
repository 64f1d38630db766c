"""Conditions, in the three shapes that objects have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from virtplane.api.markers import NULL_IS_WRITTEN, NULLABLE, ApiStruct, Int64, Time, describe, mark, one_of


class Condition(ApiStruct, kw_only=True):
    """One observed aspect of an object, with the times it was probed and last changed."""

    last_probe_time: Annotated[
        Time | None, NULLABLE, NULL_IS_WRITTEN, describe("When the condition was last looked at.")
    ] = None
    last_transition_time: Annotated[
        Time | None, NULLABLE, NULL_IS_WRITTEN, describe("When the status last changed.")
    ] = None
    message: Annotated[str | None, describe("What is the matter, for people.")] = None
    reason: Annotated[str | None, describe("Why, in one word.")] = None
    status: Annotated[str, describe("True, False or Unknown.")]
    type: Annotated[str, describe("Which aspect it is.")]


class HeartbeatCondition(ApiStruct, kw_only=True):
    """One observed aspect of an object, with the times it was last seen and last changed."""

    last_heartbeat_time: Annotated[Time | None, describe("When the condition was last seen.")] = None
    last_transition_time: Annotated[Time | None, describe("When the status last changed.")] = None
    message: Annotated[str | None, describe("What is the matter, for people.")] = None
    reason: Annotated[str | None, describe("Why, in one word.")] = None
    status: Annotated[str, describe("True, False or Unknown.")]
    type: Annotated[str, describe("Which aspect it is.")]


class ObservedCondition(ApiStruct, kw_only=True):
    """One observed aspect of an object, with the generation it was observed at."""

    last_transition_time: Annotated[Time, describe("When the status last changed.")]
    message: Annotated[str, mark(maxLength=32768), describe("What is the matter, for people.")]
    observed_generation: Annotated[
        Int64 | None, mark(minimum=0), describe("The object's generation that it is about.")
    ] = None
    reason: Annotated[
        str,
        mark(pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", minLength=1, maxLength=1024),
        describe("Why, in one word."),
    ]
    status: Annotated[str, one_of("True", "False", "Unknown"), describe("True, False or Unknown.")]
    type: Annotated[
        str,
        mark(
            pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            maxLength=316,
        ),
        describe("Which aspect it is."),
    ]


AnyCondition: TypeAlias = Condition | HeartbeatCondition | ObservedCondition


def has_status(conditions: Iterable[AnyCondition], type: str, status: str) -> bool:
    """Whether the condition `type` is there with that status."""
    return any(condition.type == type and condition.status == status for condition in conditions)


def is_true(conditions: Iterable[AnyCondition], type: str) -> bool:
    """Whether the condition `type` is there and ``True``."""
    return has_status(conditions, type, "True")
