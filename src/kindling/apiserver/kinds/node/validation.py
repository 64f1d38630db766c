"""RuntimeClasses: the handler's name, and where pods of the class may run."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.core.pods.placement import validate_tolerations
from kubecore.json import JsonObject, get_object
from kubecore.objects.fields import FieldError, FieldPath, invalid
from kubecore.objects.names import is_dns1123_label
from kubecore.objects.selectors import validate_labels


def validate_class(obj: JsonObject) -> Iterator[FieldError]:
    """The handler's name, and where pods of the class may go."""
    handler = obj.get("handler", "")
    yield from (invalid("handler", handler, message) for message in is_dns1123_label(handler))
    scheduling = obj.get("scheduling")
    if isinstance(scheduling, dict):
        path = FieldPath("scheduling")
        yield from validate_labels(get_object(scheduling, "nodeSelector"), path.child("nodeSelector"))
        yield from validate_tolerations(scheduling.get("tolerations") or [], path.child("tolerations"))
