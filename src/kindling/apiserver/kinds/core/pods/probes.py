"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import messages, port, port_or_name
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required

_SECONDS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds")
_THRESHOLDS = ("successThreshold", "failureThreshold")


def _headers(path: FieldPath, headers: list[JsonObject]) -> Iterator[FieldError]:
    for header in headers:
        yield from messages(path, header.get("name", ""), names.is_http_header_name)


_HANDLERS: Mapping[str, f.Check] = {
    "exec": f.within(f.must("command")),
    "httpGet": f.within(
        f.must("path"),
        f.always("port", 0, port_or_name),
        f.always("scheme", "", f.choice("HTTP", "HTTPS")),
        f.may("httpHeaders", _headers),
    ),
    "tcpSocket": f.within(f.always("port", 0, port_or_name)),
}
"""What probes and hooks may do, in the order in which it is judged."""


def _one_of(handlers: Mapping[str, f.Check]) -> f.Check:
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


def _hook(pod: Mapping[str, Any]) -> f.Check:
    grace = pod.get("terminationGracePeriodSeconds") or 0

    def sleep(path: FieldPath, seconds: int) -> Iterator[FieldError]:
        if not 0 <= seconds <= grace:
            text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield invalid(path, seconds, text)

    # The error is about the action, not about its field.
    return _one_of({**_HANDLERS, "sleep": lambda path, action: sleep(path, action.get("seconds", 0))})


_NOT_OF_READINESS = f.refused(lambda _: True, "must not be set for readinessProbes")
_PROBE: tuple[f.Row, ...] = (
    _one_of({**_HANDLERS, "grpc": f.within(f.always("port", 0, port))}),
    *f.counts(*_SECONDS, *_THRESHOLDS),
)
_READINESS = f.within(*_PROBE, f.given("terminationGracePeriodSeconds", _NOT_OF_READINESS))
_LIVENESS = f.within(
    *_PROBE,
    f.given("terminationGracePeriodSeconds", f.at_least(1, "must be greater than 0")),
    f.given("successThreshold", f.refused(lambda threshold: threshold != 1, "must be 1")),
)


def lifecycle_and_probes(pod: Mapping[str, Any]) -> tuple[f.Row, ...]:
    """The rules of hooks and probes of regular containers and sidecars of a pod with this spec."""
    hook = _hook(pod)
    return (
        f.part("lifecycle", f.given("postStart", hook), f.given("preStop", hook)),
        f.given("livenessProbe", _LIVENESS),
        f.given("readinessProbe", _READINESS),
        f.given("startupProbe", _LIVENESS),
    )
