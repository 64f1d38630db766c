"""The checks that the restricted level adds to the baseline."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_object

from . import baseline
from .baseline import Check, Violation
from .containers import (
    added_capabilities,
    named,
    names_where,
    offenders,
    profile_type,
    quoted,
    security,
    setters,
)

_VOLUME_TYPES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"}
    | {"projected", "secret"}
)


def not_on_windows(check: Check) -> Check:
    """The check, for pods that do not say they are for Windows (since 1.25)."""

    def checked(pod: JsonObject, spec: JsonObject) -> Violation | None:
        return None if get_object(spec, "os").get("name") == "windows" else check(pod, spec)

    return checked


def without_own_users(check: Check) -> Check:
    """The check, for pods whose root is the host's (since 1.35)."""

    def checked(pod: JsonObject, spec: JsonObject) -> Violation | None:
        return None if spec.get("hostUsers") is False else check(pod, spec)

    return checked


def privilege_escalation(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """No process gets more rights than its parent."""
    names = names_where(spec, lambda each: security(each).get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    return (
        "allowPrivilegeEscalation != false",
        f"{named(names)} must set securityContext.allowPrivilegeEscalation=false",
    )


def capabilities(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """All capabilities are dropped; one may be added."""
    keeping = names_where(spec, lambda each: "ALL" not in get_list(security(each), "capabilities", "drop"))
    adding, added = offenders(spec, lambda each: added_capabilities(each) - {"NET_BIND_SERVICE"})
    details = []
    if keeping:
        details.append(f'{named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        details.append(
            f"{named(adding)} must not include {quoted(added)} in securityContext.capabilities.add"
        )
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def volume_types(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Only volumes that the cluster manages."""
    names, kinds = [], set()
    for volume in get_list(spec, "volumes"):
        used = [key for key, value in volume.items() if key != "name" and value is not None]
        bad = [key for key in used if key not in _VOLUME_TYPES]
        if bad:
            names.append(str(volume.get("name")))
            kinds |= set(bad)
    if not names:
        return None
    many = len(names) > 1
    return (
        "restricted volume types",
        f"volume{'s' if many else ''} {quoted(names)} use{'' if many else 's'} restricted volume "
        f"type{'s' if len(kinds) > 1 else ''} {quoted(sorted(kinds))}",
    )


def run_as_non_root(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Containers promise not to run as root."""
    pod_value = security(spec).get("runAsNonRoot")
    explicit = names_where(spec, lambda each: security(each).get("runAsNonRoot") is False)
    implicit = names_where(spec, lambda each: security(each).get("runAsNonRoot") is None)
    reason = "runAsNonRoot != true"
    if explicit or pod_value is False:
        # Fields with wrong values are named before fields that are not set.
        pod_is_bad = pod_value is False and (bool(implicit) or not explicit)
        return reason, f"{setters(pod_is_bad, explicit)} must not set securityContext.runAsNonRoot=false"
    if pod_value is True or not implicit:
        return None
    return reason, f"pod or {named(implicit)} must set securityContext.runAsNonRoot=true"


def run_as_user(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """User 0 is root."""
    pod_sets = security(spec).get("runAsUser") == 0
    names = names_where(spec, lambda each: security(each).get("runAsUser") == 0)
    if not pod_sets and not names:
        return None
    return "runAsUser=0", f"{setters(pod_sets, names)} must not set runAsUser=0"


def seccomp(pod: JsonObject, spec: JsonObject) -> Violation | None:
    """Every container has a seccomp profile."""
    unsafe = baseline.seccomp(pod, spec)
    if unsafe is not None:
        return unsafe
    implicit = names_where(spec, lambda each: not profile_type(each, "seccompProfile"))
    if profile_type(spec, "seccompProfile") or not implicit:
        return None
    return (
        "seccompProfile",
        f'pod or {named(implicit)} must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost"',
    )
