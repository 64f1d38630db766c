"""VmiController, which makes launchers, on an API server in memory that forgets, delays and refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import orjson
import pytest
from prometheus_client import CollectorRegistry
from tests.support.controllers import running_controllers, until

from kubecore import errors, resources
from kubecore.client import ConnectionFailed, Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects import meta
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.component import add_controllers
from virtplane.compute.launcherpod.inputs import Images
from virtplane.compute.launcherpod.metadata import launcher_prefix, unique_name

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_IMAGES = Images("launcher:1", "sidecar:1")
_OBSERVED = ("kubevirt.io/latest-observed-api-version", "kubevirt.io/storage-observed-api-version")
_LAUNCHER = unique_name(launcher_prefix("vmi"), "u1")


def _api() -> MemoryApi:
    return MemoryApi(_KINDS, whole=[kinds.VIRTUAL_MACHINE_INSTANCES])


@pytest.fixture
async def api() -> AsyncIterator[MemoryApi]:
    server = _api()
    async with running_controllers(server, _IMAGES):
        yield server


def _vmi(**metadata: object) -> JsonObject:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "vmi",
            "namespace": "ns",
            "uid": "u1",
            "annotations": dict.fromkeys(_OBSERVED, "v1"),
            **metadata,
        },
        "spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}},
        "status": {"phase": "Pending"},
    }


def _put(api: MemoryApi, **metadata: object) -> None:
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi(**metadata))


def _stored(api: MemoryApi) -> JsonObject:
    return api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vmi", "ns") or {}


def _phase(api: MemoryApi) -> str:
    return get_str(_stored(api), "status", "phase")


def _launchers(api: MemoryApi) -> list[str]:
    return [meta.name(pod) for pod in api.list(resources.PODS, "ns")]


def _synchronized(api: MemoryApi) -> JsonObject:
    return meta.get_condition(_stored(api), "Synchronized") or {}


def _creates_pod(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/pods")


async def test_an_instance_has_one_launcher_and_is_scheduling_then(api: MemoryApi) -> None:
    _put(api)
    await until(lambda: _phase(api) == "Scheduling")
    assert _launchers(api) == [_LAUNCHER]
    (pod,) = api.list(resources.PODS, "ns")
    assert meta.name(pod).startswith("virt-launcher-vmi-")
    assert (meta.controller_of(pod) or {})["uid"] == "u1"


async def test_a_lost_reply_makes_no_second_launcher(api: MemoryApi) -> None:
    lost: list[Request] = []

    def lose(request: Request) -> None:
        if _creates_pod(request) and not lost:
            lost.append(request)
            api.put(resources.PODS, orjson.loads(request.body or b"{}"))
            raise ConnectionFailed("connection reset by peer")

    api.reactions.append(lose)
    _put(api)
    await until(lambda: _phase(api) == "Scheduling")
    assert lost
    assert _launchers(api) == [_LAUNCHER]


async def test_a_lost_request_is_repeated_at_once(api: MemoryApi) -> None:
    """A creation that never arrived is not expected to show for minutes."""
    lost: list[Request] = []

    def lose(request: Request) -> None:
        if _creates_pod(request) and not lost:
            lost.append(request)
            raise ConnectionFailed("connection refused")

    api.reactions.append(lose)
    _put(api)
    await until(lambda: _phase(api) == "Scheduling")
    assert _launchers(api) == [_LAUNCHER]


async def test_writes_of_an_instance_are_counted_until_it_is_gone() -> None:
    server, registry = _api(), CollectorRegistry()
    counts = {"namespace": "ns", "name": "vmi"}

    def add(cluster: Cluster) -> None:
        registry.register(add_controllers(cluster))

    def counted() -> float | None:
        return registry.get_sample_value("kubevirt_vmi_sync_total", counts)

    async with running_controllers(server, _IMAGES, add=add):
        _put(server)
        await until(lambda: _phase(server) == "Scheduling")
        await until(lambda: (counted() or 0) > 0)
        assert (counted() or 0) <= len([request for request in server.requests if _changes_instance(request)])
        server.remove(kinds.VIRTUAL_MACHINE_INSTANCES, "vmi", "ns")
        await until(lambda: counted() is None)


def _changes_instance(request: Request) -> bool:
    return request.method == "PATCH" and "/virtualmachineinstances/vmi" in request.path


async def test_controllers_that_do_not_know_of_each_other_make_one_launcher() -> None:
    """As when virt-controller loses its lease and does not notice, or starts anew amid its work."""
    server = _api()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running_controllers(server, _IMAGES))
        _put(server)
        await until(lambda: _phase(server) == "Scheduling")
        assert len([request for request in server.requests if _creates_pod(request)]) > 1
        assert _launchers(server) == [_LAUNCHER]


async def test_controllers_that_do_not_know_of_each_other_make_one_state_claim() -> None:
    """A second one would be taken for the first, and the guest's TPM be empty."""
    server = _api()
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    server.put(resources.STORAGE_CLASSES, {"metadata": {"name": "local", "annotations": default}})
    vmi = _vmi()
    vmi["spec"]["domain"]["devices"] = {"tpm": {"persistent": True}}
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running_controllers(server, _IMAGES))
        server.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
        await until(lambda: _synchronized(server).get("reason") == "BackendStorageNotReady")
        claims = server.list(resources.PERSISTENT_VOLUME_CLAIMS, "ns")
        assert len(claims) == 1
        assert meta.name(claims[0]).startswith("persistent-state-for-vmi-")
        server.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claims[0], "status": {"phase": "Bound"}})
        await until(lambda: _phase(server) == "Scheduling")
    assert len(server.list(resources.PERSISTENT_VOLUME_CLAIMS, "ns")) == 1


async def test_a_state_claim_that_is_bound_is_noticed_where_it_belongs_to_the_machine() -> None:
    """No volume of the instance names it, and its owner is not the instance."""
    server = _api()
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    server.put(resources.STORAGE_CLASSES, {"metadata": {"name": "local", "annotations": default}})
    vmi = _vmi()
    vmi["spec"]["domain"]["devices"] = {"tpm": {"persistent": True}}
    machine = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vmi", "uid": "machine"}
    vmi["metadata"]["ownerReferences"] = [{**machine, "controller": True}]
    async with running_controllers(server, _IMAGES):
        server.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
        await until(lambda: _synchronized(server).get("reason") == "BackendStorageNotReady")
        (claim,) = server.list(resources.PERSISTENT_VOLUME_CLAIMS, "ns")
        owner = meta.controller_of(claim)
        assert owner is not None and owner["kind"] == "VirtualMachine"
        server.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}})
        await until(lambda: _phase(server) == "Scheduling")


@pytest.mark.feature("STO-17")
@pytest.mark.parametrize(
    ("configured", "storage_class", "mode"),
    [("shared", "shared", "ReadWriteMany"), ("", "local", "ReadWriteOnce")],
)
async def test_state_is_kept_in_files_of_the_class_for_it(
    configured: str, storage_class: str, mode: str
) -> None:
    server = _api()
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    server.put(resources.STORAGE_CLASSES, {"metadata": {"name": "local", "annotations": default}})
    server.put(resources.STORAGE_CLASSES, {"metadata": {"name": "shared"}})
    installation: JsonObject = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}}
    installation["spec"] = {"configuration": {"vmStateStorageClass": configured}}
    server.put(kinds.KUBEVIRTS, {**installation, "status": {"phase": "Deployed"}})
    vmi = _vmi()
    vmi["spec"]["domain"]["devices"] = {"tpm": {"persistent": True}}
    async with running_controllers(server, _IMAGES):
        server.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
        await until(lambda: server.list(resources.PERSISTENT_VOLUME_CLAIMS, "ns"))
        (claim,) = server.list(resources.PERSISTENT_VOLUME_CLAIMS, "ns")
        spec = claim["spec"]
        assert (spec["storageClassName"], spec["accessModes"]) == (storage_class, [mode])
        assert spec["volumeMode"] == "Filesystem"


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"phase": "Failed"}},
        {"metadata": {**_vmi()["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {**_vmi()["metadata"], "uid": "u2"}},
        None,
    ],
    ids=["ended", "being deleted", "replaced", "gone"],
)
async def test_an_old_cache_makes_no_launcher(api: MemoryApi, change: JsonObject | None) -> None:
    asked: list[Request] = []

    def newer(request: Request) -> Response | StatusError | None:
        is_read = request.method == "GET" and request.path.endswith("/virtualmachineinstances/vmi")
        if not is_read:
            return None
        asked.append(request)
        if change is None:
            return errors.not_found(kinds.VIRTUAL_MACHINE_INSTANCES, "vmi")
        return Response(200, {"content-type": "application/json"}, orjson.dumps({**_vmi(), **change}))

    api.reactions.append(newer)
    _put(api)
    await until(lambda: len(asked) > 1)  # for the launcher, and for what the status is written over
    assert not _launchers(api)


async def test_a_strangers_pod_under_the_launchers_name_is_named_in_the_condition(api: MemoryApi) -> None:
    metadata = {"name": _LAUNCHER, "namespace": "ns", "labels": {"kubevirt.io": "virt-launcher"}}
    api.put(resources.PODS, {"metadata": metadata, "spec": {}})
    _put(api)
    await until(lambda: _synchronized(api))
    assert _synchronized(api)["reason"] == "FailedCreate"
    assert f"pod ns/{_LAUNCHER} exists and belongs to something else" in _synchronized(api)["message"]
    assert _phase(api) == "Pending"


async def test_a_launcher_that_lost_its_label_is_not_replaced(api: MemoryApi) -> None:
    """The cache holds pods with the label alone, and would show none."""
    owner = {"kind": "VirtualMachineInstance", "name": "vmi", "uid": "u1", "controller": True}
    metadata = {"name": _LAUNCHER, "namespace": "ns", "ownerReferences": [owner]}
    api.put(resources.PODS, {"metadata": metadata, "spec": {}})
    _put(api)
    await until(lambda: "lost its label" in _synchronized(api).get("message", ""))
    assert _launchers(api) == [_LAUNCHER]


async def test_a_refusal_of_pod_security_says_what_the_namespace_needs(api: MemoryApi) -> None:
    text = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'
    api.reactions.append(
        lambda request: errors.forbidden(resources.PODS, "", text) if _creates_pod(request) else None
    )
    _put(api)
    await until(lambda: _synchronized(api))
    assert "needs a privileged namespace to run" in _synchronized(api)["message"]


async def test_the_launcher_of_a_deleted_instance_goes_and_then_the_instance(api: MemoryApi) -> None:
    _put(api, finalizers=["kubevirt.io/foregroundDeleteVirtualMachine"])
    await until(lambda: _phase(api) == "Scheduling")
    await api.client().delete(kinds.VIRTUAL_MACHINE_INSTANCES, "vmi", "ns")
    await until(lambda: not _launchers(api))
    await until(lambda: not _stored(api))


async def test_an_instance_whose_launcher_vanished_has_failed(api: MemoryApi) -> None:
    _put(api)
    await until(lambda: _phase(api) == "Scheduling")
    api.remove(resources.PODS, _LAUNCHER, "ns")
    await until(lambda: _phase(api) == "Failed")
    assert not _launchers(api)


async def test_an_instance_whose_launcher_runs_belongs_to_its_node(api: MemoryApi) -> None:
    _put(api)
    await until(lambda: _phase(api) == "Scheduling")
    pod = deep_copy(api.list(resources.PODS, "ns")[0])
    pod["spec"]["nodeName"] = "n1"
    pod["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "compute", "state": {"running": {}}}],
    }
    api.put(resources.PODS, pod)
    await until(lambda: _phase(api) == "Scheduled")
    assert get_str(_stored(api), "status", "nodeName") == "n1"


def _claim(api: MemoryApi, *modes: str) -> None:
    claim = {"metadata": {"name": "disk", "namespace": "ns"}, "spec": {"accessModes": list(modes)}}
    api.put(resources.PERSISTENT_VOLUME_CLAIMS, claim | {"status": {"phase": "Bound"}})


def _put_with_disk(api: MemoryApi, name: str, **disk: object) -> None:
    vmi = _vmi(name=name, uid=name)
    vmi["spec"]["domain"]["devices"]["disks"] = [{"name": "data", "disk": {"bus": "virtio"}, **disk}]
    vmi["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)


def _told(api: MemoryApi, name: str) -> str:
    stored = api.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, "ns") or {}
    return get_str(meta.get_condition(stored, "Synchronized") or {}, "message")


async def test_of_two_instances_with_a_disk_of_one_node_only_one_has_a_launcher(api: MemoryApi) -> None:
    """Both are seen at the same time: neither has a pod that the cache shows."""
    _claim(api, "ReadWriteOnce")
    for name in ("one", "two"):
        _put_with_disk(api, name)
    await until(lambda: any(_told(api, name) for name in ("one", "two")))
    (pod,) = api.list(resources.PODS, "ns")
    user = str((meta.controller_of(pod) or {})["name"])
    waiting = "two" if user == "one" else "one"
    assert _told(api, waiting) == f"PVC ns/disk is a disk of VMI {user} alone, waiting for that VMI to end"


@pytest.mark.parametrize(
    ("modes", "disk"),
    [
        (["ReadWriteOnce", "ReadWriteMany"], {}),
        (["ReadWriteOnce"], {"shareable": True}),
        (["ReadWriteOnce"], {"disk": {"bus": "virtio", "readonly": True}}),
        (["ReadWriteOnce"], {"disk": None, "cdrom": {"bus": "sata"}}),
    ],
)
async def test_disks_that_many_may_have_are_not_waited_for(
    api: MemoryApi, modes: list[str], disk: dict[str, object]
) -> None:
    _claim(api, *modes)
    for name in ("one", "two"):
        _put_with_disk(api, name, **disk)
    await until(lambda: len(_launchers(api)) == 2)


async def test_an_instance_has_its_disk_once_the_launcher_of_the_other_has_ended(api: MemoryApi) -> None:
    _claim(api, "ReadWriteOnce")
    _put_with_disk(api, "one")
    await until(lambda: len(_launchers(api)) == 1)
    _put_with_disk(api, "two")
    await until(lambda: _told(api, "two"))
    (pod,) = api.list(resources.PODS, "ns")
    api.put(resources.PODS, {**pod, "status": {"phase": "Succeeded"}})
    await until(lambda: len(_launchers(api)) == 2)


def _put_on_fast_network(api: MemoryApi) -> None:
    vmi = _vmi()
    vmi["spec"]["domain"]["devices"]["interfaces"] = [{"name": "fast", "sriov": {}}]
    vmi["spec"]["networks"] = [{"name": "fast", "multus": {"networkName": "infra/fast"}}]
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)


def _define_fast_network(api: MemoryApi) -> None:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": "vendor.com/vf"}
    metadata = {"name": "fast", "namespace": "infra", "annotations": annotations}
    api.put(kinds.NETWORK_ATTACHMENT_DEFINITIONS, {"metadata": metadata, "spec": {}})


def _compute_limits(api: MemoryApi) -> JsonObject:
    (pod,) = api.list(resources.PODS, "ns")
    compute = next(item for item in pod["spec"]["containers"] if item["name"] == "compute")
    limits: JsonObject = compute["resources"]["limits"]
    return limits


@pytest.mark.looptime
@pytest.mark.feature("NET-14")
async def test_a_launcher_asks_for_the_devices_of_its_networks_where_no_webhook_adds_them() -> None:
    api = _api()
    developer = {"disabledFeatureGates": ["ExternalNetResourceInjection"]}
    spec = {"configuration": {"developerConfiguration": developer}}
    metadata = {"name": "kubevirt", "namespace": "kubevirt"}
    api.put(kinds.KUBEVIRTS, {"metadata": metadata, "spec": spec, "status": {"phase": "Deployed"}})
    async with running_controllers(api, _IMAGES):
        _put_on_fast_network(api)
        missing = (
            "failed to render launch manifest: failed to locate network attachment definition infra/fast"
        )
        await until(lambda: _synchronized(api).get("message") == missing)
        _define_fast_network(api)
        await until(lambda: _phase(api) == "Scheduling")
        assert _compute_limits(api)["vendor.com/vf"] == "1"


@pytest.mark.feature("NET-14")
async def test_requests_for_devices_of_networks_are_left_to_the_webhook_of_their_operator(
    api: MemoryApi,
) -> None:
    _define_fast_network(api)
    _put_on_fast_network(api)
    await until(lambda: _phase(api) == "Scheduling")
    assert "vendor.com/vf" not in _compute_limits(api)


def _put_with_folder(api: MemoryApi) -> None:
    vmi = _vmi()
    vmi["spec"]["domain"]["devices"]["filesystems"] = [{"name": "cloud", "virtiofs": {}}]
    vmi["spec"]["volumes"] = [{"name": "cloud", "containerPath": {"path": "/cloud", "readOnly": True}}]
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)


async def test_folders_of_the_launcher_are_not_shared_while_the_gate_is_off(api: MemoryApi) -> None:
    _put_with_folder(api)
    text = "VMI has ContainerPath volumes but the ContainerPathVolumes feature gate is disabled"
    await until(lambda: _synchronized(api).get("message") == text)
    assert _synchronized(api)["reason"] == "ContainerPathVolumesDisabled"
    assert not _launchers(api)


async def test_a_launcher_without_a_server_for_its_folder_is_told() -> None:
    api = _api()
    developer = {"featureGates": ["ContainerPathVolumes"]}
    spec = {"configuration": {"developerConfiguration": developer}}
    metadata = {"name": "kubevirt", "namespace": "kubevirt"}
    api.put(kinds.KUBEVIRTS, {"metadata": metadata, "spec": spec, "status": {"phase": "Deployed"}})
    async with running_controllers(api, _IMAGES):
        _put_with_folder(api)
        text = "pod is missing virtiofs containers for ContainerPath volumes: [virtiofs-cloud]"
        await until(lambda: _synchronized(api).get("message") == text)
        assert _synchronized(api)["reason"] == "MissingVirtiofsContainers"
