"""ResourceQuota: a namespace uses no more than it may."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kindling.apiserver.registry.context import ObjectWriter
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.resources import PODS, RESOURCE_QUOTAS, ResourceType

from .base import concerns, refuse
from .usage import Usage, is_in_scope, usage_of

_ZERO = Quantity.parse("0")
_COUNTED_ON_UPDATE = frozenset({"services", "persistentvolumeclaims"})
_CONTAINER_AMOUNTS = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)


class ResourceQuota(Admission):
    """Runs last, so that nothing which is refused elsewhere is counted.

    What a request adds is written into the status of the quotas before the object is stored; the quota
    controller corrects the sums when an object is deleted or a write fails afterwards.
    """

    def __init__(self, objects: ObjectWriter) -> None:
        self._objects = objects

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Count, compare, and reserve."""
        resource, obj = attributes.definition.resource, attributes.object
        if obj is None or not attributes.ctx.namespace or not _is_counted(attributes):
            return
        quotas = self._objects.list(RESOURCE_QUOTAS, attributes.ctx.namespace)
        if not quotas:
            return
        added = _added(attributes, resource, obj)
        concerned = [
            quota for quota in quotas if is_in_scope(quota, resource, obj) and _hard(quota).keys() & added
        ]
        for quota in concerned:
            _check_specified(attributes, quota, obj)
            _check(attributes, quota, added)
        for quota in concerned:
            await self._reserve(attributes, meta.name(quota), added)

    async def _reserve(self, attributes: AdmissionAttributes, name: str, added: Usage) -> None:
        if attributes.ctx.dry_run or not any(amount > _ZERO for amount in added.values()):
            return

        def change(quota: JsonObject) -> JsonObject | None:
            _check(attributes, quota, added)
            status = quota.setdefault("status", {})
            used = status.setdefault("used", {})
            for resource in _hard(quota).keys() & added:
                used[resource] = str(Quantity.parse(str(used.get(resource, "0"))) + added[resource])
            return quota

        with ignoring(404):
            await self._objects.modify(RESOURCE_QUOTAS, attributes.ctx.namespace, name, change)


def _is_counted(attributes: AdmissionAttributes) -> bool:
    if attributes.ctx.subresource:
        return concerns(attributes, PODS, "UPDATE", subresource="resize")
    if attributes.operation == "CREATE":
        return True
    resource = attributes.definition.resource
    return attributes.operation == "UPDATE" and not resource.group and resource.plural in _COUNTED_ON_UPDATE


def _hard(quota: JsonObject) -> JsonObject:
    return get_object(quota, "spec", "hard")


def _added(attributes: AdmissionAttributes, resource: ResourceType, obj: JsonObject) -> Usage:
    """The usage that the request adds to that of the existing object."""
    usage = usage_of(resource, obj)
    if attributes.old_object is None:
        return usage
    before = usage_of(resource, attributes.old_object)
    return {
        name: amount - before[name] if name in before else amount
        for name, amount in usage.items()
        if name not in before or amount > before[name]
    }


def _check(attributes: AdmissionAttributes, quota: JsonObject, added: Usage) -> None:
    """Refuse when the sum of used and added is more than allowed."""
    hard = get_object(quota, "status", "hard")
    used = get_object(quota, "status", "used")
    tracked = sorted(_hard(quota).keys() & added)
    unknown = [name for name in tracked if name not in hard or name not in used]
    if unknown:
        text = ", ".join(unknown)
        raise refuse(attributes, f"status unknown for quota: {meta.name(quota)}, resources: {text}")
    exceeded = [
        name
        for name in tracked
        if added[name] > _ZERO
        and Quantity.parse(str(used[name])) + added[name] > Quantity.parse(str(hard[name]))
    ]
    if exceeded:
        raise refuse(
            attributes,
            f"exceeded quota: {meta.name(quota)}, requested: {_shown(exceeded, added)}, "
            f"used: {_shown(exceeded, used)}, limited: {_shown(exceeded, hard)}",
        )


def _shown(names: Iterable[str], amounts: JsonObject | Usage) -> str:
    return ",".join(f"{name}={Quantity.parse(str(amounts[name]))}" for name in names)


def _check_specified(attributes: AdmissionAttributes, quota: JsonObject, obj: JsonObject) -> None:
    """If a quota limits cpu or memory, every container must specify it, unless the pod itself does."""
    if not concerns(attributes, PODS, "CREATE"):
        return
    missing: dict[str, list[str]] = {}
    for name in sorted(_hard(quota).keys() & _CONTAINER_AMOUNTS):
        field, _, amount = name.rpartition(".")
        if amount in get_object(obj, "spec", "resources", field or "requests"):
            continue
        for group in ("containers", "initContainers"):
            for container in get_list(obj, "spec", group):
                amounts = get_object(container, "resources", field or "requests")
                if amount not in amounts:
                    missing.setdefault(name, []).append(str(container.get("name")))
    if missing:
        text = "; ".join(f"{name} for: {','.join(containers)}" for name, containers in missing.items())
        raise refuse(attributes, f"failed quota: {meta.name(quota)}: must specify {text}")
