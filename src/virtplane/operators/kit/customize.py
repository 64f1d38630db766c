"""Customization: users' patches of installed objects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import orjson

from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.patch.jsonpatch import apply_json_patch
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.patch.strategic import strategic_merge
from kubecore.schema.model import Schema


class BadCustomization(Exception):
    """A patch does not apply to its object."""


def _keyed(key: str, members: JsonObject | None = None) -> JsonObject:
    item: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if members:
        item["properties"] = members
    return {
        "type": "array",
        "items": item,
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": key,
    }


_CONTAINERS = _keyed(
    "name",
    {
        "env": _keyed("name"),
        "volumeMounts": _keyed("mountPath"),
        "volumeDevices": _keyed("devicePath"),
        "ports": _keyed("containerPort"),
    },
)


def _objects(**members: JsonObject) -> JsonObject:
    return {"type": "object", "properties": members, "x-kubernetes-preserve-unknown-fields": True}


_POD = _objects(
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    volumes=_keyed("name"),
    imagePullSecrets=_keyed("name"),
    hostAliases=_keyed("ip"),
)
_WORKLOAD = Schema(_objects(spec=_objects(template=_objects(spec=_POD), ports=_keyed("port"))))
"""How lists merge in the kinds that the operator installs."""


def customizer(patches: Sequence[JsonObject], annotation: str) -> Callable[[JsonObject], JsonObject]:
    """A function that applies the patches to each object that they name, and says so in `annotation`.

    It raises BadCustomization.
    """
    if not patches:
        return lambda document: document
    identifier = hashlib.sha1(
        orjson.dumps(patches, option=orjson.OPT_SORT_KEYS), usedforsecurity=False
    ).hexdigest()

    def customize(document: JsonObject) -> JsonObject:
        wanted = [patch for patch in patches if _concerns(patch, document)]
        if not wanted:
            return document
        changed = _patched(document, wanted)
        changed["metadata"].setdefault("annotations", {})[annotation] = identifier
        return changed

    return customize


def _concerns(patch: JsonObject, document: JsonObject) -> bool:
    kind, name = get_str(patch, "resourceType"), get_str(patch, "resourceName")
    if kind.lower() not in (document["kind"].lower(), document["kind"].lower() + "s", "*"):
        return False
    return name in (document["metadata"]["name"], "*")


def _patched(document: JsonObject, patches: Sequence[JsonObject]) -> JsonObject:
    changed = deep_copy(document)
    for patch in patches:
        try:
            body = orjson.loads(get_str(patch, "patch"))
            match get_str(patch, "type"):
                case "json":
                    changed = apply_json_patch(changed, body)
                case "merge":
                    changed = apply_merge_patch(changed, body)
                case _:
                    changed = strategic_merge(changed, body, _WORKLOAD)
        except (ValueError, StatusError) as error:
            where = f"{document['kind']} {document['metadata']['name']}"
            raise BadCustomization(f"the patch of {where} cannot be applied: {error}") from error
    return changed
