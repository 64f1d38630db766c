"""What plugins ask of a request, and how they refuse it."""

from __future__ import annotations

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kindling.apiserver.registry.context import ObjectReader
from kubecore.errors import StatusError, forbidden
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType


class ReadingPlugin(Admission):
    """A plugin that decides by what objects there are."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects


def concerns(
    attributes: AdmissionAttributes, resource: ResourceType, *operations: str, subresource: str = ""
) -> bool:
    """Whether the request is one of `operations` on `resource` itself, or on the given subresource."""
    asked = attributes.definition.resource
    return (
        attributes.operation in operations
        and asked.plural == resource.plural
        and asked.group == resource.group
        and attributes.ctx.subresource == subresource
    )


def object_name(attributes: AdmissionAttributes) -> str:
    """The name in the request: empty while it is going to be generated."""
    return attributes.ctx.name or meta.name(attributes.object or attributes.old_object or {})


def refuse(attributes: AdmissionAttributes, message: str, causes: tuple[JsonObject, ...] = ()) -> StatusError:
    """403 about the object of the request."""
    return forbidden(attributes.definition.resource, object_name(attributes), message, causes)
