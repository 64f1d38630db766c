"""The settings by which claims are rendered and worker pods are made: CDI, CDIConfig, classes, profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubecore.resources import CSI_DRIVERS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from kubecore.runtime import Informer, Manager
from virtplane.api import resources as kinds
from virtplane.api.cdi_names import CONFIG
from virtplane.api.cdi_v1beta1.cdi import CDI, CDICertConfig, CDISpec
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig, ImportProxy
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.core_v1 import ResourceRequirements
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.serving.tls import TLSSettings
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller.installation import active, recommended_labels
from virtplane.storage.cdi.controller.pods.scratch import scratch_size
from virtplane.storage.cdi.controller.pods.worker import Workers, is_block
from virtplane.storage.cdi.tls import chosen

HONOR_WAITING = "HonorWaitForFirstConsumer"
CLAIM_ADOPTION = "DataVolumeClaimAdoption"


class CSIDriver(ApiStruct, kw_only=True):
    """A CSI driver that is installed; its name is that of the provisioner."""

    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True, slots=True)
class Programs:
    """The images of the worker pods, and their commands where an image has several programs.

    `commands` are by the names of containers.
    """

    importer_image: str
    cloner_image: str
    upload_server_image: str
    commands: Mapping[str, list[str]] = field(default_factory=dict)


class Settings:
    """Reads the settings from caches, which all controllers share."""

    def __init__(self, manager: Manager, programs: Programs) -> None:
        self._programs = programs
        self.configs: Informer[CDIConfig] = manager.informer(kinds.CDI_CONFIGS, struct=CDIConfig)
        self.installations: Informer[CDI] = manager.informer(kinds.CDIS, struct=CDI)
        self.classes: Informer[StorageClass] = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        self.profiles: Informer[StorageProfile] = manager.informer(
            kinds.STORAGE_PROFILES, struct=StorageProfile
        )
        self.volumes: Informer[PersistentVolume] = manager.informer(
            PERSISTENT_VOLUMES, struct=PersistentVolume
        )
        self._drivers: Informer[CSIDriver] = manager.informer(CSI_DRIVERS, struct=CSIDriver)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """What controllers wait for before they work."""
        return (
            self.configs,
            self.installations,
            self.classes,
            self.profiles,
            self.volumes,
            self._drivers,
        )

    def config(self) -> CDIConfig:
        """The one CDIConfig; one without any setting before there is one."""
        return self.configs.get("", CONFIG) or CDIConfig()

    def has_gate(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return gate in self.config().spec.feature_gates

    @property
    def honors_waiting(self) -> bool:
        """Whether claims without volume wait for the pod of their user."""
        return self.has_gate(HONOR_WAITING)

    @property
    def proxy(self) -> ImportProxy:
        """The proxy through which importers reach their sources."""
        return self.config().status.import_proxy or ImportProxy()

    @property
    def preallocates(self) -> bool:
        """Whether volumes are preallocated where nobody says otherwise."""
        return bool(self.config().status.preallocation)

    @property
    def tls(self) -> TLSSettings:
        """The versions of TLS and the ciphers of upload servers."""
        return chosen(self.config().spec.tls_security_profile)

    @property
    def certificates(self) -> CDICertConfig:
        """How long certificates live."""
        installation = active(self.installations)
        return installation.spec.cert_config if installation is not None else CDICertConfig()

    @property
    def labels(self) -> dict[str, str]:
        """The labels of everything that the controllers make."""
        return recommended_labels(active(self.installations))

    def storage(self) -> rendering.Storage:
        """What rendering reads of the cluster."""
        return rendering.Storage(
            self.classes.list(),
            {each.metadata.name: each for each in self.profiles.list()},
            self.configs.get("", CONFIG),
            self.volumes.list(),
        )

    def storage_class(self, name: str | None) -> StorageClass | None:
        """A storage class."""
        return self.classes.get("", name) if name else None

    def class_or_default(self, name: str | None) -> StorageClass | None:
        """The class `name`, or the one that claims without any get. A claim's spec that is "" wants none."""
        return rendering.storage_class(self.storage(), name, rendering.ARCHIVE)

    def has_driver(self, storage_class: StorageClass | None) -> bool:
        """Whether a CSI driver provides the volumes of a class."""
        return storage_class is not None and self._drivers.get("", storage_class.provisioner) is not None

    def overhead(self, claim: PersistentVolumeClaim) -> float:
        """The share of the claim's volume that its file system takes."""
        if is_block(claim):
            return 0.0
        return rendering.overhead(self.storage(), claim.spec.storage_class_name)

    def overhead_text(self, claim: PersistentVolumeClaim) -> str:
        """The same as worker programs read it."""
        return f"{self.overhead(claim):g}"

    def scratch(self, claim: PersistentVolumeClaim) -> tuple[str | None, int]:
        """The class (None for the default one) and the bytes of the claim's scratch space."""
        name = self.config().status.scratch_space_storage_class or claim.spec.storage_class_name
        share = rendering.overhead(self.storage(), name)
        return name, scratch_size(claim, self.overhead(claim), share)

    def workers(self) -> Workers:
        """How worker pods are made now."""
        config, installation = self.config(), active(self.installations)
        wanted = installation.spec if installation is not None else CDISpec()
        verbosity = config.spec.log_verbosity
        return Workers(
            self._programs.importer_image,
            self._programs.cloner_image,
            self._programs.upload_server_image,
            pull_policy=wanted.image_pull_policy or "IfNotPresent",
            verbosity=str(verbosity if verbosity is not None else 1),
            resources=config.status.default_pod_resource_requirements or ResourceRequirements(),
            pull_secrets=config.status.image_pull_secrets,
            placement=wanted.workload,
            recommended_labels=self.labels,
            insecure_registries=frozenset(config.spec.insecure_registries),
            commands=dict(self._programs.commands),
        )
