"""``load --debian``: what is in the cluster afterwards, also after interruptions, and what is left alone."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from kubecore import errors
from kubecore.client import Client, ClientConfig, Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    STORAGE_CLASSES,
)
from kubecore.testing import MemoryApi
from kubecore.testing.transport import MemoryTransport
from virtplane.api import cdi_labels
from virtplane.api.resources import (
    DATA_SOURCES,
    DATA_VOLUMES,
    UPLOAD_TOKEN_REQUESTS,
    VOLUME_CLONE_SOURCES,
)
from virtplane.cli import goldenimage, load, main, status, uploads
from virtplane.cli.terminal import CommandError
from virtplane.cli.virtctl.contents import Content, whole
from virtplane.cli.virtctl.uploading import uploadclaims, uploadproxy
from virtplane.cli.virtctl.uploading.uploadproxy import Proxy
from virtplane.image import datasource
from virtplane.image.debian import build, packages

_NAMESPACE = "kubevirt-os-images"
_KINDS = (DATA_SOURCES, DATA_VOLUMES, UPLOAD_TOKEN_REQUESTS, VOLUME_CLONE_SOURCES)


class _Killed(BaseException):
    """The command has ended here."""


@dataclass
class Cloud:
    """The API server, what CDI's controllers do between two requests, and the upload proxy."""

    api: MemoryApi = field(default_factory=lambda: MemoryApi(_KINDS))
    uploads: list[bytes] = field(default_factory=list)
    is_without_proxy: bool = False

    def client(self, *, killed_at: int = -1, answered: bool = False) -> Client:
        """A client whose command is killed at a request: before it takes effect, or `answered`, after."""
        count = 0

        def handle(request: Request) -> Response:
            nonlocal count
            count += 1
            if count == killed_at and not answered:
                raise _Killed
            self._reconcile()
            answer = self._token(request) or self.api.handle(request)
            if count == killed_at:
                raise _Killed
            return answer

        return Client(ClientConfig(server="memory://"), MemoryTransport(handle, self.api.watch))

    def volumes(self) -> dict[str, str]:
        """The phases of the DataVolumes."""
        return {meta.name(each): get_str(each, "status", "phase") for each in self.api.list(DATA_VOLUMES)}

    def source(self) -> JsonObject:
        return self.api.get(DATA_SOURCES, "debian", _NAMESPACE) or {}

    def leads_to(self) -> str:
        return get_str(self.source(), "spec", "source", "pvc", "name")

    def _reconcile(self) -> None:
        for name in map(meta.name, self.api.list(PERSISTENT_VOLUME_CLAIMS)):
            if self.api.get(DATA_VOLUMES, name, _NAMESPACE) is None:
                self.api.remove(PERSISTENT_VOLUME_CLAIMS, name, _NAMESPACE)
        for volume in self.api.list(DATA_VOLUMES):
            name = meta.name(volume)
            claim = self.api.get(PERSISTENT_VOLUME_CLAIMS, name, _NAMESPACE)
            if claim is None:
                self.api.put(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name, "namespace": _NAMESPACE}})
            filled = meta.annotations(claim or {}).get(cdi_labels.POD_PHASE) == "Succeeded"
            phase = "Succeeded" if filled else "UploadReady"
            if get_str(volume, "status", "phase") not in (phase, "Failed"):
                self.api.put(DATA_VOLUMES, {**volume, "status": {"phase": phase, "claimName": name}})
        source = self.source()
        if source and get_object(source, "status", "source") != source["spec"]["source"]:
            ready = self.volumes().get(self.leads_to()) == "Succeeded"
            conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
            seen = {"source": source["spec"]["source"], "conditions": conditions}
            self.api.put(DATA_SOURCES, {**source, "status": seen})

    def _token(self, request: Request) -> Response | None:
        if not request.path.endswith("/uploadtokenrequests"):
            return None
        name = orjson.loads(request.body or b"")["spec"]["pvcName"]
        return Response(201, {}, orjson.dumps({"status": {"token": name}}))

    async def upload(self, request: web.Request) -> web.Response:
        """The upload proxy."""
        if request.method == "HEAD":
            return web.Response()
        name = request.headers["Authorization"].removeprefix("Bearer ")
        claim = self.api.get(PERSISTENT_VOLUME_CLAIMS, name, _NAMESPACE)
        assert claim is not None
        if meta.annotations(claim).get(cdi_labels.POD_PHASE) == "Succeeded":
            return web.Response(status=503, text=f"PVC {name} already finished uploading")
        self.uploads.append(await request.read())
        notes = {cdi_labels.POD_PHASE: "Succeeded"}
        self.api.put(
            PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": {**claim["metadata"], "annotations": notes}}
        )
        return web.Response()


@pytest.fixture
async def cloud(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    monkeypatch.setattr(uploadclaims, "POLL_SECONDS", 0)
    monkeypatch.setattr(uploadproxy, "_LONGEST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(goldenimage, "_SECONDS", 5.0)
    made = Cloud()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.upload)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def proxy(_: Client, namespace: str) -> Proxy:
        assert namespace == "kubevirt"
        if made.is_without_proxy:
            raise errors.not_found(SERVICES, "cdi-uploadproxy")
        return Proxy(url)

    monkeypatch.setattr(uploads, "proxy", proxy)
    notes = {"storageclass.kubernetes.io/is-default-class": "true"}
    made.api.put(STORAGE_CLASSES, {"metadata": {"name": "hostpath", "annotations": notes}})
    yield made
    await runner.cleanup()


@pytest.fixture
def disk(tmp_path: Path) -> Callable[[bytes], Content]:
    def make(content: bytes) -> Content:
        path = tmp_path / hashlib.sha256(content).hexdigest()
        path.write_bytes(content)
        return whole(path)

    return make


Disk = Callable[[bytes], Content]


async def publish(client: Client, content: Content) -> str:
    """Publish a disk; the name of its DataVolume."""
    name = goldenimage.volume_name(content)
    async with client:
        await goldenimage.publish(client, content, name)
    return name


@pytest.mark.feature("NEW-10")
async def test_the_disk_becomes_a_data_source_that_everybody_may_clone(cloud: Cloud, disk: Disk) -> None:
    name = await publish(cloud.client(), disk(b"one"))
    assert name == f"debian-{hashlib.sha256(b'one').hexdigest()[:12]}"
    assert cloud.api.get(NAMESPACES, _NAMESPACE) is not None
    assert cloud.volumes() == {name: "Succeeded"}
    assert cloud.uploads == [b"one"]
    assert cloud.leads_to() == name
    labels = meta.labels(cloud.source())
    assert labels["instancetype.kubevirt.io/default-instancetype"] == "u1.small"
    assert labels["instancetype.kubevirt.io/default-preference"] == "debian"
    role = cloud.api.get(ROLES, "os-images.kubevirt.io:view", _NAMESPACE)
    binding = cloud.api.get(ROLE_BINDINGS, "os-images.kubevirt.io:view", _NAMESPACE)
    assert role is not None and binding is not None
    assert {
        "apiGroups": ["cdi.kubevirt.io"],
        "resources": ["datavolumes/source"],
        "verbs": ["create"],
    } in role["rules"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch", "create"}
    assert binding["roleRef"]["name"] == "os-images.kubevirt.io:view"
    assert "system:authenticated" in [subject["name"] for subject in binding["subjects"]]


@pytest.mark.feature("NEW-10")
async def test_repeating_it_with_the_same_disk_changes_nothing(cloud: Cloud, disk: Disk) -> None:
    await publish(cloud.client(), disk(b"one"))
    everything = (DATA_VOLUMES, DATA_SOURCES, PERSISTENT_VOLUME_CLAIMS, NAMESPACES, ROLES, ROLE_BINDINGS)
    before = [cloud.api.list(kind) for kind in everything]
    await publish(cloud.client(), disk(b"one"))
    assert [cloud.api.list(kind) for kind in everything] == before
    assert len(cloud.uploads) == 1


@pytest.mark.feature("NEW-10")
async def test_a_newer_build_takes_the_place_of_the_older_one_once_it_is_filled(
    cloud: Cloud, disk: Disk
) -> None:
    old = await publish(cloud.client(), disk(b"one"))
    seen: list[tuple[str, str]] = []

    def look(request: Request) -> None:
        if request.method in ("PATCH", "DELETE") and "/data" in request.path:
            seen.append((request.method, cloud.leads_to()))
            assert set(cloud.volumes().values()) == {"Succeeded"}

    cloud.api.reactions.append(look)
    new = await publish(cloud.client(), disk(b"two"))
    assert seen == [("PATCH", old), ("DELETE", new)]
    assert cloud.leads_to() == new
    assert cloud.volumes() == {new: "Succeeded"}


@pytest.mark.feature("NEW-10")
async def test_an_older_build_stays_while_it_is_cloned(cloud: Cloud, disk: Disk) -> None:
    old = await publish(cloud.client(), disk(b"one"))
    clone = {
        "metadata": {"name": "volume-clone-source-1", "namespace": _NAMESPACE},
        "spec": {"source": {"kind": "PersistentVolumeClaim", "name": old}},
    }
    cloud.api.put(VOLUME_CLONE_SOURCES, clone)
    new = await publish(cloud.client(), disk(b"two"))
    assert set(cloud.volumes()) == {old, new}
    cloud.api.remove(VOLUME_CLONE_SOURCES, "volume-clone-source-1", _NAMESPACE)
    await publish(cloud.client(), disk(b"two"))
    assert set(cloud.volumes()) == {new}


@pytest.mark.feature("NEW-10")
@pytest.mark.parametrize("answered", [False, True])
async def test_killed_at_any_request_it_is_completed_by_the_next_call(
    cloud: Cloud, disk: Disk, answered: bool
) -> None:
    await publish(cloud.client(), disk(b"zero"))
    for number in range(1, 100):
        content = disk(b"build %d" % number)
        try:
            new = await publish(cloud.client(killed_at=number, answered=answered), content)
        except _Killed:
            before = cloud.leads_to()
            assert cloud.volumes()[before] == "Succeeded", "machines can start at any moment"
            new = await publish(cloud.client(), content)
            assert (cloud.leads_to(), cloud.volumes()) == (new, {new: "Succeeded"})
            assert cloud.uploads.count(content.path.read_bytes()) == 1
        else:
            assert number > 10, "it was killed at many requests before"
            return
    pytest.fail("it does not end")


async def test_a_volume_that_has_failed_is_made_anew(cloud: Cloud, disk: Disk) -> None:
    content = disk(b"one")
    name = goldenimage.volume_name(content)
    failed = datasource.data_volume(_NAMESPACE, datasource.UPLOAD, 1, name=name)
    uid = meta.uid(cloud.api.put(DATA_VOLUMES, {**failed, "status": {"phase": "Failed"}}))
    await publish(cloud.client(), content)
    assert cloud.volumes() == {name: "Succeeded"}
    found = cloud.api.get(DATA_VOLUMES, name, _NAMESPACE)
    assert found is not None and meta.uid(found) != uid


async def test_what_users_made_of_the_data_source_stays(cloud: Cloud, disk: Disk) -> None:
    await publish(cloud.client(), disk(b"one"))
    source, label = cloud.source(), "instancetype.kubevirt.io/default-instancetype"
    labels = {**meta.labels(source), label: "u1.large"}
    cloud.api.put(DATA_SOURCES, {**source, "metadata": {**source["metadata"], "labels": labels}})
    new = await publish(cloud.client(), disk(b"two"))
    assert cloud.leads_to() == new
    assert meta.labels(cloud.source())[label] == "u1.large"


@pytest.mark.parametrize(
    "labels", [{}, {"app.kubernetes.io/managed-by": "virtplane-image", "cdi.kubevirt.io/dataImportCron": "d"}]
)
async def test_a_data_source_of_somebody_else_is_left_alone(
    cloud: Cloud, disk: Disk, labels: dict[str, str]
) -> None:
    theirs = datasource.data_source(_NAMESPACE, claim="theirs")
    theirs["metadata"]["labels"] = labels
    cloud.api.put(DATA_SOURCES, theirs)
    with pytest.raises(CommandError, match="belongs to somebody else"):
        await publish(cloud.client(), disk(b"one"))
    assert cloud.leads_to() == "theirs"
    assert cloud.volumes() == {}


async def test_volumes_of_somebody_else_are_left_alone(cloud: Cloud, disk: Disk) -> None:
    cloud.api.put(
        DATA_VOLUMES, {"metadata": {"name": "fedora", "namespace": _NAMESPACE}, "spec": {}, "status": {}}
    )
    name = await publish(cloud.client(), disk(b"one"))
    assert set(cloud.volumes()) == {"fedora", name}


async def test_without_a_default_storage_class_it_is_told_at_once(cloud: Cloud, disk: Disk) -> None:
    cloud.api.remove(STORAGE_CLASSES, "hostpath")
    with pytest.raises(CommandError, match="no default StorageClass"):
        await publish(cloud.client(), disk(b"one"))
    assert cloud.api.get(NAMESPACES, _NAMESPACE) is None


async def test_without_an_upload_proxy_nothing_is_offered(cloud: Cloud, disk: Disk) -> None:
    cloud.is_without_proxy = True
    with pytest.raises(StatusError, match="cdi-uploadproxy"):
        await publish(cloud.client(), disk(b"one"))
    assert cloud.source() == {}
    cloud.is_without_proxy = False
    name = await publish(cloud.client(), disk(b"one"))
    assert cloud.leads_to() == name


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster's directory; the user is root."""
    (tmp_path / "instance.json").touch()
    monkeypatch.setattr(load, "require_root", lambda _: None)
    return tmp_path


def test_nothing_is_built_for_a_cluster_that_is_not_ready(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def missing(_: Path, __: str) -> str:
        return "the API does not answer: refused"

    monkeypatch.setattr(status, "missing", missing)
    assert main.main(["load", "--debian", "--state", str(state)]) == 1
    told = capsys.readouterr().err
    assert "The cluster is not ready.\nthe API does not answer: refused\n" in told
    assert f"./virtplane up --state {state}" in told
    assert not (state / "images").exists()


def test_the_firmware_that_the_preference_asks_for_is_installed_once(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def nothing(*_: object) -> str:
        return ""

    installed: list[str] = []
    image, firmware = tmp_path / "debian.qcow2", tmp_path / "firmware.fd"
    image.write_bytes(b"disk")

    def install(names: list[str]) -> None:
        installed.extend(names)
        firmware.touch()

    monkeypatch.setattr(status, "missing", nothing)
    monkeypatch.setattr(goldenimage, "_connect_and_publish", nothing)
    monkeypatch.setattr(goldenimage, "_FIRMWARE", firmware)
    monkeypatch.setattr(build, "ensure", lambda *_: image)
    monkeypatch.setattr(packages, "install_tools", install)
    for _ in range(2):
        assert main.main(["load", "--debian", "--state", str(state)]) == 0
    assert installed == ["ovmf"]


def test_a_cluster_without_kubeconfig_is_not_ready(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["load", "--debian", "--state", str(state)]) == 1
    assert "The cluster is not ready." in capsys.readouterr().err
