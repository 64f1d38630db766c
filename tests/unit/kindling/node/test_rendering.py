"""Sandboxes, security contexts and resources as CRI documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kindling.node.backoff import Backoff
from kindling.node.images.host_image import is_host_image, outermost
from kindling.node.images.manager import Credential, matching_auth
from kindling.node.images.references import normalize
from kindling.node.pods import resources, sandbox, security
from kindling.node.runtime.interface import Image

SETTINGS = sandbox.ResolverSettings("10.64.240.10", upstream_servers=["9.9.9.9"], upstream_searches=["lan"])


def pod(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


def test_the_resolver_follows_the_pods_policy() -> None:
    assert sandbox.resolver(pod(), SETTINGS) == {
        "servers": ["10.64.240.10"],
        "searches": ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"],
        "options": ["ndots:5"],
    }
    assert sandbox.resolver(pod(hostNetwork=True), SETTINGS)["servers"] == ["9.9.9.9"]
    own = pod(
        dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1"], "options": [{"name": "ndots", "value": "2"}]}
    )
    assert sandbox.resolver(own, SETTINGS) == {"servers": ["1.1.1.1"], "searches": [], "options": ["ndots:2"]}


def test_the_sandbox_carries_the_pods_identity_and_cgroup() -> None:
    config = sandbox.sandbox_config(pod(), 3, SETTINGS, "/kindling-x/node01")
    assert config["metadata"]["attempt"] == 3
    assert config["labels"]["io.kubernetes.pod.uid"] == "u"
    assert config["log_directory"] == "/var/log/pods/ns_p_u"
    assert config["linux"]["cgroup_parent"] == "/kindling-x/node01/kubepods/besteffort/podu"


def test_hosts_files_name_the_pod_and_its_aliases() -> None:
    text = sandbox.hosts_file(
        pod(hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]), ["10.64.1.2"], SETTINGS, ""
    )
    assert "10.64.1.2\tp\n" in text
    assert "1.2.3.4\ta\tb\n" in text


def test_namespaces_are_shared_as_asked() -> None:
    assert security.namespace_options(pod()) == {"network": 0, "pid": 1, "ipc": 0}
    assert security.namespace_options(pod(hostPID=True, hostNetwork=True)) == {
        "network": 2,
        "pid": 2,
        "ipc": 0,
    }
    assert security.namespace_options(pod(shareProcessNamespace=True))["pid"] == 0


def test_running_as_root_is_refused_where_it_is_forbidden() -> None:
    spec = pod(securityContext={"runAsNonRoot": True})
    root = Image("i", (), (), 1)
    with pytest.raises(
        security.SecurityProblem, match="container has runAsNonRoot and image will run as root"
    ):
        security.container_security(spec, {"name": "c"}, root)
    allowed = {"name": "c", "securityContext": {"runAsUser": 107}}
    assert security.container_security(spec, allowed, root)["run_as_user"] == {"value": 107}


def test_privileged_containers_see_unmasked_paths() -> None:
    privileged = {"name": "c", "securityContext": {"privileged": True}}
    assert "masked_paths" not in security.container_security(pod(), privileged, None)
    assert "/proc/kcore" in security.container_security(pod(), {"name": "c"}, None)["masked_paths"]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, "BestEffort"),
        ({"cpu": "1"}, {}, "Burstable"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}, "Guaranteed"),
        ({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}, "Burstable"),
    ],
)
def test_quality_of_service_follows_requests_and_limits(
    requests: dict[str, str], limits: dict[str, str], expected: str
) -> None:
    spec = pod(containers=[{"name": "c", "resources": {"requests": requests, "limits": limits}}])
    assert resources.qos_class(spec) == expected


def test_limits_become_quota_and_bytes() -> None:
    container = {"name": "c", "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}}}
    document = resources.linux_resources(pod(containers=[container]), container, 1 << 30)
    assert document["cpu_quota"] == 25_000
    assert document["cpu_shares"] == 256
    assert document["memory_limit_in_bytes"] == 64 << 20


def test_extended_resources_are_those_of_device_plugins() -> None:
    limits = {"cpu": "1", "devices.kubevirt.io/kvm": "1", "hugepages-2Mi": "4Mi"}
    assert resources.extended_resources({"resources": {"limits": limits}}) == {"devices.kubevirt.io/kvm": 1}


def test_back_off_doubles_to_five_minutes_and_is_forgotten_after_ten() -> None:
    backoff = Backoff()
    delays = []
    for _ in range(7):
        backoff.failed("k", 0.0)
        delays.append(backoff.delay("k"))
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    assert backoff.remaining("k", 100.0) == 200
    assert backoff.remaining("k", 700.0) == 0
    backoff.failed("k", 700.0)
    assert backoff.delay("k") == 10


def test_image_names_are_completed() -> None:
    assert normalize("busybox") == "docker.io/library/busybox:latest"
    assert normalize("user/app:1") == "docker.io/user/app:1"
    assert normalize("kindling.local/host:latest") == "kindling.local/host:latest"
    assert normalize("localhost:5000/a@sha256:1") == "localhost:5000/a@sha256:1"


def test_the_login_with_the_longest_prefix_is_used() -> None:
    logins = [
        Credential("https://index.docker.io/v1/", {"username": "a"}),
        Credential("quay.io/team", {"username": "b"}),
        Credential("quay.io", {"username": "c"}),
    ]
    assert matching_auth("busybox", logins) == {"username": "a"}
    assert matching_auth("quay.io/team/app", logins) == {"username": "b"}
    assert matching_auth("ghcr.io/x", logins) is None


def test_the_host_image_is_recognized_whatever_its_tag() -> None:
    assert is_host_image("kindling.local/host:latest")
    assert is_host_image("kindling.local/host")
    assert not is_host_image("example.com/host:latest")


def test_only_outermost_paths_are_bound() -> None:
    assert outermost([Path("/usr/lib"), Path("/usr"), Path("/opt/x")]) == [Path("/usr"), Path("/opt/x")]


_RUNTIME_DEFAULT, _UNCONFINED, _LOCALHOST = 0, 1, 2


@pytest.mark.parametrize(
    ("of_pod", "own", "expected"),
    [
        ({}, {}, _UNCONFINED),
        ({"type": "RuntimeDefault"}, {}, _RUNTIME_DEFAULT),
        ({"type": "Unconfined"}, {"seccompProfile": {"type": "RuntimeDefault"}}, _RUNTIME_DEFAULT),
        ({"type": "RuntimeDefault"}, {"seccompProfile": {"type": "Unconfined"}}, _UNCONFINED),
        ({"type": "RuntimeDefault"}, {"privileged": True}, _UNCONFINED),
        ({"type": "Localhost", "localhostProfile": "a/b.json"}, {}, _LOCALHOST),
    ],
)
def test_a_containers_system_calls_are_filtered_as_it_or_its_pod_asks(
    of_pod: dict[str, Any], own: dict[str, Any], expected: int
) -> None:
    context = {"seccompProfile": of_pod} if of_pod else {}
    pod = {"metadata": {"name": "p"}, "spec": {"securityContext": context}}
    found = security.container_security(pod, {"name": "c", "securityContext": own}, None)["seccomp"]
    assert found["profile_type"] == expected
    if expected == _LOCALHOST:
        assert found["localhost_ref"] == "/var/lib/kubelet/seccomp/a/b.json"


def test_an_ephemeral_container_sees_the_processes_of_its_target() -> None:
    document = security.container_security(pod(), {"name": "debug"}, None, "id-of-a")
    assert document["namespace_options"] == {"network": 0, "pid": 3, "ipc": 0, "target_id": "id-of-a"}
