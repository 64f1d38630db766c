"""Pools that claims hold: the claims, the pods that mount them on nodes, and the jobs that unmount them."""

from __future__ import annotations

from kubecore.json import JsonObject, get_str
from kubecore.objects.generated_names import bounded
from virtplane.api.hostpathprovisioner_v1beta1.hostpathprovisioner import StoragePool
from virtplane.operators.hostpath.driver import SCC_ANNOTATION, is_shared
from virtplane.operators.hostpath.product import CSI_ACCOUNT, CSI_NAME, DRIVER, Settings, made, owned

POOL_LABEL = f"{DRIVER}/storagePool"
_PREFIX = "hpp-pool"
_DEFAULT_OVERLAY = "hpp-overlay"
_FILES, _DEVICE = "/source", "/dev/data"
_NODE_LABEL = f"{DRIVER}/node"
_NODE_ANNOTATION = f"{DRIVER}/node"
_PATH_ANNOTATION = f"{DRIVER}/path"
_VOLUME_MODE_ANNOTATION = f"{DRIVER}/volumeMode"
"""On Deployments: what their clean-up needs, also when the pool is no longer in the spec."""


def label_of(pool: str) -> str:
    """The value of the labels by which a pool's objects are found."""
    return bounded(pool, "hpp")


def claim_name(pool: StoragePool, node: str) -> str:
    """The claim that holds a pool on a node."""
    return bounded(_PREFIX, f"{pool.name}-{'shared' if is_shared(pool) else node}")


def deployment_name(pool: StoragePool, node: str) -> str:
    """The Deployment that mounts a pool on a node."""
    return bounded(_PREFIX, f"{pool.name}-{node}")


def claim(pool: StoragePool, template: JsonObject, node: str, settings: Settings) -> JsonObject:
    """The claim that holds a pool on a node, or on all of them. Nobody owns it: its data stays."""
    document = made(
        settings, "v1", "PersistentVolumeClaim", claim_name(pool, node), namespaced=True, spec=template
    )
    document["metadata"]["labels"][POOL_LABEL] = label_of(pool.name)
    return document


def deployment(pool: StoragePool, node: str, hpp: JsonObject, settings: Settings) -> JsonObject:
    """The Deployment that mounts a pool's claim at the pool's path on a node."""
    label = label_of(pool.name)
    is_block = pool.pvc_template is not None and pool.pvc_template.volume_mode == "Block"
    document = made(settings, "apps/v1", "Deployment", deployment_name(pool, node), namespaced=True)
    labels = {**settings.labels(), POOL_LABEL: label, _PREFIX: label}
    document["metadata"]["labels"] = labels
    document["metadata"]["annotations"] = {
        _NODE_ANNOTATION: node,
        _PATH_ANNOTATION: pool.path,
        _VOLUME_MODE_ANNOTATION: "Block" if is_block else "Filesystem",
    }
    container = _mounter(_DEVICE if is_block else _FILES, pool.path, hpp, settings)
    if is_block:
        container["volumeDevices"] = [{"name": "data", "devicePath": _DEVICE}]
    else:
        container["volumeMounts"].append({"name": "data", "mountPath": _FILES})
    pod = _pod(node, container)
    pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": claim_name(pool, node)}})
    document["spec"] = {
        # The node's as well, or the Deployments of one pool would count each other's pods.
        "selector": {"matchLabels": {_PREFIX: label, _NODE_LABEL: bounded("node", node)}},
        "replicas": 1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 2}},
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 10,
        "template": {
            "metadata": {
                "labels": {**labels, _NODE_LABEL: bounded("node", node)},
                "annotations": {SCC_ANNOTATION: CSI_NAME},
            },
            "spec": pod,
        },
    }
    return owned(document, hpp)


def node_of(deployment_object: JsonObject) -> str:
    """The node of a pool's Deployment."""
    return get_str(deployment_object, "metadata", "annotations", _NODE_ANNOTATION)


def cleanup_job(deployment_object: JsonObject, hpp: JsonObject, settings: Settings) -> JsonObject:
    """The job that unmounts what a pool's Deployment mounted on its node."""
    annotations = deployment_object["metadata"]["annotations"]
    node, path = annotations[_NODE_ANNOTATION], annotations[_PATH_ANNOTATION]
    label = get_str(deployment_object, "metadata", "labels", POOL_LABEL)
    source = _DEVICE if annotations[_VOLUME_MODE_ANNOTATION] == "Block" else _FILES
    suffix = get_str(deployment_object, "metadata", "name").removeprefix(f"{_PREFIX}-")
    container = _mounter(source, path, hpp, settings, "--unmount")
    document = made(settings, "batch/v1", "Job", bounded("cleanup-pool", suffix), namespaced=True)
    document["metadata"]["labels"][POOL_LABEL] = label
    pod = _pod(node, container) | {"restartPolicy": "OnFailure"}
    document["spec"] = {"template": {"metadata": {"labels": {POOL_LABEL: label}}, "spec": pod}}
    return owned(document, hpp)


def overlay_class(pool: StoragePool) -> JsonObject:
    """The StorageClass of a shared pool, whose volumes every node reaches.

    A claim's pool has upstream's directories, since its nodes may be several machines. Nodes that share a
    path are one machine's: they can share images too, which have sizes that hold and can be Block volumes.
    """
    document: JsonObject = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": pool.overlay_class_name or _DEFAULT_OVERLAY},
        "provisioner": DRIVER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "parameters": {"storagePool": pool.name, "overlayCSI": "true"},
    }
    if pool.pvc_template is None:
        document["allowVolumeExpansion"] = True
        document["parameters"]["volumeFormat"] = "image"
    return document


def _mounter(source: str, path: str, hpp: JsonObject, settings: Settings, *more: str) -> JsonObject:
    return {
        "name": "mounter",
        "image": settings.image,
        "imagePullPolicy": get_str(hpp, "spec", "imagePullPolicy") or "IfNotPresent",
        "command": ["virtplane", "hostpath-mounter"],
        "args": [
            *("--storagePoolPath", source),
            *("--mountPath", f"{path.rstrip('/')}/csi"),
            *("--hostPath", "/host"),
            *more,
        ],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "resources": {"requests": {"cpu": "10m", "memory": "100Mi"}},
        "volumeMounts": [{"name": "host-root", "mountPath": "/host", "mountPropagation": "Bidirectional"}],
    }


def _pod(node: str, container: JsonObject) -> JsonObject:
    match = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    return {
        "serviceAccountName": CSI_ACCOUNT,
        "terminationGracePeriodSeconds": 30,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "containers": [container],
        "volumes": [{"name": "host-root", "hostPath": {"path": "/", "type": "Directory"}}],
    }
