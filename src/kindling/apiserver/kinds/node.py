"""``node.k8s.io``: RuntimeClasses. Nodes themselves are in ``core``."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.apiserver.kinds.core.pods.placement import TOLERATIONS
from kindling.apiserver.kinds.core.pods.resources import validate_resources
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath
from kubecore.resources import ResourceType


def _overhead(path: FieldPath, overhead: JsonObject) -> Iterable[FieldError]:
    """What a sandbox of the class takes: judged like the limits of a container."""
    return validate_resources((), path, {"limits": get_object(overhead, "podFixed")})


validate_class = f.document(
    f.always("handler", "", f.LABEL),
    f.given("overhead", _overhead),
    f.given("scheduling", f.may("nodeSelector", f.labels), f.may("tolerations", TOLERATIONS)),
)
"""The handler's name, and where pods of the class may go."""


RUNTIME_CLASSES = ResourceType("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)


class RuntimeClassStrategy(BuiltinStrategy):
    """The runtime handler of containers, which cannot be changed."""

    has_status = False
    allow_create_on_update = True
    tracks_generation = False
    allow_unconditional_update = False
    metadata_checks = (1, 1)
    standard_finalizers = False
    rules = Rules(validate_class, immutable_texts=("handler",))


def definitions() -> list[ResourceDefinition]:
    """Runtime classes."""
    table = p.Table(p.NAME, p.plain("Handler", "handler"), p.AGE)
    return [builtin(RUNTIME_CLASSES, RuntimeClassStrategy(), table=table)]
