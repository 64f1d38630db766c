"""The KubeVirt object's status: conditions, phase and versions, from the observed state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api import event_reasons as reasons
from virtplane.api import labels
from virtplane.operators.kit.status import Stage, StageText, next_phase, stage_conditions, with_condition

_TEXTS: Mapping[Stage, StageText] = {
    "deploying": StageText(reasons.DEPLOYMENT_IN_PROGRESS, "Deploying version and registry"),
    "updating": StageText(reasons.UPDATE_IN_PROGRESS, "Transitioning from previous version or configuration"),
    "ready": StageText(reasons.ALL_COMPONENTS_READY, "All components are ready."),
    "deleting": StageText(reasons.DELETION_IN_PROGRESS, "Deletion was triggered"),
}


@dataclass(frozen=True, slots=True)
class Version:
    """The installed version: version and registry of the images, and a digest of all parameters.

    `operator` is the operator's own version.
    """

    version: str
    registry: str
    deployment_id: str
    deployment_config: str
    operator: str

    @property
    def marks(self) -> dict[str, str]:
        """The annotations of what is installed in this version."""
        return {
            labels.INSTALL_STRATEGY_VERSION: self.version,
            labels.INSTALL_STRATEGY_REGISTRY: self.registry,
            labels.INSTALL_STRATEGY_IDENTIFIER: self.deployment_id,
        }


_FOLLOWED: Mapping[ResourceType, str] = {
    resources.CUSTOM_RESOURCE_DEFINITIONS: "apiextensions.k8s.io/v1",
    resources.MUTATING_WEBHOOK_CONFIGURATIONS: "admissionregistration.k8s.io",
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS: "admissionregistration.k8s.io",
    resources.POD_DISRUPTION_BUDGETS: "apps",
    resources.DEPLOYMENTS: "apps",
    resources.DAEMON_SETS: "apps",
}
"""Kinds whose generations are told, and the groups under which KubeVirt's clients look for them."""


def generations(installed: Iterable[tuple[ResourceType, Iterable[JsonObject]]]) -> list[JsonObject]:
    """Which generation each installed object has: who changes one finds another number there."""
    found: list[JsonObject] = []
    for resource, documents in installed:
        group = _FOLLOWED.get(resource)
        if group is None:
            continue
        for document in documents:
            entry: JsonObject = {"group": group, "resource": resource.plural, "name": meta.name(document)}
            if meta.namespace(document):
                entry["namespace"] = meta.namespace(document)
            found.append({**entry, "lastGeneration": get_int(document, "metadata", "generation"), "hash": ""})
    return sorted(found, key=lambda entry: (entry["resource"], entry["name"]))


def waiting(current: JsonObject, left: str, now: str) -> JsonObject:
    """The status of an installation that is being removed, with what its removal waits for."""
    text = StageText(_TEXTS["deleting"].reason, f"{_TEXTS['deleting'].message}: {left}")
    return {**current, "conditions": stage_conditions(get_list(current, "conditions"), "deleting", text, now)}


def next_status(current: JsonObject, stage: Stage, version: Version, generation: int, now: str) -> JsonObject:
    """The status that follows from `stage`. `now` is RFC 3339."""
    status = deep_copy(current)
    status["operatorVersion"] = version.operator
    status["targetKubeVirtVersion"] = version.version
    status["targetKubeVirtRegistry"] = version.registry
    status["targetDeploymentID"] = version.deployment_id
    status["targetDeploymentConfig"] = version.deployment_config
    status["phase"] = next_phase(get_str(current, "phase"), stage)
    conditions = stage_conditions(get_list(current, "conditions"), stage, _TEXTS[stage], now)
    if stage == "ready":
        conditions = with_condition(
            conditions,
            reasons.CREATED,
            "True",
            reasons.ALL_RESOURCES_CREATED,
            "All resources were created.",
            now,
            keep_transition=False,
        )
        conditions = [condition for condition in conditions if condition.get("type") != reasons.SYNCHRONIZED]
        status["observedKubeVirtVersion"] = version.version
        status["observedKubeVirtRegistry"] = version.registry
        status["observedDeploymentID"] = version.deployment_id
        status["observedDeploymentConfig"] = version.deployment_config
        status["observedGeneration"] = generation
    status["conditions"] = conditions
    return status


def failed_status(current: JsonObject, reason: str, message: str, now: str) -> JsonObject:
    """The status after a failed reconcile."""
    status = deep_copy(current)
    conditions = get_list(current, "conditions")
    status["conditions"] = with_condition(conditions, reasons.SYNCHRONIZED, "False", reason, message, now)
    return status
