"""A tenant who may edit one namespace, against services and pods of everybody else."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.failures import ApiError, Document
from tests.e2e.support import wait_for
from tests.support.shellpods import ShellPod, shell_pod
from tests.support.web import fetch_page

pytestmark = pytest.mark.host

SPACE = "tenant-services"
PODS = f"{CORE}/namespaces/{SPACE}/pods"
SERVICES = f"{CORE}/namespaces/{SPACE}/services"
HOST_IMAGE = "kindling.local/host:latest"


@dataclass
class Tenant:
    """Speaks to the API with the token of an account that edits its namespace."""

    cluster: Cluster
    token: str

    def request(self, method: str, path: str, body: Document) -> tuple[Document, list[str]]:
        """The answer and its warnings. Raises ApiError."""
        tls = ssl.create_default_context(cafile=str(self.cluster.state / "pki/ca.crt"))
        port = json.loads((self.cluster.state / "instance.json").read_text())["api_port"]
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=20)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body), headers)
            answer = connection.getresponse()
            document: Document = json.loads(answer.read())
            warnings = answer.headers.get_all("Warning") or []
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, document)
        return document, warnings

    def service(self, name: str, port: int, **spec: Any) -> tuple[Document, list[str]]:
        """Create a service that leads to the tenant's own pod."""
        ports = [{"port": port, "targetPort": 8080}]
        body = {"metadata": {"name": name}, "spec": {"selector": {"app": "thief"}, "ports": ports, **spec}}
        return self.request("POST", SERVICES, body)


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    def post(path: str, body: Document) -> Document:
        return cluster.request("POST", path, body)

    post(f"{CORE}/namespaces", {"metadata": {"name": SPACE}})
    try:
        account = f"{CORE}/namespaces/{SPACE}/serviceaccounts"
        wait_for("the default account", lambda: cluster.find(f"{account}/default"), 20)
        binding = {
            "metadata": {"name": "editor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": SPACE}],
        }
        post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}/rolebindings", binding)
        yield Tenant(cluster, post(f"{account}/default/token", {"spec": {}})["status"]["token"])
    finally:
        cluster.request("DELETE", f"{CORE}/namespaces/{SPACE}")


@pytest.fixture(scope="module")
def thief(cluster: Cluster, tenant: Tenant) -> Iterator[ShellPod]:
    """The tenant's pod, which answers whatever it gets hold of."""
    with shell_pod(cluster, "thief", SPACE, labels={"app": "thief"}) as pod:
        pod.serve("stolen")
        yield pod


@pytest.fixture(scope="module")
def honest(cluster: Cluster) -> Iterator[str]:
    """The address of somebody else's service."""
    path = f"{CORE}/namespaces/default/services"
    with shell_pod(cluster, "honest", labels={"app": "honest"}) as pod:
        pod.serve("honest")
        ports = [{"port": 80, "targetPort": 8080}]
        body = {"metadata": {"name": "honest"}, "spec": {"selector": {"app": "honest"}, "ports": ports}}
        made = cluster.request("POST", path, body)
        yield str(made["spec"]["clusterIP"])
        cluster.request("DELETE", f"{path}/honest")


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[ShellPod]:
    with shell_pod(cluster, "client") as pod:
        yield pod


def wait_served(client: ShellPod, address: str, text: str, port: int = 80) -> None:
    wait_for(f"{address} answers", lambda: client.fetches(address, port, 2) == text, 20)


def gateway_of(cluster: Cluster) -> str:
    subnet: str = json.loads((cluster.state / "instance.json").read_text())["subnet"]
    return subnet.replace(".0.0/16", ".0.1")


def test_claimed_addresses_of_others_are_stored_warned_of_and_lead_nowhere(
    tenant: Tenant, thief: ShellPod, honest: str, client: ShellPod
) -> None:
    wait_served(client, honest, "honest")
    stranger = "192.0.2.80"
    claimed = [honest, gateway_of(tenant.cluster), stranger]
    made, warnings = tenant.service("claims", 80, externalIPs=claimed)
    assert made["spec"]["externalIPs"] == claimed
    assert len([text for text in warnings if "has no effect" in text]) == len(claimed)
    # Rules are loaded in order: when the service itself answers, its claims would, too.
    wait_served(client, made["spec"]["clusterIP"], "stolen")
    assert client.fetches(honest, 80) == "honest"
    assert client.fetches(stranger, 80, 2) == ""
    assert client.fetches(claimed[1], 80, 2) == ""


def test_claiming_the_apis_address_leaves_it_the_api(
    tenant: Tenant, thief: ShellPod, client: ShellPod
) -> None:
    kubernetes = gateway_of(tenant.cluster).replace(".0.1", ".240.1")
    made, _ = tenant.service("api", 443, externalIPs=[kubernetes])
    wait_served(client, made["spec"]["clusterIP"], "stolen", 443)
    assert client.fetches(kubernetes, 443) != "stolen"
    assert client.connects(kubernetes, 443)


def test_services_that_claim_one_address_stop_nobodys_rules(
    tenant: Tenant, thief: ShellPod, client: ShellPod
) -> None:
    for name in ("first", "second"):
        tenant.service(name, 80, externalIPs=["192.0.2.90", "192.0.2.90"])
    last, _ = tenant.service("last", 80)
    wait_served(client, last["spec"]["clusterIP"], "stolen")


@pytest.mark.parametrize("bound", ["kubernetes", "kubelet"])
def test_host_ports_take_no_addresses_and_ports_of_the_cluster(
    cluster: Cluster, thief: ShellPod, client: ShellPod, bound: str
) -> None:
    kubernetes = gateway_of(cluster).replace(".0.1", ".240.1")
    node = str(client.document()["status"]["hostIP"])
    port, address = (443, kubernetes) if bound == "kubernetes" else (10250, "")
    extra = {"hostIP": address} if address else {}
    taken = {"containerPort": 8080, "hostPort": port, "protocol": "TCP", **extra}
    beside = {"containerPort": 8080, "hostPort": 18443, "protocol": "TCP"}
    with shell_pod(cluster, f"host-port-{bound}", SPACE, ports=[taken, beside]) as pod:
        pod.serve("stolen")
        wait_served(client, node, "stolen", 18443)
        assert client.fetches(address or node, port) != "stolen"
        assert client.connects(address or node, port)


@pytest.mark.parametrize("own", ["127.0.0.1", "gateway", "node"])
def test_node_ports_answer_on_the_machines_own_addresses(
    cluster: Cluster, tenant: Tenant, thief: ShellPod, own: str
) -> None:
    made, _ = tenant.service(f"port-{own.replace('.', '-')}", 80, type="NodePort")
    node = str(thief.document()["status"]["hostIP"])
    address = {"gateway": gateway_of(cluster), "node": node}.get(own, own)
    url = f"http://{address}:{made['spec']['ports'][0]['nodePort']}/"

    def answers() -> bool:
        return fetch_page(url).strip() == b"stolen"

    wait_for(f"{url} answers", answers, 20)


@pytest.mark.parametrize("use", ["container", "initContainer", "volume"])
def test_the_host_image_is_not_for_tenants(tenant: Tenant, use: str) -> None:
    plain = {"name": "main", "image": "kindling.local/busybox:1", "command": ["sleep", "60"]}
    host = {**plain, "image": HOST_IMAGE}
    spec: Document = {"containers": [plain]}
    if use == "container":
        spec["containers"] = [host]
    elif use == "initContainer":
        spec["initContainers"] = [{**host, "name": "first"}]
    elif use == "volume":
        spec["volumes"] = [{"name": "host", "image": {"reference": HOST_IMAGE}}]
    body = {"metadata": {"name": f"image-{use.lower()}"}, "spec": spec}
    with pytest.raises(ApiError, match="reserved for service accounts") as caught:
        tenant.request("POST", PODS, body)
    assert caught.value.code == 403


def test_the_host_image_is_not_slipped_into_a_running_pod(tenant: Tenant, thief: ShellPod) -> None:
    running = thief.document()
    running["spec"]["containers"][0]["image"] = HOST_IMAGE
    # Its status is written meanwhile.
    del running["metadata"]["resourceVersion"]
    with pytest.raises(ApiError, match="reserved for service accounts") as caught:
        tenant.request("PUT", thief.path, running)
    assert caught.value.code == 403


def test_the_token_of_a_deleted_secret_does_not_come_back(tenant: Tenant) -> None:
    path = f"{CORE}/namespaces/{SPACE}/secrets"
    secret = {
        "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    tenant.request("POST", path, secret)

    def token() -> str:
        found, _ = tenant.request("GET", f"{path}/robot", {})
        return str(found.get("data", {}).get("token", ""))

    held = wait_for("a token", token, 20)
    robot = Tenant(tenant.cluster, base64.b64decode(held).decode())
    robot.request("GET", PODS, {})
    tenant.request("DELETE", f"{path}/robot", {})
    tenant.request("POST", path, {"metadata": {"name": "robot"}, "data": {"token": held}})
    with pytest.raises(ApiError) as caught:
        robot.request("GET", PODS, {})
    assert caught.value.code == 401
