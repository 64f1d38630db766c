"""A tenant's pods against the node agent, which is root: what they write, and how they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.commands import run
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.shellpods import IMAGE, shell_pod

pytestmark = pytest.mark.host

PODS = f"{CORE}/namespaces/default/pods"
RunPod = Callable[..., str]


@pytest.fixture
def run_pod(cluster: Cluster) -> Iterator[RunPod]:
    """Creates pods of one container, which are gone after the test; returns their paths."""
    made: list[str] = []

    def create(name: str, script: str, spec: Document | None = None, **container: Any) -> str:
        main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], **container}
        rest = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **(spec or {})}
        body = {"metadata": {"name": name}, "spec": {"containers": [main], **rest}}
        cluster.request("POST", PODS, {"apiVersion": "v1", "kind": "Pod", **body})
        made.append(f"{PODS}/{name}")
        return made[-1]

    yield create
    for path in made:
        remove(cluster, path)


def remove(cluster: Cluster, path: str) -> None:
    if cluster.find(path) is not None:
        cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")
        wait_for(f"{path} is gone", lambda: cluster.find(path) is None, 60)


def ended(cluster: Cluster, path: str) -> Document:
    """The end of the pod's container, once it has one."""

    def look() -> Document | None:
        status = cluster.request("GET", path)["status"]
        states = [item["state"] for item in status.get("containerStatuses", ())]
        found: Document | None = states[0].get("terminated") if states else None
        return found

    return wait_for(f"{path} has ended", look, 60)


def waiting(cluster: Cluster, path: str, reason: str) -> str:
    """The message of the pod's container once it waits for `reason`."""

    def look() -> str | None:
        status = cluster.request("GET", path)["status"]
        for item in status.get("containerStatuses", ()):
            found = item["state"].get("waiting", {})
            if found.get("reason") == reason:
                return str(found.get("message") or " ")
        return None

    return wait_for(f"{path} waits for {reason}", look, 60)


def test_a_termination_file_of_a_tebibyte_costs_its_pod_only(cluster: Cluster, run_pod: RunPod) -> None:
    agent = cluster.component("node-node01")
    script = "printf last-words >/dev/termination-log; truncate -s 1T /dev/termination-log; exit 3"
    end = ended(cluster, run_pod("huge-message", script))
    assert end["exitCode"] == 3
    assert end["message"].startswith("last-words")
    assert len(end["message"]) <= 4096
    with shell_pod(cluster, "after-huge-message") as pod:
        assert pod.run("true").returncode == 0
    assert cluster.component("node-node01") == agent


def test_directories_nested_without_end_are_removed_with_their_pod(cluster: Cluster, run_pod: RunPod) -> None:
    spec = {"volumes": [{"name": "v", "emptyDir": {}}]}
    # Three thousand levels, in paths that are not too long each.
    script = (
        "set -e; cd /v; levels=$(printf 'd/%.0s' $(seq 1000));"
        " for part in 1 2 3; do mkdir -p $levels; cd -P $levels; done; ln -s / x"
    )
    path = run_pod("deep", script, spec, volumeMounts=[{"name": "v", "mountPath": "/v"}])
    assert ended(cluster, path)["exitCode"] == 0
    uid = cluster.request("GET", path)["metadata"]["uid"]
    remove(cluster, path)
    # Deleted by force, the pod is gone from the API before the node has taken it away.
    directory = cluster.state / f"nodes/node01/kubelet/pods/{uid}"
    wait_for(f"{directory} is gone", lambda: not directory.exists(), 60)


def test_a_subpath_through_a_link_of_the_pods_own_makes_nothing_on_the_node(
    cluster: Cluster, run_pod: RunPod
) -> None:
    """The first container points a link at the node's root; the second one's subPath leads through it."""
    mark = f"tenant-made-{cluster.id}"
    init = {
        "name": "init",
        "image": IMAGE,
        "command": ["ln", "-s", "/", "/v/link"],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    spec = {"volumes": [{"name": "v", "emptyDir": {}}], "initContainers": [init]}
    mounts = [{"name": "v", "mountPath": "/x", "subPath": f"link/run/{mark}"}]
    path = run_pod("escape", "true", spec, volumeMounts=mounts)
    assert "leaves the volume" in waiting(cluster, path, "CreateContainerConfigError")
    namespace = cluster.state / "nodes/node01/ns/mnt"
    assert mark not in run("nsenter", f"--mount={namespace}", "ls", "/run").stdout


def test_images_that_cannot_be_had_say_why_as_on_any_cluster(cluster: Cluster, run_pod: RunPod) -> None:
    absent = run_pod("never", "true", image="absent.invalid/x:1", imagePullPolicy="Never")
    text = 'Container image "absent.invalid/x:1" is not present with pull policy of Never'
    assert waiting(cluster, absent, "ErrImageNeverPull") == text
    wrong = run_pod("wrong-name", "true", image="Not/A_Name:1")
    assert "couldn't parse image name" in waiting(cluster, wrong, "InvalidImageName")
    pulled = run_pod("no-registry", "true", image="absent.invalid/x:1", imagePullPolicy="Always")
    message = waiting(cluster, pulled, "ImagePullBackOff")
    assert message.startswith('Back-off pulling image "absent.invalid/x:1": ErrImagePull: rpc error: code = ')
    events = cluster.items(f"{CORE}/namespaces/default/events")
    told = {
        item["reason"]: item["message"] for item in events if item["involvedObject"]["name"] == "no-registry"
    }
    assert told["Pulling"] == 'Pulling image "absent.invalid/x:1"'
    assert told["BackOff"] == 'Back-off pulling image "absent.invalid/x:1"'
    assert {item["message"] for item in events if item["reason"] == "Failed"} >= {
        "Error: ErrImagePull",
        "Error: ImagePullBackOff",
        "Error: ErrImageNeverPull",
        "Error: InvalidImageName",
    }
