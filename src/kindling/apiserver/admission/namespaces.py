"""NamespaceLifecycle: nothing is created in namespaces that are missing or going."""

from __future__ import annotations

from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore import errors
from kubecore.json import get_str
from kubecore.objects import meta
from kubecore.resources import NAMESPACES

from .base import ReadingPlugin, concerns, object_name, refuse

PROTECTED = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that cannot be deleted."""
_REVIEWS = frozenset({"localsubjectaccessreviews"})


class NamespaceLifecycle(ReadingPlugin):
    """See the module."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """Refuses before anything else happens."""
        name = object_name(attributes)
        if concerns(attributes, NAMESPACES, "DELETE") and name in PROTECTED:
            raise refuse(attributes, "this namespace may not be deleted")
        namespace, resource = attributes.ctx.namespace, attributes.definition.resource
        if not resource.namespaced or attributes.operation != "CREATE" or resource.plural in _REVIEWS:
            return
        if not namespace:
            return
        found = self._objects.get(NAMESPACES, None, namespace)
        if found is None:
            raise errors.not_found(NAMESPACES, namespace)
        if meta.is_being_deleted(found) or get_str(found, "status", "phase") == "Terminating":
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise refuse(attributes, message, (cause,))
