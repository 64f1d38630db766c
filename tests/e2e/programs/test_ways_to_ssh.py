"""All ways to a guest's SSH server: through the API server, by services of each type, by another network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt, program, run
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed"),
]

_NODE, _NAME = "node02", "reached"
_DEFINITIONS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
_SERVICES = f"{CORE}/namespaces/{NAMESPACE}/services"
_BRIDGE, _MAC = "br-reached", "02:00:5e:00:00:0c"
_OWN, _GUESTS = "192.168.80.1", "192.168.80.2"

Reach = Callable[..., bool]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SSH key."""
    key = tmp_path_factory.mktemp("ssh") / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    return key


@pytest.fixture(scope="module")
def guest(three_nodes: Cluster, guest_archive: Path, identity: Path) -> Iterator[Machine]:
    """A guest that knows the key, in the pod network and on a bridge of its node."""
    cluster = three_nodes
    cluster.load(guest_archive)
    config = {"cniVersion": "0.3.1", "name": _NAME, "type": "bridge", "bridge": _BRIDGE, "ipam": {}}
    definition = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    made = {**definition, "metadata": {"name": _NAME}, "spec": {"config": json.dumps(config)}}
    cluster.request("POST", _DEFINITIONS, made)
    wanted = manifest(_NAME, grace=1)
    spec = wanted["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": _NODE}
    spec["domain"]["devices"]["interfaces"].append({"name": "lan", "bridge": {}, "macAddress": _MAC})
    spec["networks"].append({"name": "lan", "multus": {"networkName": _NAME}})
    cloud_init = spec["volumes"][1]["cloudInitNoCloud"]
    cloud_init["userData"] += (
        f"ssh_authorized_keys:\n  - {identity.with_suffix('.pub').read_text().strip()}\n"
    )
    cloud_init["networkData"] = (
        f"version: 2\nethernets:\n  lan:\n    match:\n      macaddress: '{_MAC}'\n"
        f"    addresses: [{_GUESTS}/24]\n"
    )
    machine = cluster.create(wanted)
    try:
        machine.wait_running(120)
        yield machine
    finally:
        clean_up([machine])
        cluster.request("DELETE", f"{_DEFINITIONS}/{_NAME}")


@pytest.fixture
def reach(guest: Machine, identity: Path, tmp_path: Path) -> Reach:
    """Whether OpenSSH reaches the guest, started by the words of a command."""

    def tried(*start: str | Path, at: str = _NAME, port: int = 22) -> bool:
        options = ("-i", identity, f"-oUserKnownHostsFile={tmp_path / 'known'}", "-oBatchMode=yes")
        command = (*start, *options, "-oStrictHostKeyChecking=no", "-oConnectTimeout=5", "-p", str(port))
        done = attempt(*command, f"root@{at}", "hostname", env=guest.cluster.environment)
        return done.stdout == f"{_NAME}\n"

    return tried


def exposed(cluster: Cluster, kind: str) -> Document:
    """A service of a type, made by virtctl, with its address where it is to have one."""
    name = f"{_NAME}-{kind.lower()}"
    cluster.virtctl("expose", "vm", _NAME, "--name", name, "--type", kind, "--port", "22")

    def made() -> Document | None:
        found = cluster.request("GET", f"{_SERVICES}/{name}")
        has_address = bool(found["status"].get("loadBalancer", {}).get("ingress"))
        return found if has_address or kind != "LoadBalancer" else None

    return wait_for(f"the service of type {kind} is there", made, 20)


@pytest.fixture
def services(guest: Machine) -> Iterator[dict[str, Document]]:
    """A service of each type for the guest's SSH."""
    kinds = ("ClusterIP", "NodePort", "LoadBalancer")
    try:
        yield {kind: exposed(guest.cluster, kind) for kind in kinds}
    finally:
        for kind in kinds:
            if guest.cluster.find(path := f"{_SERVICES}/{_NAME}-{kind.lower()}") is not None:
                guest.cluster.request("DELETE", path)


@pytest.mark.feature("ACC-17")
def test_ssh_reaches_a_guest_in_each_of_the_documented_ways(
    guest: Machine, reach: Reach, services: dict[str, Document], identity: Path, tmp_path: Path
) -> None:
    cluster, virtctl = guest.cluster, program("virtctl")
    direct = ("-i", identity, "--known-hosts", tmp_path / "known-to-virtctl", "-t")
    command = (
        virtctl,
        "ssh",
        f"root@vmi/{_NAME}",
        *direct,
        "-oStrictHostKeyChecking=no",
        "--command",
        "hostname",
    )

    def by_virtctl() -> bool:
        return attempt(*command, env=cluster.environment).stdout == f"{_NAME}\n"

    wait_for("virtctl ssh reaches it", by_virtctl, 60)
    proxy = f"-oProxyCommand={virtctl} port-forward --stdio=true vmi/{_NAME}/{NAMESPACE} 22"
    assert reach("ssh", proxy), "virtctl port-forward"
    node = cluster.request("GET", f"{CORE}/nodes/node01")
    node_address = next(
        each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"
    )
    balanced = services["LoadBalancer"]["status"]["loadBalancer"]["ingress"][0]["ip"]
    ways = {
        "ClusterIP": (services["ClusterIP"]["spec"]["clusterIP"], 22),
        "NodePort": (node_address, services["NodePort"]["spec"]["ports"][0]["nodePort"]),
        "LoadBalancer": (balanced, 22),
    }
    for kind, (address, port) in ways.items():
        wait_for(f"the service of type {kind} leads there", partial(reach, "ssh", at=address, port=port), 20)
    in_node = ("nsenter", f"--net={cluster.state / 'nodes' / _NODE / 'ns/net'}")
    run(*in_node, "ip", "addr", "replace", f"{_OWN}/24", "dev", _BRIDGE)
    wait_for("the other network leads there", partial(reach, *in_node, "ssh", at=_GUESTS), 20)
