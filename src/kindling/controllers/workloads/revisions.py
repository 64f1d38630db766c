"""Revisions of a template: ControllerRevisions of DaemonSets and StatefulSets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kindling.controllers.environment import OWNER_INDEX, controller_uid
from kindling.controllers.pods import hash_of
from kubecore.client import Client
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_int, get_object
from kubecore.objects import meta
from kubecore.resources import CONTROLLER_REVISIONS, ResourceType
from kubecore.runtime import Informer, Manager


def data_of(owner: JsonObject) -> JsonObject:
    """The patch stored in a revision: it replaces the owner's template.

    Clients compare the bytes, so keys are sorted.
    """
    template = get_object(owner, "spec", "template")
    data: JsonObject = _in_order({"spec": {"template": {**template, "$patch": "replace"}}})
    return data


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def template_of(revision: JsonObject) -> JsonObject:
    """The template in a revision."""
    template = deep_copy(get_object(revision, "data", "spec", "template"))
    template.pop("$patch", None)
    return template


def by_number(revisions: Sequence[JsonObject]) -> list[JsonObject]:
    """Oldest first."""
    return sorted(revisions, key=lambda item: (get_int(item, "revision"), meta.creation_timestamp(item)))


def same(left: JsonObject, right: JsonObject) -> bool:
    """Whether two revisions have the same template."""
    return bool(left.get("data") == right.get("data"))


def new_revision(
    owner: JsonObject, resource: ResourceType, number: int, collisions: int, hash_label: str
) -> JsonObject:
    """The revision of the owner's present template."""
    data = data_of(owner)
    digest = hash_of(data, collisions)
    labels = {**get_object(owner, "spec", "template", "metadata", "labels"), hash_label: digest}
    metadata: JsonObject = {
        "name": f"{meta.name(owner)}-{digest}",
        "namespace": meta.namespace(owner),
        "labels": labels,
        "ownerReferences": [meta.new_controller_ref(owner, resource)],
    }
    if meta.annotations(owner):
        metadata["annotations"] = dict(meta.annotations(owner))
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


async def ensure(client: Client, wanted: JsonObject, revisions: Sequence[JsonObject]) -> JsonObject:
    """The revision of `revisions` with the data of `wanted`, renumbered as the newest; created if there is
    none.

    Raises StatusError 409 when the name belongs to another template or another owner (a DaemonSet and a
    StatefulSet may have name and template in common): then the hash must be recomputed.
    """
    ordered = by_number(revisions)
    equal = [item for item in ordered if same(item, wanted)]
    newest = get_int(ordered[-1], "revision") if ordered else 0
    if equal:
        found = equal[-1]
        if get_int(found, "revision") == newest:
            return found
        return await client.update(CONTROLLER_REVISIONS, {**found, "revision": newest + 1})
    try:
        return await client.create(CONTROLLER_REVISIONS, {**wanted, "revision": newest + 1})
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        found = await client.get(CONTROLLER_REVISIONS, meta.name(wanted), meta.namespace(wanted))
        if not same(found, wanted) or _is_foreign(found, wanted):
            raise
        return found


def _is_foreign(found: JsonObject, wanted: JsonObject) -> bool:
    """Whether a revision is controlled by another owner."""
    theirs, ours = meta.controller_of(found), meta.controller_of(wanted)
    return theirs is not None and ours is not None and theirs.get("uid") != ours.get("uid")


def informer(manager: Manager) -> Informer:
    """The informer of all revisions, by their owner."""
    return manager.informer(CONTROLLER_REVISIONS, indexers={OWNER_INDEX: controller_uid})


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of owners of one kind; `known` is the cache."""

    client: Client
    resource: ResourceType
    known: Informer
    hash_label: str

    async def newest(self, owner: JsonObject) -> JsonObject:
        """The revision of the owner's current template, created if there is none. Raises StatusError.

        When its name belongs to another template, the collision is counted in the owner's status, so that the
        next attempt has another name.
        """
        collisions = get_int(owner, "status", "collisionCount")
        wanted = new_revision(owner, self.resource, 1, collisions, self.hash_label)
        try:
            return await ensure(self.client, wanted, self._of(owner))
        except StatusError as error:
            if error.reason == "AlreadyExists":
                status = {**get_object(owner, "status"), "collisionCount": collisions + 1}
                await self.client.update(self.resource, {**owner, "status": status}, "status")
            raise

    async def trim(self, owner: JsonObject, is_used: Callable[[JsonObject], bool]) -> None:
        """Remove the oldest revisions that are not used, beyond the owner's limit."""
        unused = [item for item in by_number(self._of(owner)) if not is_used(item)]
        limit = get_int(owner, "spec", "revisionHistoryLimit", default=10)
        for item in unused[: max(0, len(unused) - limit)]:
            with ignoring(404):
                await self.client.delete(CONTROLLER_REVISIONS, meta.name(item), meta.namespace(item))

    def _of(self, owner: JsonObject) -> list[JsonObject]:
        return self.known.by_index(OWNER_INDEX, meta.uid(owner))
