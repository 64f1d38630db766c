"""A real cluster from nothing to nothing: pods on two nodes, killed processes, a node that comes and goes,
and what is left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.waiting import blocking_until

from kindling.cluster import instance as instances
from kindling.cluster import namespaces, processes, readiness, supervisor, termination
from kubecore import loop_devices
from kubecore.json import get_str

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("containerd") is None, reason="needs root, containerd"
    ),
]

KINDLING = [sys.executable, "-m", "kindling.cluster.cli"]


def run(*command: str) -> str:
    done = subprocess.run([*KINDLING, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def traces(state: Path) -> dict[str, set[str]]:
    """What of the machine an instance could leave behind, as far as it names the instance."""
    identifier = instances.instance_id(state)
    found: dict[str, set[str]] = {"processes": set(), "mounts": set(), "links": set(), "rules": set()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "cgroup").read_bytes()
                ended = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
            except OSError:
                continue
            if ended:
                # Ended, and waiting for the machine's init to notice.
                continue
            if str(state).encode() + b"/" in words or identifier.encode() in words:
                found["processes"].add(entry.name)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found["mounts"] = {line for line in mounts if f"{state}/" in line}
    links = subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found["links"] = {line for line in links if f"kd{identifier}" in line}
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    found["rules"] = {line for line in tables.splitlines() if identifier in line}
    found["cgroups"] = {str(path) for path in Path("/sys/fs/cgroup").glob(f"*/kindling-{identifier}")}
    found["loops"] = {
        line
        for line in subprocess.run(
            ["losetup", "-l"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        if f"{state}/" in line
    }
    return found


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("kindling") / "state"
    yield directory
    if directory.exists():
        run("reset", "--state", str(directory), "--quiet")


def kubectl(instance: instances.Instance, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(instance.kubeconfig), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_node(instance: instances.Instance, name: str, script: str) -> str:
    command = [*namespaces.enter_command(instance.node(name)), "sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


NETWORK = {
    "apiVersion": "k8s.cni.cncf.io/v1",
    "kind": "NetworkAttachmentDefinition",
    "metadata": {"name": "trunk"},
    "spec": {
        "config": orjson.dumps(
            {"cniVersion": "1.0.0", "type": "macvlan", "master": "lan0", "mode": "bridge",
             "capabilities": {"ips": True}, "ipam": {"type": "static"}}
        ).decode()
    },
}  # fmt: skip


def web(name: str, node: str, address: str) -> str:
    networks = orjson.dumps([{"name": "trunk", "ips": [f"{address}/24"]}]).decode()
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "web"},
            "annotations": {"k8s.v1.cni.cncf.io/networks": networks},
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "kindling.local/host:latest",
                    "command": ["python3", "-m", "http.server", "--bind", "::", "8080"],
                    "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
                }
            ],
        },
    }
    return orjson.dumps(manifest).decode()


def pod(instance: instances.Instance, name: str) -> dict[str, Any]:
    _, document = readiness.get(instance, f"/api/v1/namespaces/default/pods/{name}")
    assert isinstance(document, dict)
    return document


def is_ready(instance: instances.Instance, name: str) -> bool:
    return readiness.is_ready(pod(instance, name))


def reach_each_other_by_both_families(instance: instances.Instance) -> None:
    """Pods, a service and its node ports, from a pod of each node and from the machine."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "type": "NodePort",
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    }
    service = orjson.loads(
        kubectl(instance, "create", "-o", "json", "-f", "-", stdin=orjson.dumps(manifest).decode())
    )["spec"]
    node_port = service["ports"][0]["nodePort"]
    gateway = instance.gateways[1]
    urls = [f"[{pod(instance, name)['status']['podIPs'][1]['ip']}]:8080" for name in ("one", "two")]
    urls += [f"[{service['clusterIPs'][1]}]:80", f"[{gateway}]:{node_port}"]
    urls += [f"[{node.addresses[1]}]:{node_port}" for node in instance.nodes()]
    fetch = ["curl", "-gsf", "-m", "5", "--noproxy", "*", "-o", "/dev/null"]

    def answers(where: list[str]) -> bool:
        asked = [*where, *fetch, *(f"http://{url}/" for url in urls)]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    inside = ["kubectl", "--kubeconfig", str(instance.kubeconfig), "exec"]
    for where in ([*inside, "one", "--"], [*inside, "two", "--"], []):
        blocking_until(f"answers to {where}", partial(answers, where), 10)
    found = "import socket; print(*(a[4][0] for a in socket.getaddrinfo('web', 80, type=socket.SOCK_STREAM)))"
    resolved = kubectl(instance, "exec", "one", "--", "python3", "-c", found).split()
    assert sorted(resolved) == sorted(service["clusterIPs"])
    listed = orjson.loads(kubectl(instance, "get", "nodes", "-o", "json"))["items"]
    for node, document in zip(instance.nodes(), listed, strict=True):
        addresses = [item["address"] for item in document["status"]["addresses"]]
        assert addresses == [*node.addresses, node.name]
        assert tuple(document["spec"]["podCIDRs"]) == node.pod_cidrs


def hold_block_volume(instance: instances.Instance, node: str, volume: int) -> None:
    """As the agent does for a pod with a block volume, whose driver made the device's node."""
    folder = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/v/dev"
    script = f"mkdir -p {folder} && mknod {folder}/pod b 7 {volume} && losetup --find {folder}/pod"
    in_node(instance, node, script)


def one_node_stops_and_starts(state: Path, instance: instances.Instance) -> None:
    node, cgroup = instance.node("node02"), instance.node_cgroup("node02")
    shared, local = "/var/lib/storage/shared", "/var/lib/storage/local"
    in_node(instance, "node01", f"truncate -s 1M {shared}/one; losetup --find {shared}/one")
    pool = loop_devices.of_file((state / "pool.img").stat())
    volumes = loop_devices.of_file_system(pool[0])
    assert len(volumes) == 1
    in_node(instance, "node02", f"mkdir {local}/a; truncate -s 1M {local}/a/b; losetup --find {local}/a/b")
    assert len(loop_devices.of_file_system(pool[0])) == 2
    (volume,) = volumes
    for name in ("node01", "node02"):
        hold_block_volume(instance, name, volume)
    assert len(loop_devices.holders(volume)) == 2
    assert termination.pod_processes(cgroup)
    for _ in range(2):
        run("node", "stop", "--state", str(state), "--grace-period=0", "node02")
        assert not termination.pod_processes(cgroup)
        assert not namespaces.exists(node)
        found = traces(state)
        assert not [line for line in found["mounts"] if str(node.directory) in line]
        assert not [line for line in found["links"] if node.host_link in line]
        assert not list(Path("/sys/fs/cgroup").glob(f"*{cgroup}"))
    assert loop_devices.of_file_system(pool[0]) == volumes, "those of the other node stay"
    assert len(loop_devices.holders(volume)) == 1, "the stopped node holds nothing"
    assert set(supervisor.find_children(instance.id, processes.specs(instance))) == {
        *("apiserver", "controllers", "containerd-node01", "node-node01")
    }
    assert "node02 stays stopped" in run_all("up", "--state", str(state))
    assert not namespaces.exists(node)
    assert state_of(state, "node02") == "stopped"
    run("node", "start", "--state", str(state), "node02", "--quiet")
    blocking_until("pod two back", lambda: restarts(instance, "two") == 1 and is_ready(instance, "two"))
    for number in (*loop_devices.holders(volume), *volumes):
        loop_devices.detach(number)


def one_node_is_isolated(state: Path, instance: instances.Instance) -> None:
    container = pod(instance, "two")["status"]["containerStatuses"][0]
    running = termination.pod_processes(instance.node_cgroup("node02"))
    probe = f"curl -sk -m 1 -o /dev/null {instance.internal_api_url}/healthz && echo there || echo away"
    assert in_node(instance, "node02", probe) == "there\n"
    run("node", "isolate", "--state", str(state), "node02")
    assert in_node(instance, "node02", probe) == "away\n"
    assert "node02 stays isolated" in run_all("up", "--state", str(state))
    assert (in_node(instance, "node02", probe), state_of(state, "node02")) == ("away\n", "isolated")
    run("node", "start", "--state", str(state), "node02")
    assert in_node(instance, "node02", probe) == "there\n"
    assert state_of(state, "node02") == "running"
    assert pod(instance, "two")["status"]["containerStatuses"][0] == container
    assert running <= termination.pod_processes(instance.node_cgroup("node02"))


def one_node_is_removed_and_added_again(state: Path, instance: instances.Instance) -> None:
    node = instance.node("node02")
    in_node(instance, "node02", "touch /var/lib/storage/local/old")
    _, before = readiness.get(instance, "/api/v1/nodes/node02")
    with pytest.raises(AssertionError, match="pods run on it: default/two"):
        run("node", "remove", "--state", str(state), "node02")
    assert is_ready(instance, "two")
    run("node", "remove", "--state", str(state), "--grace-period=0", "--force", "node02")
    for path in ("nodes/node02", "namespaces/default/pods/two"):
        assert readiness.get(instance, f"/api/v1/{path}")[0] == 404
    assert not node.directory.exists()
    assert not list(instance.pki.glob("node-node02*"))
    run("node", "add", "--state", str(state))
    added = instances.require(state).node("node02")
    _, after = readiness.get(instance, "/api/v1/nodes/node02")
    assert (added, readiness.is_ready(after)) == (node, True)
    assert get_str(after, "metadata", "uid") != get_str(before, "metadata", "uid")
    assert in_node(instance, "node02", "ls /var/lib/storage/local") == ""


def run_all(*command: str) -> str:
    """As `run`, with what is told on the way."""
    done = subprocess.run([*KINDLING, *command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def state_of(state: Path, name: str) -> str:
    lines = [line.split() for line in run("node", "list", "--state", str(state)).splitlines()]
    return next(words[2] for words in lines if words[0] == name)


def restarts(instance: instances.Instance, name: str) -> int:
    return int(pod(instance, name)["status"]["containerStatuses"][0]["restartCount"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_a_cluster_survives_its_processes_and_leaves_nothing(state: Path) -> None:
    account = "--host-image-account=default/default"
    wishes = ["--nodes", "2", "--storage", "1Gi", "--node-link", "lan0"]
    run("up", "--state", str(state), *wishes, "--quiet", account)
    instance = instances.require(state)
    kubectl(instance, "create", "-f", "-", stdin=orjson.dumps(NETWORK).decode())
    for name, node, own in (("one", "node01", "10.200.0.1"), ("two", "node02", "10.200.0.2")):
        kubectl(instance, "create", "--validate=false", "-f", "-", stdin=web(name, node, own))
    for name in ("one", "two"):
        blocking_until(f"pod {name} ready", partial(is_ready, instance, name))
    address = get_str(pod(instance, "two"), "status", "podIP")
    fetch = ["curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", f"http://{address}:8080/"]
    assert kubectl(instance, "exec", "one", "--", *fetch) == "200"
    assert subprocess.run(fetch, capture_output=True, text=True, check=True).stdout == "200"
    secondary = [*fetch[:-1], "http://10.200.0.2:8080/"]
    assert kubectl(instance, "exec", "one", "--", *secondary) == "200", "from node to node"
    names = "import socket; socket.getaddrinfo('kubernetes.default', 443)"
    kubectl(instance, "exec", "one", "--", "python3", "-c", names)
    if instance.has_ipv6:
        reach_each_other_by_both_families(instance)

    before = get_str(pod(instance, "one")["status"]["containerStatuses"][0], "containerID")
    running = supervisor.find_children(instance.id, processes.specs(instance))
    assert len(running) == len(processes.specs(instance))
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)
    blocking_until("recovery", lambda: readiness.missing_parts(instance) == "")
    blocking_until("status", lambda: readiness.is_ready(pod(instance, "one")))
    container = pod(instance, "one")["status"]["containerStatuses"][0]
    assert (container["containerID"], container["restartCount"]) == (before, 0)

    one_node_stops_and_starts(state, instance)
    one_node_is_isolated(state, instance)
    one_node_is_removed_and_added_again(state, instance)
    kubectl(instance, "create", "--validate=false", "-f", "-", stdin=web("two", "node02", "10.200.0.2"))
    blocking_until("pod two ready", partial(is_ready, instance, "two"))
    assert pod(instance, "one")["status"]["containerStatuses"][0]["containerID"] == before

    backup = state.parent / "backup"
    run("backup", "--state", str(state), str(backup))
    kubectl(instance, "create", "configmap", "made-later")
    pool = "/var/lib/storage"
    in_node(instance, "node01", f"echo kept > {pool}/shared/file; echo own > {pool}/local/file")
    in_node(instance, "node02", f"truncate -s 1M {pool}/shared/disk; losetup --find {pool}/shared/disk")
    (device,) = loop_devices.of_file((state / "pool.img").stat())
    (volume,) = loop_devices.of_file_system(device)
    hold_block_volume(instance, "node02", volume)
    run("down", "--state", str(state), "--quiet")
    assert not any(traces(state).values()), traces(state)
    assert not loop_devices.of_file((state / "pool.img").stat())
    run("restore", "--state", str(state), str(backup))
    run("up", "--state", str(state), "--storage", "2Gi", "--quiet")
    assert in_node(instance, "node02", f"cat {pool}/shared/file; ls {pool}/local") == "kept\n"
    blocks, block = in_node(instance, "node02", f"stat -f -c '%b %S' {pool}").split()
    assert int(blocks) * int(block) > 1.9 * 2**30, "the file system fills its larger file"
    for name in ("one", "two"):
        blocking_until(f"pod {name} back", partial(is_ready, instance, name))
    assert kubectl(instance, "exec", "one", "--", *secondary) == "200"
    assert "made-later" not in kubectl(instance, "get", "configmaps")
    run("reset", "--state", str(state), "--quiet")
    assert not any(traces(state).values()), traces(state)
    assert not state.exists()
