"""DefaultIngressClass: ingresses that name no class get the default one."""

from __future__ import annotations

from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.objects import meta
from kubecore.resources import ResourceType

from .base import ReadingPlugin, concerns
from .storage import newest_default

INGRESSES = ResourceType("networking.k8s.io", "v1", "ingresses", "Ingress")
INGRESS_CLASSES = ResourceType("networking.k8s.io", "v1", "ingressclasses", "IngressClass", False)
_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_OLD_CLASS = "kubernetes.io/ingress.class"


class DefaultIngressClass(ReadingPlugin):
    """See the module."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """See the module."""
        ingress = attributes.object
        if ingress is None or not concerns(attributes, INGRESSES, "CREATE"):
            return
        spec = ingress.setdefault("spec", {})
        if spec.get("ingressClassName") is not None or _OLD_CLASS in meta.annotations(ingress):
            return
        chosen = newest_default(list(self._objects.list(INGRESS_CLASSES)), _DEFAULT)
        if chosen is not None:
            spec["ingressClassName"] = meta.name(chosen)
