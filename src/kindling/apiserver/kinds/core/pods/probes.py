"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import (
    counts,
    messages,
    one_of,
    port,
    port_or_name,
    required_text,
)
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required


def validate_lifecycle_and_probes(
    container: JsonObject, path: FieldPath, pod: Mapping[str, Any]
) -> list[FieldError]:
    """Hooks and probes of regular containers and sidecars."""
    found: list[FieldError] = []
    lifecycle = get_object(container, "lifecycle")
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if isinstance(handler, dict):
            found += _validate_handler(handler, path.child("lifecycle", hook), pod, hook=True)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(field)
        if isinstance(probe, dict):
            found += validate_probe(probe, path.child(field), pod, field)
    return found


def validate_probe(
    probe: JsonObject, path: FieldPath, pod: Mapping[str, Any], field: str
) -> list[FieldError]:
    """A liveness, readiness or startup probe."""
    found = _validate_handler(probe, path, pod, hook=False)
    fields = (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    )
    found += counts(probe, path, *fields)
    period = probe.get("terminationGracePeriodSeconds")
    if period is not None:
        if field == "readinessProbe":
            text = "must not be set for readinessProbes"
            found.append(invalid(path.child("terminationGracePeriodSeconds"), period, text))
        elif period <= 0:
            text = "must be greater than 0"
            found.append(invalid(path.child("terminationGracePeriodSeconds"), period, text))
    threshold = probe.get("successThreshold", 1)
    if field != "readinessProbe" and threshold != 1:
        found.append(invalid(path.child("successThreshold"), threshold, "must be 1"))
    return found


def _validate_handler(
    handler: JsonObject, path: FieldPath, pod: Mapping[str, Any], *, hook: bool
) -> list[FieldError]:
    kinds = ("exec", "httpGet", "tcpSocket", "sleep" if hook else "grpc")
    found: list[FieldError] = []
    count = 0
    for kind in kinds:
        action = handler.get(kind)
        if not isinstance(action, dict):
            continue
        at = path.child(kind)
        if count:
            found.append(forbidden(at, "may not specify more than 1 handler type"))
            continue
        count += 1
        found += _validate_action(kind, action, at, pod)
    if not count:
        found.append(required(path, "must specify a handler type"))
    return found


def _validate_action(
    kind: str, action: JsonObject, path: FieldPath, pod: Mapping[str, Any]
) -> list[FieldError]:
    match kind:
        case "exec":
            return required_text(path.child("command"), action.get("command"))
        case "httpGet":
            found = required_text(path.child("path"), action.get("path"))
            found += port_or_name(path.child("port"), action.get("port", 0))
            found += one_of(path.child("scheme"), action.get("scheme", ""), ("HTTP", "HTTPS"))
            for header in get_list(action, "httpHeaders"):
                found += messages(
                    path.child("httpHeaders"), header.get("name", ""), names.is_http_header_name
                )
            return found
        case "tcpSocket":
            return port_or_name(path.child("port"), action.get("port", 0))
        case "grpc":
            return port(path.child("port"), action.get("port", 0))
    seconds, grace = action.get("seconds", 0), pod.get("terminationGracePeriodSeconds") or 0
    if not 0 <= seconds <= grace:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [invalid(path, seconds, text)]
    return []
