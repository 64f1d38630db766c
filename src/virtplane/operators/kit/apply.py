"""Bringing objects to their wanted state: the difference (pure), and writing it.

An object that the operator wrote carries a digest of what was wanted. It is written again when the digest
differs, or when the object no longer holds everything wanted; what the API server filled in is left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.resources import ResourceType
from kubecore.runtime.informer import Informer
from virtplane.operators.kit.product import Product

logger = logging.getLogger(__name__)

BUILT_IN: tuple[ResourceType, ...] = (
    resources.SERVICE_ACCOUNTS,
    resources.SERVICES,
    resources.SECRETS,
    resources.CONFIG_MAPS,
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.POD_DISRUPTION_BUDGETS,
    resources.PRIORITY_CLASSES,
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.CUSTOM_RESOURCE_DEFINITIONS,
    resources.API_SERVICES,
    resources.MUTATING_WEBHOOK_CONFIGURATIONS,
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
    resources.VALIDATING_ADMISSION_POLICIES,
    resources.VALIDATING_ADMISSION_POLICY_BINDINGS,
)
"""The kinds of every cluster that operators write."""

_KEPT_SPEC_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def digest(desired: JsonObject) -> str:
    """A hash of the wanted state of one object."""
    encoded = orjson.dumps(desired, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()[:40]


def contains(live: Any, desired: Any) -> bool:
    """Whether `live` contains everything in `desired`: objects may have more fields, lists must be equal."""
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(contains(live.get(key), desired[key]) for key in desired)
    if isinstance(desired, list):
        if not desired and live is None:
            return True
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(contains(one, other) for one, other in zip(live, desired, strict=True))
        )
    if desired in ("", False, None) and live is None:
        return True
    return bool(live == desired)


def marked(desired: JsonObject, annotation: str) -> JsonObject:
    """A copy of `desired` with its own digest in `annotation`."""
    document = deep_copy(desired)
    document["metadata"].setdefault("annotations", {})[annotation] = digest(desired)
    return document


def needs_write(live: JsonObject, wanted: JsonObject) -> bool:
    """Whether `live` differs from `wanted` (which has its digest as an annotation)."""
    return not contains(live, wanted)


def replacement(live: JsonObject, wanted: JsonObject) -> JsonObject:
    """The object to write over `live`: the merged labels and annotations, and the wanted other fields.

    What is in no namespace has no owners but those that are wanted: it is the installation's alone.
    """
    document = deep_copy(wanted)
    metadata = deep_copy(get_object(live, "metadata"))
    for key in ("labels", "annotations"):
        metadata[key] = {**(metadata.get(key) or {}), **(wanted["metadata"].get(key) or {})}
    metadata.pop("managedFields", None)
    if not metadata.get("namespace"):
        metadata.pop("ownerReferences", None)
    if "ownerReferences" in wanted["metadata"]:
        metadata["ownerReferences"] = deep_copy(wanted["metadata"])["ownerReferences"]
    document["metadata"] = metadata
    if "status" in live:
        document["status"] = deep_copy({"status": live["status"]})["status"]
    for key in _KEPT_SPEC_FIELDS:
        kept = get_object(live, "spec").get(key)
        if document["kind"] == "Service" and kept is not None:
            document["spec"].setdefault(key, kept)
    return document


@dataclass(slots=True)
class Applier:
    """Writes the objects of one product.

    `informers` spare it from asking for what is watched anyway; `kinds` are those that the product defines
    itself, beside the built-in ones.
    """

    client: Client
    product: Product
    informers: dict[ResourceType, Informer] = field(default_factory=dict)
    kinds: Sequence[ResourceType] = ()
    customize: Callable[[JsonObject], JsonObject] = lambda document: document

    def resource_of(self, document: JsonObject) -> ResourceType:
        """The resource of an object. Raises KeyError for unknown kinds."""
        kind = document["kind"]
        for resource in (*BUILT_IN, *self.kinds):
            if resource.kind == kind:
                return resource
        raise KeyError(kind)

    async def apply_all(self, objects: Iterable[JsonObject], *, at_once: int = 1) -> int:
        """Bring all objects to their wanted state; gives how many had to be written.

        They are written in their order, or `at_once` at a time in any; nothing is under way any more when an
        error is raised.
        """
        waiting = iter(objects)

        async def work() -> int:
            return sum([await self.apply(desired) for desired in waiting])

        results = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return sum(result for result in results if isinstance(result, int))

    async def apply(self, desired: JsonObject) -> bool:
        """Bring one object to its wanted state; returns whether it was written."""
        wanted = marked(self.customize(desired), self.product.digest_annotation)
        resource = self.resource_of(wanted)
        live = await self._live(resource, wanted)
        if live is None:
            try:
                await self.client.create(resource, wanted)
            except errors.StatusError as error:
                if not errors.is_already_exists(error):
                    raise
                live = await self._get(resource, wanted)
            else:
                logger.info("created %s %s", wanted["kind"], wanted["metadata"]["name"])
                return True
        if live is None or not needs_write(live, wanted):
            return False
        await self._replace(resource, live, wanted)
        return True

    async def delete(self, document: JsonObject) -> bool:
        """Delete an object if it exists; returns whether it did."""
        resource = self.resource_of(document)
        metadata = document["metadata"]
        try:
            await self.client.delete(resource, metadata["name"], metadata.get("namespace"))
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise
            return False
        return True

    async def _replace(self, resource: ResourceType, live: JsonObject, wanted: JsonObject) -> None:
        try:
            await self.client.update(resource, replacement(live, wanted))
        except errors.StatusError as error:
            if not errors.is_conflict(error):
                raise
            fresh = await self._get(resource, wanted)
            if fresh is None or not needs_write(fresh, wanted):
                return
            await self.client.update(resource, replacement(fresh, wanted))
        logger.info("updated %s %s", wanted["kind"], wanted["metadata"]["name"])

    async def _live(self, resource: ResourceType, wanted: JsonObject) -> JsonObject | None:
        informer = self.informers.get(resource)
        if informer is not None:
            return informer.get(get_str(wanted, "metadata", "namespace"), wanted["metadata"]["name"])
        return await self._get(resource, wanted)

    async def _get(self, resource: ResourceType, wanted: JsonObject) -> JsonObject | None:
        metadata = wanted["metadata"]
        try:
            return await self.client.get(resource, metadata["name"], metadata.get("namespace"))
        except errors.StatusError as error:
            if errors.is_not_found(error):
                return None
            raise
