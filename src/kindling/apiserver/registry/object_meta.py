"""ObjectMeta: fields that the server sets, and validation of the others."""

from __future__ import annotations

import random
from typing import Any

import orjson

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import meta_validation
from kubecore.objects.fields import FieldError

from .definition import ResourceDefinition, Strategy
from .identifiers import new_uuid

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LENIENT_GROUPS = (
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
)
_MAX_GENERATED_BASE = 63 - _SUFFIX_LENGTH


def generated_name(base: str) -> str:
    """`base` (cut to fit a label) and five random characters."""
    suffix = "".join(random.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return base[:_MAX_GENERATED_BASE] + suffix


def wipe_system_fields(metadata: JsonObject) -> None:
    """Drop what only the server sets on a new object."""
    for key in ("creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(key, None)


def fill_system_fields(metadata: JsonObject, now: str) -> None:
    """Give a new object its identity."""
    metadata["uid"] = new_uuid()
    metadata["creationTimestamp"] = now


def tidy(metadata: JsonObject) -> None:
    """Remove fields that are omitted when empty."""
    for key in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if key in metadata and not metadata[key]:
            del metadata[key]
    for key in ("generateName", "selfLink", "namespace", "name", "uid", "resourceVersion"):
        if metadata.get(key) == "" or (key in metadata and metadata[key] is None):
            del metadata[key]
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "creationTimestamp", "generation"):
        if key in metadata and (metadata[key] is None or (metadata[key] == 0 and key == "generation")):
            del metadata[key]


def deduplicate_owners(metadata: JsonObject) -> str:
    """Drop repeated owner references; their uids, as the warning lists them."""
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list) or len(owners) < 2:
        return ""
    unique: dict[bytes, Any] = {}
    repeated: dict[str, None] = {}
    for owner in owners:
        text = orjson.dumps(owner, option=orjson.OPT_SORT_KEYS)
        if text in unique:
            repeated[str(owner.get("uid") or "")] = None
        else:
            unique[text] = owner
    metadata["ownerReferences"] = list(unique.values())
    return ", ".join(repeated)


def validate(definition: ResourceDefinition, strategy: Strategy, obj: JsonObject) -> list[FieldError]:
    """All errors in the metadata of a new object."""
    return meta_validation.validate_object_meta(
        obj, definition.resource.namespaced, lambda name: strategy.validate_name(name, prefix=False)
    ) + finalizer_names(definition, obj)


def validate_update(
    definition: ResourceDefinition, strategy: Strategy, new: JsonObject, old: JsonObject
) -> list[FieldError]:
    """All errors in the metadata of a change, as often as Kubernetes lists them."""
    as_change, as_new = strategy.metadata_checks
    shared = meta_validation.validate_object_meta_update(new, old)
    found = shared + (shared + finalizer_names(definition, new)) * as_change
    return found + validate(definition, strategy, new) * as_new if as_new else found


def finalizer_names(definition: ResourceDefinition, obj: JsonObject) -> list[FieldError]:
    """Finalizers of Kubernetes' own kinds are standard ones or qualified; extensions' may have any name."""
    if definition.custom or definition.resource.group in _LENIENT_GROUPS:
        return []
    if not definition.strategy.standard_finalizers:
        return []
    path = meta_validation.METADATA.child("finalizers")
    found: list[FieldError] = []
    for position, finalizer in enumerate(obj["metadata"].get("finalizers") or ()):
        found += meta_validation.kubernetes_finalizer(finalizer, path.index(position))
    return found


def carry_over(new: JsonObject, old: JsonObject) -> None:
    """On update: keep fields that users cannot set, and identity fields that they left out."""
    for key in ("creationTimestamp", "deletionTimestamp"):
        if key in old:
            new[key] = old[key]
    for key in ("uid", "deletionGracePeriodSeconds"):
        if new.get(key) in (None, "") and key in old:
            new[key] = old[key]
    if "generation" in old:
        new["generation"] = old["generation"]
    else:
        new.pop("generation", None)
    new.pop("selfLink", None)


def check_name(sent: object, name: str) -> None:
    """Refuse an object without a name, or with another than the URL's (400)."""
    if not sent:
        raise nameless(name)
    if sent != name:
        raise other_name(sent, name)


def nameless(name: str) -> errors.StatusError:
    """The refusal (400) of an object without a name."""
    return errors.bad_request(
        f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )


def other_name(sent: object, name: str) -> errors.StatusError:
    """The refusal (400) of an object that is not the one that the URL names."""
    return errors.bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")


def check_namespace(metadata: JsonObject, namespace: str) -> None:
    """Refuse an object that says it is in another namespace than the request (400)."""
    if metadata.get("namespace") not in (None, "", namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
