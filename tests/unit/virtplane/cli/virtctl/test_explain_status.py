"""Why machines wait, as ``virtctl explain-status`` says it: virt-controller and the scheduler are at work."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.controllers import running_controllers, until
from tests.support.managers import working
from tests.support.roles import RestrictedApi, rights

from kindling.scheduler.loop import Scheduler
from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cli.virtctl.explaining.answer import Answer, size
from virtplane.cli.virtctl.explaining.causes import explain
from virtplane.cli.virtctl.explaining.facts import gather
from virtplane.cli.virtctl.explaining.placement import reasons
from virtplane.compute.launcherpod.inputs import Images
from virtplane.operators.kubevirt.strategy.user_roles import user_roles

from .conftest import FakeServer, Virtctl

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_VMS, _VMIS = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
_DEVICES = {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")}


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryApi]:
    """No node yet."""
    server = MemoryApi(_KINDS, whole=[_VMIS])
    async with server.client() as client:
        manager = Manager(client)
        Scheduler(manager)
        served = frozenset([kinds.DATA_VOLUMES])
        images = Images("launcher:1", "sidecar:1")
        async with running_controllers(server, images, served), working(manager):
            yield server


def _node(name: str, memory: str = "4Gi", cpu: str = "4", **spec: Any) -> JsonObject:
    labels = {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64"}
    ready = {"type": "Ready", "status": "True"}
    allocatable = {"cpu": cpu, "memory": memory, "ephemeral-storage": "9Gi", "pods": "110", **_DEVICES}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": [ready]},
    }


def _vm(*, memory: str = "1Gi", guest: JsonObject | None = None, **spec: Any) -> JsonObject:
    wanted = {"domain": {"devices": {}, "memory": {"guest": memory}}, **(guest or {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns", "generation": 1},
        "spec": {"runStrategy": "Always", "template": {"spec": wanted}, **spec},
    }


def _status(api: MemoryApi) -> str:
    return get_str(api.get(_VMS, "vm", "ns"), "status", "printableStatus")


async def _asked(api: MemoryApi, status: str, *words: str) -> Answer:
    """The answer once the machine has that status, and these words are said."""

    async def look() -> Answer | None:
        if _status(api) != status:
            return None
        async with api.client() as client:
            answer = explain(await gather(client, "ns", "vm"))
        return answer if all(word in answer.sentence for word in words) else None

    found: Answer = await until(look)
    return found


def _fields(answer: Answer) -> dict[str, str]:
    return {each.field: each.value for each in answer.changes}


@pytest.mark.feature("NEW-11")
async def test_a_guest_that_is_too_large_is_told_how_large_it_may_be_and_then_starts(
    cluster: MemoryApi,
) -> None:
    cluster.put(resources.NODES, _node("small", "2Gi"))
    cluster.put(resources.NODES, _node("large", "4Gi"))
    taken = {"name": "p", "resources": {"requests": {"memory": "1Gi"}}}
    other: JsonObject = {"metadata": {"name": "other", "namespace": "x"}, "spec": {"nodeName": "large"}}
    other["spec"]["containers"] = [taken]
    cluster.put(resources.PODS, other)
    cluster.put(_VMS, _vm(memory="8Gi"))
    answer = await _asked(cluster, "ErrorUnschedulable")
    [pod] = cluster.list(resources.PODS, "ns")
    containers = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    asked = size(sum(Quantity.parse(each["resources"]["requests"]["memory"]).value for each in containers))
    assert answer.sentence == (
        "no node takes its pod: 2 nodes have too little memory"
        f" (it asks for {asked}, and large has the most left, 3Gi of 4Gi)."
    )
    [change] = answer.changes
    assert (change.field, change.value) == ("spec.template.spec.domain.memory.guest", "8Gi")
    assert answer.numbers == ("large: memory 3Gi of 4Gi", "small: memory 2Gi of 2Gi")
    fitting = re.search(r"at most (\d+)Mi fits on large now", change.advice)
    assert fitting is not None
    assert 2600 < int(fitting[1]) < 3072
    await cluster.client().delete(_VMS, "vm", "ns")
    await until(lambda: cluster.get(_VMS, "vm", "ns") is None)
    cluster.put(_VMS, _vm(memory=f"{fitting[1]}Mi"))
    await until(lambda: [get_str(each, "spec", "nodeName") for each in _launchers(cluster)] == ["large"])


def _launchers(api: MemoryApi) -> list[JsonObject]:
    return [each for each in api.list(resources.PODS, "ns") if not meta.is_being_deleted(each)]


@pytest.mark.feature("NEW-11")
@pytest.mark.parametrize(
    ("node", "guest", "field", "value"),
    [
        ({}, {"nodeSelector": {"zone": "a"}}, "spec.template.spec.nodeSelector[zone]", "a"),
        (
            {},
            {"domain": {"devices": {}, "memory": {"guest": "1Gi"}, "cpu": {"model": "Opteron_G5"}}},
            "spec.template.spec.domain.cpu.model",
            "Opteron_G5",
        ),
        (
            {},
            {"domain": {"devices": {}, "memory": {"guest": "1Gi"}, "resources": {"requests": {"cpu": "9"}}}},
            "spec.template.spec.domain.resources.requests.cpu",
            "9",
        ),
        ({"unschedulable": True}, {}, "Node spec.unschedulable", "true"),
        (
            {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            {},
            "spec.template.spec.tolerations",
            "",
        ),
    ],
)
async def test_the_field_is_named_that_keeps_a_guest_off_the_nodes(
    cluster: MemoryApi, node: JsonObject, guest: JsonObject, field: str, value: str
) -> None:
    cluster.put(resources.NODES, _node("n", **node))
    cluster.put(_VMS, _vm(guest=guest))
    answer = await _asked(cluster, "ErrorUnschedulable")
    assert answer.sentence.startswith("no node takes its pod: ")
    assert _fields(answer) == {field: value}


@pytest.mark.feature("NEW-11")
async def test_where_no_node_has_kvm_the_setting_for_emulation_is_named(cluster: MemoryApi) -> None:
    node = _node("n")
    del node["status"]["allocatable"]["devices.kubevirt.io/kvm"]
    cluster.put(resources.NODES, node)
    cluster.put(_VMS, _vm())
    answer = await _asked(cluster, "ErrorUnschedulable")
    assert "1 node has too little devices.kubevirt.io/kvm (it asks for 1" in answer.sentence
    assert list(_fields(answer)) == ["KubeVirt spec.configuration.developerConfiguration.useEmulation"]


async def test_who_may_not_read_nodes_is_told_what_the_scheduler_says(cluster: MemoryApi) -> None:
    cluster.put(resources.NODES, _node("n", "1Gi"))
    cluster.put(_VMS, _vm(memory="8Gi"))
    await _asked(cluster, "ErrorUnschedulable", "n has the most left")
    binding: JsonObject = {
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "ns"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:aggregate-to-view",
        },
        "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    kubevirt = next(
        each for each in user_roles(aggregate=False) if each["metadata"]["name"] == "kubevirt.io:view"
    )
    own = {**binding, "metadata": {"name": "k", "namespace": "ns"}}
    own["roleRef"] = {**binding["roleRef"], "name": "kubevirt.io:view"}
    restricted = RestrictedApi(cluster, "u", rights([binding, own, kubevirt]))
    async with restricted.client() as client:
        answer = explain(await gather(client, "ns", "vm"))
    assert answer.sentence.startswith("no node takes its pod: 1 node has too little memory (it asks for 8.")
    assert (list(_fields(answer)), answer.numbers) == (["spec.template.spec.domain.memory.guest"], ())


def _volume(claim: str) -> JsonObject:
    return {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]}


@pytest.mark.feature("NEW-11")
async def test_a_claim_that_is_missing_or_without_a_volume_is_named(cluster: MemoryApi) -> None:
    cluster.put(resources.NODES, _node("n"))
    cluster.put(_VMS, _vm(guest=_volume("disk")))
    answer = await _asked(cluster, "ErrorPvcNotFound")
    field = "spec.template.spec.volumes[0].persistentVolumeClaim.claimName"
    assert answer.sentence == "it waits for the claim disk, which does not exist in ns."
    assert _fields(answer) == {field: "disk"}
    claim: JsonObject = {
        "metadata": {"name": "disk", "namespace": "ns", "uid": "c"},
        "status": {"phase": "Pending"},
    }
    claim["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
        "storageClassName": "fast",
    }
    event: JsonObject = {
        "metadata": {"name": "e", "namespace": "ns"},
        "type": "Warning",
        "reason": "ProvisioningFailed",
    }
    event |= {
        "involvedObject": {"kind": "PersistentVolumeClaim", "uid": "c"},
        "message": "no room: 3Gi are left",
    }
    cluster.put(resources.EVENTS, event)
    cluster.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    text = "it waits for a volume of 5Gi of the class fast for its claim disk: no room: 3Gi are left."
    answer = await _asked(cluster, "ErrorUnschedulable", text)
    assert _fields(answer) == {"PersistentVolumeClaim/disk spec.storageClassName": "fast"}


@pytest.mark.feature("NEW-11")
async def test_it_is_told_how_far_a_disk_is_and_which_source_is_wrong(cluster: MemoryApi) -> None:
    source = {"http": {"url": "http://h/none.img"}}
    storage = {"resources": {"requests": {"storage": "5Gi"}}}
    template = {"metadata": {"name": "disk"}, "spec": {"source": source, "storage": storage}}
    volumes = {"volumes": [{"name": "root", "dataVolume": {"name": "disk"}}]}
    cluster.put(_VMS, _vm(guest=volumes, dataVolumeTemplates=[template]))

    def disk_is(phase: str, *conditions: JsonObject, **status: Any) -> None:
        found = deep_copy(cluster.get(kinds.DATA_VOLUMES, "disk", "ns") or {})
        found["status"] = {"phase": phase, "conditions": list(conditions), **status}
        cluster.put(kinds.DATA_VOLUMES, found)

    await until(lambda: cluster.get(kinds.DATA_VOLUMES, "disk", "ns"))
    bound = {"type": "Bound", "status": "True"}
    disk_is("ImportInProgress", bound, progress="43.10%", restartCount=1)
    text = "it waits until its disk disk is filled (ImportInProgress, 43.10% done, 1 restarts)."
    await _asked(cluster, "Provisioning", text)
    why = {
        "type": "Running",
        "status": "False",
        "reason": "Error",
        "message": "expected status code 200, got 404.",
    }
    disk_is("ImportInProgress", bound, why, restartCount=3)
    said = "its disk disk cannot be filled, after 3 restarts: expected status code 200, got 404."
    answer = await _asked(cluster, "DataVolumeError", said)
    assert _fields(answer) == {"spec.dataVolumeTemplates[0].spec.source.http.url": "http://h/none.img"}


@pytest.mark.feature("NEW-11")
async def test_an_instance_type_that_does_not_exist_is_named(cluster: MemoryApi) -> None:
    domain: JsonObject = {"domain": {"devices": {}}}
    cluster.put(_VMS, _vm(guest=domain, instancetype={"name": "u9.huge"}))

    def has_failed() -> bool:
        found = meta.get_condition(cluster.get(_VMS, "vm", "ns") or {}, "Failure")
        return found is not None

    await until(has_failed)
    answer = await _asked(cluster, "Stopped")
    assert "u9.huge" in answer.sentence
    assert _fields(answer) == {"spec.instancetype.name": "u9.huge"}


def _pod_is(api: MemoryApi, **status: Any) -> None:
    pod = deep_copy(_launchers(api)[0])
    pod["spec"]["nodeName"] = "n"
    pod["status"] = {**pod.get("status", {}), **status}
    api.put(resources.PODS, pod)


def _instance_is(api: MemoryApi, phase: str, *conditions: JsonObject) -> None:
    vmi = deep_copy(api.get(_VMIS, "vm", "ns") or {})
    before = [
        each
        for each in vmi["status"].get("conditions", ())
        if each["type"] not in {one["type"] for one in conditions}
    ]
    vmi["status"] |= {"phase": phase, "nodeName": "n", "conditions": [*before, *conditions]}
    api.put(_VMIS, vmi)


_RUNNING = {"name": "compute", "ready": True, "state": {"running": {}}}


async def _started(api: MemoryApi, **machine: Any) -> None:
    api.put(_VMS, _vm(**machine))
    await until(
        lambda: _launchers(api) and get_str(api.get(_VMIS, "vm", "ns"), "status", "phase") == "Scheduling"
    )
    ready = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "probe: 503"}
    _pod_is(api, phase="Running", containerStatuses=[_RUNNING], conditions=[ready])
    await until(lambda: get_str(api.get(_VMIS, "vm", "ns"), "status", "phase") == "Scheduled")
    _instance_is(api, "Running")
    await until(lambda: _status(api) == "Running")


@pytest.mark.feature("NEW-11")
async def test_a_running_guest_waits_for_its_probe_its_storage_or_a_restart(cluster: MemoryApi) -> None:
    await _started(cluster)

    answer = await _asked(cluster, "Running", "its guest runs on n and is not ready: probe: 503.")
    assert list(_fields(answer)) == ["Pod status.conditions[Ready]"]
    _pod_is(cluster, conditions=[{"type": "Ready", "status": "True"}])
    assert (await _asked(cluster, "Running", "it waits for nothing")).changes == ()
    for reason, said, advice in (
        ("PausedIOError", "the storage of a disk returned an error", "make room on the storage"),
        ("PausedByUser", "VMI was paused by user.", "virtctl unpause vm vm"),
    ):
        paused = {"type": "Paused", "status": "True", "reason": reason, "message": "VMI was paused by user"}
        _instance_is(cluster, "Running", paused)
        [change] = (await _asked(cluster, "Paused", said)).changes
        assert change.advice.startswith(advice)


async def _not_pulled(cluster: MemoryApi, **disk: str) -> Answer:
    """What is said of a machine whose only disk is in an image that no registry has."""
    cluster.put(resources.NODES, _node("n"))
    cluster.put(_VMS, _vm(guest={"volumes": [{"name": "root", "containerDisk": disk}]}))
    await until(lambda: _launchers(cluster) and _status(cluster) == "Starting")
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{disk["image"]}"'}
    failed = {"name": "volumeroot", "ready": False, "state": {"waiting": waiting}}
    _pod_is(cluster, phase="Pending", initContainerStatuses=[failed])
    return await _asked(cluster, "ImagePullBackOff")


@pytest.mark.feature("NEW-11")
async def test_an_image_that_cannot_be_pulled_is_named(cluster: MemoryApi) -> None:
    answer = await _not_pulled(cluster, image="registry.test/none:1")
    assert answer.sentence == 'it waits for an image: Back-off pulling image "registry.test/none:1".'
    assert _fields(answer) == {"spec.template.spec.volumes[0].containerDisk.image": "registry.test/none:1"}


@pytest.mark.feature("NEW-11")
@pytest.mark.parametrize(
    "disk",
    [
        {"image": "registry.test:5000/none:latest"},
        {"image": "registry.test:5000/none"},
        {"image": "registry.test/none:1", "imagePullPolicy": "Always"},
    ],
)
async def test_an_image_that_nodes_pull_each_time_may_be_on_them_already(
    cluster: MemoryApi, disk: dict[str, str]
) -> None:
    answer = await _not_pulled(cluster, **disk)
    field = "spec.template.spec.volumes[0].containerDisk"
    assert _fields(answer) == {
        f"{field}.image": disk["image"],
        f"{field}.imagePullPolicy": disk.get("imagePullPolicy", ""),
    }


@pytest.mark.feature("NEW-11")
async def test_the_policy_of_an_image_that_nodes_may_have_is_not_to_be_changed(cluster: MemoryApi) -> None:
    answer = await _not_pulled(cluster, image="registry.test/none", imagePullPolicy="IfNotPresent")
    assert list(_fields(answer)) == ["spec.template.spec.volumes[0].containerDisk.image"]


@pytest.mark.feature("NEW-11")
async def test_who_is_off_is_told_what_starts_it_and_who_crashes_when_it_is_started_again(
    cluster: MemoryApi,
) -> None:
    cluster.put(_VMS, _vm(runStrategy="Halted"))
    answer = await _asked(cluster, "Stopped")
    assert [(each.field, each.value, each.advice) for each in answer.changes] == [
        ("spec.runStrategy", "Halted", "virtctl start vm")
    ]
    cluster.put(_VMS, _vm())
    [pod] = await until(lambda: _launchers(cluster))
    await until(lambda: get_str(cluster.get(_VMIS, "vm", "ns"), "status", "phase") == "Scheduling")
    cluster.remove(resources.PODS, meta.name(pod), "ns")
    answer = await _asked(cluster, "CrashLoopBackOff")
    failure = get_object(cluster.get(_VMS, "vm", "ns"), "status", "startFailure")
    assert (
        f"1 times in a row soon after its start; the next is not before {failure['retryAfterTimestamp']}"
        in (answer.sentence)
    )


def test_reasons_are_read_as_kubernetes_writes_them() -> None:
    text = (
        "0/5 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: },"
        " 3 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/5 nodes"
        " are available: 5 Preemption is not helpful for scheduling."
    )
    assert reasons(text) == [
        (3, "Insufficient memory"),
        (1, "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }"),
        (1, "node(s) didn't match Pod's node affinity/selector"),
    ]
    assert reasons("running PreBind plugin failed") == []


_PATH = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm"


def test_the_command_says_it_in_lines_or_as_json(api: FakeServer, virtctl: Virtctl) -> None:
    machine = _vm(runStrategy="Halted")
    machine["metadata"]["namespace"] = "default"
    machine["status"] = {"printableStatus": "Stopped"}
    api.answers["GET", _PATH] = (200, machine)
    api.refuse("GET", _PATH.replace("machines", "machineinstances"), 404, "not found")
    said = virtctl("explain-status", "vm")
    assert said.out.splitlines() == [
        "vm (Stopped): it is off, as it should be.",
        "  field:   spec.runStrategy is Halted",
        "  change:  virtctl start vm",
    ]
    found = json.loads(virtctl("explain-status", "vm", "-o", "json").out)
    assert (found["status"], found["changes"][0]["advice"]) == ("Stopped", "virtctl start vm")
    assert virtctl("explain-status", "vm", "-o", "xml").code == 1
    api.refuse("GET", _PATH, 404, 'virtualmachines.kubevirt.io "vm" not found')
    missing = virtctl("explain-status", "vm")
    text = 'error fetching VirtualMachine: virtualmachines.kubevirt.io "vm" not found\n'
    assert (missing.code, missing.err) == (1, text)


@pytest.mark.feature("NEW-15")
def test_of_a_deleted_object_the_command_says_what_holds_it_and_what_ends_that(
    api: FakeServer, virtctl: Virtctl
) -> None:
    path = "/api/v1/namespaces/default/persistentvolumeclaims/data"
    metadata: JsonObject = {"name": "data", "namespace": "default", "uid": "u"}
    claim: JsonObject = {"metadata": metadata}
    api.answers["GET", path] = (200, claim)
    assert virtctl("explain-status", "pvc/data").out == "data (not deleted): nobody has deleted it.\n"
    metadata |= {
        "deletionTimestamp": "2026-11-27T12:00:00Z",
        "finalizers": ["kubernetes.io/pvc-protection"],
    }
    owner = {"kind": "VirtualMachineInstance", "name": "vm", "controller": True}
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    pod = {"metadata": {"name": "p", "namespace": "default", "ownerReferences": [owner]}}
    pods = {"items": [{**pod, "spec": {"volumes": volumes}}]}
    api.answers["GET", "/api/v1/namespaces/default/pods"] = (200, pods)
    assert virtctl("explain-status", "PersistentVolumeClaim/data").out.splitlines() == [
        "data (Terminating): it was deleted at 2026-11-27T12:00:00Z and waits: guest vm uses it (pod p).",
        "  field:   metadata.finalizers is kubernetes.io/pvc-protection",
        "  change:  virtctl stop vm -n default",
        "  numbers: it waits without a deadline: the guest writes to it",
    ]
    found = json.loads(virtctl("explain-status", "pvc/data", "-o", "json").out)
    assert (found["status"], found["changes"][0]["advice"]) == ("Terminating", "virtctl stop vm -n default")


def test_kinds_that_nobody_explains_are_refused_with_those_that_are(virtctl: Virtctl) -> None:
    refused = virtctl("explain-status", "node/n")
    assert refused.code == 1
    assert refused.err.startswith("unsupported resource type 'node' (must be one of vm, vmi, vmim, ")


@pytest.mark.feature("NEW-15")
async def test_a_deleted_machine_is_told_what_its_guest_waits_for(cluster: MemoryApi) -> None:
    cluster.put(resources.NODES, _node("n"))
    await _started(cluster)
    pod = deep_copy(_launchers(cluster)[0])
    pod["metadata"]["finalizers"] = ["kubelet.example/ends-it"]
    cluster.put(resources.PODS, pod)
    async with cluster.client() as client:
        await client.delete(_VMS, "vm", "ns")
    answer = await _asked(cluster, "Terminating", "its guest shuts down")
    [change] = answer.changes
    assert (change.field, change.value) == (
        "metadata.finalizers",
        "kubevirt.io/virtualMachineControllerFinalize",
    )
    expected = f"kubectl delete pod {meta.name(pod)} -n ns --grace-period=1"
    assert change.advice == f"to end it at once: {expected}"
