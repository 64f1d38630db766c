"""Adoption: which objects a controller keeps, adopts and releases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.selectors import LabelSelector
from kubecore.resources import ResourceType


@dataclass(slots=True)
class Claims:
    """The result of sorting the candidates."""

    mine: list[JsonObject] = field(default_factory=list)
    adopt: list[JsonObject] = field(default_factory=list)
    release: list[JsonObject] = field(default_factory=list)


def decide(owner: JsonObject, selector: LabelSelector, candidates: Iterable[JsonObject]) -> Claims:
    """Sort `candidates` (controlled objects and orphans). An owner that is being deleted neither adopts nor
    releases.
    """
    claims = Claims()
    dying = meta.is_being_deleted(owner)
    for obj in candidates:
        reference = meta.controller_of(obj)
        matches = selector.matches(meta.labels(obj))
        if reference is not None:
            if reference["uid"] != meta.uid(owner):
                continue
            if matches or dying:
                claims.mine.append(obj)
            else:
                claims.release.append(obj)
        elif matches and not dying and not meta.is_being_deleted(obj):
            claims.adopt.append(obj)
    return claims


class Claimer:
    """Adopts and releases objects."""

    def __init__(self, client: Client, owners: ResourceType, objects: ResourceType) -> None:
        self._client = client
        self._owners = owners
        self._objects = objects

    async def claim(
        self, owner: JsonObject, selector: LabelSelector, candidates: Iterable[JsonObject]
    ) -> list[JsonObject]:
        """Adopt and release as decided; returns the objects that belong to `owner` afterwards."""
        claims = decide(owner, selector, candidates)
        for obj in claims.release:
            await self._release(owner, obj)
        if not claims.adopt or not await self._may_adopt(owner):
            return claims.mine
        adopted = [await self._adopt(owner, obj) for obj in claims.adopt]
        return claims.mine + [obj for obj in adopted if obj is not None]

    async def _may_adopt(self, owner: JsonObject) -> bool:
        """Read the owner from the API server: the cache may be stale, and a deleted or recreated owner must
        not adopt.
        """
        try:
            live = await self._client.get(self._owners, meta.name(owner), meta.namespace(owner))
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return meta.uid(live) == meta.uid(owner) and not meta.is_being_deleted(live)

    async def _adopt(self, owner: JsonObject, obj: JsonObject) -> JsonObject | None:
        references = [*meta.owner_references(obj), meta.new_controller_ref(owner, self._owners)]
        return await self._patch(obj, references)

    async def _release(self, owner: JsonObject, obj: JsonObject) -> None:
        references = [
            reference for reference in meta.owner_references(obj) if reference["uid"] != meta.uid(owner)
        ]
        await self._patch(obj, references)

    async def _patch(self, obj: JsonObject, references: list[JsonObject]) -> JsonObject | None:
        patch = {
            "metadata": {
                "uid": meta.uid(obj),
                "resourceVersion": meta.resource_version(obj),
                "ownerReferences": references or None,
            }
        }
        try:
            return await self._client.patch(
                self._objects, meta.name(obj), patch, meta.namespace(obj), type="merge"
            )
        except StatusError as error:
            if error.code in (404, 422):
                return None
            raise
