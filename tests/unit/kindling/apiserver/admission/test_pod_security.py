"""The Pod Security Standards."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.admission import Cluster, pod

from kindling.apiserver.admission.pod_security.levels import PREFIX, Policy, describe
from kindling.apiserver.admission.pod_security.plugin import PodSecurity
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import DEPLOYMENTS, NAMESPACES, PODS

GOOD = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def secured(context: JsonObject, name: str = "main", **more: Any) -> JsonObject:
    return {"name": name, "image": "x", "securityContext": context, **more}


def violations(level: str, made: JsonObject) -> str:
    return describe(Policy(level).violations(made, made["spec"]))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod(), ""),
        (
            pod(containers=[secured({"privileged": True}), secured({"privileged": True}, "two")]),
            'privileged (containers "main", "two" must not set securityContext.privileged=true)',
        ),
        (pod(hostNetwork=True, hostPID=True), "host namespaces (hostNetwork=true, hostPID=true)"),
        (pod(volumes=[{"name": "h", "hostPath": {"path": "/"}}]), 'hostPath volumes (volume "h")'),
        (
            pod(containers=[{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]),
            'hostPort (container "main" uses hostPort 80)',
        ),
        (
            pod(containers=[secured({"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}})]),
            'non-default capabilities (container "main" must not include "SYS_ADMIN" in '
            "securityContext.capabilities.add)",
        ),
        (
            pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            pod(securityContext={"seLinuxOptions": {"type": "odd_t", "user": "u"}}),
            'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "odd_t"; '
            "user may not be set)",
        ),
        (
            pod(containers=[{"name": "main", "livenessProbe": {"httpGet": {"port": 80, "host": "a.b"}}}]),
            'probe or lifecycle host (container "main" uses probe or lifecycle host "a.b")',
        ),
    ],
)
def test_baseline_names_each_violation(made: JsonObject, expected: str) -> None:
    assert violations("baseline", made) == expected


def test_restricted_asks_for_what_a_plain_pod_leaves_out() -> None:
    assert violations("restricted", pod()) == (
        'allowPrivilegeEscalation != false (container "main" must set '
        "securityContext.allowPrivilegeEscalation=false), "
        'unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to '
        '"RuntimeDefault" or "Localhost")'
    )
    assert violations("restricted", pod(containers=[secured(GOOD)])) == ""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"volumes": [{"name": "n", "nfs": {}}]}, 'volume "n" uses restricted volume type "nfs"'),
        ({"securityContext": {"runAsUser": 0}}, "pod must not set runAsUser=0"),
        (
            {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
            "must not set securityContext.seccomp",
        ),
    ],
)
def test_restricted_forbids_more(spec: JsonObject, expected: str) -> None:
    assert expected in violations("restricted", pod(containers=[secured(GOOD)], **spec))


def test_pods_with_users_of_their_own_may_be_root_inside() -> None:
    context = {**GOOD, "runAsNonRoot": None, "runAsUser": 0}
    assert violations("restricted", pod(containers=[secured(context)], hostUsers=False)) == ""


def labelled(**labels: str) -> JsonObject:
    return {"metadata": {"name": "ns", "labels": {PREFIX + key: value for key, value in labels.items()}}}


@pytest.mark.parametrize(
    ("level", "made", "allowed", "refused"),
    [
        (
            "baseline",
            pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
            "v1.32",
            "v1.31",
        ),
        (
            "baseline",
            pod(securityContext={"seLinuxOptions": {"type": "container_engine_t"}}),
            "v1.31",
            "v1.30",
        ),
        (
            "baseline",
            pod(
                containers=[
                    {"name": "main", "livenessProbe": {"httpGet": {"host": "example.com", "port": 80}}}
                ]
            ),
            "v1.33",
            "v1.34",
        ),
        ("baseline", pod(securityContext={"seccompProfile": {"type": "Unconfined"}}), "v1.18", "v1.19"),
        (
            "baseline",
            pod(hostUsers=False, containers=[secured({"procMount": "Unmasked"})]),
            "v1.35",
            "v1.34",
        ),
        (
            "restricted",
            pod(securityContext={"runAsUser": 0}, containers=[secured(GOOD)]),
            "v1.22",
            "v1.23",
        ),
        (
            "restricted",
            pod(os={"name": "windows"}, containers=[secured({"runAsNonRoot": True})]),
            "v1.25",
            "v1.24",
        ),
    ],
)
def test_a_namespace_may_keep_to_an_older_version_of_the_standard(
    level: str, made: JsonObject, allowed: str, refused: str
) -> None:
    assert Policy(level, allowed).violations(made, made["spec"]) == []
    assert len(Policy(level, refused).violations(made, made["spec"])) >= 1


def test_annotations_switched_seccomp_off_before_it_was_a_field() -> None:
    made = pod()
    made["metadata"]["annotations"] = {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    found = describe(Policy("baseline", "v1.18").violations(made, made["spec"]))
    assert found == (
        'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    )
    assert Policy("baseline", "v1.19").violations(made, made["spec"]) == []


async def test_pods_are_refused_and_workloads_warned_about() -> None:
    cluster = Cluster()
    cluster.objects.put(NAMESPACES, labelled(enforce="baseline", warn="baseline"))
    plugin = PodSecurity(cluster.objects)
    with pytest.raises(StatusError) as caught:
        await plugin.validate(cluster.request(PODS, pod(hostPID=True)))
    assert caught.value.message == (
        'pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    )
    template = {"metadata": {"labels": {"a": "b"}}, **{"spec": pod(hostPID=True)["spec"]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    request = cluster.request(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    await plugin.validate(request)
    assert request.ctx.warnings == [
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    ]


async def test_updates_that_change_nothing_that_matters_pass() -> None:
    cluster = Cluster()
    cluster.objects.put(NAMESPACES, labelled(enforce="restricted"))
    old = pod()
    new = deep_copy(old)
    new["metadata"]["labels"] = {"a": "b"}
    request = cluster.request(PODS, new, operation="UPDATE", old=old)
    await PodSecurity(cluster.objects).validate(request)


async def test_a_stricter_namespace_warns_about_its_pods() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        made = pod(name, hostPID=True)
        made["metadata"]["namespace"] = "ns"
        cluster.objects.put(PODS, made)
    request = cluster.request(
        NAMESPACES, labelled(enforce="baseline"), operation="UPDATE", old={"metadata": {"name": "ns"}}
    )
    await PodSecurity(cluster.objects).validate(request)
    assert request.ctx.warnings == [
        'existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 1 other pod): host namespaces",
    ]


async def test_levels_that_do_not_exist_are_refused() -> None:
    cluster = Cluster()
    request = cluster.request(NAMESPACES, labelled(enforce="odd"))
    with pytest.raises(StatusError, match="must be one of privileged, baseline, restricted"):
        await PodSecurity(cluster.objects).validate(request)
