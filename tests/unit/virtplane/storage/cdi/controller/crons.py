"""A server with the cron controller at work, where the test plays whoever fills DataVolumes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.cdi_rights import for_controllers
from tests.support.managers import working
from tests.support.waiting import until

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects.times import now_rfc3339
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, ResourceType
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.storage.cdi.controller.crons.polling import IMAGE_STREAMS
from virtplane.storage.cdi.controller.crons.reconciler import CronController

NAMESPACE = "golden"
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
IMPORT, OTHER_IMPORT = "ds-" + "a" * 12, "ds-" + "b" * 12
_KINDS = (
    kinds.CDIS,
    kinds.CDI_CONFIGS,
    kinds.DATA_IMPORT_CRONS,
    kinds.DATA_SOURCES,
    kinds.DATA_VOLUMES,
    kinds.STORAGE_PROFILES,
    kinds.VOLUME_SNAPSHOTS,
    kinds.VOLUME_SNAPSHOT_CLASSES,
    IMAGE_STREAMS,
)
_WHOLE = (kinds.DATA_IMPORT_CRONS, kinds.DATA_SOURCES, kinds.CDI_CONFIGS)


def new_api(factory: Callable[..., MemoryApi] = MemoryApi) -> MemoryApi:
    """A server with CDI, its config, and a class that makes claims."""
    api = factory(_KINDS, whole=_WHOLE)
    put(api, kinds.CDIS, "cdi", "", spec={})
    put(api, kinds.CDI_CONFIGS, "config", "", spec={}, status={"importProxy": {}})
    put(api, STORAGE_CLASSES, "fast", "", provisioner="csi.example")
    put(api, kinds.STORAGE_PROFILES, "fast", "", spec={}, status={"dataImportCronSourceFormat": "pvc"})
    return api


def controller(client: Client, recorder: EventRecorder) -> Manager:
    """The controller, to be run."""
    manager = Manager(client)
    CronController(client, manager, recorder, namespace="cdi", image="importer:1", has_image_streams=True)
    return manager


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """A server with the controller at work."""
    api = new_api()
    with for_controllers(api) as restricted:
        async with restricted.client() as client, EventRecorder(client, "cdi-deployment") as recorder:
            manager = controller(client, recorder)
            async with working(manager):
                yield Cluster(api)


def put(
    api: MemoryApi, kind: ResourceType, name: str, namespace: str = NAMESPACE, **members: Any
) -> JsonObject:
    """Store an object; `labels`, `annotations` and `ownerReferences` go where they belong."""
    metadata: JsonObject = {"name": name, "creationTimestamp": now_rfc3339()}
    if namespace:
        metadata["namespace"] = namespace
    for key in ("labels", "annotations", "ownerReferences"):
        if key in members:
            metadata[key] = members.pop(key)
    return api.put(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **members})


class Cluster:
    """What tests do with the server."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api

    def cron(self, name: str = "cron", source: JsonObject | None = None, **spec: Any) -> JsonObject:
        """Create a cron; its source is an image that a job polls."""
        source = source or {"registry": {"url": "docker://registry.example/image:tag"}}
        storage = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
        template = {"spec": {"source": source, "storage": storage}}
        wanted = {"managedDataSource": "ds", "schedule": "0 0 1 1 *", "template": template, **spec}
        return put(self.api, kinds.DATA_IMPORT_CRONS, name, spec=wanted)

    def annotate(self, name: str = "cron", **annotations: str) -> None:
        """Write annotations of the cron, as a poller does; the names are those of `cdi_labels`."""
        found = self.get(kinds.DATA_IMPORT_CRONS, name)
        given = {getattr(names, key): value for key, value in annotations.items()}
        metadata = {**found["metadata"], "annotations": {**found["metadata"].get("annotations", {}), **given}}
        self.api.put(kinds.DATA_IMPORT_CRONS, {**found, "metadata": metadata})

    def digest(self, digest: str = DIGEST) -> None:
        """Play the poller."""
        self.annotate(SOURCE_DESIRED_DIGEST=digest, LAST_CRON_TIME="2026-01-02T03:04:05Z")

    def get(self, kind: ResourceType, name: str, namespace: str = NAMESPACE) -> JsonObject:
        """The object; empty if there is none."""
        return self.api.get(kind, name, namespace) or {}

    def phase(self, name: str, phase: str, **status: Any) -> None:
        """Write the phase of a DataVolume."""
        found = self.get(kinds.DATA_VOLUMES, name)
        self.api.put(kinds.DATA_VOLUMES, {**found, "status": {"phase": phase, **status}})

    def fill(self, name: str, **labels: str) -> None:
        """Play the controllers of DataVolumes: the claim is there and filled."""
        made = self.get(kinds.DATA_VOLUMES, name)
        owner = {"apiVersion": made["apiVersion"], "kind": "DataVolume", "name": name, "controller": True}
        owner["uid"] = made["metadata"]["uid"]
        put(
            self.api,
            PERSISTENT_VOLUME_CLAIMS,
            name,
            labels={**made["metadata"]["labels"], **labels},
            annotations={names.LAST_USE_TIME: made["metadata"]["annotations"][names.LAST_USE_TIME]},
            ownerReferences=[owner],
            spec={"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
            status={"phase": "Bound"},
        )
        self.phase(name, "Succeeded", claimName=name)

    def reasons(self, name: str = "cron") -> dict[str, str]:
        """The reasons of the cron's conditions, by their types."""
        status = self.get(kinds.DATA_IMPORT_CRONS, name).get("status", {})
        return {each["type"]: each.get("reason", "") for each in status.get("conditions", [])}

    async def gone(self, kind: ResourceType, name: str, namespace: str = NAMESPACE) -> None:
        """Return once there is no such object."""
        await until(lambda: not self.get(kind, name, namespace))

    async def imported(self, digest: str = DIGEST, name: str = IMPORT) -> None:
        """Import a digest, to the end."""
        self.digest(digest)
        await until(lambda: self.get(kinds.DATA_VOLUMES, name))
        self.fill(name)
        await until(lambda: self.content() == {"pvc": {"name": name, "namespace": NAMESPACE}})
        await until(lambda: self.reasons().get("UpToDate") == "UpToDate")

    def content(self) -> JsonObject:
        """What the DataSource leads to."""
        content: JsonObject = self.get(kinds.DATA_SOURCES, "ds").get("spec", {}).get("source", {})
        return content
