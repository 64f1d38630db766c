"""Preconditions of a request: resourceVersion and uid of the object."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields
from kubecore.objects.fields import FieldPath

from ..storage.store import Item
from .context import RequestContext
from .definition import ResourceDefinition, Strategy
from .registry import object_path

_MAX_DIGITS = 64
_FOLDERS = {
    "endpoints": "services/endpoints",
    "ingresses": "ingress",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "services": "services/specs",
}
_GROUPED = ("apiextensions.k8s.io", "apiregistration.k8s.io")
"""How Kubernetes' storage names the places of objects, which conflicts show: most have their plural alone."""


def check_resource_version(
    ctx: RequestContext,
    definition: ResourceDefinition,
    strategy: Strategy,
    metadata: JsonObject,
    current: Item,
) -> None:
    """Raises StatusError unless an update was made from the `current` version, or may go without one."""
    sent = parse_resource_version(str(metadata.get("resourceVersion") or "0"))
    if sent == current.revision:
        return
    if sent == 0:
        if strategy.allow_unconditional_update:
            return
        problem = fields.invalid(
            FieldPath("metadata").child("resourceVersion"), 0, "must be specified for an update"
        )
        raise errors.invalid(definition.resource.plural, definition.resource.group, ctx.name, [problem])
    raise errors.conflict(definition.resource, ctx.name)


def parse_resource_version(text: str) -> int:
    """The number in a resourceVersion; StatusError (500, as in Kubernetes) if it is invalid."""
    problem = _unsigned_problem(text)
    if problem:
        raise errors.plain_internal(f"strconv.ParseUint: parsing {fields.go_quote(text)}: {problem}")
    return int(text)


def _unsigned_problem(text: str) -> str:
    """What Go has against a text as a number of 64 bits without sign; empty when it is one."""
    if not (text.isascii() and text.isdigit()):
        return "invalid syntax"
    return "" if len(text) <= _MAX_DIGITS and int(text) < 2**64 else "value out of range"


def parse_read_version(text: str, *, is_list: bool = False) -> int:
    """The number of the resourceVersion of a get, list or watch; StatusError if it is invalid: 400 for a
    list, 500 for the others, as Kubernetes answers.
    """
    complaint = _unsigned_problem(text)
    if not complaint:
        return int(text)
    quoted = fields.go_quote(text)
    problem = f"resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {complaint}"
    if is_list:
        raise errors.bad_request(f"invalid resource version: {problem}")
    raise errors.plain_internal(problem)


def wrong_uid(
    definition: ResourceDefinition, ctx: RequestContext, wanted: str, found: str
) -> errors.StatusError:
    """The conflict of a request that names another uid than the object has, in etcd's words."""
    resource = definition.resource
    folder = _FOLDERS.get(resource.plural, resource.plural)
    if definition.custom or resource.group in _GROUPED:
        folder = f"{resource.group}/{resource.plural}"
    key = f"/{folder}/{object_path(definition, ctx.namespace, ctx.name)}"
    return errors.conflict(
        resource,
        ctx.name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
    )
