"""Pods, as far as controllers of data volumes read them. Tenants may have written any of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import field as member

from kubecore.objects.names import is_label_value, is_qualified_name
from kubecore.resources import PODS
from kubecore.runtime import Informer, Manager
from virtplane.api import cdi_labels as names
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta

_MOST_LABELS = 64
_LONGEST_TEXT = 4096
"""What a kubelet keeps of a termination message."""


class Waiting(ApiStruct, kw_only=True):
    """Why a container does not run yet."""

    message: str = ""
    reason: str = ""


class Running(ApiStruct, kw_only=True):
    """The container runs."""


class Terminated(ApiStruct, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    message: str = ""
    reason: str = ""


class ContainerState(ApiStruct, kw_only=True):
    """What a container does; at most one member is set."""

    running: Running | None = None
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(ApiStruct, kw_only=True):
    """One container."""

    image: str = ""
    last_state: ContainerState = ContainerState()
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodCondition(ApiStruct, kw_only=True):
    """One observed aspect of a pod."""

    reason: str = ""
    status: str = ""
    type: str = ""


class PodStatus(ApiStruct, kw_only=True):
    """What the kubelet says."""

    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    phase: str = ""
    pod_ip: str = member(default="", name="podIP")
    reason: str = ""
    """Set where the pod was ended from outside, as by an eviction."""


class ClaimVolume(ApiStruct, kw_only=True):
    """A claim that a pod uses."""

    claim_name: str = ""
    read_only: bool = False


class Volume(ApiStruct, kw_only=True):
    """A volume of a pod."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None


class VolumeMount(ApiStruct, kw_only=True):
    """A volume that a container sees as a directory."""

    name: str = ""
    read_only: bool = False


class VolumeDevice(ApiStruct, kw_only=True):
    """A volume that a container sees as a device."""

    name: str = ""


class Container(ApiStruct, kw_only=True):
    """What a container sees of the pod's volumes."""

    volume_devices: tuple[VolumeDevice, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class SchedulingGate(ApiStruct, kw_only=True):
    """What keeps a pod from being scheduled."""

    name: str = ""


class PodSpec(ApiStruct, kw_only=True):
    """Which claims a pod uses, and where it runs."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()


class Pod(ApiStruct, kw_only=True):
    """A pod."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def has_ended(self) -> bool:
        """Whether no container of the pod runs again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_pending(self) -> bool:
        """Whether no container of the pod has run yet."""
        return self.status.phase in ("", "Pending")

    @property
    def is_gated(self) -> bool:
        """Whether it waits for its controller to look once more whether its claim needs it."""
        return any(each.name == names.WORKER_GATE for each in self.spec.scheduling_gates)

    def container(self, name: str) -> ContainerStatus | None:
        """The status of a container."""
        return next((each for each in self.status.container_statuses if each.name == name), None)

    def condition(self, type: str) -> PodCondition | None:
        """A condition."""
        return next((each for each in self.status.conditions if each.type == type), None)


def used_claims(pod: Pod) -> Iterable[str]:
    """``namespace/name`` of the claims that a pod uses."""
    volumes = [each.persistent_volume_claim for each in pod.spec.volumes]
    return [f"{pod.metadata.namespace}/{each.claim_name}" for each in volumes if each is not None]


def pod_informer(manager: Manager) -> Informer[Pod]:
    """All pods, by the claims that they use."""
    return manager.informer(PODS, indexers={"claim": used_claims}, struct=Pod)


@dataclass(frozen=True, slots=True)
class Termination:
    """What a worker says as it ends; `message` is for the user."""

    message: str = ""
    scratch_space_required: bool = False
    preallocation_applied: bool = False
    deadline_passed: bool = False
    vddk: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def termination(terminated: Terminated) -> Termination:
    """What a worker said: JSON where it ended well, else text. Labels that none can have are left out."""
    text = terminated.message[:_LONGEST_TEXT]
    if terminated.exit_code:
        return Termination(text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Termination(text)
    if not isinstance(document, dict):
        return Termination(text)
    return Termination(
        message=_text(document.get("message")),
        scratch_space_required=document.get("scratchSpaceRequired") is True,
        preallocation_applied=document.get("preallocationApplied") is True,
        deadline_passed=document.get("deadlinePassed") is True,
        vddk={key: _text(value) for key, value in _object(document.get("vddkInfo")).items()},
        labels=_labels(_object(document.get("labels"))),
    )


def _labels(found: dict[str, Any]) -> dict[str, str]:
    usable = {
        key: value
        for key, value in found.items()
        if isinstance(value, str) and not is_qualified_name(key) and not is_label_value(value)
    }
    return dict(sorted(usable.items())[:_MOST_LABELS])


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""
