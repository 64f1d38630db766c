"""Whether a claim may be read as the source of a clone: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller.workers.pods import Pod

SOURCE_IN_USE = "CloneSourceInUse"
_SUCCEEDED = "Succeeded"
_SOURCE_POD_SUFFIX = "-source-pod"


@dataclass(frozen=True, slots=True)
class Users:
    """The pods that use a claim."""

    claim: str
    pods: tuple[Pod, ...]

    def all(self) -> list[Pod]:
        """Those that run or will run."""
        return sorted((pod for pod in self.pods if not pod.has_ended), key=lambda pod: pod.metadata.name)

    def writing(self) -> list[Pod]:
        """Those of them that may write to it."""
        return [pod for pod in self.all() if _may_write(pod, self.claim)]

    def in_use(self, pod: Pod) -> str:
        """What users are told of one of them."""
        return f"pod {pod.metadata.namespace}/{pod.metadata.name} using PersistentVolumeClaim {self.claim}"


def _may_write(pod: Pod, claim: str) -> bool:
    if is_source_pod(pod):
        return False  # it only reads, though drivers may not let it have a device for reading
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for volume in pod.spec.volumes:
        used = volume.persistent_volume_claim
        if used is None or used.claim_name != claim or used.read_only:
            continue
        mounts = (mount for each in containers for mount in each.volume_mounts)
        if any(mount.name == volume.name and not mount.read_only for mount in mounts):
            return True
        if any(device.name == volume.name for each in containers for device in each.volume_devices):
            return True
    return False


def is_source_pod(pod: Pod) -> bool:
    """Whether the pod sends the source of a clone by pods."""
    metadata = pod.metadata
    is_named_so = metadata.name.endswith(_SOURCE_POD_SUFFIX)
    return is_named_so and metadata.labels.get(names.COMPONENT) == names.CLONE_SOURCE


def is_populated(claim: PersistentVolumeClaim, volume: DataVolume | None) -> bool:
    """Whether the claim holds its content: that of a DataVolume once that has succeeded."""
    owner = claim.metadata.controller
    if owner is None or owner.kind != resources.DATA_VOLUMES.kind:
        return True
    return volume is not None and volume.metadata.uid == owner.uid and volume.status.phase == _SUCCEEDED
