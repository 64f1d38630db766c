"""Putting the product on a cluster: order, waiting and what is said when it does not work."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

import pytest

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import DEPLOYMENTS, NODES, PODS
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.labels import SCHEDULABLE
from virtplane.api.paths import KUBELET_ROOT
from virtplane.cli import install
from virtplane.cli.installation import KVM_RESOURCE, kvm_notice, stuck_containers
from virtplane.cli.terminal import CommandError
from virtplane.operators.kubevirt.manifests import InstallOptions, install_objects

_PROGRESSING = {"type": "Progressing", "status": "True"}
_CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}


def _kubevirt(**status: Any) -> JsonObject:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "ns"},
        "status": status,
    }


def _deployed(image: str = "i", root: str = KUBELET_ROOT) -> JsonObject:
    return {
        "phase": "Deployed",
        "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"}],
        "observedDeploymentConfig": json.dumps({"image": image, "layout": "compact", "kubeletRoot": root}),
        "observedDeploymentID": image,
        "targetDeploymentID": image,
    }


_READY = _deployed()


def _operator(**status: int) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "virt-operator", "namespace": "ns"},
        "spec": {"replicas": 1},
        "status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1} | status,
    }


_DEPLOYED_CDI: JsonObject = {
    "phase": "Deployed",
    "observedVersion": "v1",
    "targetVersion": "v1",
    "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"}],
}


def _cdi(manager: str = "virtplane-install", **status: Any) -> JsonObject:
    metadata = {"name": "cdi", "managedFields": [{"manager": manager}]}
    return {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "metadata": metadata, "status": status}


def _api() -> MemoryApi:
    api = MemoryApi([kinds.KUBEVIRTS, kinds.CDIS])
    api.put(DEPLOYMENTS, _operator())
    api.put(kinds.CDIS, _cdi(**_DEPLOYED_CDI))
    api.put(NODES, {"apiVersion": "v1", "kind": "Node", **_node("1k")})
    return api


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_POLL_SECONDS", 0.001)


async def _run(api: MemoryApi, monkeypatch: pytest.MonkeyPatch, *objects: JsonObject, seconds: float) -> None:
    monkeypatch.setattr(install, "install_objects", lambda *_: list(objects))
    for name in ("kubevirt_object", "cdi_object"):
        monkeypatch.setattr(install, name, lambda *_, **__: _CONFIG_MAP)
    async with api.client() as client:
        await install.install(client, InstallOptions("ns", "i", "compact"), timeout_seconds=seconds)


async def test_objects_are_applied_as_one_manager_and_the_operator_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = _api()
    looks = iter([{"phase": "Deploying"}, {"phase": "Deployed"}, _READY])

    def progress(request: Any) -> None:
        if request.method == "GET" and "/kubevirts/" in request.path:
            api.put(kinds.KUBEVIRTS, _kubevirt(**next(looks)))

    api.reactions.append(progress)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    applied = [request for request in api.requests if request.method == "PATCH"]
    assert [request.path for request in applied] == ["/api/v1/namespaces/ns/configmaps/c"] * 3
    assert dict(applied[0].query)["fieldManager"] == "virtplane-install"
    assert list(looks) == []
    assert "Waiting for virtplane to be available" in capsys.readouterr().err


async def test_a_webhook_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    refusals = iter([500, 503, 429])

    def refuse(request: Any) -> None:
        code = next(refusals, 0) if request.method == "PATCH" else 0
        if code:
            raise StatusError(code=code, reason="", message="not yet")

    api.reactions.append(refuse)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert list(refusals) == []


async def test_a_refusal_ends_the_installation_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    api = MemoryApi([kinds.KUBEVIRTS, kinds.CDIS])

    def refuse(request: Any) -> None:
        if request.method == "PATCH":
            raise StatusError(code=403, reason="Forbidden", message="you may not")

    api.reactions.append(refuse)
    with pytest.raises(CommandError) as failed:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert failed.value.what == "ConfigMap c could not be applied."
    assert failed.value.why == "you may not"


async def test_a_kind_that_is_never_served_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "g"}}
    with pytest.raises(CommandError) as failed:
        await _run(MemoryApi(), monkeypatch, unknown, seconds=0.02)
    assert failed.value.what == "Gadget g could not be applied."
    assert failed.value.why == "The cluster does not serve this kind."


async def test_an_installation_that_does_not_become_available_shows_its_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = MemoryApi([kinds.KUBEVIRTS, kinds.CDIS])
    condition = {"type": "Available", "status": "False", "message": "virt-api is missing"}
    api.put(kinds.KUBEVIRTS, _kubevirt(phase="Deploying", conditions=[condition]))
    api.put(kinds.CDIS, _cdi())
    with pytest.raises(CommandError) as failed:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)
    assert failed.value.why == (
        "KubeVirt kubevirt: phase Deploying; Available=False: virt-api is missing\nCDI cdi: phase unknown"
    )
    assert failed.value.do == "Look at: kubectl -n ns get pods,events"


@pytest.mark.parametrize(
    "status",
    [
        _deployed("former-image"),
        _deployed(root="/former/root"),
        {**_deployed(), "targetDeploymentID": "new"},
        {**_deployed(), "conditions": [{"type": "Available", "status": "True"}, _PROGRESSING]},
    ],
)
async def test_an_upgrade_that_goes_on_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, status: JsonObject
) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**status))
    with pytest.raises(CommandError, match="did not become available"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)


@pytest.mark.parametrize("observed", ["i", "former"])
async def test_a_complete_installation_does_not_wait_for_nodes_that_are_away(
    monkeypatch: pytest.MonkeyPatch, observed: str
) -> None:
    api = _api()
    conditions = [{"type": "Available", "status": "True"}, _PROGRESSING]
    api.put(
        kinds.KUBEVIRTS, _kubevirt(**_READY | {"conditions": conditions, "observedDeploymentID": observed})
    )
    away = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    api.put(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "away"}, "status": away})
    if observed == "i":
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=5)
        return
    with pytest.raises(CommandError, match="did not become available"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)


async def test_the_former_operator_is_waited_for_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    api = _api()
    api.put(DEPLOYMENTS, _operator(replicas=2))
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    with pytest.raises(CommandError, match="did not become available"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)


def _pod(reason: str, message: str = "") -> JsonObject:
    state = {"waiting": {"reason": reason, "message": "back-off 20s"}}
    status = {"name": "virt-handler", "state": state, "lastState": {"terminated": {"message": message}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "virt-handler-x", "namespace": "ns"},
        "spec": {"nodeName": "node1"},
        "status": {"containerStatuses": [status]},
    }


async def test_containers_that_stay_unable_to_start_end_the_wait_with_their_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(install, "_STUCK_SECONDS", 0.02)
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(phase="Deploying"))
    api.put(PODS, _pod("CrashLoopBackOff", "The kubelet of node node1 keeps its pods elsewhere."))
    with pytest.raises(CommandError) as failed:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    wanted = "virt-handler-x on node1: CrashLoopBackOff: The kubelet of node node1 keeps its pods elsewhere."
    assert (failed.value.what, failed.value.why) == ("virtplane cannot start.", wanted)


async def test_last_words_that_differ_after_every_try_do_not_begin_the_wait_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are lines of a log, which have times."""
    monkeypatch.setattr(install, "_STUCK_SECONDS", 0.2)
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(phase="Deploying"))

    async def crash() -> None:
        for number in count():
            api.put(PODS, _pod("CrashLoopBackOff", f"line {number}"))
            await asyncio.sleep(0)

    crashing = asyncio.create_task(crash())
    try:
        with pytest.raises(CommandError) as failed:
            await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    finally:
        crashing.cancel()
    assert failed.value.what == "virtplane cannot start."


def test_a_container_that_ends_again_and_again_is_stuck_while_it_runs_too() -> None:
    pod = _pod("CrashLoopBackOff", "no such option")
    between = _pod("ContainerCreating", "no such option")
    for each in (pod, between):
        each["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] = 1
    assert stuck_containers([pod]) == stuck_containers([between]) != {}
    between["status"]["containerStatuses"][0]["ready"] = True
    assert stuck_containers([between]) == {}


async def test_a_container_that_is_only_being_made_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_STUCK_SECONDS", 0.0)
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(phase="Deploying"))
    api.put(PODS, _pod("ContainerCreating"))
    with pytest.raises(CommandError, match="did not become available"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)


def _node(kvm: str) -> JsonObject:
    return {
        "metadata": {"name": "node1", "labels": {SCHEDULABLE: "true"}},
        "status": {"allocatable": {KVM_RESOURCE: kvm} if kvm else {}},
    }


@pytest.mark.parametrize(
    ("kvm", "emulation", "said"),
    [
        ("1k", False, ""),
        ("", False, "repeat this command with --emulation"),
        ("0", False, "repeat this command with --emulation"),
        ("", True, "guests run under emulation, which is slow"),
    ],
)
def test_a_cluster_without_kvm_is_told_how_guests_run(kvm: str, emulation: bool, said: str) -> None:
    notice = kvm_notice([_node(kvm)], emulation=emulation)
    assert said in notice
    assert bool(notice) is bool(said)


def _found_operator(namespace: str, manager: str = "virtplane-install") -> JsonObject:
    return {
        "metadata": {
            "name": "virt-operator",
            "namespace": namespace,
            "labels": {"kubevirt.io": "virt-operator"},
            "managedFields": [{"manager": manager}],
        }
    }


@pytest.mark.parametrize(
    ("kubevirt", "operator", "said"),
    [
        ("elsewhere", None, "KubeVirt kubevirt is in namespace elsewhere"),
        (None, _found_operator("elsewhere"), "A virt-operator runs in namespace elsewhere"),
        ("ns", _found_operator("ns", "kubectl-client-side-apply"), "was not installed by this command"),
    ],
)
async def test_a_second_installation_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, kubevirt: str | None, operator: JsonObject | None, said: str
) -> None:
    api = MemoryApi([kinds.KUBEVIRTS, kinds.CDIS])
    if kubevirt:
        existing = _kubevirt(**_READY)
        existing["metadata"]["namespace"] = kubevirt
        api.put(kinds.KUBEVIRTS, existing)
    if operator:
        api.put(DEPLOYMENTS, operator)
    with pytest.raises(CommandError, match=r"operator|installation") as failed:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert said in failed.value.why and "Nothing was changed" in failed.value.why
    assert {request.method for request in api.requests} == {"GET"}


async def test_the_own_installation_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    found = _operator()
    found["metadata"] = _found_operator("ns")["metadata"]
    found["spec"]["template"] = {"spec": {"containers": [{"name": "virt-operator", "image": "i"}]}}
    api.put(DEPLOYMENTS, found)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert [request.method for request in api.requests].count("PATCH") == 3


@pytest.mark.parametrize("status", [{"phase": "Deploying"}, {**_DEPLOYED_CDI, "observedVersion": "v0"}])
async def test_data_volumes_are_waited_for(monkeypatch: pytest.MonkeyPatch, status: JsonObject) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    api.put(kinds.CDIS, _cdi(**status))
    with pytest.raises(CommandError, match="did not become available"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)


@pytest.mark.parametrize(
    ("image", "status", "is_done"),
    [
        ("i", {}, True),
        ("former", {}, False),
        ("i", {"replicas": 2}, False),
    ],
    ids=["all current", "not looked at yet", "a former pod is left"],
)
@pytest.mark.parametrize("kept_by", ["install", "cdi-operator"])
async def test_an_upgrade_is_waited_for_in_every_component_of_cdi(
    monkeypatch: pytest.MonkeyPatch, kept_by: str, image: str, status: JsonObject, is_done: bool
) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    api.put(DEPLOYMENTS, _other_deployment(kept_by, image, status))
    if is_done:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
        return
    with pytest.raises(CommandError, match="did not become available"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)


async def test_deployments_of_others_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    api.put(DEPLOYMENTS, _other_deployment("somebody", "theirs", {"replicas": 2}))
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)


def _other_deployment(kept_by: str, image: str, status: JsonObject) -> JsonObject:
    """A Deployment that was applied by `install`, or else has the label of the operator that keeps it."""
    document = _operator(**status)
    document["metadata"] |= {
        "name": "other",
        "labels": {"app.kubernetes.io/managed-by": kept_by},
        "managedFields": [{"manager": f"virtplane-{kept_by}"}],
    }
    document["spec"]["template"] = {"spec": {"containers": [{"name": "c", "image": image}]}}
    return document


@pytest.mark.parametrize("has_operator", [True, False])
async def test_cdi_of_somebody_else_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_operator: bool
) -> None:
    api = _api()
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    api.put(kinds.CDIS, _cdi("kubectl-client-side-apply", phase="Deployed"))
    if has_operator:
        found = _found_operator("cdi", "kubectl-client-side-apply")
        found["metadata"] |= {"name": "cdi-operator", "labels": {"name": "cdi-operator"}}
        api.put(DEPLOYMENTS, found)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert [request.method for request in api.requests].count("PATCH") == 2
    assert "data volumes are its work" in capsys.readouterr().err


def test_without_cdi_nothing_of_it_is_installed() -> None:
    objects = install_objects(InstallOptions("ns", "image", "compact", has_cdi=False))
    assert not [each for each in objects if "cdi" in each["metadata"]["name"]]
    container = objects[-1]["spec"]["template"]["spec"]["containers"][0]
    assert "cdi" not in json.dumps(container)


async def test_without_the_right_to_look_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    api = MemoryApi([kinds.KUBEVIRTS, kinds.CDIS])

    def refuse(request: Any) -> None:
        raise StatusError(code=403, reason="Forbidden", message="you may not")

    api.reactions.append(refuse)
    with pytest.raises(CommandError, match="is unknown whether"):
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert {request.method for request in api.requests} == {"GET"}


async def test_a_node_that_is_about_to_be_ready_for_guests_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = _api()
    api.remove(NODES, "node1")
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    listed: list[str] = []

    def beat(request: Any) -> None:
        if request.path == "/api/v1/nodes":
            listed.append(request.path)
            if len(listed) == 3:
                api.put(NODES, {"apiVersion": "v1", "kind": "Node", **_node("1k")})

    api.reactions.append(beat)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert len(listed) == 3
    assert "No node" not in capsys.readouterr().err


def test_an_unreachable_cluster_is_told_with_the_way_to_one(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    parsed = install.parser().parse_args([])
    assert (parsed.namespace, parsed.layout) == ("openshift-cnv", "distributed")
    assert install.main(["--kubeconfig", str(tmp_path / "none")]) == 1
    assert "./virtplane up" in capsys.readouterr().err
