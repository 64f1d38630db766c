"""The address of the upload proxy on the embedded cluster."""

from __future__ import annotations

import pytest

from kubecore.errors import StatusError
from kubecore.resources import CONFIG_MAPS, SERVICES
from kubecore.testing import MemoryApi
from virtplane.api.resources import CDIS
from virtplane.cli import uploads
from virtplane.operators.cdi.certificates import CERTIFICATES


def _api(address: str) -> MemoryApi:
    api = MemoryApi([CDIS])
    api.put(CDIS, {"metadata": {"name": "cdi"}, "spec": {}})
    metadata = {"name": "cdi-uploadproxy", "namespace": "kubevirt"}
    api.put(SERVICES, {"metadata": metadata, "spec": {"clusterIP": address}})
    return api


@pytest.mark.parametrize(
    ("address", "url"), [("10.96.0.9", "https://10.96.0.9"), ("fd00::9", "https://[fd00::9]")]
)
async def test_clients_are_told_the_address_of_the_service(address: str, url: str) -> None:
    api = _api(address)
    async with api.client() as client:
        await uploads.offer(client, "kubevirt")
    (applied,) = [each for each in api.requests if each.method == "PATCH"]
    assert "force" not in dict(applied.query)
    found = api.get(CDIS, "cdi")
    assert found is not None
    assert found["spec"]["config"] == {"uploadProxyURLOverride": url}


async def test_address_of_an_administrator_stays() -> None:
    api = _api("10.96.0.9")

    def refuse(request: object) -> None:
        if getattr(request, "method", "") == "PATCH":
            raise StatusError(code=409, reason="Conflict", message="it is of another manager")

    api.reactions.append(refuse)
    async with api.client() as client:
        await uploads.offer(client, "kubevirt")
    found = api.get(CDIS, "cdi")
    assert found is not None
    assert found["spec"] == {}


async def test_without_data_volumes_nothing_is_told() -> None:
    api = MemoryApi([CDIS])
    async with api.client() as client:
        await uploads.offer(client, "kubevirt")
    assert {each.method for each in api.requests} == {"GET"}


async def test_the_proxy_is_known_by_the_authority_that_the_operator_publishes() -> None:
    api = _api("10.96.0.9")
    metadata = {"name": "cdi-uploadproxy-signer-bundle", "namespace": "kubevirt"}
    api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"ca-bundle.crt": "PEM"}})
    async with api.client() as client:
        found = await uploads.proxy(client, "kubevirt")
    assert (found.url, found.authority, found.insecure) == ("https://10.96.0.9", "PEM", False)
    (spec,) = (each for each in CERTIFICATES.certificates if each.service == "cdi-uploadproxy")
    assert found.server_name in spec.leaf("kubevirt").dns_names
