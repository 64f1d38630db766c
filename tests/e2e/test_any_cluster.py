"""virtplane on a cluster that does not have it: everything comes out of the image of ``virtplane image``.

The cluster is kindling without its host image, used through its command line and kubeconfig only, as any
other Kubernetes would be.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from kubecore.client import Client, load_kubeconfig
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import ResourceType
from virtplane.api.resources import SUBRESOURCES_PATH, VIRTUAL_MACHINE_INSTANCES, VIRTUAL_MACHINES
from virtplane.cli.install import DEFAULT_NAMESPACE
from virtplane.cli.virtctl.talking.streams import open_stream
from virtplane.guest.variants import CLOUD
from virtplane.programs import own_program

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(900)]

_NAME = "localhost/virtplane:any-cluster"
_PROGRAMS = ("apt-get", "dpkg-deb", "containerd", "runc", "nft", "ip", "qemu-img")
_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_PODS = ResourceType("", "v1", "pods", "Pod", True)
_REFUSED_IMAGE_VOLUMES: tuple[JsonObject, ...] = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-image-volumes"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": "!object.spec.?volumes.orValue([]).exists(each, has(each.image))",
                    "message": "spec.volumes: Required value: must specify a volume type",
                    "reason": "Invalid",
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-image-volumes"},
        "spec": {"policyName": "no-image-volumes", "validationActions": ["Deny"]},
    },
)
"""What Kubernetes 1.30 to 1.34 answer to a pod with an image volume."""

_NO_CLUSTER_DNS: tuple[JsonObject, ...] = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "no-cluster-dns"},
        "spec": {
            "matchConstraints": _REFUSED_IMAGE_VOLUMES[0]["spec"]["matchConstraints"],
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{spec: Object.spec{dnsPolicy: 'None',"
                        " dnsConfig: Object.spec.dnsConfig{nameservers: ['192.0.2.1']}}}"
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "no-cluster-dns"},
        "spec": {"policyName": "no-cluster-dns"},
    },
)
"""Every pod gets a name server that nobody answers at."""

_OPTIONS = ("--emulation", "--kubelet-root")
_RUNNING_SECONDS = 60.0
_PROMPT_SECONDS = 120.0
_NUDGE_SECONDS = 10.0
"""A prompt that was printed before the console was connected appears again after Return."""


@dataclass(frozen=True)
class _Cluster:
    state: Path

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def node_folder(self) -> Path:
        """The folder of its node."""
        return self.state / "nodes/node01"

    def kindling(self, *arguments: str, timeout_seconds: float = 120.0) -> str:
        command, *rest = arguments
        return _run([own_program("kindling"), command, "--state", str(self.state), *rest], timeout_seconds)


def _run(command: list[str], timeout_seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _virtplane(*arguments: str, timeout_seconds: float) -> str:
    return _run([sys.executable, "-m", "virtplane.cli.main", *arguments], timeout_seconds)


def _require_tools() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it starts a cluster")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"programs are missing: {', '.join(missing)}")


@pytest.fixture(scope="module")
def archives(guest_archive: Path) -> Iterator[tuple[Path, Path]]:
    """The image of the product and the guest's container disk."""
    _require_tools()
    with tempfile.TemporaryDirectory(prefix="virtplane-any-") as folder:
        product = Path(folder) / "virtplane.tar"
        _virtplane("image", str(product), "--name", _NAME, timeout_seconds=420)
        yield product, guest_archive


@pytest.fixture(scope="module")
def cluster(archives: tuple[Path, Path]) -> Iterator[_Cluster]:
    """A cluster without DNS, whose nodes have both images and nothing else of ours."""
    with tempfile.TemporaryDirectory(prefix="virtplane-any-cluster-", ignore_cleanup_errors=True) as folder:
        cluster = _Cluster(Path(folder) / "state")
        try:
            cluster.kindling("up", "--no-host-image", "--nodes", "1")
            cluster.kindling("load", *map(str, archives))
            asyncio.run(_create(cluster, _NO_CLUSTER_DNS))
            yield cluster
        finally:
            cluster.kindling("reset")


@pytest.fixture(scope="module")
def elsewhere(cluster: _Cluster) -> Path:
    """Where the node's kubelet has its root, too, with all that it mounts there."""
    place = cluster.state.parent / "elsewhere"
    place.mkdir()
    namespace = f"--mount={cluster.node_folder / 'ns/mnt'}"
    _run(["nsenter", namespace, "mount", "--rbind", "/var/lib/kubelet", str(place)], 20)
    return place


def test_the_image_holds_nothing_of_the_embedded_cluster(archives: tuple[Path, Path]) -> None:
    names = _names_in(archives[0])
    assert "usr/lib/virtplane/virtplane/run.py" in names
    assert "usr/lib/virtplane/kubecore/json.py" in names
    assert "usr/lib/virtplane/virtplane/examples/demo-vm.yaml" in names
    assert {"usr/bin/busybox", "usr/bin/virt-launcher", "usr/bin/qemu-system-x86_64"} <= names
    assert not [name for name in names if "kindling" in name.split("/")]


async def test_the_cluster_has_no_working_dns(cluster: _Cluster) -> None:
    async with Client(load_kubeconfig(cluster.kubeconfig)) as client:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe"},
            "spec": {"containers": [{"name": "c", "image": "image:v1"}]},
        }
        created = await client.create(_PODS, pod, "default", dry_run=True)
        assert get_str(created, "spec", "dnsPolicy") == "None"


async def test_an_installation_without_kvm_says_how_guests_can_run(cluster: _Cluster) -> None:
    said = await asyncio.to_thread(_install, cluster, "--image", _NAME)
    assert "No node has usable KVM" in said
    assert "--emulation" in said


async def test_a_guest_reaches_its_login_prompt_with_every_component_out_of_the_image(
    cluster: _Cluster,
) -> None:
    await asyncio.to_thread(_install, cluster, "--image", _NAME, "--emulation")
    machine = yaml.safe_load((_EXAMPLES / "demo-vm.yaml").read_text())
    async with Client(load_kubeconfig(cluster.kubeconfig)) as client:
        async with asyncio.timeout(_RUNNING_SECONDS):
            await client.create(VIRTUAL_MACHINES, machine, "default")
            await _running(client, "demo")
        assert await _images(client, DEFAULT_NAMESPACE) == {_NAME}
        assert await _images(client, "default") == {_NAME, CLOUD.reference}
        async with asyncio.timeout(_PROMPT_SECONDS):
            assert "demo login:" in await _console_until(client, "demo", "login:")


async def test_a_kubelet_elsewhere_is_told(cluster: _Cluster, tmp_path: Path) -> None:
    refused = await asyncio.to_thread(_attempt_install, cluster, *_OPTIONS, str(tmp_path), "--image", _NAME)
    assert refused.returncode == 1
    assert "virtplane cannot start." in refused.stderr
    assert "The kubelet of node" in refused.stderr
    assert "virtplane install --kubelet-root" in refused.stderr


async def test_a_guest_runs_without_image_volumes_where_the_kubelet_s_root_is_elsewhere(
    cluster: _Cluster, elsewhere: Path
) -> None:
    """Kubernetes before 1.35 keeps image volumes switched off: a container holds the image instead."""
    await asyncio.to_thread(_install, cluster, *_OPTIONS, str(elsewhere), "--image", _NAME)
    machine = yaml.safe_load((_EXAMPLES / "demo-vm.yaml").read_text())
    machine["metadata"]["name"] = "held"
    async with Client(load_kubeconfig(cluster.kubeconfig)) as client:
        await _create(cluster, _REFUSED_IMAGE_VOLUMES)
        await _restart(client, "virt-controller")
        async with asyncio.timeout(_RUNNING_SECONDS):
            await client.create(VIRTUAL_MACHINES, machine, "default")
            await _running(client, "held")
        pod = next(each for each in _items(await client.list(_PODS, "default")) if _is_launcher(each, "held"))
        assert not [each for each in get_list(pod, "spec", "volumes") if "image" in each]
        async with asyncio.timeout(_PROMPT_SECONDS):
            assert "login:" in await _console_until(client, "held", "login:")
        await client.delete(VIRTUAL_MACHINES, "held", "default")
        async with asyncio.timeout(_RUNNING_SECONDS):
            await _launcher_gone(client, "held")


async def test_an_upgrade_is_done_when_install_returns(
    cluster: _Cluster, archives: tuple[Path, Path], elsewhere: Path, tmp_path: Path
) -> None:
    newer = f"{_NAME}-2"
    _labelled_anew(archives[0], newer, tmp_path / "newer.tar")
    cluster.kindling("load", str(tmp_path / "newer.tar"))
    await asyncio.to_thread(_install, cluster, *_OPTIONS, str(elsewhere), "--image", newer)
    async with Client(load_kubeconfig(cluster.kubeconfig)) as client:
        assert await _images(client, DEFAULT_NAMESPACE) == {newer}


async def _create(cluster: _Cluster, documents: Iterable[JsonObject]) -> None:
    async with Client(load_kubeconfig(cluster.kubeconfig)) as client:
        for document in documents:
            await client.create(_resource_of(document), document)


def _labelled_anew(archive: Path, name: str, target: Path) -> None:
    """The same image under another name, as a new version would come."""
    with tarfile.open(archive) as source, tarfile.open(target, "w") as copy:
        for member in source:
            content = source.extractfile(member)
            data = content.read() if content is not None else None
            if data is not None and member.name in ("index.json", "manifest.json"):
                data = data.replace(_NAME.encode(), name.encode())
                member.size = len(data)
            copy.addfile(member, io.BytesIO(data) if data is not None else None)


def _attempt_install(cluster: _Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    arguments = ["--layout", "distributed", "--kubeconfig", str(cluster.kubeconfig), "--timeout", "120"]
    command = [sys.executable, "-m", "virtplane.cli.main", "install", *arguments, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def _install(cluster: _Cluster, *options: str) -> str:
    done = _attempt_install(cluster, *options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stderr


async def _launcher_gone(client: Client, machine: str) -> None:
    while True:
        if not any(_is_launcher(pod, machine) for pod in _items(await client.list(_PODS, "default"))):
            return
        await asyncio.sleep(0.2)


def _is_launcher(pod: JsonObject, machine: str) -> bool:
    return get_str(pod, "metadata", "name").startswith(f"virt-launcher-{machine}-")


async def _restart(client: Client, component: str) -> None:
    """Delete the component's pods, and wait until new ones are ready."""
    selector = f"kubevirt.io={component}"
    pods = _items(await client.list(_PODS, DEFAULT_NAMESPACE, label_selector=selector))
    former = {get_str(pod, "metadata", "uid") for pod in pods}
    for pod in pods:
        await client.delete(_PODS, get_str(pod, "metadata", "name"), DEFAULT_NAMESPACE)
    async with asyncio.timeout(_RUNNING_SECONDS):
        while True:
            pods = _items(await client.list(_PODS, DEFAULT_NAMESPACE, label_selector=selector))
            fresh = [pod for pod in pods if get_str(pod, "metadata", "uid") not in former]
            ready = [
                condition
                for pod in fresh
                for condition in get_list(pod, "status", "conditions")
                if condition.get("type") == "Ready" and condition.get("status") == "True"
            ]
            if len(ready) == len(former) == len(fresh):
                return
            await asyncio.sleep(0.2)


def _resource_of(document: JsonObject) -> ResourceType:
    kind = document["kind"]
    plural = kind.lower() + "s"
    if plural.endswith("ys"):
        plural = plural.removesuffix("ys") + "ies"
    return ResourceType("admissionregistration.k8s.io", "v1", plural, kind, False)


async def _running(client: Client, name: str) -> None:
    while True:
        found = await client.list(VIRTUAL_MACHINE_INSTANCES, "default")
        phases = {get_str(vmi, "metadata", "name"): get_str(vmi, "status", "phase") for vmi in _items(found)}
        if phases.get(name) == "Running":
            return
        assert phases.get(name) != "Failed"
        await asyncio.sleep(0.2)


async def _images(client: Client, namespace: str) -> set[str]:
    """The images of all containers of all pods but those that end."""
    pods = _items(await client.list(_PODS, namespace))
    pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    kinds = ("initContainers", "containers")
    return {get_str(item, "image") for pod in pods for kind in kinds for item in get_list(pod, "spec", kind)}


async def _console_until(client: Client, name: str, text: str) -> str:
    path = f"{SUBRESOURCES_PATH}/namespaces/default/virtualmachineinstances/{name}/console"
    socket = await open_stream(client, path)
    seen = ""
    try:
        while text not in seen:
            try:
                message = await socket.receive(timeout=_NUDGE_SECONDS)
            except TimeoutError:
                await socket.send_bytes(b"\n")
                continue
            assert isinstance(message.data, bytes), f"the console was closed: {seen}"
            seen += message.data.decode(errors="replace")
    finally:
        await socket.close()
    return seen


def _items(found: JsonObject) -> list[JsonObject]:
    return get_list(found, "items")


def _names_in(archive: Path) -> set[str]:
    """The names in all layers of an image."""
    names: set[str] = set()
    with tarfile.open(archive) as outer:
        for member in outer:
            if member.size < 100_000:
                continue
            with tarfile.open(fileobj=outer.extractfile(member), mode="r|gz") as layer:
                names.update(entry.name for entry in layer)
    return names
