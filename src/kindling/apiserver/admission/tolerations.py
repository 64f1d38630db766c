"""DefaultTolerationSeconds: pods stay five minutes on nodes that stop answering."""

from __future__ import annotations

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kubecore.json import JsonObject
from kubecore.resources import PODS

from .base import concerns

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SECONDS = 300


class DefaultTolerations(Admission):
    """See the module."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """Add the default tolerations that the pod does not have."""
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE", "UPDATE"):
            return
        spec = pod.setdefault("spec", {})
        tolerations = spec.get("tolerations") or []
        missing = [key for key in _TAINTS if not any(_tolerates(each, key) for each in tolerations)]
        if missing:
            spec["tolerations"] = [*tolerations, *(_toleration(key) for key in missing)]


def _tolerates(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def _toleration(key: str) -> JsonObject:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
