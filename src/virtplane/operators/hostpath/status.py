"""The status of the HostPathProvisioner. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubecore.json import JsonObject, get_list, get_str
from virtplane.operators.kit.status import AVAILABLE, DEGRADED, PROGRESSING

DEPLOY_STARTED, DEPLOY_MESSAGE = "DeployStarted", "Started Deployment"
UPGRADE_STARTED = "UpgradeStarted"
COMPLETE, COMPLETE_MESSAGE = "Complete", "Application Available"
NOT_READY, NOT_READY_MESSAGE = "Degraded", "CR is deployed but DaemonSets are not ready"
FAILED = "Reconcile Failed"
POOL_NOT_READY = "StoragePoolNotReady"
POOL_FULL = "StoragePoolFull"
"""A condition that upstream has not, and its reason; it is there while it is true."""

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class Downgraded(Exception):
    """The object was reconciled by a later version of the operator."""


def check_upgrade(observed: str, running: str) -> bool:
    """Whether `running` upgrades what `observed` deployed. Raises Downgraded."""
    if not observed or observed == running:
        return False
    old, new = _NUMBERS.match(observed), _NUMBERS.match(running)
    if old is None or new is None:
        return True
    before, after = (tuple(map(int, found.groups())) for found in (old, new))
    if after < before:
        current, target = ".".join(map(str, before)), ".".join(map(str, after))
        raise Downgraded(f"operator downgraded from {current} to {target}, will not reconcile")
    return after > before


def deploying(status: JsonObject, now: str) -> JsonObject:
    """The first deployment has begun."""
    return _with(status, (False, True, False), PROGRESSING, DEPLOY_STARTED, DEPLOY_MESSAGE, now)


def upgrading(status: JsonObject, version: str, now: str) -> JsonObject:
    """An upgrade has begun."""
    message = f"Started upgrade to version {version}"
    return _with(status, (True, True, True), DEGRADED, UPGRADE_STARTED, message, now)


def healthy(status: JsonObject, now: str) -> JsonObject:
    """All is deployed and works."""
    return _with(status, (True, False, False), AVAILABLE, COMPLETE, COMPLETE_MESSAGE, now)


def degraded(status: JsonObject, now: str) -> JsonObject:
    """All was deployed, and some of it no longer works."""
    return _with(status, (False, False, True), DEGRADED, NOT_READY, NOT_READY_MESSAGE, now)


def failed(status: JsonObject, reason: str, message: str, now: str) -> JsonObject:
    """An error keeps the operator from going on."""
    return _with(status, (False, True, True), DEGRADED, reason, message, now)


def with_full_pools(status: JsonObject, message: str, now: str) -> JsonObject:
    """Some storage pools are full, as `message` says, or none is, where it is empty."""
    conditions = get_list(status, "conditions")
    before: JsonObject = next((each for each in conditions if get_str(each, "type") == POOL_FULL), {})
    kept = [each for each in conditions if get_str(each, "type") != POOL_FULL]
    if not message:
        return {**status, "conditions": kept}
    since = get_str(before, "lastTransitionTime") or now
    condition = {"type": POOL_FULL, "status": "True", "reason": POOL_FULL, "message": message}
    times = {"lastHeartbeatTime": now, "lastTransitionTime": since}
    return {**status, "conditions": [*kept, {**condition, **times}]}


def is_condition(status: JsonObject, type_: str, state: str = "True", reason: str = "") -> bool:
    """Whether a condition has this status, and this reason where one is named."""
    for condition in get_list(status, "conditions"):
        if get_str(condition, "type") == type_:
            return get_str(condition, "status") == state and reason in ("", get_str(condition, "reason"))
    return False


def message_of(status: JsonObject, type_: str) -> str:
    """The message of a condition; empty where there is no such condition."""
    found = (each for each in get_list(status, "conditions") if get_str(each, "type") == type_)
    return get_str(next(found, None), "message")


def without_heartbeats(status: JsonObject) -> JsonObject:
    """What makes two statuses different: a heartbeat alone does not."""
    conditions = [
        {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}
        for condition in get_list(status, "conditions")
    ]
    return {**status, "conditions": conditions}


def _with(
    status: JsonObject, states: tuple[bool, bool, bool], named: str, reason: str, message: str, now: str
) -> JsonObject:
    known = {get_str(each, "type"): each for each in get_list(status, "conditions")}
    conditions: list[JsonObject] = []
    for type_, state in zip((AVAILABLE, PROGRESSING, DEGRADED), states, strict=True):
        before = known.get(type_, {})
        condition: JsonObject = {"type": type_, "status": str(state), "lastHeartbeatTime": now}
        if type_ == named:
            condition |= {"reason": reason, "message": message}
        same = get_str(before, "status") == condition["status"]
        condition["lastTransitionTime"] = get_str(before, "lastTransitionTime") if same else now
        conditions.append(condition)
    return {**status, "conditions": _others(status) + conditions}


def _others(status: JsonObject) -> list[JsonObject]:
    ours: Sequence[str] = (AVAILABLE, PROGRESSING, DEGRADED)
    return [each for each in get_list(status, "conditions") if get_str(each, "type") not in ours]
