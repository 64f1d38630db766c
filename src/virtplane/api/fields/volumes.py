"""The volumes of an instance."""

from __future__ import annotations

from virtplane.api.fields.state import Table, acts, copied, prefixed, warns

_INIT: Table = {
    "networkData": acts("network data of the guest"),
    "networkDataBase64": acts("network data of the guest"),
    "networkDataSecretRef.name": acts("secret that holds network data"),
    "secretRef.name": acts("secret that holds user data"),
    "userData": acts("user data of the guest"),
    "userDataBase64": acts("user data of the guest"),
}
_LATER = "an attachment pod brings the claim, also to a running guest, and it can be taken away again"

VOLUMES: Table = prefixed(
    "volumes[]",
    {
        **prefixed("cloudInitConfigDrive", _INIT),
        **prefixed("cloudInitNoCloud", _INIT),
        "configMap.name": acts("config map on the disk"),
        "configMap.optional": acts("whether the guest starts without it"),
        "configMap.volumeLabel": acts("label of the disk"),
        "containerDisk.image": acts("image that holds the disk"),
        "containerDisk.imagePullPolicy": acts("when the image is pulled"),
        "containerDisk.imagePullSecret": acts("secret for the image's registry"),
        "containerDisk.path": acts("the disk's path in the image"),
        "containerPath.path": acts("the folder of the launcher's container (gate ContainerPathVolumes)"),
        "containerPath.readOnly": acts("always true: the guest cannot write there"),
        "dataVolume.hotpluggable": acts(_LATER),
        "dataVolume.name": acts("claim of that name"),
        "downwardAPI.fields": copied("fields of the pod on the disk"),
        "downwardAPI.volumeLabel": acts("label of the disk"),
        "downwardMetrics": acts("metrics of the node on the disk"),
        "emptyDisk.capacity": acts("size of the disk"),
        "ephemeral.persistentVolumeClaim.claimName": acts("claim below the scratch layer"),
        "ephemeral.persistentVolumeClaim.readOnly": warns("the claim is never written to"),
        "hostDisk.capacity": acts("size of the file that is made"),
        "hostDisk.path": acts("file on the node"),
        "hostDisk.shared": acts("reason why the guest cannot migrate"),
        "hostDisk.type": acts("whether the file is made where it is missing"),
        "memoryDump.claimName": acts("claim into which the guest's memory is dumped"),
        "memoryDump.hotpluggable": acts("an attachment pod brings the claim; no other is dumped into"),
        "memoryDump.readOnly": warns("the dump is written"),
        "name": acts("ties volume and disk together"),
        "persistentVolumeClaim.claimName": acts("claim that holds the disk"),
        "persistentVolumeClaim.hotpluggable": acts(_LATER),
        "persistentVolumeClaim.readOnly": acts("the pod mounts the claim read-only"),
        "secret.optional": acts("whether the guest starts without it"),
        "secret.secretName": acts("secret on the disk"),
        "secret.volumeLabel": acts("label of the disk"),
        "serviceAccount.serviceAccountName": acts("account of the pod, whose token is on the disk"),
        "sysprep.configMap.name": acts("answer file on the disk"),
        "sysprep.secret.name": acts("answer file on the disk"),
    },
)
