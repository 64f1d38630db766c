"""Whether launcher pods get guests' images as image volumes.

Two components must support them: the API server keeps the field (feature gate ``ImageVolume``: Kubernetes
1.31 and newer, on by default from 1.35), and each node's container runtime mounts images (containerd 2.1,
CRI-O 1.31). Otherwise the launcher pod has a container for each image, and virt-handler mounts the disk from
that container's file system.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable

from kubecore import resources
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api.labels import SCHEDULABLE
from virtplane.api.pod_security import restricted_container

logger = logging.getLogger(__name__)

_FEATURE = "ImageVolume"
_RUNTIMES = {"containerd": (2, 1), "cri-o": (1, 31)}
"""The first version of each runtime that mounts image volumes."""

_RUNTIME_VERSION = re.compile(r"([a-z-]+)://v?(\d+)\.(\d+)")
_PROBE_SECONDS = 300.0
_PROBE_IMAGE = "image-volume-probe:v1"
"""Never pulled: the pod that names it is a dry run."""


def node_mounts_images(node: JsonObject) -> bool:
    """Whether a node can mount image volumes: its kubelet declares it, or its runtime is new enough."""
    if _FEATURE in (get_object(node, "status").get("declaredFeatures") or ()):
        return True
    found = _RUNTIME_VERSION.match(get_str(node, "status", "nodeInfo", "containerRuntimeVersion"))
    if found is None or found[1] not in _RUNTIMES:
        return False
    return (int(found[2]), int(found[3])) >= _RUNTIMES[found[1]]


def nodes_mount_images(nodes: Iterable[JsonObject]) -> bool:
    """Whether every schedulable node supports image volumes.

    A launcher pod is rendered before the scheduler chooses its node, so a single node without support decides
    for all. A node whose kubelet has never reported its container runtime runs no pods and does not count.
    """
    listed = [node for node in nodes if get_str(node, "status", "nodeInfo", "containerRuntimeVersion")]
    for_guests = [node for node in listed if meta.labels(node).get(SCHEDULABLE) == "true"]
    return all(node_mounts_images(node) for node in for_guests or listed)


class ImageVolumeSupport:
    """Asks the API server whether it accepts pods with image volumes, by a dry run."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._served: bool | None = None

    def usable(self, nodes: Iterable[JsonObject]) -> bool:
        """Whether the API server and all nodes support image volumes, according to the last check."""
        return bool(self._served) and nodes_mount_images(nodes)

    async def ask(self) -> None:
        """Check once. Every refusal counts as no support, because containers that hold the images work
        everywhere. If the API server cannot answer, the last result remains.
        """
        try:
            created = await self._client.create(resources.PODS, _probe_pod(), self._namespace, dry_run=True)
        except ConnectionFailed as error:
            logger.info(
                "Could not check whether the API server supports image volumes", extra={"err": str(error)}
            )
        except StatusError as error:
            if error.code >= 500 or error.code == 429:
                logger.info(
                    "Could not check whether the API server supports image volumes", extra={"err": str(error)}
                )
            else:
                self._note(False, error.message)
        else:
            kept = any("image" in volume for volume in get_list(created, "spec", "volumes"))
            self._note(kept, "" if kept else "the API server drops the field")

    def _note(self, served: bool, why: str) -> None:
        if served != self._served:
            path = "image volumes" if served else "containers that hold the image"
            logger.info("Container disks reach guests by %s", path, extra={"why": why} if why else {})
        self._served = served

    async def run(self) -> None:
        """Check regularly: the API server may be upgraded or configured differently."""
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            await self.ask()


def _probe_pod() -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "image-volume-probe-"},
        "spec": {
            "containers": [
                {"name": "probe", "image": _PROBE_IMAGE, "securityContext": restricted_container()}
            ],
            "volumes": [{"name": "image", "image": {"reference": _PROBE_IMAGE}}],
        },
    }
