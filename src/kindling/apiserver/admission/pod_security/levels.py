"""The three levels, and what a pod violates of them.

Versions of the standard before the latest are treated as the latest: rules have only been relaxed since,
or tightened for fields that older pods cannot have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.objects.fields import FieldError, FieldPath, invalid

from . import baseline, restricted
from .baseline import Violation

Check = Callable[[JsonObject, JsonObject], Violation | None]
LEVELS = ("privileged", "baseline", "restricted")
PREFIX = "pod-security.kubernetes.io/"
MODES = ("enforce", "audit", "warn")
_VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]{0,2})\Z")

_SHARED: tuple[Check, ...] = (
    baseline.app_armor,
    baseline.host_namespaces,
    baseline.host_ports,
    baseline.probe_hosts,
    baseline.privileged,
    baseline.se_linux,
    baseline.sysctls,
    baseline.host_process,
)
BASELINE: tuple[Check, ...] = (
    baseline.app_armor,
    baseline.capabilities,
    baseline.host_namespaces,
    baseline.host_path,
    baseline.host_ports,
    baseline.probe_hosts,
    baseline.privileged,
    baseline.proc_mount,
    baseline.se_linux,
    baseline.seccomp,
    baseline.sysctls,
    baseline.host_process,
)
"""In the order in which violations are reported."""
RESTRICTED: tuple[Check, ...] = (
    *_SHARED,
    restricted.privilege_escalation,
    restricted.capabilities,
    restricted.proc_mount,
    restricted.volume_types,
    restricted.run_as_non_root,
    restricted.run_as_user,
    restricted.seccomp,
)
"""Checks of the baseline that a stricter one covers are left out."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A level in a version of the standard."""

    level: str = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def violations(self, pod: JsonObject, spec: JsonObject) -> list[Violation]:
        """What the pod (or template: metadata and spec) violates."""
        checks = {"baseline": BASELINE, "restricted": RESTRICTED}.get(self.level, ())
        return [violation for check in checks if (violation := check(pod, spec)) is not None]


def describe(violations: list[Violation]) -> str:
    """All violations with their details."""
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in violations)


def policy_of(namespace: JsonObject, mode: str) -> Policy:
    """The policy that a namespace's labels ask for in a mode; unreadable labels ask for the strictest."""
    labels = meta.labels(namespace)
    level = labels.get(PREFIX + mode, "privileged")
    version = labels.get(f"{PREFIX}{mode}-version", "latest")
    if level not in LEVELS:
        return Policy("restricted" if mode == "enforce" else "privileged")
    return Policy(level, version if _VERSION.match(version) else "latest")


def validate_labels(namespace: JsonObject) -> list[FieldError]:
    """What is wrong with the labels of a namespace."""
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
