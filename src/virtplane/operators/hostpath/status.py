"""The status of the HostPathProvisioner. Pure."""

from __future__ import annotations

import re

from kubecore.json import JsonObject, get_str
from virtplane.operators.kit import heartbeats
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
    return heartbeats.with_states(
        status, (False, True, False), now, PROGRESSING, DEPLOY_STARTED, DEPLOY_MESSAGE
    )


def upgrading(status: JsonObject, version: str, now: str) -> JsonObject:
    """An upgrade has begun."""
    message = f"Started upgrade to version {version}"
    return heartbeats.with_states(status, (True, True, True), now, DEGRADED, UPGRADE_STARTED, message)


def healthy(status: JsonObject, now: str) -> JsonObject:
    """All is deployed and works."""
    return heartbeats.with_states(status, (True, False, False), now, AVAILABLE, COMPLETE, COMPLETE_MESSAGE)


def degraded(status: JsonObject, now: str) -> JsonObject:
    """All was deployed, and some of it no longer works."""
    return heartbeats.with_states(status, (False, False, True), now, DEGRADED, NOT_READY, NOT_READY_MESSAGE)


def failed(status: JsonObject, reason: str, message: str, now: str) -> JsonObject:
    """An error keeps the operator from going on."""
    return heartbeats.with_states(status, (False, True, True), now, DEGRADED, reason, message)


def with_full_pools(status: JsonObject, message: str, now: str) -> JsonObject:
    """Some storage pools are full, as `message` says, or none is, where it is empty."""
    kept = heartbeats.others(status, POOL_FULL)
    if not message:
        return {**status, "conditions": kept}
    condition = heartbeats.condition(status, POOL_FULL, "True", now)
    return {**status, "conditions": [*kept, {**condition, "reason": POOL_FULL, "message": message}]}


def is_condition(status: JsonObject, type_: str, state: str = "True", reason: str = "") -> bool:
    """Whether a condition has this status, and this reason where one is named."""
    found = heartbeats.find(status, type_)
    return get_str(found, "status") == state and reason in ("", get_str(found, "reason"))


def message_of(status: JsonObject, type_: str) -> str:
    """The message of a condition; empty where there is no such condition."""
    return get_str(heartbeats.find(status, type_), "message")
