"""Custom resource definitions, made of the structs and of the table below.

Conversion is None everywhere: all versions of a kind share one schema and differ in ``apiVersion`` only.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy
from kubecore.resources import ResourceType
from virtplane.api import resources
from virtplane.api.backup_v1alpha1 import backup
from virtplane.api.clone_v1beta1 import clone
from virtplane.api.export_v1 import export
from virtplane.api.hostpathprovisioner_v1beta1 import hostpathprovisioner
from virtplane.api.instancetype_v1beta1 import instancetype, preference
from virtplane.api.kubevirt_v1 import kubevirt, migration, preset, replicaset, vm, vmi
from virtplane.api.markers import ApiStruct
from virtplane.api.migrations_v1alpha1 import policy
from virtplane.api.plugin_v1alpha1 import plugin
from virtplane.api.pool_v1beta1 import pool
from virtplane.api.schema import Read, object_schema
from virtplane.api.snapshot_v1beta1 import restore, snapshot


@dataclass(frozen=True, slots=True)
class Version:
    """One served version; `deprecation` is the warning that clients get."""

    name: str
    storage: bool = False
    deprecation: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``. Those of priority 1 show with ``-o wide`` only."""

    name: str
    type: str
    path: str
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Definition:
    """Everything about a kind that its struct does not say."""

    resource: ResourceType
    struct: type[ApiStruct]
    versions: tuple[Version, ...]
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    categories: tuple[str, ...] = ("all",)
    status: bool = True
    scale: bool = False

    @property
    def name(self) -> str:
        """The definition object's name."""
        return self.resource.group_resource


_ALPHA3 = "kubevirt.io/v1alpha3 is now deprecated and will be removed in a future release."
_V1 = (Version("v1", storage=True), Version("v1alpha3", deprecation=_ALPHA3))
_BETA = (Version("v1alpha1"), Version("v1beta1", storage=True))
_ONLY_BETA = (Version("v1beta1", storage=True),)
_ONLY_ALPHA = (Version("v1alpha1", storage=True),)

_AGE = Column("Age", "date", ".metadata.creationTimestamp")
_PHASE = Column("Phase", "string", ".status.phase")
_READY = Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status")
_SOURCE_KIND = Column("SourceKind", "string", ".spec.source.kind")
_SOURCE_NAME = Column("SourceName", "string", ".spec.source.name")
_READY_TO_USE = Column("ReadyToUse", "boolean", ".status.readyToUse")
_CREATION_TIME = Column("CreationTime", "date", ".status.creationTime")
_ERROR = Column("Error", "string", ".status.error.message")


def _replica_columns(kind: str) -> tuple[Column, ...]:
    return (
        Column("Desired", "integer", ".spec.replicas", f"Number of desired {kind}"),
        Column(
            "Current", "integer", ".status.replicas", f"Number of managed and not final or deleted {kind}"
        ),
        Column(
            "Ready",
            "integer",
            ".status.readyReplicas",
            f"Number of managed {kind} which are ready to receive traffic",
        ),
        _AGE,
    )


_PRESET_VERSIONS = tuple(
    Version(
        version,
        storage=version == "v1alpha3",
        deprecation=f"kubevirt.io/{version} VirtualMachineInstancePresets is now deprecated"
        " and will be removed in v2.",
    )
    for version in ("v1", "v1alpha3")
)

DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        resources.VIRTUAL_MACHINES,
        vm.VirtualMachine,
        _V1,
        ("vm", "vms"),
        (_AGE, Column("Status", "string", ".status.printableStatus", "Human Readable Status"), _READY),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_INSTANCES,
        vmi.VirtualMachineInstance,
        _V1,
        ("vmi", "vmis"),
        (
            _AGE,
            _PHASE,
            Column("IP", "string", ".status.interfaces[0].ipAddress"),
            Column("NodeName", "string", ".status.nodeName"),
            _READY,
            Column(
                "Live-Migratable",
                "string",
                ".status.conditions[?(@.type=='LiveMigratable')].status",
                priority=1,
            ),
            Column("Paused", "string", ".status.conditions[?(@.type=='Paused')].status", priority=1),
        ),
        status=False,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_INSTANCE_PRESETS,
        preset.VirtualMachineInstancePreset,
        _PRESET_VERSIONS,
        ("vmipreset", "vmipresets"),
        status=False,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS,
        replicaset.VirtualMachineInstanceReplicaSet,
        _V1,
        ("vmirs", "vmirss"),
        _replica_columns("VirtualMachineInstances"),
        scale=True,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS,
        migration.VirtualMachineInstanceMigration,
        _V1,
        ("vmim", "vmims"),
        (
            Column("Phase", "string", ".status.phase", "The current phase of VM instance migration"),
            Column("VMI", "string", ".spec.vmiName", "The name of the VMI to perform the migration on"),
        ),
    ),
    Definition(resources.KUBEVIRTS, kubevirt.KubeVirt, _V1, ("kv", "kvs"), (_AGE, _PHASE)),
    Definition(
        resources.VIRTUAL_MACHINE_POOLS,
        pool.VirtualMachinePool,
        _BETA,
        ("vmpool", "vmpools"),
        _replica_columns("VirtualMachines"),
        scale=True,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_SNAPSHOTS,
        snapshot.VirtualMachineSnapshot,
        _BETA,
        ("vmsnapshot", "vmsnapshots"),
        (_SOURCE_KIND, _SOURCE_NAME, _PHASE, _READY_TO_USE, _CREATION_TIME, _ERROR),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS,
        snapshot.VirtualMachineSnapshotContent,
        _BETA,
        ("vmsnapshotcontent", "vmsnapshotcontents"),
        (_READY_TO_USE, _CREATION_TIME, _ERROR),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_RESTORES,
        restore.VirtualMachineRestore,
        _BETA,
        ("vmrestore", "vmrestores"),
        (
            Column("TargetKind", "string", ".spec.target.kind"),
            Column("TargetName", "string", ".spec.target.name"),
            Column("Complete", "boolean", ".status.complete"),
            Column("RestoreTime", "date", ".status.restoreTime"),
        ),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_EXPORTS,
        export.VirtualMachineExport,
        (
            Version(
                "v1beta1",
                deprecation="export.kubevirt.io/v1beta1 VirtualMachineExport is now deprecated"
                " and will be removed in a future version.",
            ),
            Version("v1", storage=True),
        ),
        ("vmexport", "vmexports"),
        (_SOURCE_KIND, _SOURCE_NAME, _PHASE),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_CLONES,
        clone.VirtualMachineClone,
        _BETA,
        ("vmclone", "vmclones"),
        (
            _PHASE,
            Column("SourceVirtualMachine", "string", ".spec.source.name"),
            Column("TargetVirtualMachine", "string", ".spec.target.name"),
        ),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_INSTANCETYPES,
        instancetype.VirtualMachineInstancetype,
        _ONLY_BETA,
        ("vminstancetype", "vminstancetypes", "vmf", "vmfs"),
        status=False,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES,
        instancetype.VirtualMachineClusterInstancetype,
        _ONLY_BETA,
        ("vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"),
        categories=(),
        status=False,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_PREFERENCES,
        preference.VirtualMachinePreference,
        _ONLY_BETA,
        ("vmpref", "vmprefs", "vmp", "vmps"),
        status=False,
    ),
    Definition(
        resources.VIRTUAL_MACHINE_CLUSTER_PREFERENCES,
        preference.VirtualMachineClusterPreference,
        _ONLY_BETA,
        ("vmcp", "vmcps"),
        categories=(),
        status=False,
    ),
    Definition(resources.MIGRATION_POLICIES, policy.MigrationPolicy, _ONLY_ALPHA, categories=()),
    Definition(
        resources.VIRTUAL_MACHINE_BACKUPS,
        backup.VirtualMachineBackup,
        _ONLY_ALPHA,
        ("vmbackup", "vmbackups"),
        (
            _SOURCE_KIND,
            _SOURCE_NAME,
            Column("Type", "string", ".status.type"),
            Column("CheckpointName", "string", ".status.checkpointName"),
        ),
    ),
    Definition(
        resources.VIRTUAL_MACHINE_BACKUP_TRACKERS,
        backup.VirtualMachineBackupTracker,
        _ONLY_ALPHA,
        ("vmbackuptracker", "vmbackuptrackers"),
        (
            _SOURCE_KIND,
            _SOURCE_NAME,
            Column("LatestCheckpoint", "string", ".status.latestCheckpoint.name"),
            Column("CheckpointTime", "date", ".status.latestCheckpoint.creationTime"),
        ),
    ),
    Definition(resources.PLUGINS, plugin.Plugin, _ONLY_ALPHA, categories=(), status=False),
)
"""Every kind that an installation defines. `kubevirts` comes with the operator's own manifests."""

HOSTPATH_PROVISIONER = Definition(
    resources.HOSTPATH_PROVISIONERS,
    hostpathprovisioner.HostPathProvisioner,
    _ONLY_BETA,
    categories=(),
    status=False,
)
"""What the hostpath provisioner's operator reconciles. It comes with that operator's manifests."""


def custom_resource_definitions() -> list[JsonObject]:
    """All definitions, ready to be applied."""
    read = Read()
    return [custom_resource_definition(definition, read) for definition in DEFINITIONS]


def custom_resource_definition(definition: Definition, read: Read | None = None) -> JsonObject:
    """The CustomResourceDefinition of one kind; `read` is what was read for others."""
    resource = definition.resource
    names: JsonObject = {
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "kind": resource.kind,
        "listKind": resource.kind + "List",
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    if definition.categories:
        names["categories"] = list(definition.categories)
    schema = object_schema(definition.struct, read)
    own_operator = resource in (resources.KUBEVIRTS, resources.HOSTPATH_PROVISIONERS)
    label = "operator.kubevirt.io" if own_operator else "kubevirt.io"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition.name, "labels": {label: ""}},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "conversion": {"strategy": "None"},
            "versions": [_version(definition, version, schema) for version in definition.versions],
        },
    }


def _version(definition: Definition, version: Version, schema: JsonObject) -> JsonObject:
    document: JsonObject = {
        "name": version.name,
        "served": True,
        "storage": version.storage,
        "schema": {"openAPIV3Schema": deep_copy(schema)},
    }
    if version.deprecation:
        document |= {"deprecated": True, "deprecationWarning": version.deprecation}
    subresources: JsonObject = {}
    if definition.status:
        subresources["status"] = {}
    if definition.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        }
    if subresources:
        document["subresources"] = subresources
    if definition.columns:
        document["additionalPrinterColumns"] = [_column(column) for column in definition.columns]
    return document


def _column(column: Column) -> JsonObject:
    document: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        document["description"] = column.description
    if column.priority:
        document["priority"] = column.priority
    return document
