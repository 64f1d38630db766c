"""The hostpath provisioner."""

from __future__ import annotations

from virtplane.api.fields.state import Table, acts, copied

HOSTPATH_PROVISIONER: Table = {
    "featureGates": acts("``Snapshotting`` adds the snapshotter; others are ignored, as upstream"),
    "imagePullPolicy": acts("of all its containers"),
    "pathConfig.path": acts("folder of the legacy provisioner and of the pool ``legacy``"),
    "pathConfig.useNamingPrefix": acts("whether folders of legacy volumes begin with the claim's name"),
    "storagePools[].name": acts("what StorageClasses name in ``storagePool``"),
    "storagePools[].overlayClassName": acts(
        "name of the StorageClass of a shared pool; without a template it says that the path is on a file"
        " system that all nodes have"
    ),
    "storagePools[].path": acts("folder on the nodes"),
    "storagePools[].pvcTemplate": copied("the claims that hold the pool"),
    "storagePools[].snapshotProvider": acts("whether volumes of the pool can have snapshots"),
    "workload.affinity": copied("placement of the driver's pods"),
    "workload.nodeSelector": acts("placement of the driver's pods"),
    "workload.tolerations": copied("placement of the driver's pods"),
}
