"""What this cluster's administrator decides: which addresses take effect."""

from __future__ import annotations

from pathlib import Path

import aiohttp
from tests.support.apiserver import ADMIN_TOKEN, running_server


async def test_addresses_that_take_no_effect_are_stored_with_a_warning(tmp_path: Path) -> None:
    ranges = {"external_ranges": ("192.0.2.0/24", "10.64.0.0/10"), "cluster_cidr": "10.64.0.0/16"}
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with (
        running_server(tmp_path, service_cidr="10.64.240.0/20", **ranges) as server,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        path = f"{server.url}/api/v1/namespaces/default/services"
        claimed = ["192.0.2.1", "10.64.240.1", "198.51.100.1"]
        spec = {"ports": [{"port": 80}], "type": "LoadBalancer", "externalIPs": claimed}
        async with session.post(path, json={"metadata": {"name": "web"}, "spec": spec}, ssl=False) as answer:
            assert answer.status == 201
            told = answer.headers.getall("Warning")
            made = await answer.json()
        assert made["spec"]["externalIPs"] == claimed
        in_vain = [text for text in told if "has no effect" in text]
        assert [text.split('"')[1].split(":")[0] for text in in_vain] == [
            "spec.externalIPs[1]",
            "spec.externalIPs[2]",
        ]
        made["status"] = {"loadBalancer": {"ingress": [{"ip": "10.64.0.1"}]}}
        async with session.put(f"{path}/web/status", json=made, ssl=False) as answer:
            assert answer.status == 200
            (warning,) = answer.headers.getall("Warning")
        assert "status.loadBalancer.ingress[0].ip: 10.64.0.1" in warning
