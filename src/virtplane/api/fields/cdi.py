"""Data volumes: the kinds of CDI."""

from __future__ import annotations

from virtplane.api.fields.state import Table, acts, acts_on_keys, copied, prefixed, warns
from virtplane.api.verbosity import FLAG

_REACHED = {
    "certConfigMap": acts("authorities that the server is verified by"),
    "secretRef": acts("credentials"),
    "url": acts("where it is"),
}


_IMPORTS: Table = {
    "blank": acts("an empty disk image"),
    **prefixed("gcs", {"secretRef": _REACHED["secretRef"], "url": _REACHED["url"]}),
    **prefixed(
        "http",
        {
            **_REACHED,
            "checksum": acts("the import fails unless the bytes as served have it"),
            "extraHeaders": acts("headers of the requests"),
            "insecureSkipVerify": acts("the server's certificate is not verified"),
            "secretExtraHeaders": acts("secrets that hold headers of the requests"),
        },
    ),
    **prefixed(
        "imageio",
        {
            **_REACHED,
            "diskId": acts("the disk's id at the engine"),
            "insecureSkipVerify": acts("the certificates of engine and host are not verified"),
        },
    ),
    **prefixed(
        "registry",
        {
            **_REACHED,
            "imageStream": acts("the image stream with the image (OpenShift; pull method ``node``)"),
            "platform.architecture": acts("which image of several"),
            "pullMethod": acts("``node``: the node pulls the image; else the importer does"),
        },
    ),
    **prefixed("s3", _REACHED),
    **prefixed(
        "vddk",
        {
            **_REACHED,
            "url": warns(
                "the import fails where the importer's image has no vddk plug-in of nbdkit; Debian has none",
                warning=(
                    "the import fails unless its image has the vddk plug-in of nbdkit, which ours has not"
                ),
            ),
            "backingFile": acts("the disk's file, as vSphere names it"),
            "extraArgs": acts("a config map with a configuration of VDDK, and the nodes for the importer"),
            "initImageURL": acts("the image that brings VDDK along"),
            "thumbprint": acts("of the server's certificate, which is trusted without an authority"),
            "uuid": acts("the machine's"),
        },
    ),
}
_STAGES: Table = {
    "checkpoints[].current": acts("a stage of a multi-stage import"),
    "checkpoints[].previous": acts("the stage before it"),
    "finalCheckpoint": acts("whether the last checkpoint is the end of the import"),
}
_CLAIM: Table = {
    "accessModes": acts("of the claim"),
    "dataSource": copied("who fills the claim, if not CDI"),
    "dataSourceRef": copied("who fills the claim, if not CDI"),
    "resources": copied("of the claim"),
    "selector": copied("of the claim"),
    "storageClassName": acts("of the claim"),
    "volumeMode": acts("of the claim"),
    "volumeName": acts("of the claim"),
}
_CLONED: Table = {
    f"{kind}.{name}": acts("the source of a clone")
    for kind in ("pvc", "snapshot")
    for name in ("name", "namespace")
}

DATA_VOLUME: Table = {
    **_STAGES,
    "contentType": acts("whether the content is a disk image or an archive"),
    "preallocation": acts("whether all of the volume is allocated"),
    "priorityClassName": acts("of the worker pods"),
    **prefixed("pvc", _CLAIM),
    "pvc.volumeAttributesClassName": acts("of the claim"),
    "serviceAccountName": acts("of the worker pods"),
    **prefixed("source", {**_IMPORTS, **_CLONED}),
    "source.upload": acts("a client uploads the content"),
    "sourceRef.kind": acts("``DataSource``"),
    "sourceRef.name": acts("the DataSource that names the content"),
    "sourceRef.namespace": acts("its namespace"),
    **{
        f"storage.{path}": field if field.whole else acts(f"{field.text}; filled in by the storage profile")
        for path, field in _CLAIM.items()
    },
}

DATA_SOURCE: Table = {
    "source.dataSource.name": acts("another DataSource that this one stands for"),
    "source.dataSource.namespace": acts("its namespace, which is that of this one"),
    **prefixed("source", _CLONED),
}

DATA_IMPORT_CRON: Table = {
    "garbageCollect": acts("whether old imports are deleted"),
    "importsToKeep": acts("how many imports are kept"),
    "managedDataSource": acts("the DataSource that stands for the newest import"),
    "retentionPolicy": acts("whether the imports are deleted with the cron"),
    "schedule": acts("when the source is looked at"),
    "serviceAccountName": acts("who must be allowed to clone the source"),
    "template": copied("the DataVolumes to make"),
}

OBJECT_TRANSFER: Table = {
    "parentName": acts("the transfer that this one is a part of"),
    "source.apiVersion": acts("of the object that moves"),
    "source.kind": acts("of the object that moves"),
    "source.name": acts("of the object that moves"),
    "source.namespace": acts("of the object that moves"),
    "source.requiredAnnotations": acts("annotations that the object must have before it moves"),
    "target.name": acts("its new name"),
    "target.namespace": acts("its new namespace"),
}

STORAGE_PROFILE: Table = {
    "claimPropertySets[].accessModes": acts("what claims of the class get, in the place of the known ones"),
    "claimPropertySets[].volumeMode": acts("what claims of the class get, in the place of the known one"),
    "cloneStrategy": acts("how claims of the class are cloned"),
    "dataImportCronSourceFormat": acts("whether imports of crons are kept as claims or as snapshots"),
    "snapshotClass": acts("the class of snapshots that clones are made with"),
}

VOLUME_CLONE_SOURCE: Table = {
    "preallocation": acts("whether all of the volume is allocated"),
    "priorityClassName": acts("of the worker pods"),
    "source": copied("the claim or volume snapshot to clone"),
}

VOLUME_IMPORT_SOURCE: Table = {
    **_STAGES,
    "contentType": acts("whether the content is a disk image or an archive"),
    "preallocation": acts("whether all of the volume is allocated"),
    **prefixed("source", _IMPORTS),
    "targetClaim": acts("the only claim that a multi-stage import fills"),
}

VOLUME_UPLOAD_SOURCE: Table = {
    "contentType": acts("whether the content is a disk image or an archive"),
    "preallocation": acts("whether all of the volume is allocated"),
}

OPENSTACK_VOLUME_POPULATOR: Table = {
    path: warns("nothing yet") for path in ("identityUrl", "imageId", "secretRef", "transferNetwork")
}
OVIRT_VOLUME_POPULATOR: Table = {
    path: warns("nothing yet") for path in ("diskId", "engineUrl", "secretRef", "transferNetwork")
}

_CONFIG: Table = {
    "dataVolumeTTLSeconds": warns("nothing, as upstream since 1.62: finished DataVolumes stay"),
    "featureGates": acts("features that are off otherwise"),
    "filesystemOverhead.global": acts("the share of volumes that file systems take"),
    "filesystemOverhead.storageClass": acts("the same, by class"),
    "imagePullSecrets": copied("of the worker pods"),
    "importProxy.HTTPProxy": acts("of importers"),
    "importProxy.HTTPSProxy": acts("of importers"),
    "importProxy.noProxy": acts("of importers"),
    "importProxy.trustedCAProxy": acts("the ConfigMap with authorities that the proxy is verified by"),
    "insecureRegistries": acts("registries whose certificate is not verified"),
    "logVerbosity": acts("of the components"),
    "podResourceRequirements": copied("of the worker pods"),
    "preallocation": acts("whether volumes are allocated as a whole unless they say otherwise"),
    "scratchSpaceStorageClass": acts("the class of scratch space"),
    "tlsSecurityProfile": copied("versions of TLS and ciphers that the servers accept"),
    "uploadProxyURLOverride": acts("where clients find the upload proxy"),
    "webhookPvcRendering": acts("whether claims with the label of the webhook are completed"),
}
CDI_CONFIG: Table = _CONFIG

_CERTIFICATES = {
    f"certConfig.{who}.{what}": acts(f"lifetime of certificates ({who})")
    for who in ("ca", "client", "server")
    for what in ("duration", "renewBefore")
}
CDI: Table = {
    **_CERTIFICATES,
    "cloneStrategyOverride": acts("how claims are cloned, whatever the profile says"),
    **prefixed("config", _CONFIG),
    **{
        f"customizeComponents.flags.{name}": acts_on_keys(
            "`v`: how much the component logs, whatever `logVerbosity` says; other flags warn", FLAG
        )
        for name in ("api", "controller", "uploadProxy")
    },
    "customizeComponents.patches": copied("changes of the installed objects"),
    "imagePullPolicy": acts("of all containers"),
    "infra.affinity": copied("placement of the components"),
    "infra.apiServerReplicas": acts("how many of cdi-apiserver"),
    "infra.deploymentReplicas": acts("how many of cdi-deployment"),
    "infra.nodeSelector": acts("placement of the components"),
    "infra.tolerations": copied("placement of the components"),
    "infra.uploadProxyReplicas": acts("how many of cdi-uploadproxy"),
    "priorityClass": acts("of the components"),
    "uninstallStrategy": acts("whether CDI may be removed while there are DataVolumes"),
    "workload.affinity": copied("placement of the worker pods"),
    "workload.nodeSelector": acts("placement of the worker pods"),
    "workload.tolerations": copied("placement of the worker pods"),
}
