"""Clusters that recorded requests are played to: brought up for one run, and removed."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kubecore.json import JsonObject
from virtplane.api import cdi_names
from virtplane.cli.cluster import HOST_IMAGE, host_image_accounts

ROOT = Path(__file__).resolve().parents[2]
_UP_SECONDS = 180.0
_RESET_SECONDS = 90.0
_AS_RECORDED = ("--ip-family=ipv4", "--storage=0")
"""What the recorded clusters have: claims stay pending. A cluster keeps both."""
_DOCUMENTATION_RANGES = ("--external-range=192.0.0.0/15",)
"""The requests' services claim addresses for documentation, which the recorded servers allow.

The range is too large to be a pool: the recorded servers give load balancers no address.
"""


Kind = Literal["bare", "virtplane", "cdi"]
"""What a cluster has: Kubernetes alone, virtplane as `up` installs it, or as the cases of CDI need it."""

_WORKER_IMAGES = {
    "IMPORTER_IMAGE": "importer:1",
    "CLONER_IMAGE": "cloner:1",
    "UPLOAD_SERVER_IMAGE": "uploadserver:1",
}
"""The images of worker pods in the recordings. The cases play what would run in them."""


class RunFailure(Exception):
    """The cluster or the runner did not do its part."""


class Deadline:
    """The end of a run of so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, most: float | None = None) -> float:
        """Seconds that are left, at most `most`. Raises RunFailure when there are none."""
        left = min(self._seconds if most is None else most, self._end - time.monotonic())
        if left <= 0:
            raise RunFailure("there is no time left")
        return left


@contextmanager
def running_cluster(kind: Kind, deadline: Deadline, *, keep: bool = False) -> Iterator[Path]:
    """The state directory of a new cluster."""
    state = Path(tempfile.mkdtemp(prefix="virtplane-conformance-"))
    try:
        _bring_up(kind, state, deadline)
        yield state
    finally:
        if keep:
            print(f"the cluster is in {state}")
        else:
            command = [str(ROOT / "virtplane"), "reset", "--state", str(state)]
            subprocess.run(command, check=False, timeout=_RESET_SECONDS)
            shutil.rmtree(state, ignore_errors=True)


def _bring_up(kind: Kind, state: Path, deadline: Deadline) -> None:
    def up(program: Path, *options: str) -> None:
        command = [str(program), "up", "--state", str(state), *_DOCUMENTATION_RANGES, *options]
        subprocess.run(command, check=True, timeout=deadline.left(_UP_SECONDS))

    accounts = host_image_accounts(cdi_names.NAMESPACE) if kind == "cdi" else []
    up(ROOT / ".venv/bin/kindling", *_AS_RECORDED, *accounts)
    if kind == "cdi":
        asyncio.run(asyncio.wait_for(_install_cdi(state), deadline.left(2 * _UP_SECONDS)))
    if kind == "virtplane":
        asyncio.run(asyncio.wait_for(_add_neighbours(state), deadline.left(_UP_SECONDS)))
        up(ROOT / "virtplane")
        asyncio.run(asyncio.wait_for(_reset_configuration(state), deadline.left(_UP_SECONDS)))


async def _add_neighbours(state: Path) -> None:
    """The kinds that real clusters with KubeVirt have besides; before virtplane, which looks for them."""
    from tests.conformance.neighbours import NEIGHBOURS, OBJECTS

    from kubecore.client import Client, load_kubeconfig
    from kubecore.errors import ignoring
    from kubecore.objects import meta
    from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS, ResourceType

    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        for neighbour in NEIGHBOURS:
            wanted = neighbour.definition()
            with ignoring(409):  # kindling has some of them itself
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, wanted)
            made = await client.get(CUSTOM_RESOURCE_DEFINITIONS, meta.name(wanted))
            while not meta.is_condition_true(made, "Established"):
                await asyncio.sleep(0.1)
                made = await client.get(CUSTOM_RESOURCE_DEFINITIONS, meta.name(made))
        for plural, obj in OBJECTS:
            group, _, version = obj["apiVersion"].partition("/")
            await client.create(ResourceType(group, version, plural, obj["kind"], False), obj)


async def _install_cdi(state: Path) -> None:
    """CDI in the recorded namespace with the recorded settings; no pod but those that run now finds a node.

    The snapshot controller is not there, only its kinds.
    """
    from kubecore.client import Client, load_kubeconfig
    from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NODES
    from virtplane.api import volumesnapshot_crds
    from virtplane.api.resources import CDIS
    from virtplane.cli.install import install
    from virtplane.cli.installation import is_cdi_available
    from virtplane.operators.kubevirt.manifests import CDI_NAME, InstallOptions

    options = InstallOptions(
        cdi_names.NAMESPACE,
        HOST_IMAGE,
        "compact",
        use_emulation=True,
        dense=True,
        require_webhook_certificate=True,
    )
    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        for definition in volumesnapshot_crds.custom_resource_definitions():
            definition["metadata"]["labels"] = {}  # as if somebody else had installed them
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await install(client, options)
        container = {
            "name": "virt-operator",
            "env": [{"name": name, "value": image} for name, image in _WORKER_IMAGES.items()],
        }
        wanted = {"spec": {"template": {"spec": {"containers": [container]}}}}
        await client.patch(DEPLOYMENTS, "virt-operator", wanted, cdi_names.NAMESPACE, type="strategic")
        await install(client, options)  # waits for the new pod; what was added stays
        spec: JsonObject = {"config": {"featureGates": ["HonorWaitForFirstConsumer"]}}
        spec |= {"imagePullPolicy": "IfNotPresent", "customizeComponents": {}, "infra": {}, "workload": {}}
        change = [{"op": "replace", "path": "/spec", "value": spec}]
        await client.patch(CDIS, CDI_NAME, change, type="json")
        while True:
            if is_cdi_available(await client.get(CDIS, CDI_NAME)):
                break
            await asyncio.sleep(0.2)
        for node in (await client.list(NODES))["items"]:
            name = node["metadata"]["name"]
            await client.patch(NODES, name, {"spec": {"unschedulable": True}}, type="merge")


async def _reset_configuration(state: Path) -> None:
    """The cases expect an empty configuration; `up` turns emulation on where there is no KVM."""
    from kubecore.client import Client, load_kubeconfig
    from virtplane.api.resources import KUBEVIRTS

    patch = [{"op": "add", "path": "/spec/configuration", "value": {}}]
    async with Client(load_kubeconfig(state / "kubeconfig")) as client:
        wanted = await client.patch(KUBEVIRTS, "kubevirt", patch, "kubevirt", type="json")
        while True:
            found = await client.get(KUBEVIRTS, "kubevirt", "kubevirt")
            status = found.get("status") or {}
            seen = status.get("observedGeneration", 0) >= wanted["metadata"]["generation"]
            if seen and status.get("phase") == "Deployed":
                return
            await asyncio.sleep(0.2)


def access(state: Path) -> tuple[str, str]:
    """A cluster's address and its administrator's token."""
    import yaml

    kubeconfig = yaml.safe_load((state / "kubeconfig").read_text())
    return kubeconfig["clusters"][0]["cluster"]["server"], (state / "token").read_text().strip()
