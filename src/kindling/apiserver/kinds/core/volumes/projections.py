"""Volumes made of what the API knows (config maps, secrets, tokens, fields of the pod), and their paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import amount, messages
from kubecore.json import JsonObject, get_list
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required
from kubecore.objects.quantity import Quantity

DOWNWARD_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_POD_FIELDS = (
    *DOWNWARD_FIELDS,
    *(f"spec.{name}" for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName")),
    *(f"status.{name}" for name in ("phase", "hostIP", "hostIPs", "podIP", "podIPs")),
)
_CONTAINER_RESOURCES = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_DIVISORS = ("1", *(f"1{prefix}" for prefix in "kMGTPE"), *(f"1{prefix}i" for prefix in "KMGTPE"))
_DIVISOR_RULES = {
    "cpu": (("1m", "1"), "1m and 1", "cpu"),
    "memory": (_DIVISORS, ", ".join(_DIVISORS), "memory"),
    "ephemeral-storage": (_DIVISORS, ", ".join(_DIVISORS), "local ephemeral storage"),
    "hugepages": (_DIVISORS, ", ".join(_DIVISORS), "hugepages"),
}
"""Units in which a resource may be shown, how errors list them, and how they call the resource."""


FILE_MODE = f.between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
"""Permission bits."""
NO_BACKSTEPS = f.refused(lambda path: ".." in path.split("/"), "must not contain '..'")
"""A path without ``..`` elements."""
LOCAL_PATH = f.within(f.refused(lambda path: path.startswith("/"), "must be a relative path"), NO_BACKSTEPS)
"""A relative path within a volume."""
_RESERVED = f.refused(lambda path: re.match(r"\.\.(?!/)", path), "must not start with '..'")
FILE_PATH = f.within(LOCAL_PATH, _RESERVED)
"""A relative path that does not start with ``..`` either."""


def field_reference(path: FieldPath, reference: JsonObject, allowed: Sequence[str]) -> Iterator[FieldError]:
    """A field of the pod that an environment variable or file shows."""
    for needed_field in ("apiVersion", "fieldPath"):
        if not reference.get(needed_field):
            yield required(path.child(needed_field))
            return
    field, version = reference["fieldPath"], reference["apiVersion"]
    base, subscript, key = (
        field.removesuffix("']").partition("['") if field.endswith("']") else (field, "", "")
    )
    problem = ""
    if version != "v1":
        problem = f"unsupported pod version: {version}"
    elif subscript and base not in ("metadata.annotations", "metadata.labels"):
        problem = f"field label does not support subscript: {field}"
    elif not subscript and field not in _POD_FIELDS:
        problem = f"field label not supported: {field}"
    if problem:
        yield invalid(path.child("fieldPath"), field, f"error converting fieldPath: {problem}")
        return
    if subscript:
        yield from messages(path, key if base.endswith("labels") else key.lower(), names.is_qualified_name)
        return
    if field not in allowed:
        yield not_supported(path.child("fieldPath"), field, sorted(allowed))


def resource_reference(path: FieldPath, reference: JsonObject, *, volume: bool) -> Iterator[FieldError]:
    """A container's request or limit that an environment variable or file shows."""
    resource = reference.get("resource", "")
    huge = resource.startswith(("limits.hugepages-", "requests.hugepages-"))
    if volume and not reference.get("containerName"):
        yield required(path.child("containerName"))
    elif not resource:
        yield required(path.child("resource"))
    elif resource not in _CONTAINER_RESOURCES and not huge:
        yield not_supported(path.child("resource"), resource, _CONTAINER_RESOURCES)
    divisor = amount(reference.get("divisor"))
    rule = _DIVISOR_RULES.get("hugepages" if huge else resource.partition(".")[2])
    if rule and divisor != Quantity.parse("0") and str(divisor) not in rule[0]:
        text = f"only divisor's values {rule[1]} are supported with the {rule[2]} resource"
        yield invalid(path.child("divisor"), resource, text)


def _downward_file(path: FieldPath, item: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(item, path, f.must("path", FILE_PATH))
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_reference(path.child("fieldRef"), field, DOWNWARD_FIELDS)
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(path, "resource", text)
    elif resource is not None:
        yield from resource_reference(path.child("resourceFieldRef"), resource, volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from f.check_fields(item, path, f.given("mode", FILE_MODE))


def downward_files(path: FieldPath, source: JsonObject) -> list[FieldError]:
    """Errors in files that show fields of the pod."""
    return [error for item in get_list(source, "items") for error in _downward_file(path, item)]


KEYS = f.given(
    "items",
    f.items(f.must("key"), f.must("path", FILE_PATH), f.given("mode", FILE_MODE)),
)
DEFAULT_MODE = f.given("defaultMode", FILE_MODE)
_PROJECTIONS: Mapping[str, f.Check] = {
    "secret": f.within(f.must("name"), KEYS),
    "configMap": f.within(f.must("name"), KEYS),
    "downwardAPI": downward_files,
    "serviceAccountToken": f.within(
        f.given(
            "expirationSeconds",
            f.at_least(600, "may not specify a duration less than 10 minutes"),
            f.at_most(2**32, "may not specify a duration larger than 2^32 seconds"),
        )
    ),
}


def projected(path: FieldPath, source: JsonObject) -> Iterator[FieldError]:
    """Errors in a volume of several sources; no two of their files may have one path."""
    yield from f.check_fields(source, path, DEFAULT_MODE)
    taken: set[str] = set()
    for position, projection in enumerate(get_list(source, "sources")):
        here = path.child("sources").index(position)
        given_kinds = [kind for kind in _PROJECTIONS if isinstance(projection.get(kind), dict)]
        for kind in given_kinds:
            part = projection[kind]
            yield from _PROJECTIONS[kind](here.child(kind), part)
            if kind == "serviceAccountToken":
                yield from f.check_fields(part, path, f.must("path", FILE_PATH))
            for item in get_list(part, "items"):
                target = item.get("path", "")
                if target and target in taken:
                    shown = target if kind == "downwardAPI" else part.get("name", "")
                    yield invalid(path, shown, "conflicting duplicate paths")
                taken.add(target)
        if len(given_kinds) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")
