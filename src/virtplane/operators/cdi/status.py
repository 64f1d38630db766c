"""The status of the CDI object. Pure."""

from __future__ import annotations

import re

from kubecore.json import JsonObject, get_str
from virtplane.operators.kit import heartbeats
from virtplane.operators.kit.status import AVAILABLE, DEGRADED, DEPLOYED, DEPLOYING, PROGRESSING

UPGRADING = "Upgrading"
ERROR = "Error"
DELETED = "Deleted"
"""Phases beside those of all operators."""

DEPLOY_STARTED, DEPLOY_MESSAGE = "DeployStarted", "Started Deployment"
UPGRADE_STARTED = "UpgradeStarted"
COMPLETED, COMPLETED_MESSAGE = "DeployCompleted", "Deployment Completed"
CONFIG_ERROR = "ConfigError"
UNWANTED = "Reconciling to error state, unwanted CDI object"
ILLEGAL_PHASE = "Reconciling to error state, illegal phase"
CREATE_RESOURCES = "CreateResources"

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class Downgraded(Exception):
    """The object was reconciled by a later version of the operator."""


def check_upgrade(status: JsonObject, running: str) -> bool:
    """Whether `running` upgrades what is deployed. Raises Downgraded."""
    observed = get_str(status, "observedVersion")
    if not observed or observed == running or get_str(status, "phase") == DEPLOYING:
        return False
    old, new = _NUMBERS.match(observed), _NUMBERS.match(running)
    if old is None or new is None:
        return True
    before, after = (tuple(map(int, found.groups())) for found in (old, new))
    if after < before:
        raise Downgraded(f"operator downgraded from {observed} to {running}, will not reconcile")
    return True


def upgrade_message(version: str) -> str:
    """What is said when an upgrade begins."""
    return f"Started upgrade to version {version}"


def deploying(status: JsonObject, now: str) -> JsonObject:
    """The first deployment has begun."""
    return _with(status, DEPLOYING, (False, True, False), now, PROGRESSING, DEPLOY_STARTED, DEPLOY_MESSAGE)


def upgrading(status: JsonObject, version: str, now: str) -> JsonObject:
    """An upgrade has begun."""
    states = (True, True, True)
    return _with(status, UPGRADING, states, now, DEGRADED, UPGRADE_STARTED, upgrade_message(version))


def deployed(status: JsonObject, version: str, now: str) -> JsonObject:
    """All is deployed and works."""
    reached = {**status, "observedVersion": version}
    return _with(reached, DEPLOYED, (True, False, False), now, AVAILABLE, COMPLETED, COMPLETED_MESSAGE)


def degraded(status: JsonObject, now: str) -> JsonObject:
    """All was deployed, and some of it does not work now; the other conditions stay."""
    others = heartbeats.others(status, DEGRADED)
    return {**status, "conditions": [*others, heartbeats.condition(status, DEGRADED, "True", now)]}


def rejected(status: JsonObject, message: str, now: str) -> JsonObject:
    """The object does not count, and a person must say what to do with it."""
    return _with(status, ERROR, (False, False, True), now, DEGRADED, CONFIG_ERROR, message)


def unrenderable(status: JsonObject, message: str, now: str) -> JsonObject:
    """The spec asks for what cannot be made."""
    phase = get_str(status, "phase")
    return _with(status, phase, (False, True, True), now, DEGRADED, CREATE_RESOURCES, message)


def is_true(status: JsonObject, type_: str) -> bool:
    """Whether a condition is true."""
    return get_str(heartbeats.find(status, type_), "status") == "True"


def _with(
    status: JsonObject,
    phase: str,
    states: tuple[bool, bool, bool],
    now: str,
    named: str,
    reason: str,
    message: str,
) -> JsonObject:
    """The status with phase and all three conditions set; the `named` one says why."""
    return {**heartbeats.with_states(status, states, now, named, reason, message), "phase": phase}
