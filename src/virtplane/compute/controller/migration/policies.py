"""The settings of a migration: install-wide ones, overridden by the policy that fits best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from virtplane.api.config import ClusterConfig

_OVERRIDES = (
    "allowAutoConverge",
    "bandwidthPerMigration",
    "completionTimeoutPerGiB",
    "allowPostCopy",
    "allowWorkloadDisruption",
    "maxDowntimeMs",
)


def matching_policy(
    policies: Iterable[JsonObject], vmi_labels: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> JsonObject | None:
    """The policy whose selectors name most labels, all of them fitting; ties go to more labels of the
    instance, then to the first name."""
    best: tuple[int, int] | None = None
    chosen: JsonObject | None = None
    for policy in sorted(policies, key=meta.name):
        selectors = get_object(policy, "spec", "selectors")
        of_vmi = get_object(selectors, "virtualMachineInstanceSelector")
        of_namespace = get_object(selectors, "namespaceSelector")
        if not selectors or not _fits(of_vmi, vmi_labels) or not _fits(of_namespace, namespace_labels):
            continue
        score = (len(of_vmi) + len(of_namespace), len(of_vmi))
        if best is None or score > best:
            best, chosen = score, policy
    return chosen


def _fits(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def configuration(config: ClusterConfig, policy: JsonObject | None) -> JsonObject:
    """The settings that the node agents go by."""
    result = deep_copy(config.migrations)
    spec = get_object(policy, "spec") if policy else {}
    for key in _OVERRIDES:
        if key in spec:
            result[key] = spec[key]
    if "allowPostCopy" in spec and "allowWorkloadDisruption" not in spec:
        result["allowWorkloadDisruption"] = spec["allowPostCopy"]
    result.setdefault("allowWorkloadDisruption", result.get("allowPostCopy", False))
    bandwidth = Quantity.parse(result.get("bandwidthPerMigration") or "0")
    result["bandwidthPerMigration"] = "0" if bandwidth.value == 0 else str(bandwidth)
    return result


def policy_name(policy: JsonObject | None) -> str:
    """The name of a policy, empty for none."""
    return get_str(policy, "metadata", "name") if policy else ""
