"""Runtime classes: what a pod's class adds to it (overhead, where it may run), and that the class exists."""

from __future__ import annotations

from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity
from kubecore.resources import PODS, ResourceType

from .base import ReadingPlugin, concerns, refuse

RUNTIME_CLASSES = ResourceType("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)


class RuntimeClass(ReadingPlugin):
    """See the module."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """Add overhead, node selector and tolerations of the class to a new pod."""
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE"):
            return
        found = self._class_of(attributes, pod)
        if found is None:
            return
        spec = pod["spec"]
        self._add_overhead(attributes, spec, get_object(found, "overhead", "podFixed"))
        selector = get_object(found, "scheduling", "nodeSelector")
        own = get_object(spec, "nodeSelector")
        for key, value in selector.items():
            if own.get(key, value) != value:
                raise refuse(
                    attributes,
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {own[key]}",
                )
        if selector:
            spec["nodeSelector"] = {**own, **selector}
        tolerations = get_list(spec, "tolerations")
        added = [each for each in get_list(found, "scheduling", "tolerations") if each not in tolerations]
        if added:
            spec["tolerations"] = [*tolerations, *added]

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Overhead comes from a class, and is exactly the class's."""
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE"):
            return
        found = self._class_of(attributes, pod)
        given = get_object(pod, "spec", "overhead")
        if found is None and given:
            raise refuse(
                attributes,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )
        if found is not None and not _same(given, get_object(found, "overhead", "podFixed")):
            raise refuse(attributes, _MISMATCH)

    def _class_of(self, attributes: AdmissionAttributes, pod: JsonObject) -> JsonObject | None:
        name = get_str(pod, "spec", "runtimeClassName")
        if not name:
            return None
        found = self._objects.get(RUNTIME_CLASSES, None, name)
        if found is None:
            raise refuse(attributes, f'pod rejected: RuntimeClass "{name}" not found')
        return found

    @staticmethod
    def _add_overhead(attributes: AdmissionAttributes, spec: JsonObject, overhead: JsonObject) -> None:
        given = get_object(spec, "overhead")
        if given and not _same(given, overhead):
            raise refuse(attributes, _MISMATCH)
        if overhead:
            spec["overhead"] = dict(overhead)


_MISMATCH = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def _same(one: JsonObject, other: JsonObject) -> bool:
    """Whether two lists of resources mean the same amounts."""

    def amounts(values: JsonObject) -> dict[str, object]:
        return {name: Quantity.parse(str(value)) for name, value in values.items()}

    return amounts(one) == amounts(other)
