"""Nothing is done that was not authorized as what it is, in whatever way the request is written."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
import pytest
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server
from yarl import URL

from kubecore.json import JsonObject
from kubecore.resources import CLUSTER_ROLES, CONFIG_MAPS, NAMESPACES, ROLE_BINDINGS, SECRETS

_RBAC = "rbac.authorization.k8s.io"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/mine/leases"
_WRITES = {"POST": ("create",), "PUT": ("update", "create"), "PATCH": ("patch", "create")}
_APPLY = "application/apply-patch+yaml"


@dataclass
class Tenant:
    """A user who holds one cluster role in the namespace ``mine`` and nothing elsewhere."""

    running: RunningServer
    session: aiohttp.ClientSession

    async def hold(self, *rules: JsonObject, role: str = "") -> None:
        """Take what was held away and give the rules, or a role that exists."""
        objects = self.running.server.objects
        if rules:
            role = "tenant"
            given = {"metadata": {"name": role}, "rules": list(rules)}
            if objects.exists(CLUSTER_ROLES, None, role):
                await objects.delete(CLUSTER_ROLES, None, role)
            await objects.create(CLUSTER_ROLES, given)
        if objects.exists(ROLE_BINDINGS, "mine", "tenant"):
            await objects.delete(ROLE_BINDINGS, "mine", "tenant")
        binding = {
            "metadata": {"name": "tenant", "namespace": "mine"},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "tenant"}],
        }
        await objects.create(ROLE_BINDINGS, binding)

    async def ask(
        self, method: str, target: str, body: JsonObject | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """The status and the first bytes of the answer."""
        url = URL(self.running.url + target, encoded=True)
        data = orjson.dumps(body) if body is not None else None
        headers = {"Impersonate-User": "tenant", "Content-Type": kind}
        async with self.session.request(method, url, data=data, headers=headers) as answer:
            return answer.status, await answer.content.readany()


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Tenant]:
    async with running_server(directory) as running:
        objects = running.server.objects
        for namespace in ("mine", "other"):
            await objects.create(NAMESPACES, {"metadata": {"name": namespace}})
            for resource in (CONFIG_MAPS, SECRETS):
                for name in ("one", "two"):
                    await objects.create(resource, {"metadata": {"name": name, "namespace": namespace}})
        context = ssl.create_default_context(cadata=running.ca_data.decode())
        connector = aiohttp.TCPConnector(ssl=context)
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield Tenant(running, session)


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with served(tmp_path) as made:
        yield made


def rule(verbs: str, resources: str = "*", *names: str, group: str = "*") -> JsonObject:
    found: JsonObject = {
        "verbs": verbs.split(","),
        "apiGroups": [group],
        "resources": resources.split(","),
    }
    return {**found, "resourceNames": list(names)} if names else found


def config_map(name: str, namespace: str = "mine") -> JsonObject:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def lease(name: str) -> JsonObject:
    metadata = {"name": name, "namespace": "mine"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


_FORMS = [
    f"{start}{inside}{end}{query}"
    for start in ("/api/v1", "/api/v1/watch", "/api/v1/proxy", "/api%2Fv1%2Fwatch", "//api/v1")
    for inside in ("", "/namespaces/mine", "/namespaces%2Fmine", "/namespaces/")
    for end in ("/configmaps", "/configmaps/one", "/configmaps%2Fone")
    for query in ("", "?watch=true")
]


@pytest.mark.parametrize("held", ["get", "list", "watch", "create", "update", "patch", "delete", "proxy", ""])
async def test_what_is_written_was_authorized_by_that_verb(tenant: Tenant, held: str) -> None:
    await tenant.hold(rule(held or "nothing"))
    store = tenant.running.server.store
    wrote: set[str] = set()
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
        for target in _FORMS:
            before = store.revision
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            body = config_map("new" if method == "POST" else "one")
            body["data"] = {"by": f"{method} {target}"}
            await tenant.ask(method, target, None if method == "DELETE" else body, kind)
            if store.revision == before:
                continue
            named = "configmaps/" in target.replace("%2F", "/").rstrip("/")
            deletion = ("delete",) if named else ("deletecollection",)
            assert held in _WRITES.get(method, deletion), f"{method} {target}"
            wrote.add(method)
    assert bool(wrote) == (held in ("create", "update", "patch", "delete"))


@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT", "PATCH", "HEAD"])
@pytest.mark.parametrize(
    "target", ["configmaps?watch=true", "configmaps", "configmaps/one", "configmaps%2Fone"]
)
async def test_paths_of_watches_are_only_read(tenant: Tenant, method: str, target: str) -> None:
    await tenant.hold(role="system:aggregate-to-view")
    before = tenant.running.server.store.revision
    status, _ = await tenant.ask(method, f"/api/v1/watch/namespaces/mine/{target}", config_map("new"))
    assert status == 405
    assert tenant.running.server.store.revision == before


async def test_a_head_of_a_watch_has_no_answer(tenant: Tenant) -> None:
    await tenant.hold(role="system:aggregate-to-view")
    assert (await tenant.ask("HEAD", "/api/v1/namespaces/mine/configmaps?watch=true"))[0] == 405
    assert (await tenant.ask("HEAD", "/api/v1/namespaces/mine/configmaps"))[0] == 200


async def test_a_watch_of_one_name_shows_no_other_object(tenant: Tenant) -> None:
    await tenant.hold(rule("watch", "secrets", "one"))
    base = "/api/v1/watch/namespaces/mine/secrets"
    status, first = await tenant.ask("GET", f"{base}/one")
    assert status == 200
    assert [orjson.loads(line)["object"]["metadata"]["name"] for line in first.splitlines()] == ["one"]
    for query in ("fieldSelector=metadata.name%3Dtwo", "fieldSelector=type%3DOpaque"):
        assert (await tenant.ask("GET", f"{base}/one?{query}"))[0] == 400
    assert (await tenant.ask("GET", f"{base}/two"))[0] == 403
    assert (await tenant.ask("GET", f"{base}?fieldSelector=metadata.name%3Done"))[0] == 403


@pytest.mark.parametrize(
    "target", ["namespaces", "namespaces/other", "namespaces/other/status", "nodes", "nodes/n"]
)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
async def test_nothing_outside_is_reached_through_a_namespace(
    tenant: Tenant, method: str, target: str
) -> None:
    await tenant.hold(rule("*"))
    before = tenant.running.server.store.revision
    status, _ = await tenant.ask(
        method, f"/api/v1/namespaces/mine/{target}", {}, "application/merge-patch+json"
    )
    assert status == 404 if not target.endswith("status") or method == "GET" else status in (404, 405)
    assert tenant.running.server.store.revision == before


@pytest.mark.parametrize(
    "subresource", ["exec", "attach", "portforward", "proxy", "log", "eviction", "binding"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", ["watch", "proxy"])
async def test_no_subresource_is_reached_by_the_verb_of_a_path(
    tenant: Tenant, prefix: str, method: str, subresource: str
) -> None:
    await tenant.hold(rule("watch,proxy"))
    target = f"/api/v1/{prefix}/namespaces/mine/pods/p/{subresource}"
    assert (await tenant.ask(method, target, {}))[0] == 404


async def test_an_update_that_creates_needs_the_verb_create(tenant: Tenant) -> None:
    await tenant.hold(rule("update", "leases"))
    status, body = await tenant.ask("PUT", f"{_LEASES}/new", lease("new"))
    assert status == 403
    message = orjson.loads(body)["message"]
    assert message.startswith('leases.coordination.k8s.io "new" is forbidden')
    assert "cannot update" not in message
    await tenant.hold(rule("update,create", "leases"))
    assert (await tenant.ask("PUT", f"{_LEASES}/new", lease("new")))[0] == 201


async def test_an_apply_that_creates_needs_the_verb_create(tenant: Tenant) -> None:
    target = "/api/v1/namespaces/mine/configmaps/new?fieldManager=tenant"
    await tenant.hold(rule("patch", "configmaps"))
    assert (await tenant.ask("PATCH", target, config_map("new"), _APPLY))[0] == 403
    assert not tenant.running.server.objects.exists(CONFIG_MAPS, "mine", "new")
    await tenant.hold(rule("patch,create", "configmaps"))
    assert (await tenant.ask("PATCH", target, config_map("new"), _APPLY))[0] == 201
    await tenant.hold(rule("patch", "configmaps"))
    assert (await tenant.ask("PATCH", target, config_map("new"), _APPLY))[0] == 200
