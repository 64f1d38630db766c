"""The settings of a migration: those of the installation, overridden by the best matching policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import encode
from virtplane.api.config import ClusterConfig
from virtplane.api.migrations_v1alpha1.policy import MigrationPolicy


def matching_policy(
    policies: Iterable[MigrationPolicy], vmi_labels: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> MigrationPolicy | None:
    """The policy whose selectors name most labels, all of them fitting; ties go to more labels of the
    instance, then to the first name."""
    best: tuple[int, int] | None = None
    chosen: MigrationPolicy | None = None
    for policy in sorted(policies, key=lambda item: item.metadata.name):
        selectors = policy.spec.selectors
        of_vmi = selectors.virtual_machine_instance_selector
        of_namespace = selectors.namespace_selector
        if of_vmi is None and of_namespace is None:
            continue
        if not _fits(of_vmi or {}, vmi_labels) or not _fits(of_namespace or {}, namespace_labels):
            continue
        score = (len(of_vmi or ()) + len(of_namespace or ()), len(of_vmi or ()))
        if best is None or score > best:
            best, chosen = score, policy
    return chosen


def _fits(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def configuration(config: ClusterConfig, policy: MigrationPolicy | None) -> JsonObject:
    """The settings that virt-handler uses for the migration."""
    result = encode(config.configuration.migrations)
    if policy is not None:
        result |= _overrides(policy)
    result.setdefault("allowWorkloadDisruption", result.get("allowPostCopy", False))
    bandwidth = Quantity.parse(result.get("bandwidthPerMigration") or "0")
    result["bandwidthPerMigration"] = "0" if bandwidth.value == 0 else str(bandwidth)
    return result


def _overrides(policy: MigrationPolicy) -> JsonObject:
    spec = policy.spec
    disruption = spec.allow_workload_disruption
    wanted = {
        "allowAutoConverge": spec.allow_auto_converge,
        "bandwidthPerMigration": spec.bandwidth_per_migration,
        "completionTimeoutPerGiB": spec.completion_timeout_per_gi_b,
        "allowPostCopy": spec.allow_post_copy,
        "allowWorkloadDisruption": spec.allow_post_copy if disruption is None else disruption,
        "maxDowntimeMs": spec.max_downtime_ms,
    }
    return {key: value for key, value in wanted.items() if value is not None}
