"""nginx behind services of every type, in both families, from outside and inside, by address and by name."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster
from tests.e2e.failures import Document
from tests.e2e.programs.databases import drain
from tests.e2e.programs.manifests import (
    apply,
    claim,
    claimed,
    configured,
    container,
    deployment,
    document,
    load_balancer_addresses,
    pod_spec,
    service,
    template,
    wait_rolled_out,
)
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

_PORT, _REPLICAS = 8080, 3
_TEXT = "written by one pod, served by all\n"
_SERVICES = f"{CORE}/namespaces/{NAMESPACE}/services"
_DOMAIN = f"{NAMESPACE}.svc.cluster.local"
_NGINX = """\
pid /tmp/nginx.pid;
events {}
http {
    access_log off;
    keepalive_timeout 0;
    server {
        listen 8080; listen [::]:8080;
        root /data;
        location = /name { return 200 "$hostname"; }
    }
}
"""
_LEAVE = {"preStop": {"exec": {"command": ["sleep", "2"]}}}
"""A pod that ends is still called until every node knows; see the documentation of Kubernetes."""


@pytest.fixture(scope="module")
def web(three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three pods of nginx that serve one claim, behind a load balancer; and a StatefulSet for its names."""
    cluster, folder = three_nodes, tmp_path_factory.mktemp("web")
    apply(cluster, folder, *manifests())
    try:
        wait_rolled_out(cluster, "deployment/web", "statefulset/named")
        cluster.kubectl("exec", "deploy/web", "--", "sh", "-c", f"printf '{_TEXT}' > /data/index.html")
        yield cluster
    finally:
        cluster.kubectl("delete", "-f", str(folder / "manifest.json"), seconds=60)
        wait_for("no pod is left", lambda: not cluster.items(f"{CORE}/namespaces/{NAMESPACE}/pods"), 60)


def manifests() -> list[Document]:
    only = container(
        "nginx",
        "exec nginx -c /etc/programs/nginx.conf -g 'daemon off;'",
        ready={"httpGet": {"path": "/name", "port": _PORT}},
        mounts={"configuration": "/etc/programs", "data": "/data"},
        lifecycle=_LEAVE,
    )
    spec = pod_spec(only, group="app", volumes=[configured("web"), claimed("web")])
    ready = {"exec": {"command": ["true"]}}
    named: Document = {"serviceName": "named", "replicas": 2, "podManagementPolicy": "Parallel"}
    named |= template(
        "named", pod_spec(container("named", "exec sleep 3600", ready=ready, mounts={}), group="app")
    )
    named["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    budget = {"minAvailable": _REPLICAS - 1, "selector": {"matchLabels": {"app": "web"}}}
    return [
        document("ConfigMap", "web", data={"nginx.conf": _NGINX}),
        claim("web", "ReadWriteMany"),
        deployment("web", _REPLICAS, spec),
        document("PodDisruptionBudget", "web", "policy/v1", spec=budget),
        service("web", _PORT, type="LoadBalancer"),
        service("named", _PORT, clusterIP="None"),
        document("StatefulSet", "named", "apps/v1", spec=named),
    ]


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def get(address: str, port: int, path: str = "/") -> str:
    """What the machine gets, from outside of the cluster. Raises OSError."""
    url = f"http://{bracketed(address)}:{port}{path}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def serves(address: str, port: int) -> bool:
    """Whether an address gives what was written. Raises OSError."""
    return get(address, port) == _TEXT


def pods_of(cluster: Cluster, app: str) -> list[Document]:
    return cluster.items(f"{CORE}/namespaces/{NAMESPACE}/pods", f"app%3D{app}")


def node_addresses(cluster: Cluster) -> list[str]:
    nodes = cluster.items(f"{CORE}/nodes")
    return [
        entry["address"]
        for node in nodes
        for entry in node["status"]["addresses"]
        if entry["type"] == "InternalIP"
    ]


def test_every_address_of_a_service_serves_what_one_pod_wrote(web: Cluster) -> None:
    found = web.request("GET", f"{_SERVICES}/web")["spec"]
    (node_port,) = (each["nodePort"] for each in found["ports"])
    places = [(address, _PORT) for address in load_balancer_addresses(web, "web")]
    places += [(address, node_port) for address in node_addresses(web)]
    assert len(places) == 2 + 2 * 3
    for address, port in places:
        # Each node learns of the service by itself.
        wait_for(f"{address} answers", partial(serves, address, port), 10)
    names = {pod["metadata"]["name"] for pod in pods_of(web, "web")}

    def has_each_its_share() -> bool:
        return {get(*places[0], "/name") for _ in range(60)} == names

    wait_for("each pod has its share", has_each_its_share, 10)
    for address in found["clusterIPs"]:
        url = f"http://{bracketed(address)}:{_PORT}/"
        assert web.kubectl("exec", "named-0", "--", "curl", "-sfgm5", url) == _TEXT


def looked_up(cluster: Cluster, name: str, kind: str) -> list[str]:
    """The records that a pod's resolver gives."""
    output = cluster.kubectl("exec", "named-0", "--", "nslookup", f"-type={kind}", name)
    answers = output.split("\n\n", 1)[1].splitlines()
    mark = "service = " if kind == "srv" else "Address: "
    return sorted(line.split(mark)[1] for line in answers if mark in line)


@pytest.mark.parametrize("app", ["web", "named"])
def test_names_of_services_lead_to_both_families(web: Cluster, app: str) -> None:
    owned = (
        [entry["ip"] for pod in pods_of(web, app) for entry in pod["status"]["podIPs"]]
        if app == "named"
        else web.request("GET", f"{_SERVICES}/{app}")["spec"]["clusterIPs"]
    )
    assert looked_up(web, f"{app}.{_DOMAIN}", "a") == sorted(each for each in owned if ":" not in each)
    assert looked_up(web, f"{app}.{_DOMAIN}", "aaaa") == sorted(each for each in owned if ":" in each)


def test_pods_of_a_headless_service_have_names_and_service_records(web: Cluster) -> None:
    names = [f"named-{index}.named.{_DOMAIN}" for index in range(2)]
    for pod, name in zip(pods_of(web, "named"), names, strict=True):
        four, six = (entry["ip"] for entry in pod["status"]["podIPs"])
        assert looked_up(web, name, "a") == [four]
        assert looked_up(web, name, "aaaa") == [six]
    records = looked_up(web, f"_named._tcp.named.{_DOMAIN}", "srv")
    assert [record.split()[2:] for record in records] == [[str(_PORT), name] for name in names]
    # The search domains and glibc's resolver, which programs use.
    assert web.kubectl("exec", "named-0", "--", "getent", "hosts", "named-1.named").split()[1] == names[1]


class Visitor:
    """Calls a service from outside again and again, and keeps what went wrong."""

    def __init__(self, address: str) -> None:
        self._address, self._ends = address, threading.Event()
        self.failures: list[str] = []
        self.count = 0

    def run(self) -> None:
        """Call until `end`."""
        while not self._ends.wait(0.02):
            self.count += 1
            try:
                get(self._address, _PORT)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"call {self.count} at {time.strftime('%X')}: {error!r}")

    def end(self) -> None:
        """Let the present call be the last."""
        self._ends.set()


@contextmanager
def visited(address: str) -> Iterator[Visitor]:
    """Have an address called while the context lasts."""
    visitor = Visitor(address)
    thread = threading.Thread(target=visitor.run)
    thread.start()
    try:
        yield visitor
    finally:
        visitor.end()
        thread.join()


def test_no_call_fails_while_a_node_is_drained(web: Cluster) -> None:
    four, six = load_balancer_addresses(web, "web")
    drained = pods_of(web, "web")[0]["spec"]["nodeName"]
    with visited(four) as one, visited(six) as other:
        try:
            drain(web, drained)
            wait_rolled_out(web, "deployment/web")
            assert drained not in {pod["spec"]["nodeName"] for pod in pods_of(web, "web")}
        finally:
            web.kubectl("uncordon", drained)
    assert not one.failures + other.failures
    assert min(one.count, other.count) > 50


def test_a_cordoned_node_keeps_its_pods_and_gets_no_more(web: Cluster, tmp_path: Path) -> None:
    nodes = sorted(node["metadata"]["name"] for node in web.items(f"{CORE}/nodes"))
    before = {pod["metadata"]["uid"] for pod in pods_of(web, "web")}
    cordoned = nodes[:2]
    web.kubectl("cordon", *cordoned)
    try:
        web.kubectl("scale", "deployment/web", f"--replicas={_REPLICAS + 2}")
        wait_rolled_out(web, "deployment/web")
    finally:
        web.kubectl("uncordon", *cordoned)
    pods = pods_of(web, "web")
    assert before < {pod["metadata"]["uid"] for pod in pods}
    added = [pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["uid"] not in before]
    assert added == [nodes[2]] * 2
    web.kubectl("scale", "deployment/web", f"--replicas={_REPLICAS}")
    wait_rolled_out(web, "deployment/web")
    assert json.loads(web.kubectl("get", "endpoints", "web", "-o", "json"))["subsets"]
