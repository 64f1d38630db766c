"""Migrations, snapshots, clones, and kinds that are not implemented yet."""

from __future__ import annotations

from virtplane.api.fields.state import Table, acts, copied, warns

_NO_MIGRATION = "nothing migrates yet; migrations of running guests are refused"

MIGRATION: Table = {
    "addedNodeSelector": acts("nodes of the target; migrations are refused while nothing migrates"),
    "priority": acts("set by virt-controller only"),
    "receive": warns(_NO_MIGRATION),
    "sendTo": warns(_NO_MIGRATION),
    "vmiName": acts("the guest; migrations are refused while nothing migrates"),
}

MIGRATION_POLICY: Table = {
    "allowAutoConverge": warns(_NO_MIGRATION),
    "allowPostCopy": warns(_NO_MIGRATION),
    "allowWorkloadDisruption": warns(_NO_MIGRATION),
    "bandwidthPerMigration": warns(_NO_MIGRATION),
    "completionTimeoutPerGiB": warns(_NO_MIGRATION),
    "experimental": warns(_NO_MIGRATION),
    "maxDowntimeMs": warns(_NO_MIGRATION),
    "selectors": warns(_NO_MIGRATION),
}

SNAPSHOT: Table = {
    "deletionPolicy": acts("whether the content stays"),
    "failureDeadline": acts("time that the snapshot has"),
    "source": copied("the machine"),
}

RESTORE: Table = {
    "patches": acts("changes of the restored machine"),
    "target": copied("the machine"),
    "targetReadinessPolicy": acts("what happens to a machine that runs"),
    "virtualMachineSnapshotName": acts("the snapshot"),
    "volumeOwnershipPolicy": acts("whether restored claims are deleted with the machine"),
    "volumeRestoreOverrides[].annotations": acts("annotations of the restored claim"),
    "volumeRestoreOverrides[].labels": acts("labels of the restored claim"),
    "volumeRestoreOverrides[].restoreName": acts("name of the restored claim"),
    "volumeRestoreOverrides[].volumeName": acts("the volume"),
    "volumeRestorePolicy": acts("names of the restored claims, and whether those before are replaced"),
}

CLONE: Table = {
    "annotationFilters": acts("annotations of the copy"),
    "labelFilters": acts("labels of the copy"),
    "newMacAddresses": acts("MAC addresses of the copy"),
    "newSMBiosSerial": acts("serial number of the copy"),
    "patches": acts("changes of the copy"),
    "source": copied("what is copied"),
    "target": copied("the copy"),
    "template.annotationFilters": acts("annotations of the copy's instances"),
    "template.labelFilters": acts("labels of the copy's instances"),
    "volumeNamePolicy": acts("names of the copied claims"),
}

_NO_CONTROLLER = "no controller looks at this kind"

EXPORT: Table = dict.fromkeys(("source", "tokenSecretRef", "ttlDuration"), warns(_NO_CONTROLLER))

BACKUP: Table = dict.fromkeys(
    ("forceFullBackup", "mode", "pvcName", "skipQuiesce", "source", "tokenSecretRef", "ttlDuration"),
    warns(_NO_CONTROLLER),
)

BACKUP_TRACKER: Table = {"source": warns(_NO_CONTROLLER)}

PLUGIN: Table = dict.fromkeys(
    (
        "condition",
        "domainHooks",
        "failureStrategy",
        "mutatingAdmissionPolicies",
        "mutatingAdmissionWebhooks",
        "nodeHooks",
        "validatingAdmissionPolicies",
        "validatingAdmissionWebhooks",
    ),
    warns(_NO_CONTROLLER),
)
