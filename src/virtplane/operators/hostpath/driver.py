"""The DaemonSets: the CSI driver with its sidecars, and the legacy provisioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.generated_names import bounded
from kubecore.objects.structs import decode
from virtplane.api.hostpathprovisioner_v1beta1.hostpathprovisioner import HostPathProvisionerSpec, StoragePool
from virtplane.operators.hostpath.product import (
    CSI_ACCOUNT,
    CSI_NAME,
    DRIVER,
    LEGACY_ACCOUNT,
    LEGACY_POOL,
    NAME,
    PROMETHEUS,
    SNAPSHOTTING,
    Settings,
    made,
    owned,
)

SCC_ANNOTATION = "openshift.io/required-scc"
ALLOW_CLUSTER_SERVICES = "hco.kubevirt.io/allow-access-cluster-services"
METRICS_PORT, HEALTH_PORT = 8080, 9898
_SOCKET = "/csi/csi.sock"
_SOCKET_FOLDER = "plugins/csi-hostpath"
_ADDRESS = f"--csi-address={_SOCKET}"

_ON_EACH_NODE, _BY_ONE_NODE = "--node-deployment=true", "--leader-election"
_HEALTHY: Mapping[str, Any] = {
    "httpGet": {"path": "/healthz", "port": HEALTH_PORT, "scheme": "HTTP"},
    "periodSeconds": 2,
    "timeoutSeconds": 3,
}
_START_SECONDS = 300
"""How long the pod's containers may take to start."""
_SOON = "--node-deployment-base-delay=50ms"
"""How long nodes wait by chance before they take a claim that is for any of them: the few of one machine."""

_PROVISIONER = (
    "--feature-gates=Topology=true",
    "--enable-capacity=true",
    "--capacity-for-immediate-binding=true",
    "--extra-create-metadata=true",
    "--immediate-topology=false",
    "--strict-topology=true",
    _ON_EACH_NODE,
    "--default-fstype=xfs",
)


def is_shared(pool: StoragePool) -> bool:
    """Whether a pool is the same folder on every node.

    As upstream's, those whose claim can be written to from many nodes. A pool without a claim is shared where
    it names the class for shared pools, which upstream ignores: its path is on a file system of all nodes.
    """
    if pool.pvc_template is None:
        return bool(pool.overlay_class_name)
    return "ReadWriteMany" in pool.pvc_template.access_modes


def pool_arguments(spec: HostPathProvisionerSpec) -> str:
    """The driver's ``--datadir``: paths are those in its container."""
    pools: list[JsonObject] = []
    if spec.path_config is not None:
        pools.append({"name": LEGACY_POOL, "path": f"{_volume_name('')}/csi", "shared": False})
    for pool in spec.storage_pools if spec.path_config is None else ():
        path = f"{_volume_name(pool.name)}/csi"
        entry: JsonObject = {"name": pool.name, "path": path}
        if pool.snapshot_provider is not None:
            entry |= {"snapshotPath": f"{path}/snapshots", "snapshotProvider": pool.snapshot_provider}
        if pool.pvc_template is not None:
            entry["claimed"] = True
        pools.append({**entry, "shared": is_shared(pool)})
    return orjson.dumps(pools).decode()


def csi_daemon_set(hpp: JsonObject, settings: Settings) -> JsonObject:
    """The DaemonSet of the CSI driver."""
    spec = decode(HostPathProvisionerSpec, get_object(hpp, "spec"))
    pool_volumes = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in _pool_folders(spec).items()
    ]
    pool_mounts = [
        {
            "name": volume["name"],
            "mountPath": f"/{volume['name']}",
            "mountPropagation": "HostToContainer",
        }
        for volume in pool_volumes
    ]
    root = settings.kubelet_root
    volumes = [
        _host_path("socket-dir", f"{root}/{_SOCKET_FOLDER}", "DirectoryOrCreate"),
        _host_path("mountpoint-dir", f"{root}/pods", "DirectoryOrCreate"),
        _host_path("registration-dir", f"{root}/plugins_registry", "Directory"),
        _host_path("plugins-dir", f"{root}/plugins", "Directory"),
        *pool_volumes,
    ]
    driver, sidecars = _driver(hpp, spec, settings, pool_mounts), _sidecars(spec, settings, pool_mounts)
    containers = [_in_one(driver, *sidecars)] if settings.layout == "compact" else [driver, *sidecars]
    for container in containers:
        container.setdefault("imagePullPolicy", spec.image_pull_policy or "IfNotPresent")
    pod: JsonObject = {
        "serviceAccountName": CSI_ACCOUNT,
        "containers": containers,
        "volumes": volumes,
        **_pod_defaults(hpp),
    }
    labels = {PROMETHEUS: "true"}
    return _daemon_set(hpp, settings, CSI_NAME, pod, labels, {SCC_ANNOTATION: CSI_NAME})


def legacy_daemon_set(hpp: JsonObject, settings: Settings) -> JsonObject:
    """The DaemonSet of the legacy provisioner, for ``pathConfig``."""
    spec = decode(HostPathProvisionerSpec, get_object(hpp, "spec"))
    config = spec.path_config
    path = (config.path if config is not None else None) or ""
    prefix = bool(config is not None and config.use_naming_prefix)
    container = {
        "name": NAME,
        "image": settings.image,
        "imagePullPolicy": spec.image_pull_policy or "IfNotPresent",
        "command": ["virtplane", "run", "hostpath-provisioner"],
        "env": [
            {"name": "USE_NAMING_PREFIX", "value": str(prefix).lower()},
            _from_field("NODE_NAME", "spec.nodeName"),
            {"name": "PV_DIR", "value": path},
            _from_field("INSTALLER_PART_OF_LABEL", "metadata.labels['app.kubernetes.io/part-of']"),
            _from_field("INSTALLER_VERSION_LABEL", "metadata.labels['app.kubernetes.io/version']"),
        ],
        "volumeMounts": [{"name": "pv-volume", "mountPath": path}],
        "resources": _requests(),
    }
    pod: JsonObject = {
        "serviceAccountName": LEGACY_ACCOUNT,
        "containers": [container],
        "volumes": [_host_path("pv-volume", path, "DirectoryOrCreate")],
        **_pod_defaults(hpp),
    }
    return _daemon_set(hpp, settings, NAME, pod, {ALLOW_CLUSTER_SERVICES: "true"})


def _driver(
    hpp: JsonObject, spec: HostPathProvisionerSpec, settings: Settings, pool_mounts: Sequence[JsonObject]
) -> JsonObject:
    root = settings.kubelet_root
    return {
        "name": NAME,
        "image": settings.image,
        "command": ["virtplane", "hostpath-driver"],
        "args": [
            f"--drivername={DRIVER}",
            f"--v={settings.verbosity}",
            "--endpoint=$(CSI_ENDPOINT)",
            "--nodeid=$(NODE_NAME)",
            "--version=$(VERSION)",
            "--datadir=$(PV_DIR)",
        ],
        "env": [
            {"name": "CSI_ENDPOINT", "value": f"unix://{_SOCKET}"},
            _from_field("NODE_NAME", "spec.nodeName"),
            {"name": "PV_DIR", "value": pool_arguments(spec)},
            {"name": "VERSION", "value": get_str(hpp, "status", "targetVersion") or settings.version},
        ],
        "securityContext": {"privileged": True},
        "ports": [
            {"name": "healthz", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        # Who answers starts later, in the distributed layout in another container: a busy node must not end
        # the driver for it.
        "startupProbe": {**_HEALTHY, "failureThreshold": _START_SECONDS // 2},
        "livenessProbe": {
            **_HEALTHY,
            "initialDelaySeconds": 10,
            "failureThreshold": 5,
        },
        "resources": _requests(),
        "volumeMounts": [
            # The kubelet names these paths as it has them.
            {"name": "plugins-dir", "mountPath": f"{root}/plugins", "mountPropagation": "Bidirectional"},
            {"name": "mountpoint-dir", "mountPath": f"{root}/pods", "mountPropagation": "Bidirectional"},
            _SOCKET_MOUNT,
            *pool_mounts,
        ],
    }


def _sidecars(
    spec: HostPathProvisionerSpec, settings: Settings, pool_mounts: Sequence[JsonObject]
) -> list[JsonObject]:
    """The sidecars, each in a container, or all in one in the compact layout (see `_in_one`)."""
    compact = settings.layout == "compact"
    kubelet_socket = f"{settings.kubelet_root}/{_SOCKET_FOLDER}/csi.sock"
    verbosity = f"--v={settings.verbosity}"
    # Volumes of local pools are made, and their snapshots taken, on their own node. What belongs to no node,
    # an elected sidecar does; those of one process have to agree on being on each node.
    table: dict[str, tuple[str, Sequence[str], bool]] = {
        "registrar": (
            "node-driver-registrar",
            (verbosity, _ADDRESS, f"--kubelet-registration-path={kubelet_socket}"),
            True,
        ),
        "liveness": ("liveness-probe", (_ADDRESS, f"--health-port={HEALTH_PORT}"), False),
        "provisioner": ("csi-provisioner", (verbosity, _ADDRESS, *_PROVISIONER), True),
        "resizer": ("csi-resizer", (verbosity, _ADDRESS, _BY_ONE_NODE), True),
    }
    if SNAPSHOTTING in spec.feature_gates:
        table["snapshotter"] = ("csi-snapshotter", (verbosity, _ADDRESS, _ON_EACH_NODE), True)
    if compact:
        merged = list(dict.fromkeys(each for _, given, _ in table.values() for each in given))
        merged.remove(_BY_ONE_NODE)
        merged.append(_SOON)
        containers = [_sidecar("csi-sidecars", ",".join(table), merged, settings, privileged=True)]
    else:
        containers = [
            _sidecar(name, sidecar, given, settings, privileged=privileged)
            for sidecar, (name, given, privileged) in table.items()
        ]
    # The registrar is the first.
    containers[0]["volumeMounts"] += [
        {"name": "registration-dir", "mountPath": "/registration"},
        *pool_mounts,
    ]
    return containers


def _in_one(driver: JsonObject, sidecars: JsonObject) -> JsonObject:
    """The driver and the container of all its sidecars as one container, which is both (hostpathcsi.py)."""
    merged = {each["name"]: each for each in (*driver["env"], *sidecars["env"])}
    mounts = {each["mountPath"]: each for each in (*driver["volumeMounts"], *sidecars["volumeMounts"])}
    _, _, parts = sidecars["command"]
    return {
        **driver,
        "command": ["virtplane", "hostpath-csi", parts],
        "args": [*sidecars["args"], "--", *driver["args"]],
        "env": list(merged.values()),
        "volumeMounts": list(mounts.values()),
    }


def _sidecar(
    name: str, sidecars: str, arguments: Sequence[str], settings: Settings, *, privileged: bool
) -> JsonObject:
    container: JsonObject = {
        "name": name,
        "image": settings.image,
        "command": ["virtplane", "csi", sidecars],
        "args": list(arguments),
        "env": [
            _from_field("NAMESPACE", "metadata.namespace"),
            _from_field("POD_NAME", "metadata.name"),
            _from_field("NODE_NAME", "spec.nodeName"),
            _from_field("KUBE_NODE_NAME", "spec.nodeName"),
        ],
        "resources": _requests(),
        "volumeMounts": [_SOCKET_MOUNT],
    }
    if privileged:
        container["securityContext"] = {"privileged": True}
    return container


_SOCKET_MOUNT: Mapping[str, str] = {"name": "socket-dir", "mountPath": "/csi"}


def _pool_folders(spec: HostPathProvisionerSpec) -> dict[str, str]:
    """The pools' folders on the node, by the name of their volume."""
    if spec.path_config is not None:
        return {_volume_name(""): spec.path_config.path or ""}
    return {_volume_name(pool.name): pool.path for pool in spec.storage_pools}


def _volume_name(pool: str) -> str:
    return bounded(pool or "csi", "data-dir")


def _daemon_set(
    hpp: JsonObject,
    settings: Settings,
    name: str,
    pod: JsonObject,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> JsonObject:
    template: JsonObject = {"metadata": {"labels": {**settings.labels(), **labels}}, "spec": pod}
    if annotations:
        template["metadata"]["annotations"] = dict(annotations)
    document = made(settings, "apps/v1", "DaemonSet", name, namespaced=True)
    document["metadata"]["labels"].update(labels)
    document["spec"] = {
        "selector": {"matchLabels": {"k8s-app": NAME}},
        "template": template,
        "revisionHistoryLimit": 10,
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0},
        },
    }
    return owned(document, hpp)


def _pod_defaults(hpp: JsonObject) -> dict[str, Any]:
    """What all pods have, and where the user places them. Volumes and sockets are root's."""
    workload = get_object(hpp, "spec", "workload")
    pod: dict[str, Any] = {"securityContext": {"runAsUser": 0}, "terminationGracePeriodSeconds": 30}
    if workload.get("nodeSelector"):
        pod["nodeSelector"] = dict(workload["nodeSelector"])
    if workload.get("tolerations"):
        pod["tolerations"] = get_list(workload, "tolerations")
    if workload.get("affinity"):
        pod["affinity"] = workload["affinity"]
    return pod


def _host_path(name: str, path: str, kind: str) -> JsonObject:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def _from_field(name: str, path: str) -> JsonObject:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _requests() -> JsonObject:
    return {"requests": {"cpu": "10m", "memory": "150Mi"}}
