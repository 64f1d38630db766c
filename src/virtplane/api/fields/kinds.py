"""The entries of each kind's spec."""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.api.fields import copies
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.fields.instancetypes import INSTANCETYPE, PREFERENCE
from virtplane.api.fields.machine import MACHINE, POOL, PRESET, REPLICA_SET
from virtplane.api.fields.state import Table

KINDS: Mapping[str, Table] = {
    "KubeVirt": INSTALLATION,
    "MigrationPolicy": copies.MIGRATION_POLICY,
    "Plugin": copies.PLUGIN,
    "VirtualMachine": MACHINE,
    "VirtualMachineBackup": copies.BACKUP,
    "VirtualMachineBackupTracker": copies.BACKUP_TRACKER,
    "VirtualMachineClone": copies.CLONE,
    "VirtualMachineClusterInstancetype": INSTANCETYPE,
    "VirtualMachineClusterPreference": PREFERENCE,
    "VirtualMachineExport": copies.EXPORT,
    "VirtualMachineInstance": INSTANCE,
    "VirtualMachineInstanceMigration": copies.MIGRATION,
    "VirtualMachineInstancePreset": PRESET,
    "VirtualMachineInstanceReplicaSet": REPLICA_SET,
    "VirtualMachineInstancetype": INSTANCETYPE,
    "VirtualMachinePool": POOL,
    "VirtualMachinePreference": PREFERENCE,
    "VirtualMachineRestore": copies.RESTORE,
    "VirtualMachineSnapshot": copies.SNAPSHOT,
}
"""Entries below ``spec``, for every kind that users write. (Controllers write snapshot contents.)"""
