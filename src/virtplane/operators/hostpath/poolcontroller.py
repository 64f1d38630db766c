"""Reconciles the objects of pools that claims hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime.informer import Informer
from virtplane.api.hostpathprovisioner_v1beta1.hostpathprovisioner import HostPathProvisionerSpec
from virtplane.operators.hostpath import pools
from virtplane.operators.hostpath.driver import is_shared
from virtplane.operators.hostpath.product import (
    CSI_NAME,
    HOSTPATH,
    LEGACY_POOL,
    NAME,
    Settings,
    with_last_applied,
)

_READY = "Ready"
_SHOWN = 3
"""Jobs and Deployments that are named of those that are waited for."""

Apply = Callable[[JsonObject], Awaitable[None]]


class PoolNotReady(Exception):
    """A pool's claim has no volume."""


class Pools:
    """Claims, Deployments and clean-up jobs of pools."""

    def __init__(self, client: Client, settings: Settings, deployments: Informer) -> None:
        self._client = client
        self._settings = settings
        self._deployments = deployments

    async def reconcile(self, hpp: JsonObject, spec: HostPathProvisionerSpec, apply: Apply) -> None:
        """Bring about what pools need on the nodes that run the driver. Raises StatusError."""
        templates = [get_object(entry, "pvcTemplate") for entry in get_list(hpp, "spec", "storagePools")]
        backed = [
            (pool, template)
            for pool, template in zip(spec.storage_pools, templates, strict=True)
            if pool.pvc_template is not None
        ]
        current = {meta.name(each): each for each in self._owned(hpp)}
        shared = [pool for pool in spec.storage_pools if is_shared(pool)]
        if not backed and not current and not shared:
            return
        nodes = await self._nodes()
        for pool, template in backed:
            for node in nodes:
                await self._create(
                    resources.PERSISTENT_VOLUME_CLAIMS, pools.claim(pool, template, node, self._settings)
                )
                await apply(pools.deployment(pool, node, hpp, self._settings))
                current.pop(pools.deployment_name(pool, node), None)
        for pool in shared if nodes else ():
            await self._create(resources.STORAGE_CLASSES, pools.overlay_class(pool))
        for unused in current.values():
            await self._clean(unused, hpp)

    async def statuses(self, hpp: JsonObject, spec: HostPathProvisionerSpec) -> list[JsonObject]:
        """``status.storagePoolStatuses``. Raises PoolNotReady, StatusError."""
        if spec.path_config is not None:
            return [{"name": LEGACY_POOL, "phase": _READY}]
        found = []
        for pool in spec.storage_pools:
            entry: JsonObject = {"name": pool.name, "phase": _READY}
            if pool.pvc_template is not None:
                label = pools.label_of(pool.name)
                mounted = [
                    each
                    for each in self._owned(hpp)
                    if get_object(each, "metadata", "labels").get(pools.POOL_LABEL) == label
                ]
                entry["desiredReady"] = len(mounted)
                entry["currentReady"] = sum(get_int(each, "status", "readyReplicas") == 1 for each in mounted)
                entry["claimStatuses"] = await self._claims(label)
            found.append(entry)
        return sorted(found, key=lambda entry: get_str(entry, "name"))

    async def remove(self, hpp: JsonObject) -> str:
        """Unmount all pools; gives what is waited for; empty once only claims stay. Raises StatusError."""
        for deployment in self._owned(hpp):
            await self._clean(deployment, hpp)
        jobs = await self._jobs()
        unfinished = [meta.name(job) for job in jobs if not get_int(job, "status", "succeeded")]
        left = [*unfinished, *(meta.name(deployment) for deployment in self._owned(hpp))]
        if left:
            return f"pools are unmounted by {', '.join(left[:_SHOWN])}"
        await self._delete_jobs(jobs)
        return ""

    async def remove_finished_jobs(self) -> None:
        """Delete clean-up jobs once all of them have succeeded. Raises StatusError."""
        jobs = await self._jobs()
        if jobs and all(get_int(job, "status", "succeeded") for job in jobs):
            await self._delete_jobs(jobs)

    async def _clean(self, deployment: JsonObject, hpp: JsonObject) -> None:
        """Have a pool unmounted from a node, unless that is gone. The job comes first: it is the intent."""
        node = pools.node_of(deployment)
        if await self._exists(resources.NODES, node):
            await self._create(resources.JOBS, pools.cleanup_job(deployment, hpp, self._settings))
        await self._delete(resources.DEPLOYMENTS, deployment)

    async def _claims(self, label: str) -> list[JsonObject]:
        selector = f"k8s-app={NAME},{pools.POOL_LABEL}={label}"
        listed = await self._client.list(
            resources.PERSISTENT_VOLUME_CLAIMS, self._settings.namespace, label_selector=selector
        )
        found = []
        for claim in listed.get("items") or []:
            phase = get_str(claim, "status", "phase")
            if phase != "Bound":
                raise PoolNotReady(f"error: Pool PVC {meta.name(claim)} is {phase} instead of Bound")
            found.append({"name": meta.name(claim), "status": get_object(claim, "status")})
        return found

    async def _nodes(self) -> list[str]:
        """The nodes on which pods of the driver's DaemonSet run."""
        namespace = self._settings.namespace
        listed = await self._client.list(resources.PODS, namespace, label_selector=f"k8s-app={NAME}")
        return sorted(
            {
                get_str(pod, "spec", "nodeName")
                for pod in listed.get("items") or []
                if not meta.is_being_deleted(pod)
                and any(
                    get_str(owner, "kind") == "DaemonSet" and get_str(owner, "name") == CSI_NAME
                    for owner in meta.owner_references(pod)
                )
            }
            - {""}
        )

    def _owned(self, hpp: JsonObject) -> list[JsonObject]:
        return [each for each in self._deployments.list() if meta.is_controlled_by(each, hpp)]

    async def _jobs(self) -> list[JsonObject]:
        namespace = self._settings.namespace
        listed = await self._client.list(resources.JOBS, namespace, label_selector=HOSTPATH.selector)
        return list(listed.get("items") or [])

    async def _delete_jobs(self, jobs: list[JsonObject]) -> None:
        for job in jobs:
            await self._delete(resources.JOBS, job)

    async def _create(self, resource: ResourceType, document: JsonObject) -> None:
        """Create an object unless it exists; it is never changed."""
        try:
            await self._client.create(resource, with_last_applied(document))
        except errors.StatusError as error:
            if not errors.is_already_exists(error):
                raise

    async def _delete(self, resource: ResourceType, document: JsonObject) -> None:
        try:
            await self._client.delete(
                resource, meta.name(document), meta.namespace(document), propagation_policy="Background"
            )
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise

    async def _exists(self, resource: ResourceType, name: str) -> bool:
        try:
            await self._client.get(resource, name)
        except errors.StatusError as error:
            if errors.is_not_found(error):
                return False
            raise
        return True
