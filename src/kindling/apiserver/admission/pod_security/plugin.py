"""PodSecurity: labels of a namespace say what its pods may do."""

from __future__ import annotations

from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import NAMESPACES, PODS

from ..base import ReadingPlugin, concerns, refuse
from .levels import PREFIX, Policy, describe, policy_of, spec_of, validate_labels

_WORKLOADS = frozenset(
    {
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
    }
)
_MAX_PODS = 3000
"""More pods of a namespace are not looked at when its labels change."""


class PodSecurity(ReadingPlugin):
    """Refuses pods, warns about pods and workloads, and checks existing pods when a namespace changes."""

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """See the module."""
        if attributes.object is None or attributes.operation not in ("CREATE", "UPDATE"):
            return
        resource = attributes.definition.resource
        if concerns(attributes, NAMESPACES, "CREATE", "UPDATE"):
            self._namespace(attributes, attributes.object)
        elif concerns(attributes, PODS, "CREATE", "UPDATE") or _adds_containers(attributes):
            self._pod(attributes, attributes.object)
        elif (resource.group, resource.plural) in _WORKLOADS and not attributes.ctx.subresource:
            self._workload(attributes, attributes.object)

    def _pod(self, attributes: AdmissionAttributes, pod: JsonObject) -> None:
        old = attributes.old_object
        if old is not None and not _is_significant(pod, old):
            return
        namespace = self._objects.get(NAMESPACES, None, attributes.ctx.namespace) or {}
        enforced, warned = policy_of(namespace, "enforce"), policy_of(namespace, "warn")
        found = enforced.violations(*spec_of(pod, "pods"))
        if found:
            raise refuse(attributes, f'violates PodSecurity "{enforced}": {describe(found)}')
        self._warn(attributes, warned, pod, "pods")
        self._audit(attributes, namespace, enforced, pod, "pods")

    def _workload(self, attributes: AdmissionAttributes, obj: JsonObject) -> None:
        namespace = self._objects.get(NAMESPACES, None, attributes.ctx.namespace) or {}
        plural = attributes.definition.resource.plural
        self._warn(attributes, policy_of(namespace, "warn"), obj, plural)
        self._audit(attributes, namespace, None, obj, plural)

    def _warn(self, attributes: AdmissionAttributes, policy: Policy, obj: JsonObject, plural: str) -> None:
        found = policy.violations(*spec_of(obj, plural))
        if found:
            attributes.ctx.warn(f'would violate PodSecurity "{policy}": {describe(found)}')

    def _audit(
        self,
        attributes: AdmissionAttributes,
        namespace: JsonObject,
        enforced: Policy | None,
        obj: JsonObject,
        plural: str,
    ) -> None:
        if enforced is not None:
            attributes.audit_annotations[f"{PREFIX}enforce-policy"] = str(enforced)
        policy = policy_of(namespace, "audit")
        found = policy.violations(*spec_of(obj, plural))
        if found:
            attributes.audit_annotations[f"{PREFIX}audit-violations"] = (
                f'would violate PodSecurity "{policy}": {describe(found)}'
            )

    def _namespace(self, attributes: AdmissionAttributes, namespace: JsonObject) -> None:
        old = attributes.old_object
        wrong = validate_labels(namespace)
        known = {error.field + error.body() for error in validate_labels(old or {})}
        if any(error.field + error.body() not in known for error in wrong):
            raise errors.invalid("Namespace", "", meta.name(namespace), wrong)
        after = policy_of(namespace, "enforce")
        if old is None or after == policy_of(old, "enforce") or after.level == "privileged":
            return
        self._existing_pods(attributes, meta.name(namespace), after)

    def _existing_pods(self, attributes: AdmissionAttributes, name: str, policy: Policy) -> None:
        """Warn about existing pods that violate the new policy."""
        by_violation: dict[str, list[str]] = {}
        for pod in list(self._objects.list(PODS, name))[:_MAX_PODS]:
            found = policy.violations(*spec_of(pod, "pods"))
            if found:
                reasons = ", ".join(reason for reason, _ in found)
                by_violation.setdefault(reasons, []).append(meta.name(pod))
        if not by_violation:
            return
        attributes.ctx.warn(
            f'existing pods in namespace "{name}" violate the new PodSecurity enforce level "{policy}"'
        )
        for reasons, pods in sorted(by_violation.items(), key=lambda entry: entry[1][0]):
            others = {0: "", 1: " (and 1 other pod)"}.get(len(pods) - 1, f" (and {len(pods) - 1} other pods)")
            attributes.ctx.warn(f"{pods[0]}{others}: {reasons}")


def _adds_containers(attributes: AdmissionAttributes) -> bool:
    return concerns(attributes, PODS, "UPDATE", subresource="ephemeralcontainers")


def _is_significant(pod: JsonObject, old: JsonObject) -> bool:
    """Whether an update changes more than labels, tolerations and the like."""
    after, before = _significant(pod), _significant(old)
    return after != before


def _significant(pod: JsonObject) -> JsonObject:
    spec = deep_copy(spec_of(pod, "pods")[1])
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates", "nodeSelector", "affinity"):
        spec.pop(field, None)
    return spec
