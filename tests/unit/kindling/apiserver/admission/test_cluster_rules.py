"""What this cluster's administrator decides: who may use reserved images, and which addresses take effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.admission import Cluster
from tests.support.apiserver import ADMIN_TOKEN, running_server

from kindling.apiserver.admission.external_addresses import ExternalAddresses
from kindling.apiserver.admission.reserved_images import ReservedImages, repository
from kindling.apiserver.registry.context import UserInfo
from kindling.network.external import ExternalRanges
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import NODES, PODS, SERVICE_ACCOUNTS

HOST = "kindling.local/host"
CONTROLLER = "system:serviceaccount:product:controller"


def pod(image: str = "web:1", account: str = "default", **spec: Any) -> JsonObject:
    containers = [{"name": "main", "image": image}]
    return {
        "metadata": {"name": "a"},
        "spec": {"serviceAccountName": account, "containers": containers, **spec},
    }


async def ask(new: JsonObject, *, user: str = "tenant", namespace: str = "ns", **request: Any) -> None:
    attributes = Cluster().request(PODS, new, namespace=namespace, **request)
    attributes.ctx.user = UserInfo(user)
    await ReservedImages([HOST], ["product/controller"]).validate(attributes)


@pytest.mark.parametrize(
    "image", [HOST, f"{HOST}:latest", f"{HOST}:any", f"{HOST}@sha256:0", f"{HOST}:a@sha256:0"]
)
async def test_others_may_not_name_a_reserved_image(image: str) -> None:
    with pytest.raises(StatusError, match="reserved for service accounts") as caught:
        await ask(pod(image))
    assert caught.value.code == 403


@pytest.mark.parametrize(
    "spec",
    [
        {"initContainers": [{"name": "i", "image": HOST}]},
        {"volumes": [{"name": "v", "image": {"reference": f"{HOST}:latest"}}]},
    ],
)
async def test_every_place_of_a_pod_is_looked_at(spec: JsonObject) -> None:
    with pytest.raises(StatusError):
        await ask(pod(**spec))


async def test_the_administrator_is_no_exception_and_other_images_are_everybodys() -> None:
    await ask(pod("kindling.local/hosts:latest"))
    with pytest.raises(StatusError):
        await ask(pod(HOST), user="kubernetes-admin")


async def test_named_accounts_use_it_everywhere_and_for_their_own_pods() -> None:
    await ask(pod(HOST), user=CONTROLLER)
    await ask(pod(HOST, account="controller"), user="system:kube-controller-manager", namespace="product")
    with pytest.raises(StatusError):
        await ask(pod(HOST, account="controller"), namespace="tenant")


async def test_a_reserved_image_is_not_slipped_into_a_running_pod() -> None:
    old = pod()
    with pytest.raises(StatusError):
        await ask(pod(HOST), old=old, operation="UPDATE")
    debugged = pod(ephemeralContainers=[{"name": "debug", "image": HOST}])
    with pytest.raises(StatusError):
        await ask(debugged, old=old, operation="UPDATE", subresource="ephemeralcontainers")


async def test_pods_that_have_it_already_are_changed_by_anybody() -> None:
    old, new = pod(HOST), pod(HOST)
    new["metadata"]["labels"] = {"a": "b"}
    await ask(new, old=old, operation="UPDATE")
    second = deep_copy(new)
    second["spec"]["containers"].append({"name": "more", "image": HOST})
    with pytest.raises(StatusError):
        await ask(second, old=old, operation="UPDATE")


def test_registries_with_ports_are_told_from_tags() -> None:
    assert repository("registry:5000/a/b") == "registry:5000/a/b"
    assert repository("registry:5000/a/b:1") == "registry:5000/a/b"


async def test_addresses_that_take_no_effect_are_stored_with_a_warning(tmp_path: Path) -> None:
    ranges: JsonObject = {"external_ranges": ("192.0.2.0/24", "10.64.0.0/10"), "cluster_cidr": "10.64.0.0/16"}
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


async def test_host_ports_on_addresses_of_no_node_are_warned_of() -> None:
    cluster = Cluster()
    addresses = [{"type": "InternalIP", "address": "10.64.0.11"}]
    cluster.objects.put(NODES, {"metadata": {"name": "n"}, "status": {"addresses": addresses}})
    given = ("10.64.0.11", "127.0.0.1", "0.0.0.0", "10.64.240.1")
    ports = [{"containerPort": 80, "hostPort": 80, "hostIP": address} for address in given]
    made = pod()
    made["spec"]["containers"][0]["ports"] = ports
    attributes = cluster.request(PODS, made)
    await ExternalAddresses(ExternalRanges(), cluster.objects).validate(attributes)
    assert attributes.ctx.warnings == [
        "spec.containers[0].ports[3].hostIP: 10.64.240.1 is no address of a node, and has no effect"
    ]


async def test_the_server_keeps_reserved_images_from_its_administrator(tmp_path: Path) -> None:
    settings: JsonObject = {"reserved_images": (HOST,), "reserved_image_accounts": ("product/controller",)}
    async with running_server(tmp_path, **settings) as server, server.client() as client:
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
        await client.create(SERVICE_ACCOUNTS, account, "default")
        with pytest.raises(StatusError, match="reserved for service accounts"):
            await client.create(PODS, {"kind": "Pod", "apiVersion": "v1", **pod(HOST)}, "default")
