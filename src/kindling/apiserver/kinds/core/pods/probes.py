"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
) -> Iterator[FieldError]:
    """Hooks and probes of regular containers and sidecars."""
    lifecycle = get_object(container, "lifecycle")
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if isinstance(handler, dict):
            yield from _validate_handler(handler, path.child("lifecycle", hook), pod, hook=True)
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(field)
        if isinstance(probe, dict):
            yield from validate_probe(probe, path.child(field), pod, field)


def validate_probe(
    probe: JsonObject, path: FieldPath, pod: Mapping[str, Any], field: str
) -> Iterator[FieldError]:
    """A liveness, readiness or startup probe."""
    yield from _validate_handler(probe, path, pod, hook=False)
    fields = (
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    )
    yield from counts(probe, path, *fields)
    period = probe.get("terminationGracePeriodSeconds")
    if period is not None:
        if field == "readinessProbe":
            text = "must not be set for readinessProbes"
            yield invalid(path.child("terminationGracePeriodSeconds"), period, text)
        elif period <= 0:
            yield invalid(path.child("terminationGracePeriodSeconds"), period, "must be greater than 0")
    threshold = probe.get("successThreshold", 1)
    if field != "readinessProbe" and threshold != 1:
        yield invalid(path.child("successThreshold"), threshold, "must be 1")


def _validate_handler(
    handler: JsonObject, path: FieldPath, pod: Mapping[str, Any], *, hook: bool
) -> Iterator[FieldError]:
    kinds = ("exec", "httpGet", "tcpSocket", "sleep" if hook else "grpc")
    count = 0
    for kind in kinds:
        action = handler.get(kind)
        if not isinstance(action, dict):
            continue
        at = path.child(kind)
        if count:
            yield forbidden(at, "may not specify more than 1 handler type")
            continue
        count += 1
        yield from _validate_action(kind, action, at, pod)
    if not count:
        yield required(path, "must specify a handler type")


def _validate_action(
    kind: str, action: JsonObject, path: FieldPath, pod: Mapping[str, Any]
) -> Iterator[FieldError]:
    match kind:
        case "exec":
            yield from required_text(path.child("command"), action.get("command"))
            return
        case "httpGet":
            yield from required_text(path.child("path"), action.get("path"))
            yield from port_or_name(path.child("port"), action.get("port", 0))
            yield from one_of(path.child("scheme"), action.get("scheme", ""), ("HTTP", "HTTPS"))
            for header in get_list(action, "httpHeaders"):
                yield from messages(
                    path.child("httpHeaders"), header.get("name", ""), names.is_http_header_name
                )
            return
        case "tcpSocket":
            yield from port_or_name(path.child("port"), action.get("port", 0))
            return
        case "grpc":
            yield from port(path.child("port"), action.get("port", 0))
            return
    seconds, grace = action.get("seconds", 0), pod.get("terminationGracePeriodSeconds") or 0
    if not 0 <= seconds <= grace:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(path, seconds, text)
        return
