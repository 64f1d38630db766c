"""A tenant with the role `edit`, and a pod of his, against machines and the components that run them."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.claims import device
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.failures import Document, NotInTime
from tests.e2e.processes import kill
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(150)]

Create = Callable[..., Machine]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TENANT = "tenant-of-machines"
INSTANCES = f"{KUBEVIRT}/namespaces/{TENANT}/virtualmachineinstances"
API_PORT, OPERATOR_WEBHOOK_PORT = 8443, 8444
METRICS_PORTS = {"virt-operator": 8445, "virt-handler": 8443}


def ask_text(
    address: str, port: int, method: str, path: str, body: Document | None = None, **headers: str
) -> tuple[int, bytes]:
    """A request as any pod may send it: code and body of the answer."""
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, port, context=tls, timeout=20)
    try:
        sent = {"Content-Type": "application/json"} | {
            key.replace("_", "-"): value for key, value in headers.items()
        }
        connection.request(method, path, json.dumps(body) if body is not None else None, sent)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, text


def ask(
    address: str, port: int, method: str, path: str, body: Document | None = None, **headers: str
) -> tuple[int, Document]:
    """The same: code and document of the answer (empty where it is none)."""
    status, text = ask_text(address, port, method, path, body, **headers)
    try:
        document = json.loads(text)
    except ValueError:
        return status, {}
    return status, document if isinstance(document, dict) else {}


def component_address(cluster: Cluster, name: str) -> str:
    """The address of a component's pod."""
    pods = cluster.items(f"{CORE}/pods", f"kubevirt.io%3D{name}")
    return next(str(pod["status"]["podIP"]) for pod in pods if pod["status"].get("phase") == "Running")


def token(cluster: Cluster, namespace: str, account: str) -> str:
    """A token of a service account, which is made where there is none."""
    path = f"{CORE}/namespaces/{namespace}/serviceaccounts"
    if cluster.find(f"{path}/{account}") is None:
        cluster.request("POST", path, {"metadata": {"name": account}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(cluster.request("POST", f"{path}/{account}/token", request)["status"]["token"])


@contextmanager
def namespace(cluster: Cluster, name: str, **labels: str) -> Iterator[None]:
    """A namespace that goes at the end."""
    cluster.request("POST", f"{CORE}/namespaces", {"metadata": {"name": name, "labels": labels}})
    try:
        yield
    finally:
        cluster.request("DELETE", f"{CORE}/namespaces/{name}")
    wait_for(f"namespace {name} is gone", lambda: not cluster.find(f"{CORE}/namespaces/{name}"), 90)


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[str]:
    """The token of a service account that may edit one namespace."""
    with namespace(cluster, TENANT):
        found = token(cluster, TENANT, "tenant")
        binding = {
            "metadata": {"name": "tenant-edits"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": TENANT}],
        }
        cluster.request("POST", f"{RBAC}/namespaces/{TENANT}/rolebindings", binding)
        yield found


@pytest.fixture(scope="module")
def as_tenant(cluster: Cluster, tenant: str) -> Callable[..., tuple[int, Document]]:
    """Requests to the API server with the tenant's token."""
    port = json.loads((cluster.state / "instance.json").read_text())["api_port"]

    def request(method: str, path: str, body: Document | None = None) -> tuple[int, Document]:
        kind = {"Content_Type": "application/merge-patch+json"} if method == "PATCH" else {}
        return ask("127.0.0.1", port, method, path, body, Authorization=f"Bearer {tenant}", **kind)

    return request


def instance(name: str) -> Document:
    """An instance that no node takes."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": TENANT},
        "spec": {
            "nodeSelector": {"no-node": "has-this"},
            "domain": {"devices": {}, "memory": {"guest": "64Mi"}},
        },
    }


def test_a_forged_status_comes_neither_with_an_instance_nor_later(
    cluster: Cluster, as_tenant: Callable[..., tuple[int, Document]]
) -> None:
    forged = {
        "phase": "Running",
        "nodeName": "node01",
        "runtimeUser": 0,
        "evacuationNodeName": "node01",
        "migrationState": {"migrationUid": "u", "targetNode": "node01", "sourceNode": "node01"},
    }
    code, made = as_tenant("POST", INSTANCES, {**instance("forged"), "status": forged})
    assert code == 201, made
    path = f"{INSTANCES}/forged"
    try:
        wait_for("it is pending", lambda: cluster.request("GET", path)["status"]["phase"] == "Scheduling", 20)
        as_tenant("PATCH", path, {"status": {**forged, "phase": "Failed"}})
        as_tenant("PUT", path, {**(cluster.find(path) or {}), "status": forged})
        status = cluster.request("GET", path)["status"]
        assert status["runtimeUser"] == 107
        assert status["phase"] == "Scheduling"
        assert not {"nodeName", "evacuationNodeName", "migrationState"} & set(status)
    finally:
        as_tenant("DELETE", path)
        wait_for("it is gone", lambda: cluster.find(path) is None, 60)


def test_an_invented_review_is_not_answered(cluster: Cluster, new_machine: Create) -> None:
    machine = new_machine("reviewed")
    machine.wait_running()
    pod = machine.pod()["metadata"]["name"]
    eviction = {"metadata": {"name": pod, "namespace": NAMESPACE}}
    request = {"uid": "u", "operation": "CREATE", "name": pod, "namespace": NAMESPACE, "object": eviction}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    address = component_address(cluster, "virt-operator")
    for port, path in (
        (API_PORT, "/pod-eviction-validate"),
        (API_PORT, "/virtualmachineinstances-mutate"),
        (OPERATOR_WEBHOOK_PORT, "/kubevirt-validate-delete"),
    ):
        assert ask(address, port, "POST", path, review)[0] == 401
    assert "evacuationNodeName" not in (machine.instance() or {})["status"]


def test_headers_of_the_front_proxy_prove_nothing_without_its_certificate(
    cluster: Cluster, new_machine: Create
) -> None:
    machine = new_machine("impersonated")
    machine.wait_running()
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"
    code, _ = ask(
        component_address(cluster, "virt-operator"),
        API_PORT,
        "PUT",
        f"{path}/{machine.name}/pause",
        {},
        X_Remote_User="system:admin",
        X_Remote_Group="system:masters",
    )
    assert code == 401
    assert machine.condition("Paused") != "True"


@pytest.mark.parametrize("component", sorted(METRICS_PORTS))
def test_metrics_are_for_prometheus_alone(cluster: Cluster, tenant: str, component: str) -> None:
    address, port = component_address(cluster, component), METRICS_PORTS[component]
    assert ask(address, port, "GET", "/metrics")[0] == 401
    assert ask(address, port, "GET", "/metrics", Authorization="Bearer invented")[0] == 401
    assert ask(address, port, "GET", "/metrics", Authorization=f"Bearer {tenant}")[0] == 403
    with namespace(cluster, "monitoring"):
        reader = token(cluster, "monitoring", "prometheus-k8s")
        assert ask(address, port, "GET", "/metrics", Authorization=f"Bearer {reader}")[0] == 200
    assert ask(address, port, "GET", "/healthz")[0] == 200


_COUNTERS = {
    "network_receive_bytes_total": "default",
    "network_transmit_bytes_total": "default",
    "storage_iops_read_total": "data",
    "storage_iops_write_total": "data",
    "storage_read_traffic_bytes_total": "data",
    "storage_write_traffic_bytes_total": "data",
}
"""Metrics that count what a guest does, and the device whose count is looked at."""
_MOVED = 4 << 20
"""The bytes that the guest reads and writes."""
_SWAPPED = {
    "memory_swap_in_traffic_bytes": "gauge",
    "memory_swap_out_traffic_bytes": "gauge",
}


@pytest.fixture
def measured(cluster: Cluster) -> Iterator[Machine]:
    """A machine with an empty disk."""
    wanted = manifest("measured", grace=1)
    spec = wanted["spec"]["template"]["spec"]
    disk = {"name": "data", "disk": {"bus": "virtio"}, "serial": "data"}
    spec["domain"]["devices"]["disks"].append(disk)
    spec["volumes"].append({"name": "data", "emptyDisk": {"capacity": "16Mi"}})
    machine = cluster.create(wanted)
    yield machine
    clean_up([machine])


@pytest.mark.feature("MON-07", "MON-08", "MON-10", "MON-11", "MON-15", "MON-16", "MON-18", "MON-19")
def test_prometheus_reads_what_guests_use(cluster: Cluster, measured: Machine) -> None:
    measured.wait_running()
    with namespace(cluster, "monitoring"):
        reader = f"Bearer {token(cluster, 'monitoring', 'prometheus-k8s')}"

        def told(component: str, metric: str) -> list[str]:
            address, port = component_address(cluster, component), METRICS_PORTS[component]
            _, text = ask_text(address, port, "GET", "/metrics", Authorization=reader)
            return [line for line in text.decode().splitlines() if line.startswith(metric)]

        def of_guest(component: str, metric: str) -> list[str]:
            return [line for line in told(component, metric) if 'name="measured"' in line]

        spent = "kubevirt_vmi_cpu_usage_seconds_total{"
        wait_for("virt-handler tells of the guest", lambda: of_guest("virt-handler", spent), 40)
        [line] = of_guest("virt-handler", spent)
        assert float(line.rpartition(" ")[2]) > 0
        cards = of_guest("virt-handler", "kubevirt_vmi_network_receive_bytes_total{")
        assert ['interface="default"' in card for card in cards] == [True]

        def counts() -> dict[str, float]:
            found = {}
            for name, label in _COUNTERS.items():
                lines = of_guest("virt-handler", f"kubevirt_vmi_{name}{{")
                [line] = [each for each in lines if f'="{label}"' in each]
                assert f'namespace="{NAMESPACE}"' in line
                found[name] = float(line.rpartition(" ")[2])
            return found

        before = counts()
        with measured.console() as console:
            data = device(console, "data")
            blocks = f"bs=1048576 count={_MOVED >> 20} conv=fsync"
            console.run(f"dd if=/dev/{data} of=/dev/null {blocks} 2>/dev/null")
            console.run(f"dd if=/dev/zero of=/dev/{data} {blocks} 2>/dev/null")
            console.run("ping -c 2 $(ip route | sed -n 's/default via \\([^ ]*\\).*/\\1/p')")
        grown = {name: count - before[name] for name, count in counts().items()}
        assert all(growth > 0 for growth in grown.values()), grown
        assert grown["storage_read_traffic_bytes_total"] >= _MOVED
        assert grown["storage_write_traffic_bytes_total"] >= _MOVED
        for name, kind in (*dict.fromkeys(_COUNTERS, "counter").items(), *_SWAPPED.items()):
            assert told("virt-handler", f"# TYPE kubevirt_vmi_{name} ") == [
                f"# TYPE kubevirt_vmi_{name} {kind}"
            ]
        for name in _SWAPPED:
            wait_for(
                "the balloon tells of swapping",
                partial(of_guest, "virt-handler", f"kubevirt_vmi_{name}{{"),
                40,
            )
        assert len(of_guest("virt-operator", "kubevirt_vmi_info{")) == 1
        for state in ("virt_api_ready", "virt_controller_leading", "virt_operator_leading"):
            assert told("virt-operator", f"kubevirt_{state}_status") == [f"kubevirt_{state}_status 1.0"]


def is_ready(cluster: Cluster, path: str) -> bool:
    """Whether a machine says so."""
    return bool((cluster.find(path) or {}).get("status", {}).get("ready"))


def test_a_launcher_is_admitted_by_the_restricted_standard_and_filtered(cluster: Cluster) -> None:
    name = "strict"
    path = f"{KUBEVIRT}/namespaces/{name}/virtualmachines"
    with namespace(cluster, name, **{"pod-security.kubernetes.io/enforce": "restricted"}):
        wanted = manifest("filtered", grace=1)
        wanted["metadata"]["namespace"] = name
        cluster.request("POST", path, wanted)
        wait_for("it runs", lambda: is_ready(cluster, f"{path}/filtered"), 60)
        marks = ("guest=strict_filtered,", "\0--name\0filtered\0--uid\0")
        found = [process for process in cluster.processes() if any(mark in process.traces for mark in marks)]
        assert len(found) >= 2
        for process in found:
            status = Path(f"/proc/{process.pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert fields["Seccomp"] == "2", process.command
            assert fields["NoNewPrivs"] == "1", process.command
            assert int(fields["CapPrm"], 16) == 0, process.command
        cluster.request("DELETE", f"{path}/filtered")


@pytest.mark.feature("SUP-23")
def test_an_image_that_cannot_be_pulled_is_named_in_machine_and_instance(
    cluster: Cluster, new_machine: Create
) -> None:
    wanted = manifest("unpullable", grace=1)
    disk = {"image": "registry.invalid/none:1"}
    wanted["spec"]["template"]["spec"]["volumes"][0]["containerDisk"] = disk
    machine = cluster.create(wanted)
    try:
        seen = wait_for(
            "the failure shows",
            lambda: machine.status() if machine.status() in ("ErrImagePull", "ImagePullBackOff") else None,
            45,
        )
        assert seen
        assert machine.condition("Synchronized") == "False"
    finally:
        machine.delete()
        machine.wait_gone()


def successor(cluster: Cluster, name: str) -> int:
    """The process of a component that was killed, once there is one; 0 until then."""
    try:
        return cluster.component(name)
    except NotInTime:
        return 0


def test_a_controller_that_is_killed_again_and_again_makes_one_launcher_for_each_instance(
    cluster: Cluster,
) -> None:
    machines = [cluster.create(manifest(f"killed-{number}", grace=1)) for number in range(3)]
    try:
        for _ in range(2):
            kill(cluster.component("virt-operator"))
            wait_for("it runs again", lambda: successor(cluster, "virt-operator"), 40)
        for machine in machines:
            machine.wait_running(90)
            (pod,) = machine.pods()
            assert pod["metadata"]["labels"]["kubevirt.io/created-by"] == machine.uid()
    finally:
        for machine in machines:
            machine.delete()
        for machine in machines:
            machine.wait_gone()
