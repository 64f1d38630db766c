"""The in-memory API server."""

from __future__ import annotations

import itertools
import random
import string
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kubecore import errors, resources
from kubecore.client import Client, ClientConfig, ConnectionFailed, Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects.times import now_rfc3339
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.patch.strategic import strategic_merge
from kubecore.resources import ResourceType
from kubecore.schema.model import Schema
from kubecore.testing import discovery, watchers
from kubecore.testing.transport import MemoryTransport

Reaction = Callable[[Request], Response | StatusError | None]
"""Looks at a request before the server does: an answer or a refusal of its own, or None to let it pass."""

_LISTS = Schema(
    {
        "properties": {
            "status": {
                "properties": {
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-patch-strategy": "merge",
                        "x-kubernetes-patch-merge-key": "type",
                    }
                }
            }
        }
    }
)
"""What strategic patches know of built-in kinds: several writers have conditions of their own."""


@dataclass(frozen=True, slots=True)
class _Target:
    resource: ResourceType
    namespace: str
    name: str
    subresource: str


def built_in_resources() -> list[ResourceType]:
    """All resource types that `kubecore.resources` names."""
    return [value for value in vars(resources).values() if isinstance(value, ResourceType)]


class MemoryApi:
    """Objects by resource, namespace and name, served to any number of `client`s.

    `requests` records all requests; `reactions` may answer them first. Tests may `put` and `remove` objects
    directly, which watchers see like any other write.
    """

    def __init__(
        self, extra_resources: Iterable[ResourceType] = (), *, whole: Iterable[ResourceType] = ()
    ) -> None:
        """`whole` are kinds without status subresource: status is written with the rest."""
        self._whole = {resources.NODES, *whole}
        self.requests: list[Request] = []
        self.reactions: list[Reaction] = []
        self._types = [*built_in_resources(), *extra_resources]
        self._by_path = {(each.group, each.version, each.plural): each for each in reversed(self._types)}
        self._objects: dict[ResourceType, dict[tuple[str, str], JsonObject]] = {}
        """By namespace and name."""
        self._history: list[tuple[int, str, ResourceType, JsonObject, JsonObject | None]] = []
        self._version = itertools.count(1)
        self._last_version = 0
        self._oldest_version = 0
        self._watchers: dict[ResourceType, list[watchers.Watcher]] = {}

    def client(self, **config: Any) -> Client:
        """A client of this server; `config` are fields of its ClientConfig."""
        return Client(ClientConfig(server="memory://", **config), MemoryTransport(self.handle, self.watch))

    def get(self, resource: ResourceType, name: str, namespace: str = "") -> JsonObject | None:
        """The stored object."""
        return self._objects.get(resource, {}).get((namespace, name))

    def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        """The stored objects in the order of their names."""
        return [
            obj
            for key, obj in sorted(self._objects.get(resource, {}).items(), key=lambda item: item[0])
            if namespace is None or key[0] == namespace
        ]

    def put(self, resource: ResourceType, obj: JsonObject) -> JsonObject:
        """Store `obj` as it is (uid, creation time and version are filled in), as another client would."""
        return self._store(resource, deep_copy(obj))

    def remove(self, resource: ResourceType, name: str, namespace: str = "") -> None:
        """Remove an object immediately, even if it has finalizers."""
        obj = deep_copy(self._objects[resource].pop((namespace, name)))
        self._stamp(obj)
        self._publish("DELETED", resource, obj, obj)

    def expire_history(self) -> None:
        """Drop the event history: watches from older versions get 410, and running watches end."""
        self._oldest_version = self._last_version
        self._history.clear()
        self.break_watches()

    def break_watches(self) -> None:
        """Break all running watches like a failing network."""
        for watcher in itertools.chain.from_iterable(self._watchers.values()):
            watcher.queue.put_nowait(None)

    def handle(self, request: Request) -> Response:
        """Answer any request but a watch."""
        self.requests.append(request)
        try:
            early = self._react(request)
            if early is not None:
                return early
            return _json(*self._dispatch(request))
        except StatusError as error:
            return Response(error.code, error.headers, orjson.dumps(error.to_status()))

    def watch(self, request: Request) -> AsyncIterator[bytes]:
        """Answer a watch. Raises StatusError (410) for versions older than the history."""
        self.requests.append(request)
        self._refuse(request)
        target = self._target(request.path)
        query = dict(request.query)
        watcher = watchers.Watcher(target.resource, target.namespace, watchers.selector(query))
        since = int(query.get("resourceVersion") or 0)
        if since and since < self._oldest_version:
            raise errors.expired(f"too old resource version: {since} ({self._oldest_version})")
        for obj in self._selected(watcher):
            watcher.known.add(watchers.key(obj))
        backlog = [event for event in self._history if event[0] > since] if since else []
        if since:
            watcher.known = self._known_at(watcher, backlog)
        else:
            for obj in self._selected(watcher):
                watcher.queue.put_nowait(watchers.line("ADDED", obj))
        for _, event, resource, new, old in backlog:
            if resource == target.resource:
                watchers.deliver([watcher], event, new, old)
        self._watchers.setdefault(target.resource, []).append(watcher)
        return self._lines(watcher)

    async def _lines(self, watcher: watchers.Watcher) -> AsyncIterator[bytes]:
        try:
            while (line := await watcher.queue.get()) is not None:
                yield line
            raise ConnectionFailed("the connection to memory:// was cut")
        finally:
            self._watchers[watcher.resource].remove(watcher)

    def _known_at(self, watcher: watchers.Watcher, backlog: Iterable[Any]) -> set[tuple[str, str]]:
        """The objects that the watcher knew before the backlog: the current ones with the backlog undone."""
        known = set(watcher.known)
        for _, _, resource, new, old in reversed(list(backlog)):
            if resource != watcher.resource:
                continue
            known.discard(watchers.key(new))
            if old is not None and watcher.selects(old):
                known.add(watchers.key(old))
        return known

    def _selected(self, watcher: watchers.Watcher) -> Iterable[JsonObject]:
        for obj in self.list(watcher.resource, watcher.namespace or None):
            if watcher.selects(obj):
                yield obj

    def _react(self, request: Request) -> Response | None:
        for reaction in self.reactions:
            answer = reaction(request)
            if isinstance(answer, StatusError):
                raise answer
            if answer is not None:
                return answer
        return None

    def _refuse(self, request: Request) -> None:
        answer = self._react(request)
        if answer is not None:
            raise StatusError.from_status(answer.json())

    def _dispatch(self, request: Request) -> tuple[int, Any]:
        discovered = discovery.answer(request.path, self._types)
        if discovered is not None:
            return 200, discovered
        target = self._target(request.path)
        query = dict(request.query)
        body: Any = orjson.loads(request.body) if request.body else None
        if request.method == "GET":
            return (200, self._existing(target)) if target.name else (200, self._listing(target, query))
        if request.method == "POST" and not target.subresource:
            return 201, self._create(target, body, query)
        if request.method == "POST":
            return 201, self._post(target, body)
        if request.method == "PUT":
            return 200, self._update(target, body)
        if request.method == "PATCH":
            return self._patch(target, request, body)
        if request.method == "DELETE":
            return 200, self._delete(target, body or {}, query)
        raise errors.method_not_allowed(target.resource.group_resource, request.method)

    def _target(self, path: str) -> _Target:
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        else:
            group, version, rest = parts[1], parts[2], parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        resource = self._by_path.get((group, version, rest[0]))
        if resource is None:
            raise StatusError(404, errors.NOT_FOUND, "the server could not find the requested resource")
        return _Target(resource, namespace, rest[1] if len(rest) > 1 else "", "/".join(rest[2:]))

    def _existing(self, target: _Target) -> JsonObject:
        obj = self.get(target.resource, target.name, target.namespace)
        if obj is None:
            raise errors.not_found(target.resource.group_resource, target.name)
        return obj

    def _listing(self, target: _Target, query: Mapping[str, str]) -> JsonObject:
        selects = watchers.selector(query)
        return {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.api_version,
            "metadata": {"resourceVersion": str(self._last_version)},
            "items": [obj for obj in self.list(target.resource, target.namespace or None) if selects(obj)],
        }

    def _create(self, target: _Target, obj: JsonObject, query: Mapping[str, str]) -> JsonObject:
        metadata = obj.setdefault("metadata", {})
        if target.namespace:
            metadata["namespace"] = target.namespace
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
            metadata["name"] = metadata["generateName"] + suffix
        if self.get(target.resource, metadata["name"], target.namespace) is not None:
            raise errors.already_exists(target.resource.group_resource, metadata["name"])
        for generated in ("uid", "creationTimestamp", "resourceVersion"):
            metadata.pop(generated, None)
        metadata["generation"] = 1
        return obj if query.get("dryRun") else self._store(target.resource, obj)

    def _post(self, target: _Target, body: JsonObject) -> JsonObject:
        if target.subresource == "binding":
            pod = deep_copy(self._existing(target))
            pod["spec"]["nodeName"] = get_str(body, "target", "name")
            self._store(target.resource, pod)
        elif target.subresource == "eviction":
            self._delete(target, get_object(body, "deleteOptions"), {})
        elif target.subresource == "token":
            return {**body, "status": {"token": f"token-of-{target.name}"}}
        else:
            raise errors.method_not_allowed(target.resource.group_resource, "POST")
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _update(self, target: _Target, obj: JsonObject) -> JsonObject:
        old = self._existing(target)
        sent = get_str(obj, "metadata", "resourceVersion")
        if sent and sent != get_str(old, "metadata", "resourceVersion"):
            raise errors.conflict(target.resource.group_resource, target.name, errors.OBJECT_MODIFIED)
        return self._replace(target, old, obj)

    def _replace(self, target: _Target, old: JsonObject, new: JsonObject) -> JsonObject:
        if target.subresource == "status":
            # As on the API server, a write of the status also writes annotations.
            annotations = get_object(new, "metadata").get("annotations")
            metadata = {**old["metadata"], **({"annotations": annotations} if annotations else {})}
            new = {**old, "metadata": metadata, "status": new.get("status")}
        elif target.subresource == "scale":
            new = {**old, "spec": {**old["spec"], "replicas": new["spec"]["replicas"]}}
        elif "status" in old and target.resource not in self._whole:
            new = {**new, "status": old["status"]}
        generation = get_object(old, "metadata").get("generation", 1)
        if new.get("spec") != old.get("spec"):
            generation += 1
        kept = {key: get_object(old, "metadata").get(key) for key in ("uid", "creationTimestamp")}
        new = {**new, "metadata": {**new["metadata"], **kept, "generation": generation}}
        if _without_version(new) == _without_version(old):
            return old
        return self._store(target.resource, deep_copy(new))

    def _patch(self, target: _Target, request: Request, patch: Any) -> tuple[int, JsonObject]:
        form = request.header("Content-Type")
        is_new = self.get(target.resource, target.name, target.namespace) is None
        if form == "application/apply-patch+yaml" and is_new:
            return 201, self._create(target, {**patch, "metadata": {**patch["metadata"]}}, {})
        old = self._existing(target)
        if form == "application/json-patch+json":
            try:
                new = apply_json_patch(deep_copy(old), patch)
            except JsonPatchError as error:
                raise error.rejected() from error
        elif form == "application/strategic-merge-patch+json":
            new = strategic_merge(deep_copy(old), patch, _LISTS)
        else:
            new = apply_merge_patch(deep_copy(old), patch)
        sent = get_str(new, "metadata", "resourceVersion")
        if sent != get_str(old, "metadata", "resourceVersion"):
            raise errors.conflict(target.resource.group_resource, target.name, errors.OBJECT_MODIFIED)
        return 200, self._replace(target, old, new)

    def _delete(self, target: _Target, options: JsonObject, query: Mapping[str, str]) -> JsonObject:
        if not target.name:
            for obj in self._listing(target, query)["items"]:
                namespace, name = watchers.key(obj)
                self._delete(_Target(target.resource, namespace, name, ""), options, {})
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        obj = self._existing(target)
        self._check_preconditions(target, obj, options)
        policy = get_str(options, "propagationPolicy")
        finalizers = list(get_list(obj, "metadata", "finalizers"))
        for wanted_policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
            if policy == wanted_policy and finalizer not in finalizers:
                finalizers.append(finalizer)
        if target.resource == resources.NAMESPACES and get_str(obj, "metadata", "deletionTimestamp") == "":
            obj = {**obj, "status": {**get_object(obj, "status"), "phase": "Terminating"}}
        obj = deep_copy(obj)
        if finalizers or get_list(obj, "spec", "finalizers"):
            obj["metadata"]["finalizers"] = finalizers
            obj["metadata"].setdefault("deletionTimestamp", now_rfc3339())
            if obj == self._existing(target):
                return obj  # it is going already: nothing is written
            return self._store(target.resource, obj)
        self.remove(target.resource, target.name, target.namespace)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _check_preconditions(self, target: _Target, obj: JsonObject, options: JsonObject) -> None:
        for name, wanted in get_object(options, "preconditions").items():
            actual = get_str(obj, "metadata", name)
            if actual != wanted:
                label = {"uid": "UID", "resourceVersion": "ResourceVersion"}.get(name, name)
                raise errors.conflict(
                    target.resource.group_resource,
                    target.name,
                    f"Precondition failed: {label} in precondition: {wanted}, "
                    f"{label} in object meta: {actual}",
                )

    def _store(self, resource: ResourceType, obj: JsonObject) -> JsonObject:
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        metadata = obj.setdefault("metadata", {})
        key = watchers.key(obj)
        present = self._objects.setdefault(resource, {})
        old = present.get(key)
        kept = get_object(old, "metadata")
        metadata.setdefault("uid", kept.get("uid") or str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", kept.get("creationTimestamp") or now_rfc3339())
        gone = bool(get_str(metadata, "deletionTimestamp")) and not self._is_held(obj)
        self._stamp(obj)
        if old is not None and gone:
            del present[key]
            self._publish("DELETED", resource, obj, old)
            return obj
        present[key] = obj
        self._publish("ADDED" if old is None else "MODIFIED", resource, obj, old)
        return obj

    def _is_held(self, obj: JsonObject) -> bool:
        """Whether finalizers keep an object that is being deleted."""
        return bool(get_list(obj, "metadata", "finalizers") or get_list(obj, "spec", "finalizers"))

    def _stamp(self, obj: JsonObject) -> None:
        self._last_version = next(self._version)
        obj["metadata"]["resourceVersion"] = str(self._last_version)

    def _publish(self, event: str, resource: ResourceType, new: JsonObject, old: JsonObject | None) -> None:
        new = deep_copy(new)
        self._history.append((self._last_version, event, resource, new, old))
        watchers.deliver(self._watchers.get(resource, ()), event, new, old)


def _json(status: int, body: Any) -> Response:
    return Response(status, {"content-type": "application/json"}, orjson.dumps(body))


def _without_version(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": None}}
