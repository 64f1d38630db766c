"""Sources of clones, and who plays the drivers, for tests of the controllers of data volumes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tests.support.cdi_memory import NAMESPACE, MemoryCluster
from tests.support.waiting import until

from kubecore import resources as core
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from virtplane.api import resources as kinds
from virtplane.storage.cdi.tokens import SHORT_SECONDS, Operation, Payload, Signer, new_signing_key

CLAIMS = core.PERSISTENT_VOLUME_CLAIMS
IMAGES = "images"
"""Another namespace."""


def put_source(cluster: MemoryCluster, namespace: str = NAMESPACE, **wanted: Any) -> JsonObject:
    """A claim ``src`` with its volume."""
    size = wanted.get("size", "1Gi")
    metadata = {"name": "src", "namespace": namespace, "annotations": wanted.get("annotations", {})}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": wanted.get("storage_class", "csi"),
        "volumeMode": wanted.get("mode", "Filesystem"),
        "volumeName": "pv-src",
    }
    status = {"phase": "Bound", "capacity": {"storage": wanted.get("capacity", "2Gi")}}
    made = cluster.api.put(
        CLAIMS, {"metadata": {**metadata, "labels": wanted.get("labels", {})}, "spec": spec, "status": status}
    )
    driver = {"driver": f"{spec['storageClassName']}.example", "volumeHandle": "src"}
    reference = {"name": "src", "namespace": namespace, "uid": made["metadata"]["uid"]}
    volume = {"metadata": {"name": "pv-src"}, "spec": {"claimRef": reference, "csi": driver}}
    cluster.api.put(core.PERSISTENT_VOLUMES, volume)
    return made


def profile(cluster: MemoryCluster, strategy: str) -> None:
    """The storage profile of the class ``csi``."""
    cluster.api.put(
        kinds.STORAGE_PROFILES, {"metadata": {"name": "csi"}, "status": {"cloneStrategy": strategy}}
    )


async def found(
    cluster: MemoryCluster,
    kind: ResourceType,
    name: str,
    namespace: str = NAMESPACE,
    holds: Callable[[JsonObject], bool] = lambda _: True,
) -> JsonObject:
    """The object once it is there and `holds`."""

    def look() -> JsonObject | None:
        each = cluster.api.get(kind, name, namespace)
        return each if each is not None and holds(each) else None

    there: JsonObject = await until(look)
    return there


async def bind(cluster: MemoryCluster, name: str, namespace: str = NAMESPACE, capacity: str = "1Gi") -> str:
    """Play the provisioner: the claim gets a volume of its own, the name of which is returned."""
    claim = await found(cluster, CLAIMS, name, namespace)
    volume = f"pv-{name}"
    reference = {"name": name, "namespace": namespace, "uid": claim["metadata"]["uid"]}
    spec = {"claimRef": reference, "storageClassName": claim["spec"]["storageClassName"]}
    cluster.api.put(core.PERSISTENT_VOLUMES, {"metadata": {"name": volume}, "spec": spec})
    put_bound(cluster, claim, volume, capacity)
    return volume


def put_bound(cluster: MemoryCluster, claim: JsonObject, volume: str, capacity: str = "1Gi") -> None:
    """Play the volume controller."""
    status = {"phase": "Bound", "capacity": {"storage": capacity}}
    cluster.api.put(CLAIMS, {**claim, "spec": {**claim["spec"], "volumeName": volume}, "status": status})


async def receive(cluster: MemoryCluster, volume: str, name: str = "dv") -> None:
    """The claim `name` is bound to a volume, once that was given to it."""
    claim = await found(cluster, CLAIMS, name)
    uid = claim["metadata"]["uid"]
    given = await found(
        cluster, core.PERSISTENT_VOLUMES, volume, "", lambda each: each["spec"]["claimRef"]["uid"] == uid
    )
    assert given["spec"]["claimRef"]["namespace"] == NAMESPACE
    put_bound(cluster, cluster.api.get(CLAIMS, name, NAMESPACE) or claim, volume)


async def gone(cluster: MemoryCluster, kind: ResourceType, name: str, namespace: str = NAMESPACE) -> None:
    """Return once there is no such object."""
    await until(lambda: cluster.api.get(kind, name, namespace) is None)


class Tokens:
    """Signs what cdi-apiserver signs, with the key that the controllers find."""

    def __init__(self, cluster: MemoryCluster) -> None:
        key = new_signing_key()
        metadata = {"name": "cdi-api-signing-key", "namespace": "cdi"}
        cluster.api.put(core.SECRETS, {"metadata": metadata, "data": key})
        self._pem = base64.b64decode(key["id_rsa"])

    def short(self, target: str = "dv", source: str = "src") -> str:
        """The token that a new DataVolume gets for a claim in the other namespace."""
        params = {"targetNamespace": NAMESPACE, "targetName": target}
        payload = Payload(Operation.CLONE, source, IMAGES, params=params)
        return Signer("cdi-apiserver", self._pem, SHORT_SECONDS).sign(payload)
