"""Aggregation: whole group versions served by other API servers in the cluster."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import API_SERVICES, SERVICES

from ..discovery.pages import RemoteGroups
from ..http import responses
from ..http.call import Call
from ..http.request_info import RequestInfo
from ..registry.context import ObjectWriter
from ..services import ServiceResolver
from ..settings import Settings
from .forward import Forwarder
from .target import Target, identity_headers
from .tunnel import is_upgrade, tunnel

_LOG = logging.getLogger(__name__)
_CHECK_INTERVAL_SECONDS = 20.0
_RETRY_SECONDS = 2.0
_DISCOVERY_SECONDS = 5.0
_AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AS_AGGREGATOR = {
    "Accept": "application/json",
    "X-Remote-User": "system:kube-aggregator",
    "X-Remote-Group": "system:masters",
}

GroupVersion = tuple[str, str]
Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class AggregatedApis:
    """Tracks APIServices that have a service, checks their availability, and proxies requests to them."""

    def __init__(
        self, settings: Settings, objects: ObjectWriter, services: ServiceResolver, forwarder: Forwarder
    ) -> None:
        self._settings = settings
        self._objects = objects
        self._services = services
        self._forwarder = forwarder
        self._remote: dict[GroupVersion, JsonObject] = {}
        self._available: dict[GroupVersion, bool] = {}
        self._resources: dict[GroupVersion, list[JsonObject]] = {}
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._generation = 0
        self._groups = RemoteGroups({}, {}, 0)
        self._dirty = asyncio.Event()
        self.republished = asyncio.Event()
        """Set whenever `groups` or `served` may have changed; whoever waits for it clears it."""

    # --- what is aggregated

    def changed(self, event: str, obj: JsonObject) -> None:
        """An APIService was added, changed or deleted."""
        spec = get_object(obj, "spec")
        key = (str(spec.get("group") or ""), str(spec.get("version") or ""))
        if event == "DELETED" or not spec.get("service"):
            if self._remote.pop(key, None) is None:
                return
            self._available.pop(key, None)
            self._resources.pop(key, None)
        else:
            old = self._remote.get(key)
            self._remote[key] = obj
            if old is not None and old.get("spec") == obj.get("spec"):
                return
        self._republish()
        self._dirty.set()

    def service_changed(self, event: str, obj: JsonObject) -> None:
        """A service or its endpoints changed: its APIServices must be checked again."""
        name = meta.labels(obj).get("kubernetes.io/service-name") or meta.name(obj)
        for found in self._remote.values():
            service = get_object(found, "spec", "service")
            if (service.get("namespace"), service.get("name")) == (meta.namespace(obj), name):
                self._dirty.set()

    def groups(self) -> RemoteGroups:
        """What discovery shows of the aggregated groups."""
        return self._groups

    def _republish(self) -> None:
        self._generation += 1
        versions: dict[str, list[str]] = {}
        items: dict[str, JsonObject] = {}
        for group, version in self._remote:
            versions.setdefault(group, []).append(version)
        for group, found in versions.items():
            listed: list[JsonObject] = []
            for version in found:
                fresh = self._available.get((group, version), False)
                entry: JsonObject = {"version": version}
                resources = self._resources.get((group, version))
                if resources:
                    entry["resources"] = resources
                entry["freshness"] = "Current" if fresh else "Stale"
                listed.append(entry)
            items[group] = {"metadata": {"name": group, "creationTimestamp": None}, "versions": listed}
        self._groups = RemoteGroups(versions, items, self._generation)
        self.republished.set()

    def served(self) -> dict[GroupVersion, bool]:
        """The aggregated group versions, and whether their servers are available."""
        return {key: self._available.get(key, False) for key in self._remote}

    async def fetch(self, key: GroupVersion, path: str, tag: str) -> tuple[int, str, bytes]:
        """(status, tag, body) of a page of the server of a group version; 304 where its tag is still `tag`.

        Raises aiohttp.ClientError, OSError, TimeoutError, StatusError, ValueError.
        """
        found = self._remote.get(key)
        if found is None:
            raise errors.service_unavailable(f"there is no APIService of {key[0]}/{key[1]} any more")
        conditional = {"If-None-Match": tag} if tag else {}
        return await self._forwarder.fetch_tagged(
            self._target(found, path),
            headers=_AS_AGGREGATOR | conditional,
            timeout_seconds=_DISCOVERY_SECONDS,
        )

    # --- requests

    def handler(self, info: RequestInfo) -> Handler | None:
        """The APIService for a path of an aggregated group version; None if there is none."""
        key = (info.group, info.version)
        if not info.group or key not in self._remote:
            return None

        async def serve(call: Call) -> web.StreamResponse:
            return await self._serve(call, key)

        return serve

    async def _serve(self, call: Call, key: GroupVersion) -> web.StreamResponse:
        found = self._remote.get(key)
        if found is None or not self._available.get(key):
            return _unavailable(call)
        try:
            # Encode the path again, so that the other server reads the same path that was authorized.
            query = urlencode(list(call.query.items()))
            path = call.info.canonical_path
            target = self._target(found, f"{path}?{query}" if query else path)
        except errors.StatusError:
            return _unavailable(call)
        target.headers = identity_headers(call.user)
        if is_upgrade(call.request):
            return await tunnel(call.request, target)
        return await self._forwarder.forward(call.request, target)

    def _target(self, obj: JsonObject, path: str) -> Target:
        spec = get_object(obj, "spec")
        service = get_object(spec, "service")
        endpoint = self._services.resolve(
            str(service.get("namespace")), str(service.get("name")), int(service.get("port") or 443)
        )
        context = self._context(str(spec.get("caBundle") or ""), bool(spec.get("insecureSkipTLSVerify")))
        return Target(endpoint.host, endpoint.port, path, context, endpoint.server_name)

    def _context(self, bundle: str, insecure: bool) -> ssl.SSLContext:
        found = self._contexts.get((bundle, insecure))
        if found is None:
            found = ssl.create_default_context(cadata=base64.b64decode(bundle).decode() if bundle else None)
            if insecure:
                found.check_hostname = False
                found.verify_mode = ssl.CERT_NONE
            settings = self._settings
            if settings.proxy_client_cert is not None and settings.proxy_client_key is not None:
                found.load_cert_chain(settings.proxy_client_cert, settings.proxy_client_key)
            self._contexts[bundle, insecure] = found
        return found

    # --- availability

    async def run(self) -> None:
        """Check after each change and from time to time, until cancelled."""
        while True:
            waiting = _CHECK_INTERVAL_SECONDS
            if any(not available for available in self._available.values()):
                waiting = _RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), waiting)
            self._dirty.clear()
            await self._check_all()

    async def _check_all(self) -> None:
        """Check every APIService; one failure does not affect the others."""
        checked = list(self._remote.items())
        outcomes = await asyncio.gather(
            *(self._check(key, found) for key, found in checked), return_exceptions=True
        )
        for (_, found), outcome in zip(checked, outcomes, strict=True):
            if isinstance(outcome, Exception):
                shown = {"name_": meta.name(found), "err": repr(outcome)}
                _LOG.error(
                    "The availability of an APIService could not be checked; trying again", extra=shown
                )

    async def _check(self, key: GroupVersion, obj: JsonObject) -> None:
        reason, message = self._service_problem(obj)
        resources: list[JsonObject] | None = None
        if not reason:
            resources, message = await self._discover(key, obj)
            reason = "" if resources is not None else "FailedDiscoveryCheck"
        if key not in self._remote:
            return
        changed = self._available.get(key) != (not reason) or (
            resources is not None and self._resources.get(key) != resources
        )
        self._available[key] = not reason
        if resources is not None:
            self._resources[key] = resources
        if changed:
            self._republish()

        def change(current: JsonObject) -> JsonObject | None:
            conditions = get_list(current.setdefault("status", {}), "conditions")
            shown = (reason or "Passed", message or "all checks passed")
            changed = meta.set_condition(conditions, "Available", not reason, *shown)
            current["status"]["conditions"] = conditions
            return current if changed else None

        try:
            await self._objects.modify(API_SERVICES, None, meta.name(obj), change)
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                _LOG.warning("An APIService's status was not written", extra={"err": str(error)})

    def _service_problem(self, obj: JsonObject) -> tuple[str, str]:
        """(reason, message) if the service cannot be called at all; empty otherwise."""
        service = get_object(obj, "spec", "service")
        namespace, name, port = (
            str(service.get("namespace")),
            str(service.get("name")),
            service.get("port", 443),
        )
        shown = f'service/{name} in "{namespace}"'
        found = self._objects.get(SERVICES, namespace, name)
        if found is None:
            return "ServiceNotFound", f"{shown} is not present"
        spec = get_object(found, "spec")
        if spec.get("type") == "ExternalName":
            return "", ""
        entry = next((entry for entry in spec.get("ports") or () if entry.get("port") == port), None)
        if entry is None:
            return "ServicePortError", f"{shown} is not listening on port {port}"
        if not self._services.endpoints(namespace, name, str(entry.get("name") or "")):
            port_name = entry.get("name") or ""
            return "MissingEndpoints", f'endpoints for {shown} have no addresses with port name "{port_name}"'
        return "", ""

    async def _discover(self, key: GroupVersion, obj: JsonObject) -> tuple[list[JsonObject] | None, str]:
        """(resources as aggregated discovery lists them, "") or (None, what failed)."""
        group, version = key
        path = f"/apis/{group}/{version}"
        shown = path
        try:
            target = self._target(obj, path)
            shown = str(target.url)
            status, body = await self._forwarder.fetch(
                target,
                headers=_AS_AGGREGATOR,
                timeout_seconds=_DISCOVERY_SECONDS,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, errors.StatusError, ValueError) as error:
            return None, f"failing or missing response from {shown}: {error or type(error).__name__}"
        if status >= 300:
            return None, f"failing or missing response from {shown}: bad status from {shown}: {status}"
        try:
            listed = get_list(orjson.loads(body), "resources")
        except orjson.JSONDecodeError:
            listed = []
        return discovery_resources(group, version, listed), ""


def _unavailable(call: Call) -> web.StreamResponse:
    response = responses.text_response(503, "service unavailable\n")
    return responses.to_aiohttp(response, extra=[("Audit-Id", call.audit_id)])


def discovery_resources(group: str, version: str, listed: Sequence[object]) -> list[JsonObject]:
    """An APIResourceList's entries as aggregated discovery writes them, subresources below their resource.

    Whatever another server lists: what is no entry is passed over, and fields of another type are left out.
    """
    found: dict[str, JsonObject] = {}
    for entry in listed:
        if not isinstance(entry, dict) or not get_str(entry, "name"):
            continue
        name, slash, sub = get_str(entry, "name").partition("/")
        kind = {
            "group": get_str(entry, "group") or group,
            "version": get_str(entry, "version") or version,
            "kind": get_str(entry, "kind"),
        }
        scope = "Namespaced" if get_bool(entry, "namespaced") else "Cluster"
        owner = found.setdefault(name, {"resource": name, "responseKind": None, "scope": scope})
        if slash:
            child = {"subresource": sub, "responseKind": kind, "verbs": _texts(entry, "verbs")}
            owner.setdefault("subresources", []).append(child)
            continue
        owner.update(
            {
                "responseKind": kind,
                "scope": scope,
                "singularResource": get_str(entry, "singularName") or kind["kind"].lower(),
                "verbs": _texts(entry, "verbs"),
            }
        )
        for key in ("shortNames", "categories"):
            if texts := _texts(entry, key):
                owner[key] = texts
    for name, owner in found.items():
        owner.setdefault("singularResource", name)
        owner.setdefault("verbs", [])
    return list(found.values())


def _texts(entry: JsonObject, field: str) -> list[str]:
    return [text for text in get_list(entry, field) if isinstance(text, str)]
