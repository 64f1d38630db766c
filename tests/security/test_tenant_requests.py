"""A tenant of one namespace, with the roles `view` and `edit`, against a running cluster.

Each test is an attack that must stay closed: what a request is authorized as is what it does, and no proxy of
the cluster lends the tenant its credentials or its place in the network.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.failures import Document
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

OWN, OTHER = "tenant-own", "tenant-other"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"


@dataclass(frozen=True)
class Identity:
    """Somebody who uses the API: by a token, or by a certificate of the cluster's."""

    cluster: Cluster
    token: str = ""
    certificate: str = ""

    @property
    def port(self) -> int:
        """Where the API server listens."""
        return int(json.loads((self.cluster.state / "instance.json").read_text())["api_port"])

    def context(self) -> ssl.SSLContext:
        """TLS towards the cluster."""
        pki = self.cluster.state / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        if self.certificate:
            context.load_cert_chain(pki / f"{self.certificate}.crt", pki / f"{self.certificate}.key")
        return context

    def ask(
        self, method: str, target: str, body: Document | None = None, *, patch: str = "merge"
    ) -> tuple[int, str]:
        """(status, text) of a request whose target is sent as it is written."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context(), timeout=20)
        kind = f"application/{patch}-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, target, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def exchange(self, data: bytes) -> bytes:
        """All that comes back for bytes on one connection, until the server ends it."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=20) as plain,
            self.context().wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(data)
            found = b""
            while part := connection.recv(65536):
                found += part
            return found


@pytest.fixture(scope="module")
def tenants(cluster: Cluster) -> Iterator[dict[str, Identity]]:
    """The accounts ``view`` and ``edit``, which hold these roles in their own namespace."""
    for namespace in (OWN, OTHER):
        cluster.request("POST", f"{CORE}/namespaces", {"metadata": {"name": namespace}})
        config_map = {"metadata": {"name": "kept"}, "data": {"by": "its owner"}}
        cluster.request("POST", f"{CORE}/namespaces/{namespace}/configmaps", config_map)
    found = {}
    for role in ("view", "edit"):
        accounts = f"{CORE}/namespaces/{OWN}/serviceaccounts"
        cluster.request("POST", accounts, {"metadata": {"name": role}})
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": OWN}],
        }
        cluster.request("POST", f"{RBAC}/namespaces/{OWN}/rolebindings", binding)
        answer = cluster.request("POST", f"{accounts}/{role}/token", {"spec": {}})
        found[role] = Identity(cluster, answer["status"]["token"])
    yield found
    for namespace in (OWN, OTHER):
        cluster.request("DELETE", f"{CORE}/namespaces/{namespace}")
    wait_for("the namespaces are gone", lambda: cluster.find(f"{CORE}/namespaces/{OWN}") is None, 60)


def kept(cluster: Cluster, namespace: str = OWN) -> list[str]:
    """What a namespace holds that a tenant could have changed."""
    found = cluster.items(f"{CORE}/namespaces/{namespace}/configmaps")
    return [f"{each['metadata']['name']}: {each.get('data')}" for each in found if "by" in each["data"]]


@pytest.mark.parametrize("prefix", ["/api/v1/watch", "/api/v1%2Fwatch", "/api/v1/proxy", "//api/v1/watch"])
@pytest.mark.parametrize("inside", [f"/namespaces/{OWN}/", f"/namespaces%2F{OWN}%2F"])
@pytest.mark.parametrize(
    "end", ["configmaps", "configmaps?watch=true", "configmaps/kept", "configmaps%2Fkept"]
)
@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT", "PATCH"])
def test_a_reader_writes_nothing_below_the_old_prefixes(
    cluster: Cluster, tenants: dict[str, Identity], method: str, prefix: str, inside: str, end: str
) -> None:
    before = kept(cluster)
    body: Document = {"metadata": {"name": "forged" if method == "POST" else "kept"}, "data": {"by": "me"}}
    status, _ = tenants["view"].ask(method, prefix + inside + end, None if method == "DELETE" else body)
    assert status in (403, 404, 405)
    assert kept(cluster) == before


@pytest.mark.parametrize(
    "target",
    [
        f"/api/v1/namespaces/{OWN}/namespaces/{OTHER}",
        f"/api/v1/namespaces/{OWN}/namespaces",
        f"/api/v1/namespaces/{OWN}/nodes",
        f"/api/v1/namespaces/{OWN}/../{OTHER}/configmaps",
        f"/api/v1/namespaces/{OWN}%2F..%2F{OTHER}/configmaps",
        "/api/v1/namespaces//configmaps",
        f"/api/v1/namespaces/{OTHER}%2Fconfigmaps%2Fkept",
        f"/api/v1/watch/namespaces/{OTHER}/configmaps",
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
def test_a_tenant_reaches_no_other_namespace_by_the_way_a_path_is_written(
    cluster: Cluster, tenants: dict[str, Identity], method: str, target: str
) -> None:
    before = kept(cluster, OTHER)
    status, text = tenants["edit"].ask(method, target, {} if method == "PATCH" else None)
    assert status in (403, 404)
    assert "its owner" not in text
    assert kept(cluster, OTHER) == before


def test_what_may_only_be_updated_is_not_created(cluster: Cluster, tenants: dict[str, Identity]) -> None:
    rules = [{"apiGroups": ["", "coordination.k8s.io"], "resources": ["leases", "configmaps"]}]
    rules[0]["verbs"] = ["update", "patch"]
    cluster.request("POST", f"{RBAC}/namespaces/{OTHER}/roles", {"metadata": {"name": "up"}, "rules": rules})
    binding = {
        "metadata": {"name": "up"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "up"},
        "subjects": [{"kind": "ServiceAccount", "name": "view", "namespace": OWN}],
    }
    cluster.request("POST", f"{RBAC}/namespaces/{OTHER}/rolebindings", binding)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{OTHER}/leases/new"
    assert tenants["view"].ask("PUT", leases, lease)[0] == 403
    assert cluster.find(leases) is None


def test_an_upgrade_does_not_lend_the_front_proxys_certificate(tenants: dict[str, Identity]) -> None:
    tenant = tenants["view"]
    forged = (
        f"GET {SUBRESOURCES}/namespaces/kubevirt/virtualmachines/x/portforward/22 HTTP/1.1\r\nHost: x\r\n"
        "X-Remote-User: kubernetes-admin\r\nX-Remote-Group: system:masters\r\nAccept: */*\r\n\r\n"
    )
    for protocol in ("websocket", "SPDY/3.1"):
        asking = (
            f"GET {SUBRESOURCES}/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.token}\r\n"
            f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
        )
        answer = tenant.exchange((asking + forged).encode())
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"virtualmachine" not in answer


@pytest.mark.parametrize("subresource", ["start", "portforward/22", "pause"])
def test_subresources_of_machines_need_rights_of_their_own(
    tenants: dict[str, Identity], subresource: str
) -> None:
    for target in (
        f"{SUBRESOURCES}/namespaces/{OTHER}/virtualmachines/vm/{subresource}",
        f"{SUBRESOURCES}/namespaces/{OWN}%2Fvirtualmachines%2Fx/../../{OTHER}/virtualmachines/vm/{subresource}",
        f"{SUBRESOURCES}/watch/namespaces/{OWN}/virtualmachines/vm/{subresource}",
    ):
        for method in ("GET", "PUT", "POST"):
            assert tenants["view"].ask(method, target)[0] in (403, 404, 405)


def test_a_service_is_no_way_to_the_machines_own_ports(
    cluster: Cluster, tenants: dict[str, Identity]
) -> None:
    tenant = tenants["edit"]
    services = f"{CORE}/namespaces/{OWN}/services"
    for index, name in enumerate(("localhost", "kubernetes.default.svc.cluster.local")):
        spec = {"type": "ExternalName", "externalName": name, "ports": [{"port": tenant.port}]}
        made, text = tenant.ask("POST", services, {"metadata": {"name": f"s{index}"}, "spec": spec})
        assert made == 201, text
        status, text = tenant.ask("GET", f"{services}/https:s{index}:{tenant.port}/proxy/version")
        assert (status, "gitVersion" in text) == (503, False)


def test_an_endpoint_is_no_way_to_the_machines_own_ports(
    cluster: Cluster, tenants: dict[str, Identity]
) -> None:
    tenant = tenants["edit"]
    found = cluster.request("GET", f"{CORE}/namespaces/default/endpoints/kubernetes")["subsets"][0]
    address, port = found["addresses"][0]["ip"], found["ports"][0]["port"]
    service = {"metadata": {"name": "own"}, "spec": {"ports": [{"port": port}]}}
    assert tenant.ask("POST", f"{CORE}/namespaces/{OWN}/services", service)[0] == 201
    subsets = [{"addresses": [{"ip": address}], "ports": [{"port": port}]}]
    endpoints = {"metadata": {"name": "own"}, "subsets": subsets}
    assert tenant.ask("POST", f"{CORE}/namespaces/{OWN}/endpoints", endpoints)[0] == 403
    # Even where somebody with more rights made them:
    cluster.request("POST", f"{CORE}/namespaces/{OWN}/endpoints", endpoints)
    target = f"{CORE}/namespaces/{OWN}/services/https:own:{port}/proxy/version"

    def is_known() -> bool:
        return "no endpoints" not in tenant.ask("GET", target)[1]

    wait_for("the endpoints are known", is_known, 20)
    status, text = tenant.ask("GET", target)
    assert (status, "address not allowed" in text) == (400, True)


@pytest.mark.parametrize("certificate", ["controllers", "scheduler", "service-proxy", "node-node01"])
def test_components_are_not_above_the_roles(cluster: Cluster, certificate: str) -> None:
    component = Identity(cluster, certificate=certificate)
    binding = {
        "metadata": {"name": "forged"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"}],
    }
    assert component.ask("POST", f"{RBAC}/clusterrolebindings", binding)[0] == 403
    assert (
        component.ask("POST", f"{CORE}/namespaces/kube-system/secrets", {"metadata": {"name": "x"}})[0] == 403
    )


def test_only_the_api_server_is_served_by_a_kubelet(cluster: Cluster) -> None:
    node = cluster.request("GET", f"{CORE}/nodes/node01")["status"]["addresses"]
    address = next(entry["address"] for entry in node if entry["type"] == "InternalIP")

    def ask(certificate: str) -> int:
        context = Identity(cluster, certificate=certificate).context()
        context.check_hostname = False
        connection = http.client.HTTPSConnection(address, 10250, context=context, timeout=20)
        try:
            connection.request("POST", "/exec/default/x/y?command=id")
            return connection.getresponse().status
        finally:
            connection.close()

    assert ask("apiserver-kubelet-client") == 404
    for certificate in ("controllers", "scheduler", "service-proxy", "node-node01"):
        assert ask(certificate) == 403


def test_nobody_was_refused_what_the_cluster_needs(cluster: Cluster) -> None:
    logs = [path for path in Path(cluster.state / "logs").iterdir() if "controllers" in path.name]
    assert logs
    for path in logs:
        assert "is forbidden" not in path.read_text(errors="replace"), path.name
