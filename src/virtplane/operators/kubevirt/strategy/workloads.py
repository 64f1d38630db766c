"""The Deployments of the control plane and the DaemonSet of virt-handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubecore.json import JsonObject, get_int, get_list, get_object
from virtplane.api import paths, ports
from virtplane.api.accounts import COMPONENT_USER
from virtplane.api.images import SIDECAR_IMAGE
from virtplane.api.paths import KUBELET_ROOT
from virtplane.components import CDI_OPERATOR, COMPACT_CONTROL_PLANE, COMPONENTS, OPERATOR_PROCESS
from virtplane.operators.kit.workloads import add_pull_secrets, mount_secret, place, probed
from virtplane.operators.kubevirt import certificates
from virtplane.operators.kubevirt.strategy.component import Component
from virtplane.operators.kubevirt.strategy.components import INSTALLED, virt_handler
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.services import PRIORITY_CLASS, made_for

MIRRORED_CERTIFICATES: Mapping[str, str] = {
    paths.API_CERTIFICATES: certificates.API_SECRET,
    paths.HANDLER_CLIENT_CERTIFICATES: certificates.HANDLER_CLIENT_SECRET,
    paths.CONTROLLER_CERTIFICATES: certificates.CONTROLLER_SECRET,
}
"""Directories in which components of a compact process find their certificates, and the secrets' names."""

_OPERATOR_REQUESTS = {"cpu": "10m", "memory": "450Mi"}
_COMPACT_REQUESTS = {**_OPERATOR_REQUESTS, "cpu": "100m"}
"""The whole control plane in one process: guests that keep a node busy leave it time to renew its leases."""
GUESTFS_IMAGE = "GS_IMAGE"
"""KubeVirt's environment variable of virt-operator."""
_REQUIRE_CERTIFICATE = "--require-webhook-certificate"


def workloads(parameters: Parameters) -> list[JsonObject]:
    """All workloads except the operator itself."""
    objects: list[JsonObject] = []
    if parameters.layout == "distributed":
        for component in INSTALLED:
            if not component.is_replicated:
                continue
            replicas = replica_count(component.name, parameters)
            objects.append(_control_plane_deployment(component, replicas, parameters))
            if replicas > 1:
                objects.append(made_for(parameters.namespace).disruption_budget(component.name, replicas))
    objects.append(_handler(parameters))
    return objects


def replica_count(name: str, parameters: Parameters) -> int:
    """The replicas of a Deployment: the user's setting, or depending on the number of nodes."""
    wanted = get_int(parameters.spec, "infra", "replicas")
    if wanted:
        return wanted
    if name == "virt-api":
        return 1 if parameters.nodes <= 1 else max(2, parameters.nodes // 10)
    return 2


def operator_deployment(
    namespace: str,
    image: str,
    layout: str,
    *,
    kubelet_root: str = KUBELET_ROOT,
    require_webhook_certificate: bool = False,
    has_cdi: bool = True,
    guestfs_image: str = "",
) -> JsonObject:
    """The operator's own Deployment; in the compact layout its process is the whole control plane.

    `has_cdi` says whether CDI is part of it; `guestfs_image` is told to users' virtctl.
    """
    process = COMPACT_CONTROL_PLANE if layout == "compact" else OPERATOR_PROCESS
    names = [name for name in process if has_cdi or name != CDI_OPERATOR]
    requests = _COMPACT_REQUESTS if layout == "compact" else _OPERATOR_REQUESTS
    # One port for the metrics of all, where virt-api's process is another.
    port = ports.HEALTH if layout == "compact" else ports.COMPONENT_HEALTH
    container = _container("virt-operator", image, names, layout, requests, health_port=port)
    container["args"] += ["--health-port", str(port)]
    if kubelet_root != KUBELET_ROOT:
        container["args"] += ["--kubelet-root", kubelet_root]
    if require_webhook_certificate:
        container["args"].append(_REQUIRE_CERTIFICATE)
    if guestfs_image:
        container["env"].append({"name": GUESTFS_IMAGE, "value": guestfs_image})
    container["ports"] = _ports({"metrics": port, "webhooks": ports.OPERATOR_WEBHOOKS})
    volumes: list[JsonObject] = []
    if layout == "compact":
        container["ports"] += _ports({"api": ports.API, "hpp-webhooks": ports.HOSTPATH_WEBHOOKS})
        folders = {each: f"/etc/{each}" for each in ("virt-api", "virt-handler", "virt-controller")}
        if has_cdi:
            container["ports"] += _ports({"cdi-api": ports.CDI_API, "cdi-upload": ports.CDI_UPLOAD_PROXY})
            folders["cdi"] = paths.CDI_CERTIFICATES
        for name, path in folders.items():
            volumes.append({"name": f"{name}-certs", "emptyDir": {"medium": "Memory"}})
            container.setdefault("volumeMounts", []).append({"name": f"{name}-certs", "mountPath": path})
    spec = _unprivileged(_pod_spec("virt-operator", container, volumes))
    made = made_for(namespace)
    if layout == "compact":
        return made.deployment("virt-operator", 1, spec)
    # Changes to KubeVirt objects wait for its webhooks: a node may go without stopping them.
    spec["affinity"] = {"podAntiAffinity": made.apart("virt-operator")}
    return made.deployment("virt-operator", 2, spec)


def _control_plane_deployment(component: Component, replicas: int, parameters: Parameters) -> JsonObject:
    made = made_for(parameters.namespace)
    container, volumes = _component_container(component, parameters)
    if component.serves_webhooks and parameters.require_webhook_certificate:
        container["args"].append(_REQUIRE_CERTIFICATE)
    spec = _unprivileged(_pod_spec(component.name, container, volumes))
    place(spec, get_object(parameters.spec, "infra", "nodePlacement"))
    spec.setdefault("affinity", {}).setdefault("podAntiAffinity", made.apart(component.name))
    add_pull_secrets(spec, get_list(parameters.spec, "imagePullSecrets"))
    return made.deployment(component.name, replicas, spec)


def _component_container(component: Component, parameters: Parameters) -> tuple[JsonObject, list[JsonObject]]:
    """The container of a component, and the volumes with its certificates."""
    name = component.name
    container = _container(
        name,
        parameters.image,
        (name,),
        parameters.layout,
        component.requests,
        pull_policy=parameters.pull_policy,
        health_port=component.health_port,
    )
    container["ports"] = _ports(component.ports)
    if name == "virt-controller" and parameters.sidecar_image:
        container["env"].append({"name": SIDECAR_IMAGE, "value": parameters.sidecar_image})
    volumes: list[JsonObject] = []
    for secret, path in component.secrets.items():
        mount_secret(container, volumes, secret, path)
    return container, volumes


def _ports(ports_by_name: Mapping[str, int]) -> list[JsonObject]:
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports_by_name.items()]


def _handler(parameters: Parameters) -> JsonObject:
    container, volumes = _component_container(virt_handler.COMPONENT, parameters)
    container["securityContext"] = {"privileged": True, "runAsUser": 0}
    container["env"].append({"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    container["env"].append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    container["env"].append({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})
    for name, path, propagation in (
        ("kubelet", parameters.kubelet_root, "Bidirectional"),
        ("virt-share-dir", paths.SHARE_DIR, "Bidirectional"),
        ("virt-private-dir", paths.PRIVATE_DIR, "Bidirectional"),
        ("node-labeller", "/var/lib/kubevirt-node-labeller", "None"),
        ("dev", "/dev", "HostToContainer"),
        ("cgroup", "/sys/fs/cgroup", "HostToContainer"),
        ("sys", "/sys", "HostToContainer"),
    ):
        kind = "Directory" if name in ("dev", "cgroup", "sys") else "DirectoryOrCreate"
        volumes.append({"name": name, "hostPath": {"path": path, "type": kind}})
        mount = {"name": name, "mountPath": path, "mountPropagation": propagation}
        if name == "kubelet":
            # the path at which virt-handler finds it, wherever it is on the node
            mount["mountPath"] = KUBELET_ROOT
        if name == "cgroup":
            # beside the container runtime's own mount, which shows this container's cgroup only
            mount["mountPath"] = paths.NODE_CGROUPS
        if name == "sys":
            # Its own is read-only although the container is privileged: containerd mounts it so for the pod's
            # sandbox first, and sysfs is one file system for all that share a network namespace.
            mount["mountPath"] = paths.NODE_SYSFS
        container["volumeMounts"].append(mount)
    spec = _pod_spec("virt-handler", container, volumes)
    if parameters.config.persistent_reservation:
        _add_reservation_helper(spec, parameters)
    spec["hostPID"] = True
    place(spec, get_object(parameters.spec, "workloads", "nodePlacement"))
    add_pull_secrets(spec, get_list(parameters.spec, "imagePullSecrets"))
    return made_for(parameters.namespace).daemon_set("virt-handler", spec)


def _add_reservation_helper(pod: JsonObject, parameters: Parameters) -> None:
    """Run QEMU's helper for SCSI persistent reservations beside virt-handler.

    It keeps one of its rights, CAP_SYS_RAWIO, and acts on disks that QEMU has opened and hands to it. The
    socket is for every user, since QEMU is not root; its folder is mounted in launchers that ask for it.
    """
    folder, _, name = paths.RESERVATION_HELPER.rpartition("/")
    program = f"umask 0; exec qemu-pr-helper -k {folder}/{name}"
    container = {
        "name": "pr-helper",
        "image": parameters.image,
        "imagePullPolicy": parameters.pull_policy,
        "command": ["/bin/bash", "-c", program],
        "securityContext": {
            "runAsUser": 0,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_RAWIO", "SETPCAP", "SETUID", "SETGID"]},
        },
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}},
        "volumeMounts": [{"name": "pr-helper-socket-vol", "mountPath": folder}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    pod["containers"].append(container)
    socket = {"path": folder, "type": "DirectoryOrCreate"}
    pod["volumes"].append({"name": "pr-helper-socket-vol", "hostPath": socket})


def _container(
    name: str,
    image: str,
    components: Sequence[str],
    layout: str,
    requests: Mapping[str, str],
    *,
    pull_policy: str = "IfNotPresent",
    health_port: int = ports.HEALTH,
) -> JsonObject:
    container: JsonObject = {
        "name": name,
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["virtplane", "run", ",".join(components)],
        "args": ["--namespace", "$(POD_NAMESPACE)", "--layout", layout, "--image", image],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"requests": dict(requests)},
        "volumeMounts": [],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    probed(container, health_port)
    return container


def _unprivileged(pod: JsonObject) -> JsonObject:
    """What touches nothing of its node; named, because not every image that it runs out of names a user."""
    pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": COMPONENT_USER}
    return pod


def _pod_spec(name: str, container: JsonObject, volumes: list[JsonObject]) -> JsonObject:
    return {
        "serviceAccountName": COMPONENTS[name].service_account,
        "priorityClassName": PRIORITY_CLASS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
        "volumes": volumes,
    }
