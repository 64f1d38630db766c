"""The three levels of Pod Security in all versions, and the violations of a pod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.objects.fields import FieldError, FieldPath, invalid

from . import baseline, restricted
from .baseline import Check, Violation

LEVELS = ("privileged", "baseline", "restricted")
PREFIX = "pod-security.kubernetes.io/"
MODES = ("enforce", "audit", "warn")
_VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]{0,2})\Z")

_LATEST = 1000

History = Sequence[tuple[int, Check]]
"""One rule over time: each check with the minor version of Kubernetes that brought it, oldest first."""

_SE_LINUX: History = (
    (0, partial(baseline.se_linux, allowed=baseline.SELINUX_TYPES_1_0)),
    (31, partial(baseline.se_linux, allowed=baseline.SELINUX_TYPES_1_31)),
)
_SYSCTLS: History = (
    (0, partial(baseline.sysctls, allowed=baseline.SYSCTLS_1_0)),
    (27, partial(baseline.sysctls, allowed=baseline.SYSCTLS_1_27)),
    (29, partial(baseline.sysctls, allowed=baseline.SYSCTLS_1_29)),
    (32, partial(baseline.sysctls, allowed=baseline.SYSCTLS_1_32)),
)
_SHARED: tuple[History, ...] = (
    [(0, baseline.app_armor)],
    [(0, baseline.host_namespaces)],
    [(0, baseline.host_ports)],
    [(34, baseline.probe_hosts)],
    [(0, baseline.privileged)],
    _SE_LINUX,
    _SYSCTLS,
    [(0, baseline.host_process)],
)
BASELINE: tuple[History, ...] = (
    [(0, baseline.app_armor)],
    [(0, baseline.capabilities)],
    [(0, baseline.host_namespaces)],
    [(0, baseline.host_path)],
    [(0, baseline.host_ports)],
    [(34, baseline.probe_hosts)],
    [(0, baseline.privileged)],
    [(0, baseline.proc_mount), (35, restricted.without_own_users(baseline.proc_mount))],
    _SE_LINUX,
    [(0, baseline.seccomp_annotations), (19, baseline.seccomp)],
    _SYSCTLS,
    [(0, baseline.host_process)],
)
"""In the order in which violations are reported."""
RESTRICTED: tuple[History, ...] = (
    *_SHARED,
    [(8, restricted.privilege_escalation), (25, restricted.not_on_windows(restricted.privilege_escalation))],
    [
        (0, baseline.capabilities),
        (22, restricted.capabilities),
        (25, restricted.not_on_windows(restricted.capabilities)),
    ],
    [(0, baseline.proc_mount)],
    [(0, restricted.volume_types)],
    [(0, restricted.run_as_non_root), (35, restricted.without_own_users(restricted.run_as_non_root))],
    [(23, restricted.run_as_user), (35, restricted.without_own_users(restricted.run_as_user))],
    [
        (0, baseline.seccomp_annotations),
        (19, restricted.seccomp),
        (25, restricted.not_on_windows(restricted.seccomp)),
    ],
)
"""Checks of the baseline that a stricter one covers are left out."""


def checks_of(level: str, version: str) -> list[Check]:
    """The checks of a level in a Kubernetes version; later versions have those of the latest."""
    minor = _LATEST if version == "latest" else int(version.removeprefix("v1."))
    histories = {"baseline": BASELINE, "restricted": RESTRICTED}.get(level, ())
    valid = ([check for since, check in history if since <= minor] for history in histories)
    return [checks[-1] for checks in valid if checks]


@dataclass(frozen=True, slots=True)
class Policy:
    """A level in a version of the standard."""

    level: str = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def violations(self, pod: JsonObject, spec: JsonObject) -> list[Violation]:
        """The violations of the pod (or template: metadata and spec)."""
        checks = checks_of(self.level, self.version)
        return [violation for check in checks if (violation := check(pod, spec)) is not None]


def describe(violations: list[Violation]) -> str:
    """All violations with their details."""
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in violations)


def policy_of(namespace: JsonObject, mode: str) -> Policy:
    """The policy of a namespace's labels in a mode; invalid labels mean the strictest policy."""
    labels = meta.labels(namespace)
    level = labels.get(PREFIX + mode, "privileged")
    version = labels.get(f"{PREFIX}{mode}-version", "latest")
    if level not in LEVELS:
        return Policy("restricted" if mode == "enforce" else "privileged")
    return Policy(level, version if _VERSION.match(version) else "latest")


def validate_labels(namespace: JsonObject) -> list[FieldError]:
    """The errors of the Pod Security labels of a namespace."""
    errors = []
    labels, path = meta.labels(namespace), FieldPath("metadata", "labels")
    for mode in MODES:
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        if level is not None and level not in LEVELS:
            errors.append(invalid(path.key(PREFIX + mode), level, f"must be one of {', '.join(LEVELS)}"))
        if version is not None and not _VERSION.match(version):
            errors.append(invalid(path.key(f"{PREFIX}{mode}-version"), version, 'must be "latest" or "v1.x"'))
    return errors


def spec_of(obj: JsonObject, plural: str) -> tuple[JsonObject, JsonObject]:
    """The pod or pod template in an object of a kind that has one: (metadata holder, spec)."""
    if plural == "pods":
        return obj, get_object(obj, "spec")
    if plural == "podtemplates":
        template = get_object(obj, "template")
    elif plural == "cronjobs":
        template = get_object(obj, "spec", "jobTemplate", "spec", "template")
    else:
        template = get_object(obj, "spec", "template")
    return template, get_object(template, "spec")
