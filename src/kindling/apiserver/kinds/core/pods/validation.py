"""Pods and pod templates: what must be there and what fits together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kindling.apiserver.kinds.core.volumes.sources import validate_pod_volumes
from kindling.apiserver.kinds.machinery.checks import address as valid_address
from kindling.apiserver.kinds.machinery.checks import in_range, messages, one_of
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, named
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from kubecore.objects.meta_validation import validate_annotations
from kubecore.objects.selectors import validate_labels

from .containers import (
    HOST_PORT,
    host_port_conflicts,
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


def validate_pod(pod: JsonObject) -> list[FieldError]:
    """A new pod."""
    spec, path = get_object(pod, "spec"), FieldPath("spec")
    found = validate_pod_spec(spec, path)
    if spec.get("ephemeralContainers"):
        found.append(forbidden(path.child("ephemeralContainers"), "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        found.append(
            forbidden(path.child("nodeName"), "cannot be set until all schedulingGates have been cleared")
        )
    return found


def validate_template(template: JsonObject, path: FieldPath) -> list[FieldError]:
    """A pod template."""
    labels = get_object(template, "metadata", "labels")
    annotations = get_object(template, "metadata", "annotations")
    found = validate_labels(labels, path.child("labels"))
    found += validate_annotations(annotations, path.child("annotations"))
    spec = get_object(template, "spec")
    found += validate_pod_spec(spec, path.child("spec"))
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        found.append(forbidden(path.child("spec", "ephemeralContainers"), text))
    return found


def validate_pod_spec(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    """A pod spec, of a pod or a template."""
    found = validate_pod_volumes(get_list(spec, "volumes"), path.child("volumes"))
    found += _validate_containers(spec, path)
    found += _validate_policies(spec, path)
    found += validate_labels(get_object(spec, "nodeSelector"), path.child("nodeSelector"))
    found += _validate_pod_security(spec, path)
    for position, reference in enumerate(get_list(spec, "imagePullSecrets")):
        if not reference:
            found.append(required(path.child("imagePullSecrets").index(position).child("name")))
    if isinstance(spec.get("affinity"), dict):
        found += validate_affinity(spec["affinity"], path.child("affinity"))
    found += _validate_dns(spec, path)
    found += _validate_gates(spec, path)
    constraints = get_list(spec, "topologySpreadConstraints")
    found += validate_spread_constraints(constraints, path.child("topologySpreadConstraints"))
    found += _validate_names(spec, path)
    found += validate_tolerations(get_list(spec, "tolerations"), path.child("tolerations"))
    found += _validate_host_aliases(get_list(spec, "hostAliases"), path.child("hostAliases"))
    if isinstance(spec.get("resources"), dict):
        found += validate_resources(spec["resources"], path.child("resources"))
    return found


def _located(spec: JsonObject, path: FieldPath, field: str) -> Located:
    return [(item, path.child(field).index(position)) for position, item in enumerate(get_list(spec, field))]


def _validate_containers(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    regular, init = _located(spec, path, "containers"), _located(spec, path, "initContainers")
    found: list[FieldError] = []
    if not regular:
        found.append(required(path.child("containers")))
    seen: set[str] = set()
    for container, at in regular:
        found += validate_container(container, at, spec, "container")
        found += _unique_name(container, at, seen)
        found += validate_lifecycle_and_probes(container, at, spec)
    found += host_port_conflicts(regular)
    for container, at in init:
        found += validate_container(container, at, spec, "init")
        found += _unique_name(container, at, seen)
        found += _validate_init(container, at, spec)
    found += _validate_ephemeral(_located(spec, path, "ephemeralContainers"), spec, seen)
    if spec.get("hostNetwork"):
        found += _validate_host_network(regular + init)
    return found


def _unique_name(container: JsonObject, path: FieldPath, seen: set[str]) -> list[FieldError]:
    name = container.get("name", "")
    if name and name in seen:
        return [duplicate(path.child("name"), name)]
    seen.add(name)
    return []


def _validate_init(container: JsonObject, path: FieldPath, spec: JsonObject) -> list[FieldError]:
    if container.get("restartPolicy") == "Always":
        return validate_lifecycle_and_probes(container, path, spec)
    text = "may not be set for init containers without restartPolicy=Always"
    fields = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
    return [forbidden(path.child(field), text) for field in fields if container.get(field) is not None]


def _validate_ephemeral(containers: Located, spec: JsonObject, seen: set[str]) -> list[FieldError]:
    targets = {
        item.get("name") for field in ("containers", "initContainers") for item in get_list(spec, field)
    }
    found: list[FieldError] = []
    for container, path in containers:
        found += validate_container(container, path, spec, "ephemeral")
        found += _unique_name(container, path, seen)
        target = container.get("targetContainerName")
        if target and target not in targets:
            found.append(not_found(path.child("targetContainerName"), target))
        text = "cannot be set for an Ephemeral Container"
        found += [
            forbidden(path.child(field), text) for field in _EPHEMERAL_FORBIDDEN if container.get(field)
        ]
        for position, mount in enumerate(get_list(container, "volumeMounts")):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    at = path.child("volumeMounts").index(position).child(field)
                    found.append(forbidden(at, text))
    return found


def _validate_host_network(containers: Located) -> list[FieldError]:
    found = []
    for container, path in containers:
        for position, port in enumerate(get_list(container, "ports")):
            if port.get("hostPort", 0) != port.get("containerPort"):
                at = path.child("ports").index(position).child("hostPort")
                found.append(invalid(at, port.get("hostPort", 0), HOST_PORT))
    return found


def _validate_policies(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    for field, allowed in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)):
        value = spec.get(field, "")
        if not value:
            found.append(required(path.child(field)))
        elif value not in allowed:
            found.append(not_supported(path.child(field), value, allowed))
    return found


def _validate_dns(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    config, at = spec.get("dnsConfig"), path.child("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if not isinstance(config, dict):
            return [required(at, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not get_list(config, "nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(at.child("nameservers"), text)]
    if not isinstance(config, dict):
        return []
    found: list[FieldError] = []
    servers, searches = get_list(config, "nameservers"), get_list(config, "searches")
    if len(servers) > MAX_NAMESERVERS:
        text = f"must not have more than {MAX_NAMESERVERS} nameservers"
        found.append(invalid(at.child("nameservers"), servers, text))
    for position, server in enumerate(servers):
        found += valid_address(at.child("nameservers").index(position), server)
    if len(searches) > MAX_SEARCHES:
        text = f"must not have more than {MAX_SEARCHES} search paths"
        found.append(invalid(at.child("searches"), searches, text))
    if sum(map(len, searches)) + max(len(searches) - 1, 0) > MAX_SEARCH_CHARACTERS:
        limit = f"{MAX_SEARCH_CHARACTERS} characters (including spaces)"
        text = f"must not have more than {limit} in the search list"
        found.append(invalid(at.child("searches"), searches, text))
    for position, search in enumerate(searches):
        name = search.removesuffix(".")
        if name:
            check = names.is_dns1123_subdomain
            found += messages(at.child("searches").index(position), name.replace("_", "-"), check)
    for position, option in enumerate(get_list(config, "options")):
        if not option.get("name"):
            found.append(required(at.child("options").index(position), "must not be empty"))
    return found


def _validate_gates(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    for position, gate in enumerate(get_list(spec, "readinessGates")):
        at = path.child("readinessGates").index(position).child("conditionType")
        found += messages(at, gate.get("conditionType", ""), names.is_qualified_name)
    seen: set[str] = set()
    for position, gate in enumerate(get_list(spec, "schedulingGates")):
        at = path.child("schedulingGates").index(position)
        name = gate.get("name", "")
        found += messages(at, name, names.is_qualified_name)
        if name in seen:
            found.append(duplicate(at, name))
        seen.add(name)
    return found


def _validate_names(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    for field, check in (
        ("serviceAccountName", names.is_dns1123_subdomain),
        ("nodeName", names.is_dns1123_subdomain),
        ("runtimeClassName", names.is_dns1123_subdomain),
        ("priorityClassName", names.is_dns1123_subdomain),
        ("hostname", names.is_dns1123_label),
        ("subdomain", names.is_dns1123_label),
    ):
        found += check_fields(spec, path, may(field, named(check)))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        found += in_range(path.child("activeDeadlineSeconds"), deadline, 1, 2**31 - 1)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        at = path.child("terminationGracePeriodSeconds")
        found.append(invalid(at, grace, "must be greater than or equal to 0"))
    found += check_fields(spec, path, given("preemptionPolicy", choice("Never", "PreemptLowerPriority")))
    system = spec.get("os")
    if isinstance(system, dict):
        if not system.get("name"):
            found.append(required(path.child("os", "name"), "cannot be empty"))
        else:
            found += one_of(path.child("os", "name"), system["name"], ("linux", "windows"))
    return found


def _validate_host_aliases(aliases: Sequence[JsonObject], path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    for alias in aliases:
        found += valid_address(path.child("ip"), alias.get("ip", ""))
        for name in get_list(alias, "hostnames"):
            found += messages(path.child("hostnames"), name, names.is_dns1123_subdomain)
    return found


def _validate_pod_security(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    security = get_object(spec, "securityContext")
    at = path.child("securityContext")
    found: list[FieldError] = []
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        found += _identifier(at.child(field), security.get(field))
    for position, group in enumerate(get_list(security, "supplementalGroups")):
        found += _identifier(at.child("supplementalGroups").index(position), group)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(path.child("shareProcessNamespace"), True, text))
    if spec.get("hostUsers") is False:
        text = "when `hostUsers` is false"
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                found.append(forbidden(path.child(field), text))
    found += _validate_sysctls(security, at)
    found += check_fields(security, at, given("fsGroupChangePolicy", choice("Always", "OnRootMismatch")))
    found += check_fields(security, at, given("supplementalGroupsPolicy", choice("Merge", "Strict")))
    found += validate_seccomp(security.get("seccompProfile"), at.child("seccompProfile"))
    return found + validate_apparmor(security.get("appArmorProfile"), at.child("appArmorProfile"))


def _identifier(path: FieldPath, value: Any) -> list[FieldError]:
    return in_range(path, value, 0, 2**31 - 1) if value is not None else []


def _validate_sysctls(security: JsonObject, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for position, item in enumerate(get_list(security, "sysctls")):
        at = path.child("sysctls").index(position).child("name")
        name = item.get("name", "")
        if not name:
            found.append(required(at))
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            found.append(invalid(at, name, _SYSCTL_TEXT))
        elif name in seen:
            found.append(duplicate(at, name))
        seen.add(name)
    return found
