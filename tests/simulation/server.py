"""The API server of the simulation: the one in memory, with what pods and instances need of a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubecore import errors, resources
from kubecore.client import Request
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi, discovery
from virtplane.api import labels
from virtplane.api import resources as kinds

VM_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
USER_AGENT = "user"
Observer = Callable[[str, ResourceType, JsonObject, JsonObject | None], None]
"""Told of every change: event, kind, new and old state."""


def unguarded_lists(patch: Any, form: str) -> list[str]:
    """The lists that a JSON or merge patch writes whole, without a test of what is there (pure)."""
    if form == "application/json-patch+json":
        tested = {item["path"] for item in patch if item["op"] == "test"}
        if "/metadata/resourceVersion" in tested:
            return []
        written = [item for item in patch if item["op"] in ("add", "replace") and item["path"] not in tested]
        return [item["path"] for item in written if isinstance(item["value"], list)]
    if form == "application/merge-patch+json" and not get_str(patch, "metadata", "resourceVersion"):
        return [path for path, value in _leaves("", patch) if isinstance(value, list)]
    return []


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{path}/{key}", inner)
    else:
        yield path, value


class SimulatedApi(MemoryApi):
    """Adds graceful deletion of pods, bindings that hold, merged conditions, admission of instances."""

    def __init__(self) -> None:
        super().__init__(VM_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])
        self.observers: list[Observer] = []
        self.overwriting: list[str] = []
        """Patches of controllers that put a list in another's place without looking what is there."""

    def kinds(self) -> list[ResourceType]:
        """Kinds of which there are objects now, events aside."""
        return [kind for kind, found in self._objects.items() if found and kind != resources.EVENTS]

    def _dispatch(self, request: Request) -> tuple[int, Any]:
        if "as=APIGroupDiscoveryList" in request.header("Accept"):
            found = discovery.aggregated(request.path, self._types)
            if found is not None:
                return 200, found
        return super()._dispatch(request)

    def _create(self, target: Any, obj: JsonObject, query: Mapping[str, str]) -> JsonObject:
        if target.resource == kinds.VIRTUAL_MACHINE_INSTANCES:
            meta.add_finalizer(obj, labels.FINALIZER_INSTANCE)
            obj.setdefault("status", {}).setdefault("phase", "Pending")
        if target.resource == resources.PODS:
            obj.setdefault("status", {}).setdefault("phase", "Pending")
        return super()._create(target, obj, query)

    def _post(self, target: Any, body: JsonObject) -> JsonObject:
        if target.subresource == "binding":
            pod = self._existing(target)
            wanted = get_str(body, "metadata", "uid")
            if wanted and wanted != meta.uid(pod):
                raise errors.conflict(target.resource.group_resource, target.name, "the UID differs")
            if get_str(pod, "spec", "nodeName") or meta.is_being_deleted(pod):
                raise errors.conflict(target.resource.group_resource, target.name, "pod is bound or deleted")
        return super()._post(target, body)

    def _patch(self, target: Any, request: Request, patch: Any) -> tuple[int, JsonObject]:
        if request.header("User-Agent") != USER_AGENT:
            self.overwriting += [
                f"{request.method} {request.path} overwrites the list {path} unseen"
                for path in unguarded_lists(patch, request.header("Content-Type"))
            ]
        wanted = get_str(patch, "metadata", "uid") if isinstance(patch, dict) else ""
        if wanted and wanted != meta.uid(self._existing(target)):
            raise errors.conflict(target.resource.group_resource, target.name, "the UID differs")
        if request.header("Content-Type").startswith("application/strategic"):
            patch = self._merging_lists(target, patch)
        return super()._patch(target, request, patch)

    def _merging_lists(self, target: Any, patch: JsonObject) -> JsonObject:
        """The patch with the members of the lists that it does not name, as they are."""
        present = self._existing(target)
        fresh = get_list(patch, "status", "conditions")
        if fresh:
            names = {item["type"] for item in fresh}
            kept = [item for item in get_list(present, "status", "conditions") if item["type"] not in names]
            patch = {**patch, "status": {**patch["status"], "conditions": [*kept, *fresh]}}
        changed = {item["name"]: item for item in get_list(patch, "spec", "containers")}
        if changed:
            known = get_list(present, "spec", "containers")
            merged = [{**item, **changed.get(item["name"], {})} for item in known]
            patch = {**patch, "spec": {**patch["spec"], "containers": merged}}
        return patch

    def _delete(self, target: Any, options: JsonObject, query: Mapping[str, str]) -> JsonObject:
        if target.name and target.resource == resources.PODS:
            pod = self._existing(target)
            self._check_preconditions(target, pod, options)
            grace = options.get("gracePeriodSeconds")
            if grace is None:
                grace = get_int(pod, "spec", "terminationGracePeriodSeconds", default=30)
            is_ended = get_str(pod, "status", "phase") in ("Succeeded", "Failed")
            if grace > 0 and get_str(pod, "spec", "nodeName") and not is_ended:
                return self._delete_gracefully(target, pod, grace)
            pod["metadata"]["deletionGracePeriodSeconds"] = 0
        return super()._delete(target, options, query)

    def _delete_gracefully(self, target: Any, pod: JsonObject, grace: int) -> JsonObject:
        pod = deep_copy(pod)
        present = pod["metadata"].get("deletionGracePeriodSeconds")
        if present is not None and present <= grace:
            return pod
        pod["metadata"]["deletionGracePeriodSeconds"] = grace
        pod["metadata"].setdefault("deletionTimestamp", now_rfc3339())
        return self._store(target.resource, pod)

    def _is_held(self, obj: JsonObject) -> bool:
        """A pod that its node has not let go yet is held by its grace period."""
        return super()._is_held(obj) or get_int(obj, "metadata", "deletionGracePeriodSeconds") > 0

    def _publish(self, event: str, resource: ResourceType, new: JsonObject, old: JsonObject | None) -> None:
        super()._publish(event, resource, new, old)
        for observer in self.observers:
            observer(event, resource, new, old)
