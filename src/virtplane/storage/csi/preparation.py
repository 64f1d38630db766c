"""What is asked of the driver for a claim, of what the cluster says now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import CSI_NODES, NODES, ResourceType
from kubecore.runtime import Controller
from virtplane.api.storage_kinds import CSINode, LabelledNode, PersistentVolumeClaim, StorageClass
from virtplane.storage.csi import content_sources, requests, topology
from virtplane.storage.csi.parts import Environment, Problem
from virtplane.storage.csi.requests import Naming, Wanted

_ATTRIBUTES_CLASSES = ResourceType(
    "storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", False
)


@dataclass(frozen=True, slots=True)
class ProvisionerOptions:
    """The provisioner's flags."""

    provisioner_id: str
    naming: Naming = field(default_factory=Naming)
    default_fs_type: str = ""
    extra_metadata: bool = False
    strict_topology: bool = False
    immediate_topology: bool = True
    read_only_many: bool = False
    keeps_mode: bool = True
    across_namespaces: bool = False


class Preparation:
    """Makes requests; where the driver has topology, it reads nodes."""

    def __init__(self, env: Environment, options: ProvisionerOptions, controller: Controller) -> None:
        self._env = env
        self._options = options
        if requests.has_topology(env.identity):
            self._nodes = env.manager.informer(NODES, struct=LabelledNode)
            self._csi_nodes = env.manager.informer(CSI_NODES, struct=CSINode)
            controller.depend(self._nodes)
            controller.depend(self._csi_nodes)

    async def prepared(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: str
    ) -> tuple[Wanted, dict[str, Any] | None]:
        """What is asked of the driver. Raises Problem, topology.NodeMissing."""
        identity, options = self._env.identity, self._options
        source = content_sources.data_source(claim, across_namespaces=options.across_namespaces)
        attributes_class = claim.spec.volume_attributes_class_name or ""
        requests.check_driver(
            identity,
            restores=source is not None and source.is_snapshot,
            clones=source is not None and source.is_claim,
            has_attributes=bool(attributes_class),
        )
        what = requests.wanted(
            claim,
            storage_class,
            identity,
            options.naming,
            default_fs_type=options.default_fs_type,
            extra_metadata=options.extra_metadata,
        )
        if attributes_class:
            mutable = await self._mutable_parameters(attributes_class)
            what.request["mutable_parameters"] = mutable
        accessibility = None
        if requests.has_topology(identity):
            try:
                accessibility = topology.requirement(
                    identity.name,
                    claim.metadata.name,
                    storage_class,
                    node,
                    {each.metadata.name: each for each in self._nodes.list()},
                    {each.metadata.name: each for each in self._csi_nodes.list()},
                    strict=options.strict_topology,
                    immediate=options.immediate_topology,
                )
            except topology.NodeMissing:
                raise
            except Problem as problem:
                raise Problem(f"error generating accessibility requirements: {problem}") from problem
        return what, accessibility

    async def _mutable_parameters(self, name: str) -> JsonObject:
        try:
            found = await self._env.client.get(_ATTRIBUTES_CLASSES, name)
        except StatusError as error:
            raise Problem(error.message) from error
        driver = get_str(found, "driverName")
        if driver != self._env.identity.name:
            raise Problem(
                f"VAC {name} referenced in PVC is for driver {driver} which does not match driver name "
                f"{self._env.identity.name}"
            )
        return get_object(found, "parameters")

    async def has_room(self, what: Wanted, accessibility: dict[str, Any] | None) -> bool:
        """Whether the driver says that the volume fits. Raises CallError."""
        needed = what.request["capacity_range"]["required_bytes"]
        places = (accessibility or {}).get("requisite") or [None]
        for place in places:
            values: dict[str, Any] = {
                "volume_capabilities": what.request["volume_capabilities"],
                "parameters": what.request["parameters"],
            }
            if place is not None:
                values["accessible_topology"] = place
            answer = await self._env.controller("GetCapacity", values)
            if needed <= answer.available_capacity:
                return True
        return False
