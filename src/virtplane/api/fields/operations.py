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

_REFERENCE = warns(
    "a note of what belongs to the plugin, which nobody reads, in KubeVirt neither",
    warning="nothing reads this list; the objects that it names act by themselves",
)

PLUGIN: Table = {
    "condition": acts("guests whose hooks are called"),
    "domainHooks[].cel.expression": acts("changes of the domain"),
    "domainHooks[].condition": acts("guests whose domain is changed"),
    "domainHooks[].failureStrategy": acts("whether a guest starts whose domain could not be changed"),
    "domainHooks[].sidecar.socketPath": acts("the sidecar that changes the domain"),
    "domainHooks[].timeout": acts("time that the sidecar has, up to 5 minutes"),
    "failureStrategy": acts("the strategy of hooks that have none"),
    "mutatingAdmissionPolicies": _REFERENCE,
    "mutatingAdmissionWebhooks": _REFERENCE,
    "nodeHooks[].condition": acts("guests that the service is told of"),
    "nodeHooks[].failureStrategy": acts("whether guests start and stop without the service"),
    "nodeHooks[].permittedHooks": acts(
        "when the service is called; nothing migrates yet",
        "PreVMStart",
        "PostVMStart",
        "PreVMStop",
        "PostVMStop",
    ),
    "nodeHooks[].socket": acts("the service; below `/var/run/kubevirt`"),
    "nodeHooks[].timeout": acts("time that the service has, up to 5 minutes"),
    "validatingAdmissionPolicies": _REFERENCE,
    "validatingAdmissionWebhooks": _REFERENCE,
}
