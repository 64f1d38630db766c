"""CSI volumes against a driver over real sockets, with the kubelet's paths moved into a directory."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.support.waiting import until

from kindling.node.pods import identity
from kindling.node.volumes import csi_records, mounts
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi import CsiServices, CsiVolumes
from kindling.node.volumes.csi_attachments import Attachments
from kindling.node.volumes.csi_growth import Growth
from kindling.node.volumes.csi_records import publish_path, staging_path
from kindling.node.volumes.csi_registry import CsiRegistry, Driver
from kindling.node.volumes.csi_requests import CsiRequests
from kindling.node.volumes.csi_source import Source, capability
from kindling.node.volumes.manager import VolumeManager
from kubecore import mountinfo
from kubecore.errors import StatusError
from kubecore.patch.mergepatch import apply_merge_patch
from kubecore.wire import load_interface

POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": {"containers": []}}
VOLUME: dict[str, Any] = {
    "metadata": {"name": "pv1"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "d.example.com", "volumeHandle": "h1", "volumeAttributes": {"a": "b"}},
    },
}


CLAIM: dict[str, Any] = {
    "metadata": {"name": "c", "namespace": "ns", "uid": "u2"},
    "spec": {"volumeName": "pv1"},
    "status": {"capacity": {"storage": "1Gi"}},
}


def volumes_of(api: Any, registry: Any) -> CsiVolumes:
    requests = CsiRequests(api)
    growth = Growth(api, requests, "node01", lambda *_: None)
    return CsiVolumes(CsiServices(registry, requests, Attachments(api, "node01"), growth, "node01"))


class Api:
    """Just enough of a client: nodes exist, drivers need no attaching; the rest is made by the registry."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.told = asyncio.Event()
        self.known: dict[str, Any] = {"metadata": {"name": "node01", "uid": "n1"}}

    async def get(self, resource: Any, name: str, *_: Any) -> dict[str, Any]:
        if resource.plural == "nodes":
            return self.known
        if resource.plural == "csidrivers":
            return {"metadata": {"name": name}, "spec": {"attachRequired": False}}
        if resource.plural == "persistentvolumeclaims":
            return CLAIM
        if resource.plural == "persistentvolumes":
            return VOLUME
        raise StatusError(404, "NotFound", f"{resource.plural} {name} not found")

    async def patch(self, resource: Any, name: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.known = apply_merge_patch(self.known, body)
        return self.known

    async def create(self, _resource: Any, document: dict[str, Any]) -> dict[str, Any]:
        self.created.append(document)
        self.told.set()
        return document


async def serve_driver(stack: AsyncExitStack, directory: Path) -> list[tuple[str, Any]]:
    """A driver that stages; the list of its calls."""
    csi, registration = load_interface("csi-v1"), load_interface("pluginregistration-v1")
    calls: list[tuple[str, Any]] = []

    def answering(method: str, values: dict[str, Any]) -> Any:
        async def answer(request: Any, _context: Any) -> Any:
            calls.append((method, request))
            return csi.methods["Node"][method].response(**values)

        return answer

    node: dict[str, dict[str, Any]] = {
        "NodeGetCapabilities": {"capabilities": [{"rpc": {"type": 1}}]},
        "NodeGetInfo": {"node_id": "node01"},
        "NodeStageVolume": {},
        "NodePublishVolume": {},
        "NodeUnpublishVolume": {},
        "NodeUnstageVolume": {},
    }

    async def info(_request: Any, _context: Any) -> Any:
        values = {"type": "CSIPlugin", "name": "d.example.com", "endpoint": f"{directory}/csi"}
        return registration.message("PluginInfo", values)

    async def notified(request: Any, _context: Any) -> Any:
        calls.append(("registered", request.plugin_registered))
        return registration.message("RegistrationStatusResponse")

    for path, interface, service, methods in (
        ("csi", csi, "Node", {name: answering(name, values) for name, values in node.items()}),
        ("r/d.sock", registration, "Registration", {"GetInfo": info, "NotifyRegistrationStatus": notified}),
    ):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((interface.handler(service, methods),))
        (directory / path).parent.mkdir(exist_ok=True)
        server.add_insecure_port(f"unix:{directory}/{path}")
        await server.start()
        stack.push_async_callback(server.stop, 0)
    return calls


async def test_a_registered_driver_stages_publishes_and_undoes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    api: Any = Api()
    async with AsyncExitStack() as stack:
        calls = await serve_driver(stack, tmp_path)
        registry = CsiRegistry(api, "node01", tmp_path / "r")
        volumes = volumes_of(api, registry)
        with pytest.raises(ContentProblem, match="not found in the list of registered CSI drivers"):
            await volumes.publish(POD, "data", CLAIM, VOLUME, read_only=False)
        watching = asyncio.create_task(registry.run())
        await asyncio.wait_for(api.told.wait(), 2)
        assert api.created[0]["spec"]["drivers"] == [{"name": "d.example.com", "nodeID": "node01"}]
        assert ("registered", True) in calls
        ids = {"csi.volume.kubernetes.io/nodeid": '{"d.example.com":"node01"}'}
        assert api.known["metadata"]["annotations"] == ids

        prepared = await volumes.publish(POD, "data", CLAIM, VOLUME, read_only=False)
        assert prepared.path == publish_path("u1", "pv1", block=False)
        assert prepared.path.parent.is_dir()
        by_name = dict(calls)
        staging = str(staging_path("d.example.com", "h1", "pv1", block=False))
        assert by_name["NodeStageVolume"].staging_target_path == staging
        assert by_name["NodePublishVolume"].target_path == str(prepared.path)
        assert dict(by_name["NodePublishVolume"].volume_context) == {"a": "b"}

        await volumes.unpublish("u1")
        assert [name for name, _ in calls][-2:] == ["NodeUnpublishVolume", "NodeUnstageVolume"]
        assert not prepared.path.parent.exists()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def test_a_record_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    record = csi_records.Record("u", "pv", "d.example.com", "h", block=False, staged=True)
    synced: list[tuple[int, int, bool]] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        status = os.fstat(descriptor)
        synced.append((status.st_ino, status.st_size, record.file.exists()))

    monkeypatch.setattr(os, "fsync", noted)
    csi_records.write(record, "node01")
    status = record.file.stat()
    assert synced == [(status.st_ino, status.st_size, False)]
    assert [csi_records.read(file) for file in csi_records.files_of_pod("u")] == [record]


class StrictApi(Api):
    """An API server that lets no driver's entry in a CSINode change, as Kubernetes' does not."""

    def __init__(self, drivers: list[dict[str, Any]]) -> None:
        super().__init__()
        self.node: dict[str, Any] = {"spec": {"drivers": drivers}}
        self.patched: list[list[dict[str, Any]]] = []

    async def get(self, resource: Any, name: str, *arguments: Any) -> dict[str, Any]:
        return self.node if resource.plural == "csinodes" else await super().get(resource, name, *arguments)

    async def patch(self, resource: Any, name: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        if resource.plural == "nodes":
            return await super().patch(resource, name, body)
        known = {driver["name"]: driver["nodeID"] for driver in self.node["spec"]["drivers"]}
        for driver in body["spec"]["drivers"]:
            if known.get(driver["name"], driver["nodeID"]) != driver["nodeID"]:
                raise StatusError(422, "Invalid", "field is immutable")
        self.patched.append(body["spec"]["drivers"])
        self.node = {"spec": body["spec"]}
        if "node01" in [driver["nodeID"] for driver in body["spec"]["drivers"]]:
            self.told.set()
        return self.node


async def test_a_driver_that_calls_the_node_by_another_name_is_registered_anew(tmp_path: Path) -> None:
    former = {"name": "d.example.com", "nodeID": "former"}
    other = {"name": "other.example.com", "nodeID": "n"}
    strict = StrictApi([former, other])
    api: Any = strict
    registry = CsiRegistry(api, "node01", tmp_path / "r")
    async with AsyncExitStack() as stack:
        await serve_driver(stack, tmp_path)
        watching = asyncio.create_task(registry.run())
        await asyncio.wait_for(strict.told.wait(), 5)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert strict.patched == [[other], [{"name": "d.example.com", "nodeID": "node01"}]]


class SlowApi(StrictApi):
    """Answers that the node has no drivers any more only when it is let."""

    def __init__(self) -> None:
        super().__init__([{"name": "d.example.com", "nodeID": "node01"}])
        self.emptied, self.may_answer = asyncio.Event(), asyncio.Event()

    async def patch(self, resource: Any, name: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        if body.get("spec") == {"drivers": []}:
            self.emptied.set()
            await self.may_answer.wait()
        return await super().patch(resource, name, body)


async def test_a_driver_that_returns_while_its_end_is_published_is_published_again(tmp_path: Path) -> None:
    slow = SlowApi()
    api: Any = slow
    registry = CsiRegistry(api, "node01", tmp_path / "r")
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await serve_driver(first, tmp_path)
        watching = asyncio.create_task(registry.run())
        await until(registry.names)
        await first.aclose()
        (tmp_path / "r/d.sock").unlink(missing_ok=True)
        await asyncio.wait_for(slow.emptied.wait(), 5)
        calls = await serve_driver(second, tmp_path)
        registering = asyncio.create_task(registry._look())
        await until(lambda: ("registered", True) in calls)
        slow.may_answer.set()
        await asyncio.wait_for(slow.told.wait(), 5)
        watching.cancel()
        await asyncio.gather(watching, registering, return_exceptions=True)
    assert slow.patched == [[], [{"name": "d.example.com", "nodeID": "node01"}]]


def test_capabilities_follow_modes() -> None:
    def mode(offered: set[int], *modes: str) -> int:
        source = Source("pv", "d", "h", access_modes=modes)
        return int(capability(source, frozenset(offered), None)["access_mode"]["mode"])

    assert mode(set(), "ReadWriteOnce") == mode(set(), "ReadWriteOncePod") == 1
    assert mode({5}, "ReadWriteOnce") == 7
    assert mode({5}, "ReadWriteOncePod") == 6
    assert mode(set(), "ReadWriteOnce", "ReadWriteMany") == 5
    block = Source("pv", "d", "h", block=True)
    assert capability(block, frozenset(), 1000) == {"block": {}, "access_mode": {"mode": 1}}
    mount = Source("pv", "d", "h", fs_type="xfs", mount_options=("noatime",))
    expected = {"fs_type": "xfs", "mount_flags": ["noatime"]}
    assert capability(mount, frozenset(), 1000)["mount"] == expected
    assert capability(mount, frozenset({6}), 1000)["mount"] == {**expected, "volume_mount_group": "1000"}


class Careless:
    """A driver that answers well and leaves everything mounted, or hangs."""

    capabilities = frozenset({1})
    name = "d.example.com"

    def __init__(self, data: Path) -> None:
        self._data = data

    def get(self, _name: str) -> Any:
        return self

    async def call(self, method: str, values: dict[str, Any]) -> None:
        if method == "NodeStageVolume":
            mounts.bind(str(self._data), Path(values["staging_target_path"]))
        elif method == "NodePublishVolume":
            Path(values["target_path"]).mkdir(exist_ok=True)
            mounts.bind(values["staging_target_path"], Path(values["target_path"]))


@pytest.mark.host
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_data_below_a_place_that_the_driver_left_mounted_is_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    data = tmp_path / "data"
    (data / "inner").mkdir(parents=True)
    (data / "inner/file").write_text("x")
    driver: Any = Careless(data)
    api: Any = Api()
    no_client: Any = None
    volumes = VolumeManager(no_client, {"csi": volumes_of(api, driver)})
    staging = staging_path("d.example.com", "h1", "pv1", block=False)
    try:
        await volumes._drivers["csi"].publish(POD, "data", CLAIM, VOLUME, read_only=False)
        with pytest.raises(OSError, match="is still mounted although driver"):
            await volumes.clean_up("u1")
        assert (staging / "inner/file").read_text() == "x"
        mounts.unmount(staging)
        (staging / "left.json").write_text("the driver's")
        await volumes.clean_up("u1")
        assert (staging / "left.json").exists()
        assert not identity.pod_directory("u1").exists()
        assert (data / "inner/file").read_text() == "x"
    finally:
        for point in mountinfo.mount_points_below(tmp_path):
            mounts.unmount(point)


async def test_a_call_ends_as_a_problem_when_the_driver_goes_away(tmp_path: Path) -> None:
    """A closed connection cancels its calls; the pod's worker is not cancelled with them."""
    csi = load_interface("csi-v1")
    asked = asyncio.Event()

    async def hang(_request: Any, _context: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((csi.handler("Node", {"NodeStageVolume": hang}),))
    server.add_insecure_port(f"unix:{tmp_path}/csi")
    await server.start()
    stack = AsyncExitStack()
    options = (("grpc.default_authority", "localhost"),)
    channel = await stack.enter_async_context(
        grpc.aio.insecure_channel(f"unix:{tmp_path}/csi", options=options)
    )
    driver = Driver("d.example.com", csi.stub(channel, "Node"), stack)
    call = asyncio.create_task(driver.call("NodeStageVolume"))
    await asyncio.wait_for(asked.wait(), 5)
    await driver.close()
    with pytest.raises(ContentProblem, match=r"driver d\.example\.com has gone away"):
        await call
    with pytest.raises(ContentProblem, match=r"driver d\.example\.com has gone away"):
        await driver.call("NodeStageVolume")
    with pytest.raises(ContentProblem, match="NodeStageVolume of driver"):
        await driver.call("NodeStageVolume", {"secrets": {"key": "\udcff"}})
    await server.stop(0)


async def test_registrars_that_hang_or_lie_do_not_keep_a_driver_from_registering(tmp_path: Path) -> None:
    """Beside a good driver: a link to nowhere, one to it, a file, a folder, one that hangs, two that lie."""
    folder = tmp_path / "r"
    api: Any = Api()
    told: asyncio.Queue[tuple[bool, str]] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        await serve_driver(stack, tmp_path)
        (folder / "a.sock").symlink_to("/nowhere")
        (folder / "b.sock").symlink_to(folder / "d.sock")
        (folder / "c.sock").write_text("")
        (folder / "e.sock").mkdir()
        silent = stack.enter_context(socket.socket(socket.AF_UNIX))
        silent.bind(str(folder / "0.sock"))
        silent.listen()
        await _serve_registrar(stack, folder / "1.sock", "../../../etc", told)
        await _serve_registrar(stack, folder / "2.sock", "x" * 64, told)
        registry = CsiRegistry(api, "node01", folder)
        watching = asyncio.create_task(registry.run())
        await asyncio.wait_for(api.told.wait(), 4)
        assert [item["name"] for item in api.created[0]["spec"]["drivers"]] == ["d.example.com"]
        for _ in range(2):
            registered, problem = await asyncio.wait_for(told.get(), 4)
            assert not registered
            assert "is not a valid name of a CSI driver" in problem
        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _serve_registrar(
    stack: AsyncExitStack, path: Path, name: str, told: asyncio.Queue[tuple[bool, str]]
) -> None:
    registration = load_interface("pluginregistration-v1")

    async def info(_request: Any, _context: Any) -> Any:
        return registration.message("PluginInfo", {"type": "CSIPlugin", "name": name})

    async def notified(request: Any, _context: Any) -> Any:
        told.put_nowait((request.plugin_registered, request.error))
        return registration.message("RegistrationStatusResponse")

    server = grpc.aio.server()
    methods = {"GetInfo": info, "NotifyRegistrationStatus": notified}
    server.add_generic_rpc_handlers((registration.handler("Registration", methods),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    stack.push_async_callback(server.stop, 0)


async def test_a_busy_disk_holds_up_one_volume_and_not_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    record = csi_records.Record("u", "pv", "d.example.com", "h", block=False, staged=True)
    goes_on, synced = threading.Event(), os.fsync

    def slowly(descriptor: int) -> None:
        assert goes_on.wait(30), "the agent waits for the disk"
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", slowly)
    storing = asyncio.create_task(csi_records.store(record, "node01"))
    asyncio.get_running_loop().call_later(0.01, goes_on.set)
    await storing
    assert csi_records.read(record.file) == record
