"""The entries of each kind's spec."""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.api.fields import operations
from virtplane.api.fields.hostpath import HOSTPATH_PROVISIONER
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.fields.instancetypes import INSTANCETYPE, PREFERENCE
from virtplane.api.fields.machine import MACHINE, POOL, PRESET, REPLICA_SET
from virtplane.api.fields.state import Table

KINDS: Mapping[str, Table] = {
    "HostPathProvisioner": HOSTPATH_PROVISIONER,
    "KubeVirt": INSTALLATION,
    "MigrationPolicy": operations.MIGRATION_POLICY,
    "Plugin": operations.PLUGIN,
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
}
"""Entries below ``spec``, for every kind that users write. (Controllers write snapshot contents.)"""
