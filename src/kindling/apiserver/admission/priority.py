"""Priority: pods take number and preemption policy of their priority class."""

from __future__ import annotations

from kindling.apiserver.kinds.scheduling import SYSTEM_CLASSES
from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.resources import PODS, PRIORITY_CLASSES

from .base import ReadingPlugin, concerns, refuse

_PREEMPT = "PreemptLowerPriority"


class Priority(ReadingPlugin):
    """See the module."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """Resolve the priority class of a new pod; an existing pod keeps its priority."""
        pod = attributes.object
        if pod is None:
            return
        if concerns(attributes, PODS, "CREATE"):
            self._resolve(attributes, pod.setdefault("spec", {}))
        elif concerns(attributes, PODS, "UPDATE"):
            old = get_object(attributes.old_object, "spec")
            spec = pod.setdefault("spec", {})
            for field in ("priority", "preemptionPolicy"):
                if spec.get(field) is None and old.get(field) is not None:
                    spec[field] = old[field]

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """There is one default class at most."""
        new = attributes.object
        if new is None or not concerns(attributes, PRIORITY_CLASSES, "CREATE", "UPDATE"):
            return
        if not new.get("globalDefault"):
            return
        default = self._default_class()
        if default is not None and meta.name(default) != meta.name(new):
            raise refuse(
                attributes,
                f"PriorityClass {meta.name(default)} is already marked as default. "
                f"Only one default can exist",
            )

    def _default_class(self) -> JsonObject | None:
        """The global default class; of several, the one with the lowest value."""
        marked = [each for each in self._objects.list(PRIORITY_CLASSES) if each.get("globalDefault")]
        return min(marked, key=lambda each: int(each.get("value") or 0), default=None)

    def _resolve(self, attributes: AdmissionAttributes, spec: JsonObject) -> None:
        name = str(spec.get("priorityClassName") or "")
        value, policy = 0, _PREEMPT
        chosen = self._class(attributes, name) if name else self._default_class()
        if chosen is not None:
            spec["priorityClassName"] = meta.name(chosen)
            value = int(chosen.get("value") or 0)
            policy = str(chosen.get("preemptionPolicy") or _PREEMPT)
        given = spec.get("priority")
        if given is not None and given != value:
            raise refuse(
                attributes,
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name",
            )
        spec["priority"] = value
        wanted = spec.get("preemptionPolicy")
        if wanted is not None and wanted != policy:
            raise refuse(
                attributes,
                f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name",
            )
        spec["preemptionPolicy"] = policy

    def _class(self, attributes: AdmissionAttributes, name: str) -> JsonObject:
        found = self._objects.get(PRIORITY_CLASSES, None, name)
        if found is not None:
            return found
        if name in SYSTEM_CLASSES:
            return {"metadata": {"name": name}, "value": SYSTEM_CLASSES[name]}
        raise refuse(attributes, f"no PriorityClass with name {name} was found")
