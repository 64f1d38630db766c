"""The shared state of all controllers of virt-controller: client, caches, settings, events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import is_not_found
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder, Informer, Key, Manager
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone
from virtplane.api.config import ClusterConfig, LastGood
from virtplane.api.kubevirt_v1.migration import VirtualMachineInstanceMigration
from virtplane.api.kubevirt_v1.replicaset import VirtualMachineInstanceReplicaSet
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.migrations_v1alpha1.policy import MigrationPolicy
from virtplane.api.pool_v1beta1.pool import VirtualMachinePool
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshot, VirtualMachineSnapshotContent
from virtplane.cluster.imagevolumes import ImageVolumeSupport
from virtplane.cluster.slimming import identity, lean, packed_revision, slim_pod, unpacked_revision
from virtplane.compute.launcherpod.inputs import Images, RenderInputs

OBSERVED_VERSION = "v1"
LABEL_SETTINGS = "kubevirt-vm-labels-config"
_QEMU_TIMEOUT_SECONDS = (240, 359)
OBSERVED: Mapping[str, str] = {
    labels.LATEST_API_VERSION: OBSERVED_VERSION,
    labels.STORAGE_API_VERSION: OBSERVED_VERSION,
}
"""The annotations of objects that the controllers have seen."""

OPTIONAL_KINDS: tuple[ResourceType, ...] = (
    kinds.DATA_VOLUMES,
    kinds.DATA_SOURCES,
    kinds.CDI_CONFIGS,
    kinds.STORAGE_PROFILES,
    kinds.VOLUME_SNAPSHOTS,
    kinds.VOLUME_SNAPSHOT_CLASSES,
)
"""Kinds of other products: used when the cluster serves them."""


class HasMetadata(Protocol):
    """An object of any kind, read as a struct."""

    @property
    def metadata(self) -> ObjectMeta: ...


def by_controller(obj: JsonObject) -> Iterable[str]:
    """Index function of documents: the uid of the controlling owner."""
    owner = meta.controller_of(obj)
    return (get_str(owner, "uid"),) if owner else ()


def is_controlled_by_instance(obj: JsonObject) -> bool:
    """Whether the controlling owner is an instance. Only virt-controller may set such owners on pods."""
    owner = meta.controller_of(obj)
    group = get_str(owner, "apiVersion").partition("/")[0]
    return (group, get_str(owner, "kind")) == ("kubevirt.io", "VirtualMachineInstance")


def by_vmi_name(migration: VirtualMachineInstanceMigration) -> Iterable[str]:
    """Index function of migrations: namespace and name of the instance."""
    return (f"{migration.metadata.namespace}/{migration.spec.vmi_name or ''}",)


def by_manager(obj: HasMetadata) -> Iterable[str]:
    """Index function of structs: the uid of the controlling owner."""
    owner = obj.metadata.controller
    return (owner.uid,) if owner is not None else ()


def by_node(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index function of instances: the node they run on."""
    return (vmi.status.node_name,) if vmi.status.node_name else ()


def by_used_claim(vmi: VirtualMachineInstance) -> Iterable[str]:
    """Index function of instances: the namespaced names of the claims that their volumes use."""
    names = (claim_name(volume) for volume in vmi.spec.volumes)
    return [f"{vmi.metadata.namespace}/{name}" for name in names if name]


def by_claim(vm: VirtualMachine) -> Iterable[str]:
    """Index function of VMs: namespaced names of the claims that their volumes use."""
    names = (claim_name(volume) for volume in vm.spec.instance.volumes)
    return [f"{vm.metadata.namespace}/{name}" for name in names if name]


async def served_optional_kinds(client: Client) -> frozenset[ResourceType]:
    """The kinds of `OPTIONAL_KINDS` that the cluster serves now."""
    served = set()
    for kind in OPTIONAL_KINDS:
        try:
            await client.get(resources.CUSTOM_RESOURCE_DEFINITIONS, kind.group_resource)
        except Exception as error:
            if not is_not_found(error):
                raise
        else:
            served.add(kind)
    return frozenset(served)


@dataclass(slots=True)
class Cluster:
    """The caches and the client behind them. Objects from caches must be copied before they are changed."""

    client: Client
    manager: Manager
    recorder: EventRecorder
    built_images: Images
    """Where the installation names no others."""
    served: frozenset[ResourceType] = frozenset()
    namespace: str = "kubevirt"
    image_volumes: ImageVolumeSupport | None = None
    """What is known of image volumes; None takes them for supported."""
    _configuration: LastGood = field(default_factory=LastGood)

    @property
    def images(self) -> Images:
        """The product's images, for new pods."""
        return self.built_images.of(self.settings())

    def informer(
        self,
        resource: ResourceType,
        indexers: Mapping[str, Callable[[JsonObject], Iterable[str]]] | None = None,
    ) -> Informer:
        """The shared informer of a kind, whose documents have no managed fields."""
        return self.manager.informer(resource, indexers=indexers, transform=lean)

    def optional(self, resource: ResourceType) -> Informer | None:
        """The informer of another product's kind; None if the cluster does not serve it."""
        return self.informer(resource) if resource in self.served else None

    def prepare(self) -> None:
        """Create all informers, which is possible only before the manager runs."""
        for kind in self.served:
            self.informer(kind)
        self.informer(resources.STORAGE_CLASSES)
        _ = self.vmis, self.vms, self.migrations, self.pods, self.claims, self.nodes, self.namespaces
        _ = self.quotas, self.revisions, self.kubevirts, self.migration_policies, self.snapshots
        _ = self._label_settings

    @property
    def vmis(self) -> Informer[VirtualMachineInstance]:
        """Virtual machine instances by controller, node and claim."""
        return self.manager.informer(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            indexers={"controller": by_manager, "node": by_node, "claim": by_used_claim},
            struct=VirtualMachineInstance,
            transform=lean,
        )

    @property
    def vms(self) -> Informer[VirtualMachine]:
        """Virtual machines by claim and controller."""
        return self.manager.informer(
            kinds.VIRTUAL_MACHINES,
            indexers={"claim": by_claim, "controller": by_manager},
            struct=VirtualMachine,
            transform=lean,
        )

    @property
    def pools(self) -> Informer[VirtualMachinePool]:
        """All pools of virtual machines."""
        return self.manager.informer(kinds.VIRTUAL_MACHINE_POOLS, struct=VirtualMachinePool)

    @property
    def replica_sets(self) -> Informer[VirtualMachineInstanceReplicaSet]:
        """All replica sets of instances."""
        return self.manager.informer(
            kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS, struct=VirtualMachineInstanceReplicaSet
        )

    @property
    def migrations(self) -> Informer[VirtualMachineInstanceMigration]:
        """Migrations by instance."""
        return self.manager.informer(
            kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS,
            indexers={"vmi": by_vmi_name},
            struct=VirtualMachineInstanceMigration,
        )

    @property
    def migration_policies(self) -> Informer[MigrationPolicy]:
        """All migration policies."""
        return self.manager.informer(kinds.MIGRATION_POLICIES, struct=MigrationPolicy)

    @property
    def snapshots(self) -> Informer[VirtualMachineSnapshot]:
        """All snapshots of virtual machines."""
        return self.manager.informer(kinds.VIRTUAL_MACHINE_SNAPSHOTS, struct=VirtualMachineSnapshot)

    @property
    def snapshot_contents(self) -> Informer[VirtualMachineSnapshotContent]:
        """What the snapshots hold."""
        return self.manager.informer(
            kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, struct=VirtualMachineSnapshotContent
        )

    @property
    def restores(self) -> Informer[VirtualMachineRestore]:
        """All restores."""
        return self.manager.informer(kinds.VIRTUAL_MACHINE_RESTORES, struct=VirtualMachineRestore)

    @property
    def clones(self) -> Informer[VirtualMachineClone]:
        """All clones."""
        return self.manager.informer(kinds.VIRTUAL_MACHINE_CLONES, struct=VirtualMachineClone)

    @property
    def pods(self) -> Informer:
        """The product's pods (those with the label ``kubevirt.io``) by controller, as `slim_pod` leaves
        them.
        """
        return self.manager.informer(
            resources.PODS,
            label_selector="kubevirt.io",
            indexers={"controller": by_controller},
            transform=slim_pod,
        )

    @property
    def claims(self) -> Informer:
        """All PersistentVolumeClaims."""
        return self.informer(resources.PERSISTENT_VOLUME_CLAIMS)

    @property
    def definitions(self) -> Informer:
        """Which CustomResourceDefinitions there are, and nothing else of them."""
        return self.manager.informer(resources.CUSTOM_RESOURCE_DEFINITIONS, transform=identity)

    @property
    def nodes(self) -> Informer:
        """All nodes."""
        return self.informer(resources.NODES)

    @property
    def namespaces(self) -> Informer:
        """All namespaces."""
        return self.informer(resources.NAMESPACES)

    @property
    def quotas(self) -> Informer:
        """All resource quotas."""
        return self.informer(resources.RESOURCE_QUOTAS)

    @property
    def revisions(self) -> Informer:
        """All ControllerRevisions by controller, packed: `revision` and `revisions_of` read them."""
        return self.manager.informer(
            resources.CONTROLLER_REVISIONS,
            indexers={"controller": by_controller},
            transform=packed_revision,
        )

    @property
    def kubevirts(self) -> Informer:
        """The KubeVirt objects, normally one."""
        return self.informer(kinds.KUBEVIRTS)

    @property
    def _label_settings(self) -> Informer:
        return self.manager.informer(
            resources.CONFIG_MAPS,
            namespace=self.namespace,
            field_selector=f"metadata.name={LABEL_SETTINGS}",
            transform=lean,
        )

    def label_settings(self) -> JsonObject | None:
        """The ConfigMap that says which labels of VMs metrics tell; None without one."""
        return self._label_settings.get(self.namespace, LABEL_SETTINGS)

    @property
    def data_volumes(self) -> Informer | None:
        """CDI's DataVolumes, where CDI is installed."""
        return self.optional(kinds.DATA_VOLUMES)

    @property
    def cdi_config(self) -> JsonObject | None:
        """CDI's effective settings, where CDI is installed."""
        informer = self.optional(kinds.CDI_CONFIGS)
        return informer.get(None, "config") if informer else None

    def kubevirt(self) -> JsonObject | None:
        """The KubeVirt object of the install namespace, or the only one."""
        found = self.kubevirts.list()
        own = [item for item in found if meta.namespace(item) == self.namespace]
        return next(iter([*own, *found]), None)

    def settings(self) -> ClusterConfig:
        """The current settings of the installation; the last valid ones while the current ones are
        invalid.
        """
        return self._configuration.of(self.kubevirt())

    def claims_of(self, namespace: str) -> dict[str, JsonObject]:
        """The claims of a namespace by name."""
        return {meta.name(item): item for item in self.claims.list(namespace)}

    def data_volumes_of(self, namespace: str) -> dict[str, JsonObject]:
        """The DataVolumes of a namespace by name."""
        informer = self.data_volumes
        return {meta.name(item): item for item in informer.list(namespace)} if informer else {}

    def migrations_of(self, vmi: VirtualMachineInstance) -> list[VirtualMachineInstanceMigration]:
        """The migrations of an instance. Raises UnfitDocument if one cannot be decoded: it may be of this
        instance.
        """
        for error in self.migrations.unfit.values():
            if error.namespace == vmi.metadata.namespace:
                raise error
        return self.migrations.by_index("vmi", f"{vmi.metadata.namespace}/{vmi.metadata.name}")

    def revision(self, namespace: str, name: str) -> JsonObject | None:
        """A ControllerRevision; None if there is none of this name."""
        found = self.revisions.get(namespace, name)
        return unpacked_revision(found) if found is not None else None

    def revisions_of(self, uid: str) -> list[JsonObject]:
        """The ControllerRevisions that the object with this uid controls."""
        return [unpacked_revision(each) for each in self.revisions.by_index("controller", uid)]

    def pods_of(self, uid: str) -> list[JsonObject]:
        """The pods that an instance controls; an owner of another kind may have its uid."""
        found = self.pods.by_index("controller", uid)
        return [pod for pod in found if is_controlled_by_instance(pod)]

    def render_inputs(
        self,
        vmi: VirtualMachineInstance,
        state_claim: str = "",
        image_digests: Mapping[str, str] | None = None,
    ) -> RenderInputs:
        """Everything that rendering a launcher of `vmi` needs."""
        namespace = vmi.metadata.namespace
        return RenderInputs(
            vmi=vmi,
            settings=self.settings(),
            images=self.images,
            claims=self.claims_of(namespace),
            namespace=self.namespaces.get(None, namespace) or {},
            quotas=self.quotas.list(namespace),
            state_claim=state_claim,
            image_digests=image_digests or {},
            qemu_timeout_seconds=random.randint(*_QEMU_TIMEOUT_SECONDS),
            nodes_mount_images=self.image_volumes is None or self.image_volumes.usable(self.nodes.list()),
        )

    async def mark_observed(
        self, resource: ResourceType, obj: HasMetadata, extra: JsonObject | None = None, finalizer: str = ""
    ) -> bool:
        """Writes the API version that the controllers use, and `extra`, unless the object has it already.
        An object that is not being deleted gets the `finalizer` with it.

        Returns whether it wrote.
        """
        of = obj.metadata
        if of.annotations.items() >= OBSERVED.items():
            return False
        patch: JsonObject = {"metadata": {"annotations": dict(OBSERVED)}, **(extra or {})}
        if finalizer and finalizer not in of.finalizers and not of.is_being_deleted:
            # A merge patch replaces the whole list, so it must be that of the version that was read.
            known = {"finalizers": [*of.finalizers, finalizer], "resourceVersion": of.resource_version}
            patch["metadata"].update(known)
        await self.client.patch(resource, of.name, patch, of.namespace, type="merge")
        return True


def owner_key(kind: str) -> Callable[[JsonObject | HasMetadata], Iterable[Key]]:
    """A mapper from an object to the key of its controlling owner of `kind`."""

    def mapper(obj: JsonObject | HasMetadata) -> Iterable[Key]:
        if not isinstance(obj, dict):
            of = obj.metadata
            manager = of.controller
            return ((of.namespace, manager.name),) if manager is not None and manager.kind == kind else ()
        owner = meta.controller_of(obj)
        if owner is not None and owner.get("kind") == kind:
            return ((meta.namespace(obj), get_str(owner, "name")),)
        return ()

    return mapper
