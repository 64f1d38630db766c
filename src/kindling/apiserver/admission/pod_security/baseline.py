"""The checks of the baseline level. Each gives the reason and the detail of a violation, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta

from .containers import (
    added_capabilities,
    containers,
    named,
    names_where,
    offenders,
    quoted,
    security,
    setters,
    unsafe_profiles,
)

Violation = tuple[str, str]
"""(reason, detail)."""
Check = Callable[[JsonObject, JsonObject], Violation | None]
"""Looks at a pod or template and at its spec."""

_CAPABILITIES = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
    | {"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)
SYSCTLS_1_0 = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
SYSCTLS_1_27 = SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_1_29 = SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SYSCTLS_1_32 = SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
SELINUX_TYPES_1_0 = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
SELINUX_TYPES_1_31 = SELINUX_TYPES_1_0 | {"container_engine_t"}
_SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER_ANNOTATION = "container.seccomp.security.alpha.kubernetes.io/"
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def app_armor(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """AppArmor profiles: the runtime's default or a local one."""
    pod_sets, names, bad_types = unsafe_profiles(spec, "appArmorProfile")
    annotations = [
        f'annotation "{key}"="{value}"'
        for key, value in sorted(meta.annotations(pod).items())
        if key.startswith(_APPARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    ]
    details = []
    if bad_types:
        setting = setters(pod_sets, names)
        details.append(f"{setting} must not set AppArmor profile type to {quoted(bad_types)}")
    if annotations:
        details.append(", ".join(annotations))
    if not details:
        return None
    plural = "s" if len(bad_types) + len(annotations) > 1 else ""
    return f"forbidden AppArmor profile{plural}", "; ".join(details)


def capabilities(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Only capabilities of the default set may be added."""
    names, added = offenders(spec, lambda each: added_capabilities(each) - _CAPABILITIES)
    if not names:
        return None
    detail = f"{named(names)} must not include {quoted(added)} in securityContext.capabilities.add"
    return "non-default capabilities", detail


def host_namespaces(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Pods must not share the host's namespaces."""
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return ("host namespaces", ", ".join(shared)) if shared else None


def host_path(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """No volumes from the host's file system."""
    names = [str(each.get("name")) for each in get_list(spec, "volumes") if each.get("hostPath") is not None]
    return ("hostPath volumes", f"volume{'s' if len(names) > 1 else ''} {quoted(names)}") if names else None


def host_ports(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """No ports of the host."""
    names, ports = offenders(
        spec, lambda each: [int(port["hostPort"]) for port in get_list(each, "ports") if port.get("hostPort")]
    )
    if not names:
        return None
    shown = ", ".join(map(str, ports))
    verb = "uses" if len(names) == 1 else "use"
    noun = "hostPort" if len(ports) == 1 else "hostPorts"
    return "hostPort", f"{named(names)} {verb} {noun} {shown}"


def privileged(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """No privileged containers."""
    names = names_where(spec, lambda each: security(each).get("privileged") is True)
    return ("privileged", f"{named(names)} must not set securityContext.privileged=true") if names else None


def probe_hosts(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Probes and hooks talk to the pod itself."""
    names, hosts = offenders(spec, lambda each: set(_hosts(each)) - {"", "127.0.0.1", "::1"})
    if not names:
        return None
    verb = "uses" if len(names) == 1 else "use"
    noun = "host" if len(hosts) == 1 else "hosts"
    return (
        "probe or lifecycle host",
        f"{named(names)} {verb} probe or lifecycle {noun} {quoted(hosts)}",
    )


def _hosts(container: JsonObject) -> Iterator[str]:
    lifecycle = get_object(container, "lifecycle")
    handlers = [
        *(get_object(container, probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe")),
        *(get_object(lifecycle, hook) for hook in ("postStart", "preStop")),
    ]
    for handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            yield str(get_object(handler, action).get("host") or "")


def proc_mount(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """/proc is masked."""
    names, kinds = offenders(spec, _proc_mounts)
    if not names:
        return None
    return "procMount", f"{named(names)} must not set securityContext.procMount to {quoted(kinds)}"


def _proc_mounts(container: JsonObject) -> list[str]:
    kind = security(container).get("procMount")
    return [] if kind in (None, "Default") else [str(kind)]


def se_linux(
    pod: JsonObject, spec: JsonObject, *, allowed: frozenset[str] = SELINUX_TYPES_1_31
) -> Violation | None:
    """SELinux types of containers only, no users and roles."""
    types: set[str] = set()
    sets_user = sets_role = False
    pod_sets, names = False, []
    for holder in (spec, *containers(spec)):
        options = get_object(security(holder), "seLinuxOptions")
        kind = str(options.get("type") or "")
        bad = kind not in allowed or bool(options.get("user")) or bool(options.get("role"))
        if kind not in allowed:
            types.add(kind)
        sets_user |= bool(options.get("user"))
        sets_role |= bool(options.get("role"))
        if bad and holder is spec:
            pod_sets = True
        elif bad:
            names.append(str(holder.get("name")))
    if not pod_sets and not names:
        return None
    parts = []
    if types:
        parts.append(f"type{'s' if len(types) > 1 else ''} {quoted(sorted(types))}")
    parts += ["user may not be set"] * sets_user + ["role may not be set"] * sets_role
    detail = f"{setters(pod_sets, names)} set forbidden securityContext.seLinuxOptions: {'; '.join(parts)}"
    return "seLinuxOptions", detail


def seccomp(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Seccomp is not switched off."""
    pod_sets, names, bad = unsafe_profiles(spec, "seccompProfile")
    if not bad:
        return None
    return (
        "seccompProfile",
        f"{setters(pod_sets, names)} must not set securityContext.seccompProfile.type to {quoted(bad)}",
    )


def seccomp_annotations(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Seccomp must not be disabled by the annotations that pods used before the field existed (until
    1.18).
    """
    annotations = meta.annotations(pod)
    keys = [_SECCOMP_POD_ANNOTATION]
    keys += [f"{_SECCOMP_CONTAINER_ANNOTATION}{each.get('name')}" for each in containers(spec)]
    bad = sorted(
        f'{key}="{value}"'
        for key in keys
        if (value := annotations.get(key)) is not None
        and value not in ("runtime/default", "docker/default")
        and not value.startswith("localhost/")
    )
    if not bad:
        return None
    return "seccompProfile", f"forbidden annotation{'s' if len(bad) > 1 else ''} {', '.join(bad)}"


def sysctls(pod: JsonObject, spec: JsonObject, *, allowed: frozenset[str] = SYSCTLS_1_32) -> Violation | None:
    """Only sysctls that are confined to the pod's namespaces."""
    found = [str(each.get("name")) for each in get_list(security(spec), "sysctls")]
    bad = [name for name in found if name not in allowed]
    return ("forbidden sysctls", ", ".join(bad)) if bad else None


def host_process(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """No Windows host processes."""

    def sets(holder: JsonObject) -> bool:
        return get_object(security(holder), "windowsOptions").get("hostProcess") is True

    names, pod_sets = names_where(spec, sets), sets(spec)
    if not names and not pod_sets:
        return None
    detail = f"{setters(pod_sets, names)} must not set securityContext.windowsOptions.hostProcess=true"
    return "hostProcess", detail
