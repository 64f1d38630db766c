"""OpenAPI of virt-api: what its routes are, in the form that the cluster's API server merges."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.discovery.remote_openapi import read_v2, read_v3

from .conftest import BASE, VirtApi

GROUP = "subresources.kubevirt.io"


async def _get(virt_api: VirtApi, path: str) -> bytes:
    async with virt_api.session.get(virt_api.url + path) as answer:
        assert answer.status == 200
        return await answer.read()


async def test_every_subresource_is_described_with_its_methods(virt_api: VirtApi) -> None:
    paths: dict[str, Any] = read_v2(await _get(virt_api, "/openapi/v2"), GROUP, "v1")["paths"]
    instance = BASE + "/namespaces/{namespace}/virtualmachineinstances/{name}"
    assert set(paths[f"{instance}/pause"]) == {"put"} and set(paths[f"{instance}/console"]) == {"get"}
    served = {
        (route.resource.canonical, route.method.lower())
        for route in virt_api.application.router.routes()
        if route.resource is not None and route.resource.canonical.startswith(f"{BASE}/")
    }
    described = {(path, method) for path, item in paths.items() for method in item}
    assert described - {(BASE, "get")} == {item for item in served if item[1] != "head"}
    port = paths[f"{instance}/portforward/{{port}}"]["get"]["parameters"]
    assert [item["name"] for item in port] == ["namespace", "name", "port"]


async def test_each_version_has_an_openapi_3_document_of_its_own(virt_api: VirtApi) -> None:
    for version in ("v1", "v1alpha3"):
        body = read_v3(await _get(virt_api, f"/openapi/v3/apis/{GROUP}/{version}"))
        assert f"/apis/{GROUP}/{version}/version".encode() in body
        other = "v1alpha3" if version == "v1" else "v1"
        assert f"/apis/{GROUP}/{other}/".encode() not in body
