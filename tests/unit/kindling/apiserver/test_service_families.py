"""The objects of service addresses of both families, on a server that had one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.apiserver import running_server

from kindling.apiserver.bootstrap.objects import IP_ADDRESSES, SERVICE_CIDRS
from kubecore.errors import StatusError
from kubecore.json import get_list, get_object
from kubecore.objects import meta
from kubecore.resources import SERVICES

FIRST, SECOND = "10.96.0.0/24", "fd00:96::/112"


async def test_a_server_gets_its_second_family_and_its_services_when_they_ask(tmp_path: Path) -> None:
    storage = tmp_path / "db"
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]},
    }
    async with (
        running_server(tmp_path, storage=storage, service_cidr=FIRST) as server,
        server.client() as client,
    ):
        made = await client.create(SERVICES, body)
        cidr = await client.get(SERVICE_CIDRS, "kubernetes")
    assert (get_list(made, "spec", "ipFamilies"), get_list(cidr, "spec", "cidrs")) == (["IPv4"], [FIRST])

    async with (
        running_server(tmp_path, storage=storage, service_cidr=f"{FIRST},{SECOND}") as server,
        server.client() as client,
    ):
        cidr = await client.get(SERVICE_CIDRS, "kubernetes")
        assert get_list(cidr, "spec", "cidrs") == [FIRST, SECOND]
        api = await client.get(SERVICES, "kubernetes", "default")
        assert get_list(api, "spec", "clusterIPs") == ["10.96.0.1"]
        change = {"spec": {"ipFamilyPolicy": "RequireDualStack"}}
        larger = await client.patch(SERVICES, "web", change, "default", type="merge")
        own, second = get_list(larger, "spec", "clusterIPs")
        assert own == get_list(made, "spec", "clusterIPs")[0]
        shown = await client.get(IP_ADDRESSES, second)
        assert meta.labels(shown)["ipaddress.kubernetes.io/ip-family"] == "IPv6"
        assert get_object(shown, "spec", "parentRef")["name"] == "web"
        change = {"spec": {"ipFamilyPolicy": "SingleStack"}}
        smaller = await client.patch(SERVICES, "web", change, "default", type="merge")
        assert get_list(smaller, "spec", "clusterIPs") == [own]
        with pytest.raises(StatusError, match="not found"):
            await client.get(IP_ADDRESSES, second)
