"""Follows how the claim of a DataVolume is filled."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kubecore.client import Client
from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import encode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import Informer
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims, progress
from virtplane.storage.cdi.controller.datavolume import documents
from virtplane.storage.cdi.controller.datavolume.decisions import Situation
from virtplane.storage.cdi.controller.datavolume.flows import Flow
from virtplane.storage.cdi.controller.pods import cloner
from virtplane.storage.cdi.controller.workers import checkpoints
from virtplane.storage.cdi.controller.workers.pods import Pod
from virtplane.storage.cdi.controller.workers.starting import claim_patch, is_own
from virtplane.storage.csi.parts import delete, patch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Following:
    """For the DataVolumes of one flow. `sources` are the objects that their claims name, where CDI fills
    them without asking anybody. All methods raise StatusError and ConnectionFailed.
    """

    client: Client
    flow: Flow
    sources: Informer[JsonObject] | None
    pods: Informer[Pod]
    scraper: progress.Progress

    async def is_expected(self, volume: DataVolume, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim is bound to a volume that was made for it; another one is given back."""
        expected = documents.expected_volumes(claim)
        bound_to = claim.spec.volume_name
        if expected is None or not bound_to or not claims.is_bound(claim):
            return True
        if bound_to in expected:
            found = {names.POPULATED_FOR: volume.metadata.name, names.PERSISTENT_VOLUME_LIST: None}
            await patch(self.client, PERSISTENT_VOLUME_CLAIMS, claim, claim_patch(claim, found))
            return False  # its event brings the DataVolume back
        logger.error(
            "DataVolume bound to unexpected PV %s: claim %s/%s is deleted",
            bound_to,
            claim.metadata.namespace,
            claim.metadata.name,
        )
        await delete(self.client, PERSISTENT_VOLUME_CLAIMS, claim)
        return False

    async def stage(self, situation: Situation, claim: PersistentVolumeClaim) -> bool:
        """Begin the next stage of a multi-stage import; whether something was written. Raises StatusError."""
        volume, kind = situation.volume, self.flow.source
        if not volume.spec.checkpoints or kind is None:
            return False
        if not situation.uses_populator:
            operations = claim_patch(claim, checkpoints.next_stage(claim, documents.stages(volume)))
            await patch(self.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
            return bool(operations)
        name, namespace = self.flow.source_name(volume.metadata.uid), volume.metadata.namespace
        source = self.sources.get(namespace, name) if self.sources is not None else None
        if source is None:
            return False
        checkpoints_wanted = [encode(each) for each in volume.spec.checkpoints]
        wanted = {"checkpoints": checkpoints_wanted, "finalCheckpoint": bool(volume.spec.final_checkpoint)}
        spec = get_object(source, "spec")
        if {"finalCheckpoint": False, **{key: spec[key] for key in wanted if key in spec}} == wanted:
            return False
        await self.client.patch(kind, name, {"spec": wanted}, namespace, type="merge")
        return True

    async def percent(self, situation: Situation, claim: PersistentVolumeClaim) -> str | None:
        """What the worker says where no populator asks it."""
        if situation.uses_populator or not self.flow.has_progress:
            return None
        if claims.value(claim, names.POD_PHASE) != claims.RUNNING:
            return None
        if self.flow.is_clone:
            return await self._percent_sent(claim)
        pod = self.pods.get(claim.metadata.namespace, claims.value(claim, names.IMPORT_POD))
        if pod is None or not is_own(pod, claim) or not pod.status.pod_ip:
            return None
        return await self.scraper.percent(pod.status.pod_ip, claim.metadata.uid)

    async def _percent_sent(self, claim: PersistentVolumeClaim) -> str | None:
        """What the pod says that sends the source of a clone."""
        source = cloner.requested_source(claim)
        name = cdi_names.clone_source_pod(claim.metadata.uid)
        pod = self.pods.get(source[0], name) if source is not None else None
        if pod is None or not pod.status.pod_ip:
            return None
        return await self.scraper.percent(pod.status.pod_ip, cloner.owner_uid(claim))
