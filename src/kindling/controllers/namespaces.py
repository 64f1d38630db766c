"""Namespace deletion: all objects in it are deleted, then its finalizer ``kubernetes``.

Conditions report the progress, with the messages of Kubernetes.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from kindling.controllers.environment import Environment
from kubecore.client import Client, ConnectionFailed, Discovery, ServedResource, discover
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_list
from kubecore.objects import meta
from kubecore.resources import NAMESPACES
from kubecore.runtime import DONE, Key, RequeueAfter, Result

logger = logging.getLogger(__name__)

NAME = "namespace-controller"
FINALIZER = "kubernetes"
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 8.0
_ORDERED_FIRST = ("", "pods")
"""Pods go before anything they may still read."""


@dataclass(slots=True)
class Contents:
    """The result of one round of deletion: remaining objects, their finalizers, and errors."""

    remaining: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    deletion_errors: list[str] = field(default_factory=list)
    discovery_failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether no object is left and no error could have hidden one."""
        return not (self.remaining or self.deletion_errors or self.discovery_failures)


def conditions(contents: Contents) -> list[tuple[str, bool, str, str]]:
    """Type, status, reason and message of the five conditions of a terminating namespace."""
    failures = contents.discovery_failures
    errors = contents.deletion_errors
    discovery = [f"{group_version}: {text}" for group_version, text in sorted(failures.items())]
    remaining = [
        f"{name} has {count} resource instances" for name, count in sorted(contents.remaining.items())
    ]
    holding = [f"{name} in {count} resource instances" for name, count in sorted(contents.finalizers.items())]
    return [
        (
            "NamespaceDeletionDiscoveryFailure",
            bool(failures),
            "DiscoveryFailed" if failures else "ResourcesDiscovered",
            f"Discovery failed for some groups, {len(failures)} failing: "
            f"unable to retrieve the complete list of server APIs: {', '.join(discovery)}"
            if failures
            else "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            bool(errors),
            "ContentDeletionFailed" if errors else "ContentDeleted",
            f"Failed to delete all resource types, {len(errors)} remaining: {', '.join(errors)}"
            if errors
            else "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            bool(remaining),
            "SomeResourcesRemain" if remaining else "ContentRemoved",
            f"Some resources are remaining: {', '.join(remaining)}"
            if remaining
            else "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            bool(holding),
            "SomeFinalizersRemain" if holding else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {', '.join(holding)}"
            if holding
            else "All content-preserving finalizers finished",
        ),
    ]


def _sorted(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items())


def order(discovery: Discovery) -> list[ServedResource]:
    """The resources to empty, pods first."""
    chosen = [
        served
        for served in discovery.preferred()
        if served.resource.namespaced and served.supports("delete", "list")
    ]
    return sorted(chosen, key=lambda served: not _goes_first(served))


def _goes_first(served: ServedResource) -> bool:
    return (served.resource.group, served.resource.plural) == _ORDERED_FIRST


class NamespaceController:
    """Empties and finalizes namespaces that are being deleted."""

    def __init__(self, environment: Environment) -> None:
        self._client: Client = environment.client
        self._namespaces = environment.manager.informer(NAMESPACES)
        self._rounds: dict[str, int] = {}
        controller = environment.controller(NAME, self.reconcile, workers=5)
        controller.watch(self._namespaces)

    async def reconcile(self, key: Key) -> Result:
        """Delete the contents of one namespace once, and report what remains."""
        namespace = self._namespaces.get(None, key[1])
        if namespace is None or not meta.is_being_deleted(namespace):
            self._rounds.pop(key[1], None)
            return DONE
        if FINALIZER not in get_list(namespace, "spec", "finalizers"):
            return DONE
        contents = await self._empty(key[1])
        await self._report(namespace, contents)
        if contents.is_empty:
            await self._finalize(key[1])
            return DONE
        rounds = self._rounds[key[1]] = self._rounds.get(key[1], 0) + 1
        return RequeueAfter(min(FIRST_RETRY_SECONDS * 2 ** (rounds - 1), LAST_RETRY_SECONDS))

    async def _empty(self, name: str) -> Contents:
        contents = Contents()
        discovery = await discover(self._client)
        contents.discovery_failures = dict(discovery.failures)
        for served in order(discovery):
            try:
                await self._delete_all(served, name, contents)
            except (StatusError, ConnectionFailed) as error:
                if not (isinstance(error, StatusError) and error.code in (404, 405)):
                    contents.deletion_errors.append(str(error))
            if contents.remaining and _goes_first(served):
                break
        return contents

    async def _delete_all(self, served: ServedResource, name: str, contents: Contents) -> None:
        resource = served.resource
        found = await self._client.list(resource, name, metadata_only=True)
        if not get_list(found, "items"):
            return
        if served.supports("deletecollection"):
            await self._client.delete_collection(resource, name, propagation_policy="Background")
        else:
            for obj in get_list(found, "items"):
                await self._delete_one(served, name, obj)
        left = get_list(await self._client.list(resource, name, metadata_only=True), "items")
        if left:
            contents.remaining[f"{resource.plural}.{resource.group}"] = len(left)
        for obj in left:
            contents.finalizers.update(meta.finalizers(obj))

    async def _delete_one(self, served: ServedResource, name: str, obj: JsonObject) -> None:
        with ignoring(404):
            await self._client.delete(served.resource, meta.name(obj), name, propagation_policy="Background")

    async def _report(self, namespace: JsonObject, contents: Contents) -> None:
        updated = deep_copy(namespace)
        status = updated.setdefault("status", {})
        found = status.setdefault("conditions", [])
        if contents.is_empty and not found:
            return
        changed = [meta.set_condition(found, *condition) for condition in conditions(contents)]
        if any(changed):
            with ignoring(404, 409):
                await self._client.update(NAMESPACES, updated, "status")

    async def _finalize(self, name: str) -> None:
        with ignoring(404):
            namespace = await self._client.get(NAMESPACES, name)
            kept = [entry for entry in get_list(namespace, "spec", "finalizers") if entry != FINALIZER]
            namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": kept}
            await self._client.update(NAMESPACES, namespace, "finalize")
        logger.info("namespace %s is empty; its finalizer was removed", name)
