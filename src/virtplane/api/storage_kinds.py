"""Kinds of Kubernetes' storage, as far as controllers read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from virtplane.api.affinity_v1 import NodeSelector
from virtplane.api.core_v1 import PersistentVolumeClaimSpec
from virtplane.api.markers import ApiStruct, Quantity
from virtplane.api.meta_v1 import ObjectMeta

Resources = Mapping[str, Quantity]
"""Amounts by resource; those of storage are under ``storage``."""


class PersistentVolumeClaimStatus(ApiStruct, kw_only=True):
    """Whether the claim has its volume, how large it is, and how far growing it is."""

    allocated_resource_statuses: Mapping[str, str] = field(default_factory=dict)
    allocated_resources: Resources = field(default_factory=dict)
    capacity: Resources = field(default_factory=dict)
    conditions: tuple[Mapping[str, Any], ...] = ()
    phase: str = ""


class PersistentVolumeClaim(ApiStruct, kw_only=True):
    """A claim of storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def block(self) -> bool:
        """Whether a raw device is asked for."""
        return self.spec.volume_mode == "Block"


class ObjectReference(ApiStruct, kw_only=True):
    """One object, with the uid that tells it from an earlier one of its name."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class SecretReference(ApiStruct, kw_only=True):
    """A secret of any namespace."""

    name: str = ""
    namespace: str = ""


class CSIPersistentVolumeSource(ApiStruct, kw_only=True):
    """A volume of a CSI driver."""

    controller_expand_secret_ref: SecretReference | None = None
    controller_publish_secret_ref: SecretReference | None = None
    driver: str = ""
    fs_type: str = ""
    read_only: bool = False
    volume_attributes: Mapping[str, str] = field(default_factory=dict)
    volume_handle: str = ""


class VolumeNodeAffinity(ApiStruct, kw_only=True):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiStruct, kw_only=True):
    """A volume, and who may use it."""

    access_modes: tuple[str, ...] = ()
    capacity: Resources = field(default_factory=dict)
    claim_ref: ObjectReference | None = None
    csi: CSIPersistentVolumeSource | None = None
    mount_options: tuple[str, ...] = ()
    node_affinity: VolumeNodeAffinity | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str = ""


class PersistentVolumeStatus(ApiStruct, kw_only=True):
    """Whether a claim has the volume."""

    phase: str = ""


class PersistentVolume(ApiStruct, kw_only=True):
    """A volume of the cluster."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(ApiStruct, kw_only=True):
    """A label of a node, with one of the values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, kw_only=True):
    """Labels that a node must all have."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiStruct, kw_only=True):
    """Who provides volumes, how, and whether at once or when they are first used."""

    allow_volume_expansion: bool = False
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    metadata: ObjectMeta = ObjectMeta()
    mount_options: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    provisioner: str = ""
    reclaim_policy: str = ""
    volume_binding_mode: str = ""

    @property
    def waits_for_consumer(self) -> bool:
        """Whether the node of the first pod is chosen before a volume is made."""
        return self.volume_binding_mode == "WaitForFirstConsumer"


class CSINodeDriver(ApiStruct, kw_only=True):
    """A driver on a node."""

    name: str = ""
    node_id: str = field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()


class CSINodeSpec(ApiStruct, kw_only=True):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiStruct, kw_only=True):
    """What a kubelet says of the drivers on its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()

    def driver(self, name: str) -> CSINodeDriver | None:
        """The driver `name` on the node."""
        return next((driver for driver in self.spec.drivers if driver.name == name), None)


class LabelledNode(ApiStruct, kw_only=True):
    """A node and its labels."""

    metadata: ObjectMeta = ObjectMeta()


class VolumeAttachmentSource(ApiStruct, kw_only=True):
    """The volume to attach."""

    inline_volume_spec: PersistentVolumeSpec | None = None
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiStruct, kw_only=True):
    """Which driver attaches which volume to which node."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(ApiStruct, kw_only=True):
    """Whether the volume is attached."""

    attached: bool = False


class VolumeAttachment(ApiStruct, kw_only=True):
    """A volume that is, or is to be, attached to a node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
