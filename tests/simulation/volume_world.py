"""What surrounds CDI's controllers in the simulation: volumes and their content, a provisioner, a kubelet."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field

from kubecore import resources
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta


@dataclass(slots=True)
class Volumes:
    """What is in the volumes, and who writes to them; `writers` are volumes by the uids of pods."""

    whole: set[str] = field(default_factory=set)
    writers: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, JsonObject] = field(default_factory=dict)
    """The status that a pod has ended with, by its uid: a kubelet writes it until it is stored."""
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
    """Makes a volume for each claim that names no source, and removes those that nobody claims any more."""

    async def run(self, client: Client) -> None:
        """Until it is killed."""
        while True:
            await asyncio.sleep(1.0)
            try:
                for claim in (await client.list(resources.PERSISTENT_VOLUME_CLAIMS))["items"]:
                    await self._provide(client, claim)
                for volume in (await client.list(resources.PERSISTENT_VOLUMES))["items"]:
                    if get_str(volume, "status", "phase") == "Released":
                        await client.delete(resources.PERSISTENT_VOLUMES, meta.name(volume))
            except (StatusError, ConnectionFailed):
                continue

    async def _provide(self, client: Client, claim: JsonObject) -> None:
        spec = get_object(claim, "spec")
        waits = get_str(claim, "status", "phase") in ("", "Pending") and not spec.get("volumeName")
        if not waits or spec.get("dataSourceRef") or meta.is_being_deleted(claim):
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


class Kubelet:
    """Runs all worker pods, which end well, need scratch space, fail and start again, or are evicted."""

    def __init__(self, volumes: Volumes, chance: random.Random) -> None:
        self._volumes, self._chance = volumes, chance
        self.has_trouble = True

    async def run(self, client: Client) -> None:
        """Until it is killed."""
        while True:
            await asyncio.sleep(0.7)
            try:
                for pod in (await client.list(resources.PODS))["items"]:
                    await self._care(client, pod)
            except (StatusError, ConnectionFailed):
                continue

    async def _care(self, client: Client, pod: JsonObject) -> None:
        name, namespace, uid = meta.name(pod), meta.namespace(pod), meta.uid(pod)
        if meta.is_being_deleted(pod):
            self._volumes.writers.pop(uid, None)
            await client.delete(resources.PODS, name, namespace, grace_period_seconds=0, uid=uid)
            return
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
            if get_str(claim, "status", "phase") != "Bound":
                return
            used[volume["name"]] = get_str(claim, "spec", "volumeName")
            found = await client.get(resources.PERSISTENT_VOLUMES, used[volume["name"]])
            if get_str(found, "spec", "claimRef", "uid") != meta.uid(claim):
                return
        if meta.uid(pod) not in self._volumes.writers:
            self._volumes.begin(meta.uid(pod), used["cdi-data-vol"])
        await self._tell(client, pod, _status(pod, "Running", {"running": {}}))

    async def _work(self, client: Client, pod: JsonObject) -> None:
        uid, dice = meta.uid(pod), self._chance.random()
        has_scratch = any(each["name"] == "cdi-scratch-vol" for each in pod["spec"]["volumes"])
        trouble = self.has_trouble
        if dice < 0.6:
            return
        if trouble and dice < 0.7:
            ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Unable to process data"}}
            await self._tell(client, pod, _status(pod, "Running", ended, restarts=1))
            return
        if trouble and dice < 0.75:
            outcome = _status(pod, "Failed", {}) | {"reason": "Evicted"}
        elif trouble and dice < 0.8 and not has_scratch:
            outcome = _ended(pod, {"scratchSpaceRequired": True, "message": ""})
        else:
            outcome = _ended(pod, {"message": "Import Complete"})
            self._volumes.whole.add(self._volumes.writers[uid])
        self._volumes.writers.pop(uid, None)
        self._volumes.outcomes[uid] = outcome
        await self._tell(client, pod, outcome)

    async def _tell(self, client: Client, pod: JsonObject, status: JsonObject) -> None:
        patch = {"metadata": {"uid": meta.uid(pod)}, "status": status}
        await client.patch(
            resources.PODS, meta.name(pod), patch, meta.namespace(pod), type="strategic", subresource="status"
        )


def _status(pod: JsonObject, phase: str, state: JsonObject, restarts: int = 0) -> JsonObject:
    ready = "running" in state
    container = {"name": pod["spec"]["containers"][0]["name"], "state": state, "ready": ready}
    container |= {"restartCount": restarts, "image": "importer:1"}
    return {"phase": phase, "containerStatuses": [container]}


def _ended(pod: JsonObject, said: JsonObject) -> JsonObject:
    ended = {"exitCode": 0, "reason": "Completed", "message": json.dumps(said)}
    return _status(pod, "Succeeded", {"terminated": ended})
