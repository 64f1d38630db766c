"""Requests are counted, whatever becomes of them."""

from __future__ import annotations

import pytest

from kubecore import resources
from kubecore.client import Client, ClientConfig, ConnectionFailed, Request, Response
from kubecore.client.counting import CountingTransport, resource_and_verb
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
