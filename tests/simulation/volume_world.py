"""What surrounds CDI's controllers in the simulation: volumes and their content, a provisioner, a kubelet."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import dataclass, field

from kubecore import resources
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api.resources import VOLUME_SNAPSHOTS

_UPLOAD_SERVER = "cdi-upload-server"
_CLONE_SOURCE = "cdi-clone-source"


@dataclass(slots=True)
class Volumes:
    """What is in the volumes, and who writes to them; `writers` are volumes by the uids of pods."""

    whole: set[str] = field(default_factory=set)
    writers: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, JsonObject] = field(default_factory=dict)
    """The status that a pod has ended with, by its uid: a kubelet writes it until it is stored."""
    snapshots: set[str] = field(default_factory=set)
    """The uids of snapshots of whole volumes."""
    wrong: list[str] = field(default_factory=list)

    def begin(self, pod: str, volume: str) -> None:
        """A worker opens a volume."""
        if volume in self.whole:
            self.wrong.append(f"pod {pod} writes to volume {volume}, which is whole")
        self.writers[pod] = volume

    def given(self, volume: str, whose: str) -> None:
        """Somebody may use a volume now."""
        if volume not in self.whole:
            self.wrong.append(f"{whose} has volume {volume}, which is half written")
        if volume in self.writers.values():
            self.wrong.append(f"{whose} has volume {volume}, to which a worker writes")


class Provisioner:
    """Makes a volume for each claim but those that CDI fills, and removes those that nobody claims any more.

    It makes them of other claims and of snapshots, too.
    """

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    async def run(self, client: Client) -> None:
        """Until it is killed."""
        while True:
            await asyncio.sleep(1.0)
            try:
                for claim in (await client.list(resources.PERSISTENT_VOLUME_CLAIMS))["items"]:
                    with suppress(StatusError):  # its source may be gone
                        await self._provide(client, claim)
                for volume in (await client.list(resources.PERSISTENT_VOLUMES))["items"]:
                    if get_str(volume, "status", "phase") == "Released":
                        await client.delete(resources.PERSISTENT_VOLUMES, meta.name(volume))
            except (StatusError, ConnectionFailed):
                continue

    async def _may_clone(self, client: Client, claim: JsonObject, source: JsonObject) -> bool:
        """Whether a claim can be made of its source now; what is in it is what is in that."""
        namespace, made = meta.namespace(claim), f"pv-{meta.uid(claim)}"
        if source["kind"] == "VolumeSnapshot":
            snapshot = await client.get(VOLUME_SNAPSHOTS, source["name"], namespace)
            is_whole = meta.uid(snapshot) in self._volumes.snapshots
            may = get_bool(snapshot, "status", "readyToUse")
        elif source["kind"] == "PersistentVolumeClaim":
            found = await client.get(resources.PERSISTENT_VOLUME_CLAIMS, source["name"], namespace)
            may = get_str(found, "status", "phase") == "Bound"
            is_whole = get_str(found, "spec", "volumeName") in self._volumes.whole
        else:
            return False  # CDI fills it
        if may and is_whole:
            self._volumes.whole.add(made)
        return may

    async def _provide(self, client: Client, claim: JsonObject) -> None:
        spec = get_object(claim, "spec")
        waits = get_str(claim, "status", "phase") in ("", "Pending") and not spec.get("volumeName")
        if not waits or meta.is_being_deleted(claim):
            return
        source = get_object(spec, "dataSourceRef")
        if source and not await self._may_clone(client, claim, source):
            return
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta.namespace(claim)}
        reference |= {"name": meta.name(claim), "uid": meta.uid(claim)}
        made = {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": "10Gi"},
            "claimRef": reference,
            "csi": {"driver": "csi.example", "volumeHandle": meta.uid(claim)},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec["storageClassName"],
            "volumeMode": spec.get("volumeMode") or "Filesystem",
        }
        document = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{meta.uid(claim)}"},
            "spec": made,
        }
        try:
            await client.create(resources.PERSISTENT_VOLUMES, document)
        except StatusError as error:
            if error.code != 409:
                raise


class Snapshotter:
    """Takes snapshots."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    async def run(self, client: Client) -> None:
        """Until it is killed."""
        while True:
            await asyncio.sleep(1.3)
            try:
                for snapshot in (await client.list(VOLUME_SNAPSHOTS))["items"]:
                    await self._take(client, snapshot)
            except (StatusError, ConnectionFailed):
                continue

    async def _take(self, client: Client, snapshot: JsonObject) -> None:
        status, namespace = get_object(snapshot, "status"), meta.namespace(snapshot)
        if status.get("readyToUse") or meta.is_being_deleted(snapshot):
            return
        if not status:
            name = get_str(snapshot, "spec", "source", "persistentVolumeClaimName")
            claim = await client.get(resources.PERSISTENT_VOLUME_CLAIMS, name, namespace)
            volume = get_str(claim, "spec", "volumeName")
            if volume in self._volumes.whole and volume not in self._volumes.writers.values():
                self._volumes.snapshots.add(meta.uid(snapshot))
            status = {"creationTime": "2026-01-01T00:00:00Z"}
        else:
            status |= {"readyToUse": True, "restoreSize": "1Gi"}
        change = {"metadata": {"uid": meta.uid(snapshot)}, "status": status}
        await client.patch(
            VOLUME_SNAPSHOTS, meta.name(snapshot), change, namespace, type="merge", subresource="status"
        )


class Kubelet:
    """Runs all worker pods, which end well, need scratch space, fail and start again, or are evicted."""

    def __init__(self, volumes: Volumes, chance: random.Random) -> None:
        self._volumes, self._chance = volumes, chance
        self._pods: list[JsonObject] = []
        self._reads: dict[str, str] = {}
        """The volumes that pods read, by the uids of the pods."""
        self.has_trouble = True

    async def run(self, client: Client) -> None:
        """Until it is killed."""
        while True:
            await asyncio.sleep(0.7)
            try:
                self._pods = (await client.list(resources.PODS))["items"]
                for pod in self._pods:
                    await self._care(client, pod)
            except (StatusError, ConnectionFailed):
                continue

    async def _care(self, client: Client, pod: JsonObject) -> None:
        name, namespace, uid = meta.name(pod), meta.namespace(pod), meta.uid(pod)
        if meta.is_being_deleted(pod):
            self._volumes.writers.pop(uid, None)
            await client.delete(resources.PODS, name, namespace, grace_period_seconds=0, uid=uid)
            return
        if get_list(pod, "spec", "schedulingGates"):
            return  # the scheduler waits
        if not get_str(pod, "spec", "nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
            binding = {"metadata": {"name": name, "uid": uid}, "target": target}
            await client.create(resources.PODS, binding, namespace, name=name, subresource="binding")
            return
        phase = get_str(pod, "status", "phase")
        if phase in ("Succeeded", "Failed"):
            return
        if uid in self._volumes.outcomes:
            await self._tell(client, pod, self._volumes.outcomes[uid])
        elif phase == "Running" and _is_between_two_starts(pod):
            await self._tell(client, pod, _status(pod, "Running", {"running": {}}, restarts=1))
        elif phase == "Running":
            await self._work(client, pod)
        else:
            await self._start(client, pod)

    async def _start(self, client: Client, pod: JsonObject) -> None:
        """Mount the claims; only those that have their volume can be."""
        used: dict[str, str] = {}
        for volume in get_list(pod, "spec", "volumes"):
            claim_name = get_str(volume, "persistentVolumeClaim", "claimName")
            if not claim_name:
                continue
            claim = await client.get(resources.PERSISTENT_VOLUME_CLAIMS, claim_name, meta.namespace(pod))
            if get_str(claim, "status", "phase") != "Bound" or meta.is_being_deleted(claim):
                return
            used[volume["name"]] = get_str(claim, "spec", "volumeName")
            found = await client.get(resources.PERSISTENT_VOLUMES, used[volume["name"]])
            if get_str(found, "spec", "claimRef", "uid") != meta.uid(claim):
                return
        if _container(pod) != _UPLOAD_SERVER and _container(pod) != "importer":
            self._reads[meta.uid(pod)] = used["cdi-data-vol"]
        elif meta.uid(pod) not in self._volumes.writers:
            self._volumes.begin(meta.uid(pod), used["cdi-data-vol"])
        await self._tell(client, pod, _status(pod, "Running", {"running": {}}))

    async def _work(self, client: Client, pod: JsonObject) -> None:
        uid, dice = meta.uid(pod), self._chance.random()
        if _container(pod) == _CLONE_SOURCE:
            return  # its server says when it is done
        if _container(pod) == "dummy":
            self._volumes.outcomes[uid] = _ended(pod, {})
            await self._tell(client, pod, self._volumes.outcomes[uid])
            return
        sender = self._sender(pod) if _is_copied_into(pod) else None
        if _is_copied_into(pod) and sender is None:
            return
        has_scratch = any(each["name"] == "cdi-scratch-vol" for each in pod["spec"]["volumes"])
        trouble = self.has_trouble
        if dice < 0.6:
            return
        if trouble and dice < 0.7:
            if sender is not None and self._chance.random() < 0.5:  # it has sent all, and the server crashes
                self._volumes.outcomes[meta.uid(sender)] = _ended(sender, {"message": "Clone Complete"})
            ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Unable to process data"}}
            await self._tell(client, pod, _status(pod, "Running", ended, restarts=1))
            return
        if trouble and dice < 0.75:
            outcome = _status(pod, "Failed", {}) | {"reason": "Evicted"}
        elif trouble and dice < 0.8 and not has_scratch and sender is None:
            outcome = _ended(pod, {"scratchSpaceRequired": True, "message": ""})
        else:
            outcome = _ended(pod, {"message": "Import Complete"})
            if sender is None or self._reads[meta.uid(sender)] in self._volumes.whole:
                self._volumes.whole.add(self._volumes.writers[uid])
            if sender is not None and not (trouble and self._chance.random() < 0.2):  # else it never knows
                self._volumes.outcomes[meta.uid(sender)] = _ended(sender, {"message": "Clone Complete"})
        self._volumes.writers.pop(uid, None)
        self._volumes.outcomes[uid] = outcome
        await self._tell(client, pod, outcome)

    def _sender(self, server: JsonObject) -> JsonObject | None:
        """The pod that sends something to an upload server now."""
        (claim,) = [
            get_str(volume, "persistentVolumeClaim", "claimName")
            for volume in server["spec"]["volumes"]
            if volume["name"] == "cdi-data-vol"
        ]
        target = f"{meta.namespace(server)}/{claim}"
        return next(
            (
                pod
                for pod in self._pods
                if meta.annotations(pod).get("cdi.kubevirt.io/storage.ownerRef") == target
                and get_str(pod, "status", "phase") == "Running"
                and meta.uid(pod) in self._reads
                and meta.uid(pod) not in self._volumes.outcomes
                and not meta.is_being_deleted(pod)
            ),
            None,
        )

    async def _tell(self, client: Client, pod: JsonObject, status: JsonObject) -> None:
        patch = {"metadata": {"uid": meta.uid(pod)}, "status": status}
        await client.patch(
            resources.PODS, meta.name(pod), patch, meta.namespace(pod), type="strategic", subresource="status"
        )


def _container(pod: JsonObject) -> str:
    """The name of the pod's first container."""
    return str(pod["spec"]["containers"][0]["name"])


def _is_between_two_starts(pod: JsonObject) -> bool:
    """Whether the container has failed and not been started again."""
    return "terminated" in get_object(pod["status"]["containerStatuses"][0], "state")


def _is_copied_into(pod: JsonObject) -> bool:
    """Whether it is an upload server that waits for the source of a clone."""
    environment = pod["spec"]["containers"][0].get("env", [])
    named = {each["name"]: each.get("value", "") for each in environment}
    return _container(pod) == _UPLOAD_SERVER and "/" in named["CLIENT_NAME"]


def _status(pod: JsonObject, phase: str, state: JsonObject, restarts: int = 0) -> JsonObject:
    ready = "running" in state
    container = {"name": pod["spec"]["containers"][0]["name"], "state": state, "ready": ready}
    container |= {"restartCount": restarts, "image": "importer:1"}
    return {"phase": phase, "containerStatuses": [container]}


def _ended(pod: JsonObject, said: JsonObject) -> JsonObject:
    ended = {"exitCode": 0, "reason": "Completed", "message": json.dumps(said)}
    return _status(pod, "Succeeded", {"terminated": ended})
