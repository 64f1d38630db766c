"""What of a pod's status may be written (``/status`` of a pod): by kubelets, and whoever else may."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.address_forms import address_warnings
from kindling.apiserver.kinds.machinery.checks import IMMUTABLE, address, are_repeats, parse_address
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, duplicate, forbidden, invalid


def validate_pod_status_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A kubelet's update: names of conditions and nodes, and states that do not run backwards."""
    path = FieldPath("status")
    status = get_object(new, "status")
    nominated = status.get("nominatedNodeName")
    if nominated:
        for text in names.is_dns1123_subdomain(nominated):
            yield invalid(path.child("nominatedNodeName"), nominated, text)
    for position, condition in enumerate(get_list(status, "conditions")):
        at = path.child("conditions").index(position).child("Type")
        yield from (
            invalid(at, condition.get("type", ""), text)
            for text in names.is_qualified_name(condition.get("type", ""))
        )
    yield from _addresses(path, status)
    yield from _claims(path, status, get_object(new, "spec"))
    quality = status.get("qosClass")
    if quality != get_object(old, "status").get("qosClass"):
        yield invalid(path.child("qosClass"), quality, IMMUTABLE)
    policy = get_object(old, "spec").get("restartPolicy", "Always")
    for field, sidecars in (("containerStatuses", False), ("initContainerStatuses", True)):
        yield from _validate_transitions(new, old, path.child(field), field, policy, init=sidecars)


def _validate_transitions(
    new: JsonObject, old: JsonObject, path: FieldPath, field: str, policy: str, *, init: bool
) -> Iterator[FieldError]:
    """Containers that have terminated for good must not run again."""
    if policy == "Always":
        return
    always = {
        item.get("name") for item in get_list(new, "spec", "initContainers") if item.get("restartPolicy")
    }
    states = {item.get("name"): get_object(item, "state") for item in get_list(new, "status", field)}
    for position, item in enumerate(get_list(old, "status", field)):
        ended = get_object(item, "state").get("terminated")
        if ended is None or (init and item.get("name") in always):
            continue
        if ended.get("exitCode", 0) != 0 and policy == "OnFailure":
            continue
        state = states.get(item.get("name"))
        if state is not None and state.get("terminated") is None and state:
            at = path.index(position).child("state")
            yield forbidden(at, "may not be transitioned to non-terminated state")


def _addresses(path: FieldPath, status: JsonObject) -> Iterator[FieldError]:
    """The addresses of the pod and its node; the node's first is the one that is told alone."""
    hosts = get_list(status, "hostIPs")
    if hosts and hosts[0].get("ip", "") != get_str(status, "hostIP"):
        at = path.child("hostIPs").index(0).child("ip")
        yield invalid(at, hosts[0].get("ip", ""), "must be equal to `hostIP`")
    for field in ("podIPs", "hostIPs"):
        yield from _one_of_each(path.child(field), [each.get("ip", "") for each in get_list(status, field)])


def _one_of_each(path: FieldPath, found: list[str]) -> Iterator[FieldError]:
    """Addresses, one of each family at most, each once."""
    for position, text in enumerate(found):
        yield from address(path.index(position), text)
    families = [parsed.version for parsed in map(parse_address, found) if parsed is not None]
    if len(families) > len(set(families)):
        shown = [{"IP": text} for text in found]
        yield invalid(path, shown, "may specify no more than one IP for each IP family")
    for position, (text, is_repeat) in enumerate(zip(found, are_repeats(found), strict=True)):
        if is_repeat:
            yield duplicate(path.index(position), {"IP": text})


def _claims(path: FieldPath, status: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    """The claims of devices that were made for the pod."""
    known = {each.get("name") for each in get_list(spec, "resourceClaims")}
    for position, made in enumerate(get_list(status, "resourceClaimStatuses")):
        at = path.child("resourceClaimStatuses").index(position)
        if made.get("name") not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(at.child("name"), made.get("name", ""), text)
        yield from f.check_fields(made, at, f.given("resourceClaimName", f.SUBDOMAIN))
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None:
        yield from f.check_fields(extended, path.child("extendedResourceClaimStatus"), *_EXTENDED)


_EXTENDED = (
    f.must("requestMappings", detail="at least one request mapping is required"),
    f.must("resourceClaimName", f.SUBDOMAIN),
)


def pod_status_warnings(pod: JsonObject) -> Iterator[str]:
    """Addresses of the pod and its node that are not in canonical form."""
    for field in ("podIPs", "hostIPs"):
        for position, each in enumerate(get_list(pod, "status", field)):
            yield from address_warnings(
                FieldPath("status", field).index(position).child("ip"), each.get("ip")
            )
