"""Validation of pods and pod templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kindling.apiserver.kinds.core.volumes.sources import validate_pod_volumes
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import address
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, duplicate, invalid, required
from kubecore.objects.meta_validation import validate_annotations
from kubecore.objects.selectors import validate_labels

from .containers import (
    APP_ARMOR,
    HOST_PORT,
    IDENTIFIER,
    NO_RESTARTS,
    RESTARTS,
    SECCOMP,
    TRIMMED_IMAGE,
    container_rules,
    ephemeral_rules,
    host_port_conflicts,
)
from .placement import AFFINITY, TOLERATIONS, spread_constraints
from .probes import lifecycle_and_probes
from .resource_claims import resource_claims
from .resources import validate_pod_resources, validate_resources
from .systems import WINDOWS_OPTIONS, host_processes, operating_system

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
_ON_HOST_NETWORK, _SIDECAR = f.equals("hostNetwork", True), f.equals("restartPolicy", "Always")
_HOOKS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def validate_template(path: FieldPath, template: JsonObject) -> Iterator[FieldError]:
    """A pod template."""
    yield from validate_labels(get_object(template, "metadata", "labels"), path.child("labels"))
    yield from validate_annotations(
        get_object(template, "metadata", "annotations"), path.child("annotations")
    )
    yield from f.check_fields(template, path, _TEMPLATE_SPEC)


def validate_pod_spec(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    """The pod spec of a template, or of a pod that is there."""
    return f.check_fields(spec, path, *_head(None), _TEMPLATE_PORTS, *_TAIL)


_TEMPLATE_SPEC = f.part("spec", validate_pod_spec, f.never(_NOT_IN_TEMPLATES, "ephemeralContainers"))


def _head(name: str | None) -> tuple[f.Row, ...]:
    """Volumes, claims and containers of a pod of this name; None for a template."""
    claims = f.may("resourceClaims", resource_claims(name))
    return partial(_containers, claims), validate_pod_resources


def _containers(claims: f.Row, path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """Volumes, and containers that mount those of them without errors; the pod's `claims` in between."""
    problems, volumes = validate_pod_volumes(get_list(spec, "volumes"), path.child("volumes"))
    yield from problems
    seen: set[str] = set()

    def unique(path: FieldPath, container: JsonObject) -> Iterator[FieldError]:
        name = container.get("name", "")
        if name and name in seen:
            yield duplicate(path.child("name"), name)
        seen.add(name)

    yield from f.check_fields(spec, path, claims)
    pod = {**spec, "volumes": volumes}
    rules, probes = container_rules(pod), lifecycle_and_probes(pod)
    init = (f.when(_SIDECAR, *probes), f.unless(_SIDECAR, f.absent(_NOT_OF_INIT, *_HOOKS)))
    ephemeral = (*rules, NO_RESTARTS, TRIMMED_IMAGE, unique, *ephemeral_rules(pod))
    yield from f.check_fields(
        spec,
        path,
        f.must("containers", f.items(*rules, *RESTARTS, unique, *probes), host_port_conflicts),
        f.may("initContainers", f.items(*rules, *RESTARTS, unique, *init)),
        f.may("ephemeralContainers", f.items(*ephemeral)),
    )


def _same_port(path: FieldPath, port: JsonObject) -> Iterator[FieldError]:
    if port.get("hostPort", 0) != port.get("containerPort"):
        yield invalid(path.child("hostPort"), port.get("hostPort", 0), HOST_PORT)


_HOST_PORTS = f.items(f.may("ports", f.items(_same_port)))
"""Ports of a pod on its node's network."""
_WANTED_PORTS = f.items(f.may("ports", f.items(f.when(lambda port: port.get("hostPort"), _same_port))))
_TEMPLATE_PORTS = f.when(_ON_HOST_NETWORK, f.may("containers", _WANTED_PORTS))
"""The same for templates, which leave the port of the host out: the pod's will be defaulted."""


def _no_more(limit: int, what: str, size: Callable[[list[str]], int] = len) -> f.Check:
    return f.refused(lambda values: size(values) > limit, f"must not have more than {limit} {what}")


def _length(searches: list[str]) -> int:
    return len(" ".join(searches))


def _search(path: FieldPath, search: str) -> Iterable[FieldError]:
    name = search.removesuffix(".").replace("_", "-")
    return f.SUBDOMAIN(path, name) if name else ()


_DNS_CONFIG = f.given(
    "dnsConfig",
    f.may("nameservers", _no_more(MAX_NAMESERVERS, "nameservers"), f.items(address)),
    f.may(
        "searches",
        _no_more(MAX_SEARCHES, "search paths"),
        _no_more(MAX_SEARCH_CHARACTERS, "characters (including spaces) in the search list", _length),
        f.items(_search),
    ),
    f.may("options", f.items(f.lacking(lambda option: not option.get("name"), "must not be empty"))),
)


def _dns(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    at = path.child("dnsConfig")
    if spec.get("dnsPolicy") == "None" and spec.get("dnsConfig") is None:
        return [required(at, "must provide `dnsConfig` when `dnsPolicy` is None")]
    if spec.get("dnsPolicy") == "None" and not get_list(spec, "dnsConfig", "nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(at.child("nameservers"), text)]
    return f.check_fields(spec, path, _DNS_CONFIG)


def _scheduling_gates(path: FieldPath, gates: list[JsonObject]) -> Iterable[FieldError]:
    return f.items(f.QUALIFIED, f.Once())(path, [gate.get("name", "") for gate in gates])


def _overhead(path: FieldPath, amounts: JsonObject) -> Iterable[FieldError]:
    """What a sandbox takes besides: judged like the limits of a container."""
    return validate_resources((), path, {"limits": amounts})


def _namespaces(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(path.child("shareProcessNamespace"), True, text)
    if spec.get("hostUsers") is False:
        yield from f.never("when `hostUsers` is false", "hostNetwork", "hostPID", "hostIPC")(path, spec)


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


_TAIL: tuple[f.Row, ...] = (
    f.must("restartPolicy", f.choice(*RESTART_POLICIES)),
    f.must("dnsPolicy", f.choice(*DNS_POLICIES)),
    f.may("nodeSelector", f.labels),
    f.part(
        "securityContext",
        f.given("fsGroup", IDENTIFIER),
        f.given("runAsUser", IDENTIFIER),
        f.given("runAsGroup", IDENTIFIER),
        f.may("supplementalGroups", f.items(IDENTIFIER)),
    ),
    _namespaces,
    _sysctls,
    f.part(
        "securityContext",
        f.given("fsGroupChangePolicy", f.choice("Always", "OnRootMismatch")),
        f.given("supplementalGroupsPolicy", f.choice("Merge", "Strict")),
        SECCOMP,
        WINDOWS_OPTIONS,
        APP_ARMOR,
        f.given("seLinuxChangePolicy", f.choice("MountOption", "Recursive")),
    ),
    f.given("affinity", AFFINITY),
    _dns,
    f.may("readinessGates", f.items(f.always("conditionType", "", f.QUALIFIED))),
    f.may("schedulingGates", _scheduling_gates),
    f.may("topologySpreadConstraints", spread_constraints),
    host_processes,
    f.may("serviceAccountName", f.SUBDOMAIN),
    f.may("nodeName", f.SUBDOMAIN),
    f.given("activeDeadlineSeconds", f.between(1, 2**31 - 1)),
    *f.counts("terminationGracePeriodSeconds"),
    f.may("hostname", f.LABEL),
    f.may("subdomain", f.LABEL),
    f.given("hostnameOverride", f.SUBDOMAIN),
    f.may("tolerations", TOLERATIONS),
    f.may("hostAliases", f.items(f.given("ip", address), f.may("hostnames", f.items(f.SUBDOMAIN)))),
    f.may("priorityClassName", f.SUBDOMAIN),
    f.given("runtimeClassName", f.SUBDOMAIN),
    f.given("preemptionPolicy", f.choice("PreemptLowerPriority", "Never")),
    f.given("overhead", _overhead),
    operating_system,
)
_NEW_POD: tuple[f.Row, ...] = (
    f.when(_ON_HOST_NETWORK, f.may("containers", _HOST_PORTS)),
    *_TAIL,
    f.may("containers", f.items(TRIMMED_IMAGE)),
    f.may("initContainers", f.items(TRIMMED_IMAGE)),
    f.never("cannot be set on create", "ephemeralContainers"),
    f.when(lambda spec: spec.get("schedulingGates"), f.never(_NOT_WHILE_GATED, "nodeName")),
)


def validate_pod(pod: JsonObject) -> Iterable[FieldError]:
    """A new pod."""
    return f.spec(*_head(get_str(pod, "metadata", "name")), *_NEW_POD)(pod)
