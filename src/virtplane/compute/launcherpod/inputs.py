"""The inputs of rendering a launcher pod."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

from kubecore.json import JsonObject
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.devices import Devices
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.compute.hotplug import hotplugged_volumes

PROGRAMS = "/usr/bin"
"""The folder of the product's programs in the launcher's image, as KubeVirt's."""

_LABEL_LIMIT = 63


@dataclass(frozen=True, slots=True)
class Images:
    """References of the product's own images."""

    launcher: str
    sidecar: str
    exporter: str = ""

    def of(self, settings: ClusterConfig) -> Images:
        """The same from the registry and with the tag that the installation names."""
        return Images(*(settings.image(each) if each else "" for each in astuple(self)))


@dataclass(frozen=True, slots=True)
class RenderInputs:
    """The instance and the objects that it refers to; objects that do not exist are missing in the
    mappings.
    """

    vmi: VirtualMachineInstance
    settings: ClusterConfig
    images: Images
    claims: Mapping[str, JsonObject] = field(default_factory=dict)
    """PersistentVolumeClaims of the instance's namespace by name."""
    namespace: JsonObject = field(default_factory=dict)
    quotas: Sequence[JsonObject] = ()
    """ResourceQuotas of the instance's namespace."""
    state_claim: str = ""
    """The claim that keeps firmware variables and TPM state; empty when there is none."""
    image_digests: Mapping[str, str] = field(default_factory=dict)
    """Volume name to pinned image reference (migration targets run what the source runs)."""
    qemu_timeout_seconds: int = 240
    network_resources: Mapping[str, str] = field(default_factory=dict)
    """The resources of the node's devices that networks need, by network."""
    nodes_mount_images: bool = True
    """Whether API server and nodes support image volumes."""

    @property
    def uses_image_volumes(self) -> bool:
        """Whether the guest's images are image volumes of the pod; else each is held by a container."""
        return self.nodes_mount_images and self.settings.gate("ImageVolume")

    @property
    def spec(self) -> VirtualMachineInstanceSpec:
        """The instance's spec."""
        return self.vmi.spec

    @property
    def domain(self) -> DomainSpec:
        """The instance's ``spec.domain``."""
        return self.vmi.spec.domain

    @property
    def devices(self) -> Devices:
        """The instance's ``spec.domain.devices``."""
        return self.vmi.spec.domain.devices

    @property
    def name(self) -> str:
        """The instance's name."""
        return self.vmi.metadata.name

    @property
    def namespace_name(self) -> str:
        """The instance's namespace."""
        return self.vmi.metadata.namespace

    @property
    def uid(self) -> str:
        """The instance's uid."""
        return self.vmi.metadata.uid

    @property
    def annotations(self) -> Mapping[str, str]:
        """The instance's annotations."""
        return self.vmi.metadata.annotations

    @property
    def architecture(self) -> str:
        """The guest's architecture."""
        return self.spec.architecture or self.settings.default_architecture

    @property
    def volumes(self) -> list[Volume]:
        """The instance's volumes that are volumes of the launcher pod: all except hotplugged ones."""
        hotplugged = hotplugged_volumes(self.vmi)
        return [volume for volume in self.spec.volumes if volume.name not in hotplugged]

    @property
    def is_root(self) -> bool:
        """Whether the launcher runs as root (gate Root, or an instance started when it was on)."""
        user = self.vmi.status.runtime_user
        return self.settings.gate("Root") if user is None else user == 0

    @property
    def is_dedicated(self) -> bool:
        """Whether the guest's CPUs are pinned to exclusive ones."""
        return bool(self.domain.cpu.dedicated_cpu_placement)

    @property
    def hostname(self) -> str:
        """The host name of pod and guest: spec.hostname, else the first label of the name."""
        return self.spec.hostname or self.name.split(".", maxsplit=1)[0][:_LABEL_LIMIT].rstrip("-")


def label_sized(name: str) -> str:
    """`name` as a label value: a long one is truncated and ends in eight digits of its SHA-1."""
    if len(name) <= _LABEL_LIMIT:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{name[: _LABEL_LIMIT - len(digest) - 1]}-{digest}"
