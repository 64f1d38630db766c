"""Claims of tests, and the disks that guests see of them."""

from __future__ import annotations

from functools import partial

from tests.e2e.clusters import CORE, NAMESPACE, Cluster, manifest
from tests.e2e.failures import Document
from tests.e2e.support import Console, wait_for

CLAIMS = f"{CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims"


def claim(
    name: str, size: str, mode: str, source: Document | None = None, access: str = "ReadWriteMany"
) -> Document:
    """A claim of the default class."""
    spec: Document = {"accessModes": [access], "volumeMode": mode}
    spec["resources"] = {"requests": {"storage": size}}
    if source is not None:
        spec["dataSource"] = source
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def with_claims(name: str, *claims: str) -> Document:
    """A machine with claims as further disks; their serial numbers are the claims' names."""
    wanted = manifest(name, grace=2)
    spec = wanted["spec"]["template"]["spec"]
    for each in claims:
        spec["domain"]["devices"]["disks"].append({"name": each, "disk": {"bus": "virtio"}, "serial": each})
        spec["volumes"].append({"name": each, "persistentVolumeClaim": {"claimName": each}})
    return wanted


def device(console: Console, serial: str) -> str:
    """The guest's name of a disk (``vdc``)."""
    return console.run(f"(cd /sys/block; for d in vd*; do grep -qx {serial} $d/serial && echo $d; done)")


def is_gone(cluster: Cluster, path: str) -> bool:
    """Whether there is no such object."""
    return cluster.find(path) is None


class Claims:
    """Claims that are deleted after a test, with what was made of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.names: list[str] = []

    def create(self, wanted: Document) -> None:
        """Create a claim."""
        self._cluster.request("POST", CLAIMS, wanted)
        self.names.append(wanted["metadata"]["name"])

    def remove(self) -> None:
        """Delete what is left of them, and wait until they are gone."""
        for name in self.names:
            if not is_gone(self._cluster, f"{CLAIMS}/{name}"):
                self._cluster.request("DELETE", f"{CLAIMS}/{name}")
        for name in self.names:
            wait_for(f"claim {name} is gone", partial(is_gone, self._cluster, f"{CLAIMS}/{name}"), 30)
