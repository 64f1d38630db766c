"""Aggregated API servers that list nonsense cost themselves, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.apiserver import RunningServer, running_server
from tests.support.upstreams import add_aggregated, definitions, session, upstream
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject, get_list

GOOD = b'{"resources": [{"name": "things", "kind": "Thing", "verbs": ["get"]}]}'
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
HOSTILE = {
    "texts for entries": b'{"resources": ["x"]}',
    "an object for the list": b'{"resources": {"a": 1}}',
    "a number for the list": b'{"resources": 5}',
    "a list for the kind": b'{"resources": [{"name": "a", "kind": [1]}]}',
    "verbs without end": b'{"resources": [{"name": "a", "verbs": ' + b"[" * 260 + b"]" * 260 + b"}]}",
    "more than is read": b" " * (4 * 1024 * 1024),
}


class Listing:
    """An aggregated API server with the same body for every request."""

    def __init__(self) -> None:
        self.body = b'{"resources": []}'

    async def serve(self, _request: web.Request) -> web.Response:
        return web.Response(body=self.body, content_type="application/json")

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.serve)
        return app


def condition(running: RunningServer) -> JsonObject:
    found = running.server.objects.get(resources.API_SERVICES, None, "v1.things.example.com")
    conditions: list[JsonObject] = get_list(found, "status", "conditions")
    return conditions[0]


def listed(running: RunningServer) -> list[Any]:
    version = running.server.aggregated.groups().items["things.example.com"]["versions"][0]
    return [entry["resource"] for entry in version.get("resources") or ()]


async def checked_until(running: RunningServer, holds: Callable[[], bool]) -> None:
    """Have the server check again until something holds."""
    service = running.server.objects.get(resources.SERVICES, "default", "things")
    assert service is not None

    def is_so() -> bool:
        if holds():
            return True
        running.server.aggregated.service_changed("MODIFIED", service)
        return False

    await until(is_so)


@pytest.mark.parametrize("name", sorted(HOSTILE))
async def test_a_server_that_lists_nonsense_is_still_checked_on(tmp_path: Path, name: str) -> None:
    server = Listing()
    async with upstream(server.app()) as port, running_server(tmp_path, definitions()) as running:
        await add_aggregated(running, port)
        server.body = GOOD
        await checked_until(running, lambda: listed(running) == ["things"])
        server.body = HOSTILE[name]
        if name == "more than is read":
            await checked_until(running, lambda: condition(running)["status"] == "False")
            assert "longer than 3145728 bytes" in condition(running)["message"]
        else:
            await checked_until(running, lambda: listed(running) in ([], ["a"]))
            assert condition(running)["status"] == "True"
        async with session(running) as http, http.get(f"{running.url}/apis", headers=AGGREGATED) as answer:
            assert answer.status == 200
        server.body = GOOD
        await checked_until(
            running, lambda: listed(running) == ["things"] and condition(running)["status"] == "True"
        )


async def test_a_failed_check_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Listing()
    async with upstream(server.app()) as port, running_server(tmp_path, definitions()) as running:
        await add_aggregated(running, port)
        modify, refused = running.server.objects.modify, asyncio.Event()

        async def full(*_arguments: Any, **_options: Any) -> JsonObject:
            refused.set()
            raise OSError("no space left on device")

        monkeypatch.setattr(running.server.objects, "modify", full)
        server.body = GOOD
        await checked_until(running, refused.is_set)
        monkeypatch.setattr(running.server.objects, "modify", modify)
        server.body = GOOD.replace(b"things", b"others")
        await checked_until(running, lambda: listed(running) == ["others"])
