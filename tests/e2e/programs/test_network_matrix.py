"""Which pod may connect to which: three namespaces of three pods with two ports, in both families.

Every pod tries all others at once after each change of the policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, Cluster, is_ready
from tests.e2e.failures import Document
from tests.e2e.programs.manifests import configured, container, document, pod_spec
from tests.e2e.support import wait_for
from tests.support.dialling import Call, answered
from tests.support.namespaces import T, called_in

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

_PORTS = {"web": 8080, "admin": 8081}
_NAMESPACES, _PODS = ("team-a", "team-b", "team-c"), ("x", "y", "z")
_ENFORCED_SECONDS = 20
_NGINX = """\
pid /tmp/nginx.pid;
events {}
http {
    access_log off;
    server {
        listen 8080; listen [::]:8080;
        listen 8081; listen [::]:8081;
        return 200 "$hostname $server_port";
    }
}
"""
_ANSWER_SECONDS = 1.0
"""What has no answer after this was dropped."""


@dataclass(frozen=True, order=True)
class Connection:
    """One entry of the matrix; pods are called NAMESPACE/POD."""

    source: str
    target: str
    port: int
    family: int


Rule = Callable[[Connection], bool]


@dataclass(frozen=True)
class Step:
    """A policy, and which connections it lets through, alone."""

    what: str
    policy: Document
    allows: Rule


def policy(name: str, namespace: str, **spec: object) -> Document:
    return document(
        "NetworkPolicy", name, "networking.k8s.io/v1", namespace=namespace, spec={"podSelector": {}, **spec}
    )


def selected(pod: str) -> Document:
    return {"matchLabels": {"pod": pod}}


def in_namespace(name: str) -> Document:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def of(name: str) -> Rule:
    """Connections that do not lead into a namespace."""
    return lambda each: not each.target.startswith(f"{name}/")


_STEPS = (
    Step(
        "nobody connects to team-a",
        policy("nobody", "team-a", policyTypes=["Ingress"]),
        of("team-a"),
    ),
    Step(
        "pod y of team-b connects to the web port of pod x of team-b, nobody else to pod x",
        policy(
            "one",
            "team-b",
            podSelector=selected("x"),
            ingress=[
                {
                    "from": [{"namespaceSelector": in_namespace("team-b"), "podSelector": selected("y")}],
                    "ports": [{"port": "web"}],
                }
            ],
        ),
        lambda each: each.target != "team-b/x" or (each.source == "team-b/y" and each.port == _PORTS["web"]),
    ),
    Step(
        "pod z of team-b connects to the ports from 8081 of team-c only",
        policy(
            "away",
            "team-b",
            podSelector=selected("z"),
            policyTypes=["Egress"],
            egress=[
                {
                    "to": [{"namespaceSelector": in_namespace("team-c")}],
                    "ports": [{"port": 8081, "endPort": 8090}],
                }
            ],
        ),
        lambda each: (
            each.source != "team-b/z" or (each.target.startswith("team-c/") and each.port == _PORTS["admin"])
        ),
    ),
    Step(
        "pod z of team-c is for callers by IPv4",
        policy(
            "blocks",
            "team-c",
            podSelector=selected("z"),
            ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}],
        ),
        lambda each: each.target != "team-c/z" or each.family == 4,
    ),
)


def namespace_documents(name: str) -> list[Document]:
    """A namespace with its pods, one on each node."""
    made = [
        document("Namespace", name),
        document("ConfigMap", "nginx", namespace=name, data={"nginx.conf": _NGINX}),
    ]
    for pod in _PODS:
        only = container(
            "nginx",
            "exec nginx -c /etc/programs/nginx.conf -g 'daemon off;'",
            ready={"httpGet": {"path": "/", "port": "web"}},
            mounts={"configuration": "/etc/programs"},
            ports=[{"name": port, "containerPort": number} for port, number in _PORTS.items()],
        )
        spec = pod_spec(only, group="app", volumes=[configured("nginx")], hostname=f"{name}-{pod}")
        spec["terminationGracePeriodSeconds"] = 0
        made.append(document("Pod", pod, namespace=name, spec=spec))
        made[-1]["metadata"]["labels"] = {"app": name, "pod": pod}
    return made


@dataclass(frozen=True)
class Pod:
    """A pod, by a process in it."""

    process: int
    addresses: tuple[str, ...]

    def inside(self, act: Callable[[], T]) -> T:
        """What `act` returns, called in the pod's network."""
        return called_in(Path(f"/proc/{self.process}/ns/net"), act)


@dataclass(frozen=True)
class Matrix:
    """All pods, as NAMESPACE/POD."""

    cluster: Cluster
    pods: dict[str, Pod]

    def all(self) -> set[Connection]:
        """Every connection from a pod to another."""
        return {
            Connection(source, target, port, 6 if ":" in address else 4)
            for source, target, port in product(self.pods, self.pods, _PORTS.values())
            for address in self.pods[target].addresses
            if source != target
        }

    def measured(self) -> set[Connection]:
        """The connections that are answered."""
        owners = {address: name for name, pod in self.pods.items() for address in pod.addresses}
        calls = [
            Call(source, address, port)
            for source, (address, owner), port in product(self.pods, owners.items(), _PORTS.values())
            if source != owner
        ]
        return {
            Connection(call.caller, owners[call.address], call.port, 6 if ":" in call.address else 4)
            for call in answered(self.pods, calls, seconds=_ANSWER_SECONDS)
        }


@pytest.fixture(scope="module")
def matrix(three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    """Nine pods that serve and call."""
    file = tmp_path_factory.mktemp("matrix") / "pods.json"
    items = [document for name in _NAMESPACES for document in namespace_documents(name)]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    three_nodes.kubectl("apply", "-f", str(file), seconds=60)
    try:
        pods = wait_for("all pods are ready", lambda: ready_pods(three_nodes), 60)
        assert len({pod["spec"]["nodeName"] for pod in pods}) > 1, "some neighbours, some not"
        yield Matrix(three_nodes, running(three_nodes, pods))
    finally:
        three_nodes.kubectl("delete", "namespace", *_NAMESPACES, seconds=60)


def ready_pods(cluster: Cluster) -> list[Document]:
    """All nine pods when they are ready, otherwise none."""
    found = [pod for name in _NAMESPACES for pod in cluster.items(f"{CORE}/namespaces/{name}/pods")]
    return found if len(found) == len(_NAMESPACES) * len(_PODS) and all(map(is_ready, found)) else []


def running(cluster: Cluster, pods: list[Document]) -> dict[str, Pod]:
    """The processes of pods, by which one gets into their networks."""
    processes = {each.pid: each.traces for each in cluster.processes() if "nginx: master" in each.command}
    found = {}
    for pod in pods:
        metadata = pod["metadata"]
        (process,) = (pid for pid, traces in processes.items() if metadata["uid"] in traces)
        addresses = tuple(entry["ip"] for entry in pod["status"]["podIPs"])
        found[f"{metadata['namespace']}/{metadata['name']}"] = Pod(process, addresses)
    return found


def wait_enforced(matrix: Matrix, what: str, rules: list[Rule]) -> None:
    """Wait until the matrix is what all rules together let through."""
    wanted = {each for each in matrix.all() if all(allows(each) for allows in rules)}
    seen: list[set[Connection]] = []

    def is_so() -> bool:
        seen.append(matrix.measured())
        return seen[-1] == wanted

    try:
        wait_for(what, is_so, _ENFORCED_SECONDS)
    except AssertionError as error:
        lacking, too_many = sorted(wanted - seen[-1]), sorted(seen[-1] - wanted)
        raise AssertionError(f"{error}\nnot answered: {lacking}\nmust not be answered: {too_many}") from error


def test_policies_let_through_what_they_say_and_nothing_else(matrix: Matrix, tmp_path: Path) -> None:
    assert all(len(pod.addresses) == 2 for pod in matrix.pods.values()), "both families"
    wait_enforced(matrix, "everybody is answered", [])
    rules: list[Rule] = []
    for step in _STEPS:
        file = tmp_path / "policy.json"
        file.write_text(json.dumps(step.policy))
        matrix.cluster.kubectl("apply", "-f", str(file))
        rules.append(step.allows)
        wait_enforced(matrix, step.what, rules)
    assert ready_pods(matrix.cluster), "probes of the node are let in"
    for step in reversed(_STEPS):
        metadata = step.policy["metadata"]
        matrix.cluster.kubectl("-n", metadata["namespace"], "delete", "networkpolicy", metadata["name"])
    wait_enforced(matrix, "everybody is answered again", [])
