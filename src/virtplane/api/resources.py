"""The API resources that virtplane serves or uses, for clients and error messages."""

from __future__ import annotations

from kubecore.resources import ResourceType


def _kubevirt(plural: str, kind: str) -> ResourceType:
    return ResourceType("kubevirt.io", "v1", plural, kind)


def _snapshot(plural: str, kind: str) -> ResourceType:
    return ResourceType("snapshot.kubevirt.io", "v1beta1", plural, kind)


def _volume_group(plural: str, kind: str, namespaced: bool = False) -> ResourceType:
    return ResourceType("groupsnapshot.storage.k8s.io", "v1beta2", plural, kind, namespaced)


def _instancetype(plural: str, kind: str, namespaced: bool = True) -> ResourceType:
    return ResourceType("instancetype.kubevirt.io", "v1beta1", plural, kind, namespaced)


def _backup(plural: str, kind: str) -> ResourceType:
    return ResourceType("backup.kubevirt.io", "v1alpha1", plural, kind)


def _cdi(plural: str, kind: str, namespaced: bool = True) -> ResourceType:
    return ResourceType("cdi.kubevirt.io", "v1beta1", plural, kind, namespaced)


VIRTUAL_MACHINES = _kubevirt("virtualmachines", "VirtualMachine")
VIRTUAL_MACHINE_INSTANCES = _kubevirt("virtualmachineinstances", "VirtualMachineInstance")
VIRTUAL_MACHINE_INSTANCE_PRESETS = _kubevirt("virtualmachineinstancepresets", "VirtualMachineInstancePreset")
VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS = _kubevirt(
    "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet"
)
VIRTUAL_MACHINE_INSTANCE_MIGRATIONS = _kubevirt(
    "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"
)
KUBEVIRTS = _kubevirt("kubevirts", "KubeVirt")

VIRTUAL_MACHINE_POOLS = ResourceType(
    "pool.kubevirt.io", "v1beta1", "virtualmachinepools", "VirtualMachinePool"
)
VIRTUAL_MACHINE_SNAPSHOTS = _snapshot("virtualmachinesnapshots", "VirtualMachineSnapshot")
VIRTUAL_MACHINE_SNAPSHOT_CONTENTS = _snapshot(
    "virtualmachinesnapshotcontents", "VirtualMachineSnapshotContent"
)
VIRTUAL_MACHINE_RESTORES = _snapshot("virtualmachinerestores", "VirtualMachineRestore")
VIRTUAL_MACHINE_EXPORTS = ResourceType(
    "export.kubevirt.io", "v1", "virtualmachineexports", "VirtualMachineExport"
)
VIRTUAL_MACHINE_CLONES = ResourceType(
    "clone.kubevirt.io", "v1beta1", "virtualmachineclones", "VirtualMachineClone"
)
VIRTUAL_MACHINE_INSTANCETYPES = _instancetype("virtualmachineinstancetypes", "VirtualMachineInstancetype")
VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES = _instancetype(
    "virtualmachineclusterinstancetypes", "VirtualMachineClusterInstancetype", False
)
VIRTUAL_MACHINE_PREFERENCES = _instancetype("virtualmachinepreferences", "VirtualMachinePreference")
VIRTUAL_MACHINE_CLUSTER_PREFERENCES = _instancetype(
    "virtualmachineclusterpreferences", "VirtualMachineClusterPreference", False
)
MIGRATION_POLICIES = ResourceType(
    "migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", False
)
VIRTUAL_MACHINE_BACKUPS = _backup("virtualmachinebackups", "VirtualMachineBackup")
VIRTUAL_MACHINE_BACKUP_TRACKERS = _backup("virtualmachinebackuptrackers", "VirtualMachineBackupTracker")
PLUGINS = ResourceType("plugin.kubevirt.io", "v1alpha1", "plugins", "Plugin", False)

DATA_VOLUMES = _cdi("datavolumes", "DataVolume")
DATA_SOURCES = _cdi("datasources", "DataSource")
DATA_IMPORT_CRONS = _cdi("dataimportcrons", "DataImportCron")
OBJECT_TRANSFERS = _cdi("objecttransfers", "ObjectTransfer", False)
VOLUME_CLONE_SOURCES = _cdi("volumeclonesources", "VolumeCloneSource")
VOLUME_IMPORT_SOURCES = _cdi("volumeimportsources", "VolumeImportSource")
VOLUME_UPLOAD_SOURCES = _cdi("volumeuploadsources", "VolumeUploadSource")
CDIS = _cdi("cdis", "CDI", False)
CDI_CONFIGS = _cdi("cdiconfigs", "CDIConfig", False)
STORAGE_PROFILES = _cdi("storageprofiles", "StorageProfile", False)
OPENSTACK_VOLUME_POPULATORS = ResourceType(
    "forklift.cdi.kubevirt.io", "v1beta1", "openstackvolumepopulators", "OpenstackVolumePopulator"
)
OVIRT_VOLUME_POPULATORS = ResourceType(
    "forklift.cdi.kubevirt.io", "v1beta1", "ovirtvolumepopulators", "OvirtVolumePopulator"
)
UPLOAD_TOKEN_REQUESTS = ResourceType(
    "upload.cdi.kubevirt.io", "v1beta1", "uploadtokenrequests", "UploadTokenRequest"
)
"""Served by cdi-apiserver through the aggregation layer; stored nowhere."""

HOSTPATH_PROVISIONERS = ResourceType(
    "hostpathprovisioner.kubevirt.io", "v1beta1", "hostpathprovisioners", "HostPathProvisioner", False
)

NETWORK_ATTACHMENT_DEFINITIONS = ResourceType(
    "k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition"
)
VOLUME_SNAPSHOTS = ResourceType("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot")
VOLUME_SNAPSHOT_CONTENTS = ResourceType(
    "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", "VolumeSnapshotContent", False
)
VOLUME_SNAPSHOT_CLASSES = ResourceType(
    "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", False
)
VOLUME_GROUP_SNAPSHOTS = _volume_group("volumegroupsnapshots", "VolumeGroupSnapshot", namespaced=True)
VOLUME_GROUP_SNAPSHOT_CONTENTS = _volume_group("volumegroupsnapshotcontents", "VolumeGroupSnapshotContent")
VOLUME_GROUP_SNAPSHOT_CLASSES = _volume_group("volumegroupsnapshotclasses", "VolumeGroupSnapshotClass")

SECURITY_CONTEXT_CONSTRAINTS = ResourceType(
    "security.openshift.io", "v1", "securitycontextconstraints", "SecurityContextConstraints", False
)
SERVICE_MONITORS = ResourceType("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
PROMETHEUS_RULES = ResourceType("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")
"""Kinds of the operator of Prometheus, which not every cluster has."""

SUBRESOURCES_GROUP = "subresources.kubevirt.io"
"""The aggregated group that virt-api serves."""
SUBRESOURCES_VERSIONS = ("v1", "v1alpha3")
SUBRESOURCES_PATH = f"/apis/{SUBRESOURCES_GROUP}/{SUBRESOURCES_VERSIONS[0]}"
"""Where the API server serves it."""
