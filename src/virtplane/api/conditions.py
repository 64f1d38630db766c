"""Conditions, in the three shapes that objects have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from virtplane.api.markers import NULL_IS_WRITTEN, NULLABLE, ApiStruct, Int64, Time, mark, one_of


class Condition(ApiStruct, kw_only=True):
    """One observed aspect of an object, with the times it was probed and last changed."""

    last_probe_time: Annotated[Time | None, NULLABLE, NULL_IS_WRITTEN] = None
    last_transition_time: Annotated[Time | None, NULLABLE, NULL_IS_WRITTEN] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class HeartbeatCondition(ApiStruct, kw_only=True):
    """One observed aspect of an object, with the times it was last seen and last changed."""

    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class ObservedCondition(ApiStruct, kw_only=True):
    """One observed aspect of an object, with the generation it was observed at."""

    last_transition_time: Time
    message: Annotated[str, mark(maxLength=32768)]
    observed_generation: Annotated[Int64 | None, mark(minimum=0)] = None
    reason: Annotated[
        str, mark(pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", minLength=1, maxLength=1024)
    ]
    status: Annotated[str, one_of("True", "False", "Unknown")]
    type: Annotated[
        str,
        mark(
            pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            maxLength=316,
        ),
    ]


AnyCondition: TypeAlias = Condition | HeartbeatCondition | ObservedCondition


def has_status(conditions: Iterable[AnyCondition], type: str, status: str) -> bool:
    """Whether the condition `type` is there with that status."""
    return any(condition.type == type and condition.status == status for condition in conditions)


def is_true(conditions: Iterable[AnyCondition], type: str) -> bool:
    """Whether the condition `type` is there and ``True``."""
    return has_status(conditions, type, "True")
