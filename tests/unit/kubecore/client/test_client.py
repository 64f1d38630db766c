"""The client against the server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import orjson
import pytest

from kubecore.client import Client, ClientConfig, Impersonation, Request, Response, StreamedResponse
from kubecore.errors import StatusError, is_conflict, is_not_found
from kubecore.resources import CONFIG_MAPS, NODES, PODS
from kubecore.testing import MemoryApi


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "lab"}, "data": data}


async def test_objects_are_created_read_updated_patched_and_deleted() -> None:
    api = MemoryApi()
    async with api.client() as client:
        created = await client.create(CONFIG_MAPS, config_map("a", x="1"))
        assert created["metadata"]["uid"]
        created["data"]["x"] = "2"
        await client.update(CONFIG_MAPS, created)
        patched = await client.patch(CONFIG_MAPS, "a", {"data": {"y": "3"}}, "lab", type="merge")
        assert patched["data"] == {"x": "2", "y": "3"}
        assert await client.get(CONFIG_MAPS, "a", "lab") == patched
        assert len((await client.list(CONFIG_MAPS, "lab"))["items"]) == 1
        await client.delete(CONFIG_MAPS, "a", "lab", uid=patched["metadata"]["uid"])
        with pytest.raises(StatusError, match='configmaps "a" not found') as caught:
            await client.get(CONFIG_MAPS, "a", "lab")
        assert is_not_found(caught.value)


async def test_preconditions_and_old_versions_are_conflicts() -> None:
    api = MemoryApi()
    async with api.client() as client:
        stale = await client.create(CONFIG_MAPS, config_map("a"))
        await client.patch(CONFIG_MAPS, "a", {"data": {"y": "3"}}, "lab", type="merge")
        with pytest.raises(StatusError) as caught:
            await client.update(CONFIG_MAPS, {**stale, "data": {}})
        assert is_conflict(caught.value)
        with pytest.raises(StatusError, match="UID in precondition"):
            await client.delete(CONFIG_MAPS, "a", "lab", uid="other")


async def test_lists_are_read_in_pages_and_anew_when_the_pages_expire() -> None:
    pages = {
        "": {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [{"a": 1}]},
        "next": {"metadata": {"resourceVersion": "7"}, "items": [{"a": 2}]},
    }
    api = MemoryApi()

    def paged(request: Request) -> Response:
        return Response(200, {}, orjson.dumps(pages[dict(request.query).get("continue", "")]))

    api.reactions.append(paged)
    async with api.client() as client:
        listing = await client.list(NODES, limit=1)
    assert listing["items"] == [{"a": 1}, {"a": 2}]
    assert listing["metadata"] == {"resourceVersion": "7"}

    def expiring(request: Request) -> Response | StatusError:
        query = dict(request.query)
        if query.get("continue"):
            return StatusError(410, "Expired", "too old")
        return Response(200, {}, orjson.dumps(pages["" if "limit" in query else "next"]))

    api.reactions[:] = [expiring]
    async with api.client() as client:
        assert (await client.list(NODES))["items"] == [{"a": 2}]


@pytest.mark.looptime
async def test_requests_are_repeated_only_when_the_server_says_when() -> None:
    api = MemoryApi()
    answers = [
        StatusError(429, "TooManyRequests", "slow down", headers={"retry-after": "2"}),
        StatusError(503, "ServiceUnavailable", "starting", headers={"retry-after": "1"}),
    ]
    api.reactions.append(lambda _: answers.pop(0) if answers else None)
    async with api.client() as client:
        await client.list(NODES)
        assert len(api.requests) == 3
        answers.append(StatusError(429, "TooManyRequests", "Cannot evict pod"))
        with pytest.raises(StatusError, match="Cannot evict"):
            await client.list(NODES)


async def test_the_identity_and_the_manager_of_a_client_reach_the_server() -> None:
    api = MemoryApi()
    who = Impersonation("jane", ("dev", "ops"), extra={"a/b": ("x",)})
    async with api.client(user_agent="virtctl", field_manager="me", impersonate=who) as client:
        await client.create(CONFIG_MAPS, config_map("a"), dry_run=True)
    request = api.requests[0]
    assert request.header("User-Agent") == "virtctl"
    assert [value for name, value in request.headers if name == "Impersonate-Group"] == ["dev", "ops"]
    assert request.header("Impersonate-Extra-a%2Fb") == "x"
    assert dict(request.query) == {"dryRun": "All", "fieldManager": "me"}


async def test_an_apply_always_names_its_manager() -> None:
    api = MemoryApi()
    async with api.client(user_agent="operator") as client:
        await client.patch(CONFIG_MAPS, "a", config_map("a"), "lab", type="apply", force=True)
    request = api.requests[0]
    assert dict(request.query) == {"fieldManager": "operator", "force": "true"}
    assert request.header("Content-Type") == "application/apply-patch+yaml"


async def test_a_watch_yields_changes_from_a_version_on() -> None:
    api = MemoryApi()
    async with api.client() as client:
        first = await client.create(CONFIG_MAPS, config_map("a"))
        await client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, "lab", type="merge")
        await client.create(CONFIG_MAPS, config_map("b"))
        await client.delete(CONFIG_MAPS, "b", "lab")
        version = first["metadata"]["resourceVersion"]
        seen = []
        async for event in client.watch(CONFIG_MAPS, resource_version=version):
            seen.append((event.type, event.object["metadata"]["name"]))
            if len(seen) == 3:
                break
    assert seen == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")]


async def test_bookmarks_are_yielded_on_request_and_errors_in_a_watch_are_raised() -> None:
    api = MemoryApi()

    class Canned:
        async def request(self, request: Request) -> Response:
            return api.handle(request)

        def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedResponse]:
            return _canned_stream(
                b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n{"type":"ERR',
                b'OR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n',
            )

        async def websocket(self, request: Request, protocols: Sequence[str]) -> NoReturn:
            raise NotImplementedError

        async def close(self) -> None:
            return None

    client = Client(ClientConfig(server="memory://"), Canned())
    seen = []
    with pytest.raises(StatusError, match="too old") as caught:
        async for event in client.watch(PODS, bookmarks=True):
            seen.append(event)
    assert caught.value.code == 410
    assert [event.object["metadata"]["resourceVersion"] for event in seen] == ["9"]


@dataclass
class _CannedAnswer:
    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


@asynccontextmanager
async def _canned_stream(*chunks: bytes) -> AsyncIterator[StreamedResponse]:
    yield _CannedAnswer(chunks)


async def test_a_refusal_without_a_status_body_still_has_code_and_text() -> None:
    api = MemoryApi()
    api.reactions.append(lambda _: Response(502, {}, b"bad gateway"))
    async with api.client() as client:
        with pytest.raises(StatusError, match="bad gateway") as caught:
            await client.get(NODES, "n")
    assert caught.value.code == 502
