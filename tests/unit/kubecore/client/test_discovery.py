"""Finding out what a server serves."""

from __future__ import annotations

import orjson

from kubecore.client import Request, Response, discover
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import DEPLOYMENTS, NODES, PODS
from kubecore.testing import MemoryApi


async def test_servers_of_the_plain_form_are_asked_group_by_group() -> None:
    api = MemoryApi()
    async with api.client() as client:
        found = await discover(client)
    by_type = {served.resource: served for served in found.preferred()}
    assert by_type[PODS].supports("list", "watch", "deletecollection")
    assert not by_type[PODS].supports("fly")
    assert by_type[NODES].resource.namespaced is False
    assert DEPLOYMENTS in by_type
    assert found.failures == {}


async def test_a_group_that_fails_is_told_and_the_others_are_found() -> None:
    api = MemoryApi()
    failure = StatusError(503, "ServiceUnavailable", "the server is down")
    api.reactions.append(lambda request: failure if request.path == "/apis/batch/v1" else None)
    async with api.client() as client:
        found = await discover(client)
    assert found.failures == {"batch/v1": "the server is down"}
    assert DEPLOYMENTS in {served.resource for served in found.resources}


async def test_the_aggregated_form_takes_two_requests_and_the_preferred_version_comes_first() -> None:
    def resource(kind: str, version: str) -> JsonObject:
        return {
            "resource": "widgets",
            "responseKind": {"group": "apps", "version": "v3", "kind": kind},
            "scope": "Namespaced",
            "singularResource": "widget",
            "shortNames": ["wd"],
            "verbs": ["get", "list"],
            "version": version,
        }

    group = {
        "metadata": {"name": "example.com"},
        "versions": [
            {"version": "v2", "resources": [resource("Widget", "v2")]},
            {"version": "v1", "freshness": "Stale", "resources": [resource("Widget", "v1")]},
        ],
    }
    api = MemoryApi()

    def aggregated(request: Request) -> Response:
        items = [group] if request.path == "/apis" else []
        return Response(200, {}, orjson.dumps({"kind": "APIGroupDiscoveryList", "items": items}))

    api.reactions.append(aggregated)
    async with api.client() as client:
        found = await discover(client)
    assert len(api.requests) == 2
    (widget,) = found.preferred()
    assert (widget.resource.api_version, widget.short_names, widget.singular) == (
        "example.com/v2",
        ("wd",),
        "widget",
    )
    assert [served.resource.version for served in found.resources] == ["v2", "v1"]
    assert found.failures == {"example.com/v1": "stale GroupVersion discovery"}
