"""Reconciles the KubeVirt object: one object in, the whole installation out."""

from __future__ import annotations

import hashlib
import logging
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import orjson

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import ResourceType
from kubecore.runtime import DONE, Key, RequeueAfter, Result
from kubecore.runtime.informer import Informer
from virtplane.api import event_reasons as reasons
from virtplane.api import labels, volumegroupsnapshot_crds, volumesnapshot_crds
from virtplane.api import resources as api
from virtplane.api.config import LastGood
from virtplane.api.paths import KUBELET_ROOT
from virtplane.operators.kit import certificates
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.customize import BadCustomization
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kit.removal import Remover
from virtplane.operators.kit.status import (
    DELETING,
    DEPLOYED,
    Stage,
    is_daemon_set_ready,
    is_deployment_ready,
    registry_of,
)
from virtplane.operators.kubevirt import status
from virtplane.operators.kubevirt.certificates import CA, CERTIFICATES, lifetimes
from virtplane.operators.kubevirt.constraints import keep_constraints, remove_constraints
from virtplane.operators.kubevirt.monitor import keep_monitor, keep_rules, remove_monitor, remove_rules
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.alerts import DEFAULT_RUNBOOK_URL
from virtplane.operators.kubevirt.strategy.installation import installation, user_patches
from virtplane.operators.kubevirt.strategy.parameters import Layout, Parameters

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""How soon to look again while components start: those of this process are in no informer."""
RESYNC_SECONDS = 300.0
_CONTENT_AT_ONCE = 8
"""Hundreds of objects that do not depend on each other wait for the API server together."""

_OWN_KINDS = (api.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES, api.VIRTUAL_MACHINE_CLUSTER_PREFERENCES)
"""Not watched: these exist only once the operator defined them."""
_WORKLOADS: tuple[ResourceType, ...] = (
    api.VIRTUAL_MACHINE_POOLS,
    api.VIRTUAL_MACHINES,
    api.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS,
    api.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS,
    api.VIRTUAL_MACHINE_INSTANCES,
)

_OUTDATED = "outdatedVirtualMachineInstanceWorkloads"
"""virt-controller counts: a number in the cache may be an old one."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the operator's process."""

    namespace: str
    image: str
    layout: Layout
    version: str
    kubelet_root: str = KUBELET_ROOT
    require_webhook_certificate: bool = False
    runbook_url: str = DEFAULT_RUNBOOK_URL
    """Where the alerts are explained; ``%s`` is an alert's name."""
    guestfs_image: str = ""
    """The image of ``virtctl guestfs``, if it is not beside the product's."""
    sidecar_image: str = ""


@dataclass(slots=True)
class Caches:
    """The caches that the controller reads."""

    kubevirts: Informer
    nodes: Informer
    managed: dict[ResourceType, Informer]


class KubeVirtController:
    """Reconciles one key (the KubeVirt object's) and with it the installation."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        settings: Settings,
        *,
        now: Callable[[], datetime],
        is_ready: Callable[[], bool],
    ) -> None:
        """`is_ready` says whether the components in this process are ready."""
        self._client = client
        self._caches = caches
        self._settings = settings
        self._now = now
        self._is_ready = is_ready
        self._applier = Applier(client, KUBEVIRT, caches.managed, _OWN_KINDS)
        self._remover = Remover(client, self._applier, _WORKLOADS, (resources.PRIORITY_CLASSES,))
        self._configuration = LastGood()

    async def reconcile(self, key: Key) -> Result:
        """Bring the installation towards the state of the object, as far as possible now."""
        namespace, name = key
        kubevirt = self._caches.kubevirts.get(namespace, name)
        if kubevirt is None:
            return DONE
        if not self._is_ours(kubevirt):
            await self._report_existing(kubevirt)
            return DONE
        if meta.is_being_deleted(kubevirt):
            return await self._remove(kubevirt)
        kubevirt = await self._prepare(kubevirt)
        try:
            return await self._install(kubevirt)
        except (BadCustomization, UnfitDocument) as error:
            await self._report_failure(kubevirt, str(error))
            return DONE
        except errors.StatusError as error:
            await self._report_failure(kubevirt, str(error))
            raise

    # Steps.

    async def _prepare(self, kubevirt: JsonObject) -> JsonObject:
        """Set finalizer, annotations and the first phase."""
        document = deep_copy(kubevirt)
        annotations = document["metadata"].setdefault("annotations", {})
        wanted = {labels.LATEST_API_VERSION: "v1", labels.STORAGE_API_VERSION: "v1"}
        changed = meta.add_finalizer(document, labels.FINALIZER_KUBEVIRT)
        if changed or any(annotations.get(key) != value for key, value in wanted.items()):
            annotations.update(wanted)
            patch = {"metadata": {"annotations": wanted, "finalizers": meta.finalizers(document)}}
            document = await self._client.patch(
                api.KUBEVIRTS, meta.name(document), patch, meta.namespace(document), type="merge"
            )
        if not get_str(document, "status", "phase"):
            document = await self._report(document, "deploying")
        return document

    async def _install(self, kubevirt: JsonObject) -> Result:
        plan = await self._certificates(kubevirt)
        parameters = self._parameters(kubevirt, plan.ca_bundle)
        wanted = installation(parameters)
        await self._offer_snapshots()
        self._applier.customize = user_patches(get_object(kubevirt, "spec"))
        await self._applier.apply_all(wanted.foundation)
        await keep_constraints(self._client, parameters)
        written = await self._applier.apply_all(wanted.components)
        if written or not self._are_components_ready(wanted):
            await self._report(kubevirt, self._stage(kubevirt))
            return RequeueAfter(RETRY_SECONDS)
        await self._applier.apply_all(wanted.entry)
        await self._withdraw(wanted.withdrawn)
        await self._applier.apply_all(wanted.content, at_once=_CONTENT_AT_ONCE)
        await keep_monitor(self._client, parameters)
        await keep_rules(self._client, parameters, self._settings.runbook_url)
        await self._report(kubevirt, "ready")
        until_renewal = (plan.next_renewal - self._now()).total_seconds()
        return RequeueAfter(max(1.0, min(RESYNC_SECONDS, until_renewal)))

    async def _withdraw(self, objects: Iterable[JsonObject]) -> None:
        """Delete what the settings do not ask for any more, as far as it is ours."""
        for document in reversed(tuple(objects)):
            informer = self._caches.managed.get(self._applier.resource_of(document))
            if informer is not None and informer.get(*_key(document)) is not None:
                await self._applier.delete(document)

    async def _offer_snapshots(self) -> None:
        """Install the snapshot API where the cluster has none. It stays when the installation goes: it holds
        its users' data, and who runs another snapshot controller takes it over.
        """
        if await self._offer(volumesnapshot_crds.custom_resource_definitions()):
            await self._offer(volumegroupsnapshot_crds.custom_resource_definitions())

    async def _offer(self, wanted: list[JsonObject]) -> bool:
        """Install these definitions unless somebody else has installed one; gives whether they are ours."""
        present: list[JsonObject] = []
        for document in wanted:
            with errors.ignoring(404):
                name = meta.name(document)
                present.append(await self._client.get(resources.CUSTOM_RESOURCE_DEFINITIONS, name))
        if not all(map(volumesnapshot_crds.is_ours, present)):
            return False
        applier = Applier(self._client, KUBEVIRT)
        for document in wanted:
            await applier.apply(document)
        return True

    async def _certificates(self, kubevirt: JsonObject) -> certificates.CertificatePlan:
        """Issue and renew certificates, and publish the authorities."""
        namespace = self._settings.namespace
        marks = self._version(kubevirt).marks
        plan = certificates.plan(
            CERTIFICATES,
            await self._by_name(resources.SECRETS, namespace),
            {
                name: get_str(document, "data", certificates.BUNDLE_KEY)
                for name, document in (await self._by_name(resources.CONFIG_MAPS, namespace)).items()
            },
            namespace,
            lifetimes(get_object(kubevirt, "spec")),
            self._now(),
        )
        for document in (*plan.secrets, *plan.bundles):
            KUBEVIRT.mark_managed(document, get_object(kubevirt, "spec"), marks)
            await self._applier.apply(document)
        return plan

    async def _remove(self, kubevirt: JsonObject) -> Result:
        if labels.FINALIZER_KUBEVIRT not in meta.finalizers(kubevirt):
            return DONE
        if get_str(kubevirt, "status", "phase") != DELETING:
            kubevirt = await self._report(kubevirt, "deleting")
        found = self._caches.managed[resources.CONFIG_MAPS].get(self._settings.namespace, CA)
        bundle = get_str(found, "data", certificates.BUNDLE_KEY)
        wanted = installation(self._parameters(kubevirt, bundle))
        if left := await self._remover.remove(wanted, self._settings.namespace):
            waiting = status.waiting(get_object(kubevirt, "status"), left, times.now_rfc3339())
            await self._write_status(kubevirt, waiting)
            return RequeueAfter(RETRY_SECONDS)
        await remove_constraints(self._client)
        await remove_monitor(self._client)
        await remove_rules(self._client)
        gone = deep_copy(kubevirt)
        meta.remove_finalizer(gone, labels.FINALIZER_KUBEVIRT)
        patch = {"metadata": {"finalizers": meta.finalizers(gone) or None}}
        await self._client.patch(api.KUBEVIRTS, meta.name(gone), patch, meta.namespace(gone), type="merge")
        return DONE

    # Reading and reporting.

    def _is_ours(self, kubevirt: JsonObject) -> bool:
        """Whether the object is the oldest of the operator's namespace: others are ignored."""
        if meta.namespace(kubevirt) != self._settings.namespace:
            return False
        candidates = self._caches.kubevirts.list(self._settings.namespace)
        oldest = min(
            candidates, key=lambda one: (get_str(one, "metadata", "creationTimestamp"), meta.uid(one))
        )
        return meta.uid(oldest) == meta.uid(kubevirt)

    def _are_components_ready(self, wanted: Installation) -> bool:
        if not self._is_ready():
            return False
        for document in wanted.components:
            resource = self._applier.resource_of(document)
            informer = self._caches.managed.get(resource)
            live = informer.get(*_key(document)) if informer else None
            if resource is resources.DEPLOYMENTS and not is_deployment_ready(live):
                return False
            if resource is resources.DAEMON_SETS and not is_daemon_set_ready(live):
                return False
        return True

    def _stage(self, kubevirt: JsonObject) -> Stage:
        deployed = get_str(kubevirt, "status", "phase") == DEPLOYED
        return "updating" if deployed else "deploying"

    async def _report(self, kubevirt: JsonObject, stage: Stage) -> JsonObject:
        reported = status.next_status(
            get_object(kubevirt, "status"),
            stage,
            self._version(kubevirt),
            meta_generation(kubevirt),
            times.now_rfc3339(),
        )
        reported["defaultArchitecture"] = _default_architecture(kubevirt)
        if stage == "ready":
            reported["generations"] = status.generations(
                (resource, informer.list()) for resource, informer in self._caches.managed.items()
            )
        return await self._write_status(kubevirt, reported)

    async def _report_failure(self, kubevirt: JsonObject, message: str) -> None:
        current = get_object(kubevirt, "status")
        failed = status.failed_status(current, reasons.DEPLOYMENT_FAILED, message, times.now_rfc3339())
        await self._write_status(kubevirt, failed)

    async def _report_existing(self, kubevirt: JsonObject) -> None:
        reported = status.failed_status(
            get_object(kubevirt, "status"),
            reasons.EXISTING_DEPLOYMENT,
            "There is an active KubeVirt deployment",
            times.now_rfc3339(),
        )
        await self._write_status(kubevirt, reported)

    async def _write_status(self, kubevirt: JsonObject, reported: JsonObject) -> JsonObject:
        if reported == get_object(kubevirt, "status"):
            return kubevirt
        reported = {name: value for name, value in reported.items() if name != _OUTDATED}
        return await self._client.patch(
            api.KUBEVIRTS,
            meta.name(kubevirt),
            {"status": reported},
            meta.namespace(kubevirt),
            type="merge",
            subresource="status",
        )

    async def _by_name(self, resource: ResourceType, namespace: str) -> dict[str, JsonObject]:
        """Read from the API server, not from the cache: a certificate must never be issued twice."""
        found = await self._client.list(resource, namespace, label_selector=KUBEVIRT.selector)
        return {meta.name(document): document for document in found.get("items") or []}

    def _parameters(self, kubevirt: JsonObject, ca_bundle: str) -> Parameters:
        spec = get_object(kubevirt, "spec")
        return Parameters(
            namespace=self._settings.namespace,
            image=self._configuration.of(kubevirt).image(self._settings.image),
            layout=self._settings.layout,
            config=self._configuration.of(kubevirt),
            ca_bundle=ca_bundle,
            spec=spec,
            marks=self._version(kubevirt).marks,
            generation=meta_generation(kubevirt),
            nodes=sum(1 for node in self._caches.nodes.list() if _is_schedulable(node)),
            pull_policy=get_str(spec, "imagePullPolicy") or "IfNotPresent",
            kubelet_root=self._settings.kubelet_root,
            require_webhook_certificate=self._settings.require_webhook_certificate,
            sidecar_image=self._settings.sidecar_image,
        )

    def _version(self, kubevirt: JsonObject) -> status.Version:
        configuration = self._configuration.of(kubevirt)
        image = configuration.image(self._settings.image)
        config = {
            "id": "",
            "namespace": self._settings.namespace,
            "registry": registry_of(image),
            "layout": self._settings.layout,
            "image": image,
            "kubeletRoot": self._settings.kubelet_root,
        }
        if self._settings.guestfs_image:
            config["gsImage"] = self._settings.guestfs_image
        config["id"] = hashlib.sha1(
            orjson.dumps(config, option=orjson.OPT_SORT_KEYS), usedforsecurity=False
        ).hexdigest()
        return status.Version(
            configuration.image_tag or self._settings.version,
            config["registry"],
            config["id"],
            orjson.dumps(config).decode(),
            operator=self._settings.version,
        )


def _default_architecture(kubevirt: JsonObject) -> str:
    """Of machines that name none: the configured one, else what the status says, else that of this node."""
    configured = get_str(
        kubevirt, "spec", "configuration", "architectureConfiguration", "defaultArchitecture"
    )
    machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return configured or get_str(kubevirt, "status", "defaultArchitecture") or machine


def meta_generation(document: JsonObject) -> int:
    """The object's generation."""
    generation = get_object(document, "metadata").get("generation")
    return generation if isinstance(generation, int) else 0


def kubevirt_keys(informer: Informer) -> Callable[[JsonObject], Iterable[Key]]:
    """Maps any object to the keys of all KubeVirt objects."""

    def keys(_: JsonObject) -> Iterable[Key]:
        return [(meta.namespace(kubevirt), meta.name(kubevirt)) for kubevirt in informer.list()]

    return keys


def _key(document: JsonObject) -> tuple[str, str]:
    return meta.namespace(document), meta.name(document)


def _is_schedulable(node: JsonObject) -> bool:
    if get_object(node, "spec").get("unschedulable"):
        return False
    taints = get_object(node, "spec").get("taints") or []
    return not any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in taints)
