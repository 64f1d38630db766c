"""Requests are counted, whatever becomes of them."""

from __future__ import annotations

import pytest

from kubecore import resources
from kubecore.client import Client, ClientConfig, ConnectionFailed, Request, Response
from kubecore.client.counting import CountingTransport, resource_and_verb, url_template
from kubecore.errors import StatusError
from kubecore.testing import MemoryApi


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", (), ("pods", "LIST")),
        ("GET", "/api/v1/pods", (("watch", "1"),), ("pods", "WATCH")),
        ("GET", "/api/v1/namespaces/ns/pods/p", (), ("pods", "GET")),
        ("GET", "/api/v1/namespaces/ns", (), ("namespaces", "GET")),
        ("GET", "/api/v1/namespaces", (), ("namespaces", "LIST")),
        ("POST", "/apis/apps/v1/namespaces/ns/deployments", (), ("deployments", "CREATE")),
        ("PUT", "/apis/apps/v1/namespaces/ns/deployments/d/scale", (), ("deployments", "UPDATE")),
        ("DELETE", "/api/v1/nodes/n", (), ("nodes", "DELETE")),
        ("GET", "/version", (), ("none", "GET")),
    ],
)
def test_paths_tell_what_requests_are_for(
    method: str, path: str, query: tuple[tuple[str, str], ...], expected: tuple[str, str]
) -> None:
    assert resource_and_verb(Request(method, path, query)) == expected


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/api/v1/pods", (), "/api/v1/pods"),
        (
            "/api/v1/pods",
            (("watch", "1"), ("labelSelector", "a=b"), ("labelSelector", "c")),
            "/api/v1/pods?labelSelector=value&watch=value",
        ),
        ("/api/v1/nodes/n", (), "/api/v1/nodes/%7Bname%7D"),
        ("/api/v1/nodes/n/status", (), "/api/v1/nodes/%7Bname%7D/status"),
        ("/api/v1/namespaces/ns/pods", (), "/api/v1/namespaces/%7Bnamespace%7D/pods"),
        ("/api/v1/namespaces/ns/status", (), "/api/v1/namespaces/%7Bname%7D/status"),
        (
            "/apis/apps/v1/namespaces/ns/deployments/d/scale",
            (),
            "/apis/apps/v1/namespaces/%7Bnamespace%7D/deployments/%7Bname%7D/scale",
        ),
        (
            "/apis/s/v1/namespaces/ns/vms/vm/portforward/22",
            (),
            "/apis/s/v1/namespaces/%7Bnamespace%7D/vms/%7Bname%7D/portforward",
        ),
        ("/version", (), "/version"),
        ("/openapi/v3/apis/x", (), "/%7Bprefix%7D"),
    ],
)
def test_urls_are_told_without_names(path: str, query: tuple[tuple[str, str], ...], expected: str) -> None:
    assert url_template(Request("GET", path, query)) == expected


async def test_how_long_an_answer_takes_is_told_and_how_long_a_watch_lasts_is_not() -> None:
    told: list[tuple[str, float]] = []
    inner = MemoryApi().client()._transport
    assert inner is not None
    transport = CountingTransport(
        inner, lambda *_: None, lambda request, seconds: told.append((request.path, seconds))
    )
    await transport.request(Request("GET", "/api/v1/pods"))
    async with transport.stream(Request("GET", "/api/v1/pods", (("watch", "1"),))):
        pass
    [(path, seconds)] = told
    assert path == "/api/v1/pods"
    assert 0 < seconds < 30


async def test_answers_and_refusals_are_counted() -> None:
    counted: list[tuple[str, int]] = []
    api = MemoryApi()
    inner = api.client()._transport
    assert inner is not None
    transport = CountingTransport(inner, lambda request, status: counted.append((request.method, status)))
    async with Client(ClientConfig(server="memory://"), transport) as client:
        await client.list(resources.PODS)
        with pytest.raises(StatusError):
            await client.get(resources.PODS, "p", "ns")
    assert counted == [("GET", 200), ("GET", 404)]


class _Nowhere:
    async def request(self, request: Request) -> Response:
        raise ConnectionFailed("no server")

    async def close(self) -> None:
        return None


async def test_requests_without_an_answer_are_counted() -> None:
    counted: list[int] = []
    transport = CountingTransport(_Nowhere(), lambda _, status: counted.append(status))  # type: ignore[arg-type]  # requests alone
    with pytest.raises(ConnectionFailed):
        await transport.request(Request("GET", "/version"))
    assert counted == [0]
