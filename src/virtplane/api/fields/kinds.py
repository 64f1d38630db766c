"""The entries of each kind's spec."""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.api.fields import cdi, operations
from virtplane.api.fields.hostpath import HOSTPATH_PROVISIONER
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.fields.instancetypes import INSTANCETYPE, PREFERENCE
from virtplane.api.fields.machine import MACHINE, POOL, PRESET, REPLICA_SET
from virtplane.api.fields.state import Table

KINDS: Mapping[str, Table] = {
    "CDI": cdi.CDI,
    "CDIConfig": cdi.CDI_CONFIG,
    "DataImportCron": cdi.DATA_IMPORT_CRON,
    "DataSource": cdi.DATA_SOURCE,
    "DataVolume": cdi.DATA_VOLUME,
    "HostPathProvisioner": HOSTPATH_PROVISIONER,
    "KubeVirt": INSTALLATION,
    "MigrationPolicy": operations.MIGRATION_POLICY,
    "ObjectTransfer": cdi.OBJECT_TRANSFER,
    "OpenstackVolumePopulator": cdi.OPENSTACK_VOLUME_POPULATOR,
    "OvirtVolumePopulator": cdi.OVIRT_VOLUME_POPULATOR,
    "Plugin": operations.PLUGIN,
    "StorageProfile": cdi.STORAGE_PROFILE,
    "VirtualMachine": MACHINE,
    "VirtualMachineBackup": operations.BACKUP,
    "VirtualMachineBackupTracker": operations.BACKUP_TRACKER,
    "VirtualMachineClone": operations.CLONE,
    "VirtualMachineClusterInstancetype": INSTANCETYPE,
    "VirtualMachineClusterPreference": PREFERENCE,
    "VirtualMachineExport": operations.EXPORT,
    "VirtualMachineInstance": INSTANCE,
    "VirtualMachineInstanceMigration": operations.MIGRATION,
    "VirtualMachineInstancePreset": PRESET,
    "VirtualMachineInstanceReplicaSet": REPLICA_SET,
    "VirtualMachineInstancetype": INSTANCETYPE,
    "VirtualMachinePool": POOL,
    "VirtualMachinePreference": PREFERENCE,
    "VirtualMachineRestore": operations.RESTORE,
    "VirtualMachineSnapshot": operations.SNAPSHOT,
    "VolumeCloneSource": cdi.VOLUME_CLONE_SOURCE,
    "VolumeImportSource": cdi.VOLUME_IMPORT_SOURCE,
    "VolumeUploadSource": cdi.VOLUME_UPLOAD_SOURCE,
}
"""Entries below ``spec``, for every kind that users write. (Controllers write snapshot contents.)"""
