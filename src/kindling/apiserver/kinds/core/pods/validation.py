"""Pods and pod templates: what must be there and what fits together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.core.volumes.sources import validate_pod_volumes
from kindling.apiserver.kinds.machinery.checks import address as valid_address
from kindling.apiserver.kinds.machinery.checks import in_range, messages, not_negative, one_of
from kindling.apiserver.kinds.machinery.fields import (
    check_fields,
    choice,
    given,
    items,
    may,
    must,
    named,
    within,
)
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, duplicate, forbidden, invalid, not_found, required
from kubecore.objects.meta_validation import validate_annotations
from kubecore.objects.selectors import validate_labels

from .containers import (
    HOST_PORT,
    host_port_conflicts,
    trimmed_image,
    validate_apparmor,
    validate_container,
    validate_seccomp,
)
from .placement import validate_affinity, validate_spread_constraints, validate_tolerations
from .probes import validate_lifecycle_and_probes
from .resources import validate_resources

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_TEXT = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
_NAMESPACED_SYSCTLS = {
    "hostNetwork": ("net.",),
    "hostIPC": ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."),
}
_EPHEMERAL_FORBIDDEN = (
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resources",
    "resizePolicy",
)
MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
Located = list[tuple[JsonObject, FieldPath]]


def validate_pod(pod: JsonObject) -> Iterator[FieldError]:
    """A new pod."""
    spec, path = get_object(pod, "spec"), FieldPath("spec")
    yield from validate_pod_spec(spec, path, of_pod=True)
    for container, at in _located(spec, path, "containers") + _located(spec, path, "initContainers"):
        yield from trimmed_image(container, at)
    if spec.get("ephemeralContainers"):
        yield forbidden(path.child("ephemeralContainers"), "cannot be set on create")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield forbidden(path.child("nodeName"), "cannot be set until all schedulingGates have been cleared")


def validate_template(template: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """A pod template."""
    labels = get_object(template, "metadata", "labels")
    annotations = get_object(template, "metadata", "annotations")
    yield from validate_labels(labels, path.child("labels"))
    yield from validate_annotations(annotations, path.child("annotations"))
    spec = get_object(template, "spec")
    yield from validate_pod_spec(spec, path.child("spec"))
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden(path.child("spec", "ephemeralContainers"), text)


def validate_pod_spec(spec: JsonObject, path: FieldPath, *, of_pod: bool = False) -> list[FieldError]:
    """A pod spec, of a pod or a template."""
    found, volumes = validate_pod_volumes(get_list(spec, "volumes"), path.child("volumes"))
    found += _validate_containers({**spec, "volumes": volumes}, path)
    if isinstance(spec.get("resources"), dict):
        found += _validate_pod_resources(spec["resources"], path.child("resources"))
    if spec.get("hostNetwork"):
        found += _validate_host_network(_located(spec, path, "containers"), of_pod=of_pod)
    found += check_fields(
        spec,
        path,
        must("restartPolicy", choice(*RESTART_POLICIES)),
        must("dnsPolicy", choice(*DNS_POLICIES)),
    )
    found += validate_labels(get_object(spec, "nodeSelector"), path.child("nodeSelector"))
    found += _validate_pod_security(spec, path)
    if isinstance(spec.get("affinity"), dict):
        found += validate_affinity(spec["affinity"], path.child("affinity"))
    found += _validate_dns(spec, path)
    found += _validate_gates(spec, path)
    constraints = get_list(spec, "topologySpreadConstraints")
    found += validate_spread_constraints(constraints, path.child("topologySpreadConstraints"))
    return found + check_fields(spec, path, *_FLAT)


def _validate_pod_resources(resources: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    claims = path.child("claims")
    text = "claims may not be set for Resources at pod-level"
    if resources.get("claims"):
        yield forbidden(claims, text)
    yield from validate_resources(resources, path)


def _located(spec: JsonObject, path: FieldPath, field: str) -> Located:
    return [(item, path.child(field).index(position)) for position, item in enumerate(get_list(spec, field))]


def _validate_containers(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    regular, init = _located(spec, path, "containers"), _located(spec, path, "initContainers")
    if not regular:
        yield required(path.child("containers"))
    seen: set[str] = set()
    for container, at in regular:
        yield from validate_container(container, at, spec, "container")
        yield from _unique_name(container, at, seen)
        yield from validate_lifecycle_and_probes(container, at, spec)
    yield from host_port_conflicts(regular)
    for container, at in init:
        yield from validate_container(container, at, spec, "init")
        yield from _unique_name(container, at, seen)
        yield from _validate_init(container, at, spec)
    yield from _validate_ephemeral(_located(spec, path, "ephemeralContainers"), spec, seen)


def _unique_name(container: JsonObject, path: FieldPath, seen: set[str]) -> list[FieldError]:
    name = container.get("name", "")
    if name and name in seen:
        return [duplicate(path.child("name"), name)]
    seen.add(name)
    return []


def _validate_init(container: JsonObject, path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    if container.get("restartPolicy") == "Always":
        return validate_lifecycle_and_probes(container, path, spec)
    text = "may not be set for init containers without restartPolicy=Always"
    fields = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
    return [forbidden(path.child(field), text) for field in fields if container.get(field) is not None]


def _validate_ephemeral(containers: Located, spec: JsonObject, seen: set[str]) -> Iterator[FieldError]:
    targets = {
        item.get("name") for field in ("containers", "initContainers") for item in get_list(spec, field)
    }
    for container, path in containers:
        yield from validate_container(container, path, spec, "ephemeral")
        yield from trimmed_image(container, path)
        yield from _unique_name(container, path, seen)
        target = container.get("targetContainerName")
        if target and target not in targets:
            yield not_found(path.child("targetContainerName"), target)
        text = "cannot be set for an Ephemeral Container"
        yield from (
            forbidden(path.child(field), text) for field in _EPHEMERAL_FORBIDDEN if container.get(field)
        )
        for position, mount in enumerate(get_list(container, "volumeMounts")):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    yield forbidden(path.child("volumeMounts").index(position).child(field), text)


def _validate_host_network(containers: Located, *, of_pod: bool) -> Iterator[FieldError]:
    for container, path in containers:
        for position, port in enumerate(get_list(container, "ports")):
            value = port.get("hostPort", 0)
            # In templates the port of the host is left out, as the pod's will be defaulted.
            if (value or of_pod) and value != port.get("containerPort"):
                yield invalid(path.child("ports").index(position).child("hostPort"), value, HOST_PORT)


def _validate_dns(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    config, at = spec.get("dnsConfig"), path.child("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if not isinstance(config, dict):
            yield required(at, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not get_list(config, "nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(at.child("nameservers"), text)
            return
    if not isinstance(config, dict):
        return
    servers, searches = get_list(config, "nameservers"), get_list(config, "searches")
    if len(servers) > MAX_NAMESERVERS:
        text = f"must not have more than {MAX_NAMESERVERS} nameservers"
        yield invalid(at.child("nameservers"), servers, text)
    for position, server in enumerate(servers):
        yield from valid_address(at.child("nameservers").index(position), server)
    if len(searches) > MAX_SEARCHES:
        yield invalid(at.child("searches"), searches, f"must not have more than {MAX_SEARCHES} search paths")
    if sum(map(len, searches)) + max(len(searches) - 1, 0) > MAX_SEARCH_CHARACTERS:
        limit = f"{MAX_SEARCH_CHARACTERS} characters (including spaces)"
        yield invalid(at.child("searches"), searches, f"must not have more than {limit} in the search list")
    for position, search in enumerate(searches):
        name = search.removesuffix(".")
        if name:
            check = names.is_dns1123_subdomain
            yield from messages(at.child("searches").index(position), name.replace("_", "-"), check)
    for position, option in enumerate(get_list(config, "options")):
        if not option.get("name"):
            yield required(at.child("options").index(position), "must not be empty")


def _validate_gates(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    for position, gate in enumerate(get_list(spec, "readinessGates")):
        at = path.child("readinessGates").index(position).child("conditionType")
        yield from messages(at, gate.get("conditionType", ""), names.is_qualified_name)
    seen: set[str] = set()
    for position, gate in enumerate(get_list(spec, "schedulingGates")):
        at = path.child("schedulingGates").index(position)
        name = gate.get("name", "")
        yield from messages(at, name, names.is_qualified_name)
        if name in seen:
            yield duplicate(at, name)
        seen.add(name)


def _operating_system(path: FieldPath, system: JsonObject) -> list[FieldError]:
    name = system.get("name")
    return one_of(path, name, ("linux", "windows")) if name else [required(path.child("name"))]


def _tolerations(path: FieldPath, tolerations: list[JsonObject]) -> Iterable[FieldError]:
    return validate_tolerations(tolerations, path)


def _deadline(path: FieldPath, value: int) -> list[FieldError]:
    return in_range(path, value, 1, 2**31 - 1)


_LABEL, _SUBDOMAIN = named(names.is_dns1123_label), named(names.is_dns1123_subdomain)
_FLAT = (
    may("serviceAccountName", _SUBDOMAIN),
    may("nodeName", _SUBDOMAIN),
    given("activeDeadlineSeconds", _deadline),
    given("terminationGracePeriodSeconds", not_negative),
    may("hostname", _LABEL),
    may("subdomain", _LABEL),
    given("hostnameOverride", _SUBDOMAIN),
    may("tolerations", _tolerations),
    may(
        "hostAliases",
        items(within(given("ip", valid_address), may("hostnames", items(_SUBDOMAIN)))),
    ),
    may("priorityClassName", _SUBDOMAIN),
    given("runtimeClassName", _SUBDOMAIN),
    given("preemptionPolicy", choice("PreemptLowerPriority", "Never")),
    given("os", _operating_system),
)


def _validate_pod_security(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    security = get_object(spec, "securityContext")
    at = path.child("securityContext")
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        yield from _identifier(at.child(field), security.get(field))
    for position, group in enumerate(get_list(security, "supplementalGroups")):
        yield from _identifier(at.child("supplementalGroups").index(position), group)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(path.child("shareProcessNamespace"), True, text)
    if spec.get("hostUsers") is False:
        text = "when `hostUsers` is false"
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                yield forbidden(path.child(field), text)
    yield from _validate_sysctls(
        security, at, {kind: bool(spec.get(kind)) for kind in ("hostNetwork", "hostIPC")}
    )
    yield from check_fields(security, at, given("fsGroupChangePolicy", choice("Always", "OnRootMismatch")))
    yield from check_fields(security, at, given("supplementalGroupsPolicy", choice("Merge", "Strict")))
    yield from validate_seccomp(security.get("seccompProfile"), at.child("seccompProfile"))
    yield from validate_apparmor(security.get("appArmorProfile"), at.child("appArmorProfile"))


def _identifier(path: FieldPath, value: Any) -> list[FieldError]:
    return in_range(path, value, 0, 2**31 - 1) if value is not None else []


def _validate_sysctls(
    security: JsonObject, path: FieldPath, shared: Mapping[str, Any]
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, item in enumerate(get_list(security, "sysctls")):
        at = path.child("sysctls").index(position).child("name")
        name = item.get("name", "")
        if not name:
            yield required(at)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            yield invalid(at, name, _SYSCTL_TEXT)
        elif name in seen:
            yield duplicate(at, name)
        seen.add(name)
        # Settings of a namespace that the pod shares with the node are the node's.
        kind = "hostNetwork" if _dotted(name).startswith("net.") else "hostIPC"
        if shared.get(kind) and _dotted(name).startswith(_NAMESPACED_SYSCTLS[kind]):
            yield invalid(at, name, f"may not be specified when '{kind}' is true")


def _dotted(sysctl: str) -> str:
    """A name whose first separator is a slash is written with slashes for dots."""
    separator = next((char for char in sysctl if char in "./"), ".")
    return sysctl if separator == "." else sysctl.translate(str.maketrans("./", "/."))
