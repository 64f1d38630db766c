"""Security contexts of pods and containers as CRI documents."""

from __future__ import annotations

from typing import Any

from kindling.node.runtime.interface import Image
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str

_POD, _CONTAINER, _NODE, _TARGET = 0, 1, 2, 3
_PROFILES = {"RuntimeDefault": 0, "Unconfined": 1, "Localhost": 2}
_MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class SecurityProblem(Exception):
    """The security context forbids running the container (``CreateContainerConfigError``)."""


def namespace_options(pod: JsonObject) -> dict[str, int]:
    """Which namespaces the pod's containers share with each other and with the node."""
    spec = get_object(pod, "spec")
    pid = (
        _NODE
        if get_bool(spec, "hostPID")
        else _POD
        if get_bool(spec, "shareProcessNamespace")
        else _CONTAINER
    )
    return {
        "network": _NODE if get_bool(spec, "hostNetwork") else _POD,
        "pid": pid,
        "ipc": _NODE if get_bool(spec, "hostIPC") else _POD,
    }


def sandbox_security(pod: JsonObject) -> dict[str, Any]:
    """CRI's LinuxSandboxSecurityContext."""
    context = get_object(pod, "spec", "securityContext")
    privileged = any(
        get_bool(container, "securityContext", "privileged")
        for container in get_list(pod, "spec", "initContainers") + get_list(pod, "spec", "containers")
    )
    document: dict[str, Any] = {
        "namespace_options": namespace_options(pod),
        "privileged": privileged,
        "supplemental_groups": _groups(context),
        "seccomp": {"profile_type": _PROFILES["RuntimeDefault"]},
    }
    if "runAsUser" in context:
        document["run_as_user"] = {"value": context["runAsUser"]}
    if "runAsGroup" in context and "runAsUser" in context:
        document["run_as_group"] = {"value": context["runAsGroup"]}
    return document


def container_security(
    pod: JsonObject, container: JsonObject, image: Image | None, target: str = ""
) -> dict[str, Any]:
    """CRI's LinuxContainerSecurityContext. `target` is the id of the container whose processes an ephemeral
    container sees. Raises SecurityProblem when runAsNonRoot forbids the user.
    """
    of_pod = get_object(pod, "spec", "securityContext")
    own = get_object(container, "securityContext")
    merged = {**of_pod, **own}
    _check_non_root(pod, container, merged, image)
    privileged = get_bool(own, "privileged")
    namespaces: dict[str, Any] = namespace_options(pod)
    if target:
        namespaces |= {"pid": _TARGET, "target_id": target}
    document: dict[str, Any] = {
        "namespace_options": namespaces,
        "privileged": privileged,
        "readonly_rootfs": get_bool(own, "readOnlyRootFilesystem"),
        "supplemental_groups": _groups(of_pod),
        "no_new_privs": own.get("allowPrivilegeEscalation") is False,
        "seccomp": _seccomp(get_object(merged, "seccompProfile"), privileged),
        "capabilities": {
            "add_capabilities": get_list(own, "capabilities", "add"),
            "drop_capabilities": get_list(own, "capabilities", "drop"),
        },
    }
    if "runAsUser" in merged:
        document["run_as_user"] = {"value": merged["runAsUser"]}
    elif image is not None and image.user and image.uid is None:
        document["run_as_username"] = image.user
    elif image is not None and image.uid is not None:
        document["run_as_user"] = {"value": image.uid}
    if "runAsGroup" in merged:
        document["run_as_group"] = {"value": merged["runAsGroup"]}
        if "run_as_user" not in document and "run_as_username" not in document:
            document["run_as_user"] = {"value": 0}
    if not privileged and get_str(own, "procMount") != "Unmasked":
        document |= {"masked_paths": list(_MASKED_PATHS), "readonly_paths": list(_READONLY_PATHS)}
    selinux = get_object(merged, "seLinuxOptions")
    if selinux:
        document["selinux_options"] = selinux
    return document


def _groups(pod_context: JsonObject) -> list[int]:
    groups = list(get_list(pod_context, "supplementalGroups"))
    if "fsGroup" in pod_context:
        groups.append(pod_context["fsGroup"])
    return groups


def _seccomp(profile: JsonObject, privileged: bool) -> dict[str, Any]:
    kind = "Unconfined" if privileged else get_str(profile, "type", default="Unconfined")
    document: dict[str, Any] = {"profile_type": _PROFILES.get(kind, 1)}
    if kind == "Localhost":
        document["localhost_ref"] = "/var/lib/kubelet/seccomp/" + get_str(profile, "localhostProfile")
    return document


def _check_non_root(pod: JsonObject, container: JsonObject, merged: JsonObject, image: Image | None) -> None:
    if not get_bool(merged, "runAsNonRoot"):
        return
    where = (
        f'(pod: "{get_str(pod, "metadata", "name")}_{get_str(pod, "metadata", "namespace")}'
        f'({get_str(pod, "metadata", "uid")})", container: {get_str(container, "name")})'
    )
    if "runAsUser" in merged:
        if merged["runAsUser"] == 0:
            raise SecurityProblem(f"container's runAsUser breaks non-root policy {where}")
        return
    if image is None or (image.uid is not None and image.uid != 0):
        return
    if image.user and image.uid is None:
        raise SecurityProblem(
            f"container has runAsNonRoot and image has non-numeric user ({image.user}), "
            f"cannot verify user is non-root {where}"
        )
    raise SecurityProblem(f"container has runAsNonRoot and image will run as root {where}")
