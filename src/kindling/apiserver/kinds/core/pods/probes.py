"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import messages, port, port_or_name
from kindling.apiserver.kinds.machinery.fields import (
    Check,
    Row,
    always,
    at_least,
    choice,
    counts,
    given,
    may,
    must,
    part,
    within,
)
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required

_SECONDS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds")
_THRESHOLDS = ("successThreshold", "failureThreshold")


def _headers(path: FieldPath, headers: list[JsonObject]) -> Iterator[FieldError]:
    for header in headers:
        yield from messages(path, header.get("name", ""), names.is_http_header_name)


_HANDLERS: Mapping[str, Check] = {
    "exec": within(must("command")),
    "httpGet": within(
        must("path"),
        always("port", 0, port_or_name),
        always("scheme", "", choice("HTTP", "HTTPS")),
        may("httpHeaders", _headers),
    ),
    "tcpSocket": within(always("port", 0, port_or_name)),
}
"""What probes and hooks may do, in the order in which it is judged."""


def _one_of(handlers: Mapping[str, Check]) -> Check:
    """Exactly one of several handlers."""

    def check(path: FieldPath, holder: JsonObject) -> Iterator[FieldError]:
        chosen = [kind for kind in handlers if isinstance(holder.get(kind), dict)]
        for kind in chosen[:1]:
            yield from handlers[kind](path.child(kind), holder[kind])
        for kind in chosen[1:]:
            yield forbidden(path.child(kind), "may not specify more than 1 handler type")
        if not chosen:
            yield required(path, "must specify a handler type")

    return check


def _hook(pod: Mapping[str, Any]) -> Check:
    grace = pod.get("terminationGracePeriodSeconds") or 0

    def sleep(path: FieldPath, seconds: int) -> Iterator[FieldError]:
        if not 0 <= seconds <= grace:
            text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield invalid(path, seconds, text)

    # The error is about the action, not about its field.
    return _one_of({**_HANDLERS, "sleep": lambda path, action: sleep(path, action.get("seconds", 0))})


def _not_of_readiness(path: FieldPath, seconds: int) -> list[FieldError]:
    return [invalid(path, seconds, "must not be set for readinessProbes")]


def _one_success(path: FieldPath, threshold: int) -> Iterator[FieldError]:
    if threshold != 1:
        yield invalid(path, threshold, "must be 1")


_PROBE: tuple[Row, ...] = (
    _one_of({**_HANDLERS, "grpc": within(always("port", 0, port))}),
    *counts(*_SECONDS, *_THRESHOLDS),
)
_READINESS = within(*_PROBE, given("terminationGracePeriodSeconds", _not_of_readiness))
_LIVENESS = within(
    *_PROBE,
    given("terminationGracePeriodSeconds", at_least(1, "must be greater than 0")),
    given("successThreshold", _one_success),
)


def lifecycle_and_probes(pod: Mapping[str, Any]) -> tuple[Row, ...]:
    """The rules of hooks and probes of regular containers and sidecars of a pod with this spec."""
    hook = _hook(pod)
    return (
        part("lifecycle", given("postStart", hook), given("preStop", hook)),
        given("livenessProbe", _LIVENESS),
        given("readinessProbe", _READINESS),
        given("startupProbe", _LIVENESS),
    )
