"""Validation of pods and pod templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.core.volumes.sources import validate_pod_volumes
from kindling.apiserver.kinds.machinery.checks import address, one_of
from kindling.apiserver.kinds.machinery.fields import (
    LABEL,
    QUALIFIED,
    SUBDOMAIN,
    Check,
    Once,
    Row,
    absent,
    always,
    between,
    check_fields,
    choice,
    counts,
    equals,
    given,
    items,
    labels,
    may,
    must,
    never,
    part,
    spec,
    unless,
    when,
)
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, duplicate, invalid, required
from kubecore.objects.meta_validation import validate_annotations
from kubecore.objects.selectors import validate_labels

from .containers import (
    HOST_PORT,
    IDENTIFIER,
    NO_RESTARTS,
    PROFILES,
    RESTARTS,
    container_rules,
    ephemeral_rules,
    host_port_conflicts,
    trimmed_image,
)
from .placement import AFFINITY, TOLERATIONS, spread_constraints
from .probes import lifecycle_and_probes
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
MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARACTERS = 2048
_NOT_IN_TEMPLATES = "ephemeral containers not allowed in pod template"
_NOT_WHILE_GATED = "cannot be set until all schedulingGates have been cleared"
_NOT_OF_INIT = "may not be set for init containers without restartPolicy=Always"
_NO_CLAIMS = "claims may not be set for Resources at pod-level"
_ON_HOST_NETWORK, _SIDECAR = equals("hostNetwork", True), equals("restartPolicy", "Always")
_HOOKS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def validate_template(path: FieldPath, template: JsonObject) -> Iterator[FieldError]:
    """A pod template."""
    yield from validate_labels(get_object(template, "metadata", "labels"), path.child("labels"))
    yield from validate_annotations(
        get_object(template, "metadata", "annotations"), path.child("annotations")
    )
    yield from check_fields(template, path, _TEMPLATE_SPEC)


def validate_pod_spec(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    """The pod spec of a template, or of a pod that is there."""
    return check_fields(spec, path, *_HEAD, _TEMPLATE_PORTS, *_TAIL)


_TEMPLATE_SPEC = part("spec", validate_pod_spec, never(_NOT_IN_TEMPLATES, "ephemeralContainers"))


def _containers(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """Volumes, and containers that mount those of them without errors."""
    problems, volumes = validate_pod_volumes(get_list(spec, "volumes"), path.child("volumes"))
    yield from problems
    seen: set[str] = set()

    def unique(path: FieldPath, container: JsonObject) -> Iterator[FieldError]:
        name = container.get("name", "")
        if name and name in seen:
            yield duplicate(path.child("name"), name)
        seen.add(name)

    pod = {**spec, "volumes": volumes}
    rules, probes = container_rules(pod), lifecycle_and_probes(pod)
    init = (when(_SIDECAR, *probes), unless(_SIDECAR, absent(_NOT_OF_INIT, *_HOOKS)))
    ephemeral = (*rules, NO_RESTARTS, trimmed_image, unique, *ephemeral_rules(pod))
    yield from check_fields(
        spec,
        path,
        must("containers", items(*rules, *RESTARTS, unique, *probes), host_port_conflicts),
        may("initContainers", items(*rules, *RESTARTS, unique, *init)),
        may("ephemeralContainers", items(*ephemeral)),
    )


def _same_port(path: FieldPath, port: JsonObject) -> Iterator[FieldError]:
    if port.get("hostPort", 0) != port.get("containerPort"):
        yield invalid(path.child("hostPort"), port.get("hostPort", 0), HOST_PORT)


_HOST_PORTS = items(may("ports", items(_same_port)))
"""Ports of a pod on its node's network."""
_WANTED_PORTS = items(may("ports", items(when(lambda port: port.get("hostPort"), _same_port))))
_TEMPLATE_PORTS = when(_ON_HOST_NETWORK, may("containers", _WANTED_PORTS))
"""The same for templates, which leave the port of the host out: the pod's will be defaulted."""


def _no_more(limit: int, what: str) -> Check:
    text = f"must not have more than {limit} {what}"
    return lambda path, values: [invalid(path, values, text)] if len(values) > limit else []


def _search_length(path: FieldPath, searches: list[str]) -> Iterator[FieldError]:
    if sum(map(len, searches)) + max(len(searches) - 1, 0) > MAX_SEARCH_CHARACTERS:
        limit = f"{MAX_SEARCH_CHARACTERS} characters (including spaces)"
        yield invalid(path, searches, f"must not have more than {limit} in the search list")


def _search(path: FieldPath, search: str) -> Iterable[FieldError]:
    name = search.removesuffix(".").replace("_", "-")
    return SUBDOMAIN(path, name) if name else ()


def _named_option(path: FieldPath, option: JsonObject) -> Iterator[FieldError]:
    if not option.get("name"):
        yield required(path, "must not be empty")


_DNS_CONFIG = given(
    "dnsConfig",
    may("nameservers", _no_more(MAX_NAMESERVERS, "nameservers"), items(address)),
    may("searches", _no_more(MAX_SEARCHES, "search paths"), _search_length, items(_search)),
    may("options", items(_named_option)),
)


def _dns(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    at = path.child("dnsConfig")
    if spec.get("dnsPolicy") == "None" and spec.get("dnsConfig") is None:
        return [required(at, "must provide `dnsConfig` when `dnsPolicy` is None")]
    if spec.get("dnsPolicy") == "None" and not get_list(spec, "dnsConfig", "nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(at.child("nameservers"), text)]
    return check_fields(spec, path, _DNS_CONFIG)


def _scheduling_gates(path: FieldPath, gates: list[JsonObject]) -> Iterable[FieldError]:
    return items(QUALIFIED, Once())(path, [gate.get("name", "") for gate in gates])


def _operating_system(path: FieldPath, system: JsonObject) -> list[FieldError]:
    name = system.get("name")
    return one_of(path, name, ("linux", "windows")) if name else [required(path.child("name"))]


def _namespaces(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(path.child("shareProcessNamespace"), True, text)
    if spec.get("hostUsers") is False:
        yield from never("when `hostUsers` is false", "hostNetwork", "hostPID", "hostIPC")(path, spec)


def _sysctls(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, item in enumerate(get_list(spec, "securityContext", "sysctls")):
        at = path.child("securityContext", "sysctls").index(position).child("name")
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
        if spec.get(kind) and _dotted(name).startswith(_NAMESPACED_SYSCTLS[kind]):
            yield invalid(at, name, f"may not be specified when '{kind}' is true")


def _dotted(sysctl: str) -> str:
    """A name whose first separator is a slash is written with slashes for dots."""
    separator = next((char for char in sysctl if char in "./"), ".")
    return sysctl if separator == "." else sysctl.translate(str.maketrans("./", "/."))


_HEAD: tuple[Row, ...] = (_containers, given("resources", never(_NO_CLAIMS, "claims"), validate_resources))
_TAIL: tuple[Row, ...] = (
    must("restartPolicy", choice(*RESTART_POLICIES)),
    must("dnsPolicy", choice(*DNS_POLICIES)),
    may("nodeSelector", labels),
    part(
        "securityContext",
        given("fsGroup", IDENTIFIER),
        given("runAsUser", IDENTIFIER),
        given("runAsGroup", IDENTIFIER),
        may("supplementalGroups", items(IDENTIFIER)),
    ),
    _namespaces,
    _sysctls,
    part(
        "securityContext",
        given("fsGroupChangePolicy", choice("Always", "OnRootMismatch")),
        given("supplementalGroupsPolicy", choice("Merge", "Strict")),
        *PROFILES,
    ),
    given("affinity", AFFINITY),
    _dns,
    may("readinessGates", items(always("conditionType", "", QUALIFIED))),
    may("schedulingGates", _scheduling_gates),
    may("topologySpreadConstraints", spread_constraints),
    may("serviceAccountName", SUBDOMAIN),
    may("nodeName", SUBDOMAIN),
    given("activeDeadlineSeconds", between(1, 2**31 - 1)),
    *counts("terminationGracePeriodSeconds"),
    may("hostname", LABEL),
    may("subdomain", LABEL),
    given("hostnameOverride", SUBDOMAIN),
    may("tolerations", TOLERATIONS),
    may("hostAliases", items(given("ip", address), may("hostnames", items(SUBDOMAIN)))),
    may("priorityClassName", SUBDOMAIN),
    given("runtimeClassName", SUBDOMAIN),
    given("preemptionPolicy", choice("PreemptLowerPriority", "Never")),
    given("os", _operating_system),
)
validate_pod = spec(
    *_HEAD,
    when(_ON_HOST_NETWORK, may("containers", _HOST_PORTS)),
    *_TAIL,
    may("containers", items(trimmed_image)),
    may("initContainers", items(trimmed_image)),
    never("cannot be set on create", "ephemeralContainers"),
    when(lambda spec: spec.get("schedulingGates"), never(_NOT_WHILE_GATED, "nodeName")),
)
"""A new pod."""
