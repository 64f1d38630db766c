"""Device classes, claims and templates: what is asked for, and that a claim never changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.core.volumes.sources import template_metadata
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import IMMUTABLE
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required

from . import checks as c
from .internal import claim_spec, template_spec

_MODES = ("All", "ExactCount")
_MAX_ALTERNATIVES = 8
_MAX_RESULTS = 32
_MAX_USERS = 256
_ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
_ONE_ATTRIBUTE = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
)
_NO_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_SPEC = FieldPath("spec")
_EXTENDED = "must be a valid extended resource name"


def _extended_resource(path: FieldPath, name: str) -> list[FieldError]:
    domain, slash, _ = name.partition("/")
    native = not slash or domain.endswith("kubernetes.io") or name.startswith("requests.")
    bad = native or list(f.QUALIFIED(path, f"requests.{name}"))
    return [invalid(path, name, _EXTENDED)] if bad else []


validate_class = c.bounded(
    f.spec(
        f.may("selectors", c.SELECTORS),
        f.may("config", c.at_most(c.MAX_CONFIGS, c.OPAQUE)),
        f.given("extendedResourceName", _extended_resource),
    )
)
"""Selectors that compile, and configuration for drivers."""


def _mode(path: FieldPath, request: JsonObject) -> Iterator[FieldError]:
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode not in _MODES:
        yield not_supported(path.child("allocationMode"), mode, _MODES)
    elif mode == "All" and count:
        text = "must not be specified when allocationMode is 'All'"
        yield invalid(path.child("count"), count, text)
    elif mode == "ExactCount" and count <= 0:
        yield invalid(path.child("count"), count, "must be greater than zero")


_WANTED: tuple[f.Row, ...] = (
    f.must("deviceClassName", f.SUBDOMAIN),
    f.may("selectors", c.SELECTORS),
    _mode,
    f.may("tolerations", c.TOLERATIONS),
)
_EXACTLY = f.within(*_WANTED)
_FIRST = c.unique(_MAX_ALTERNATIVES, c.by("name"), c.label("name"), *_WANTED)


def _request(path: FieldPath, request: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(request, path, c.label("name"))
    exactly, first = request.get("exactly"), request.get("firstAvailable")
    if exactly is None and not first:
        yield required(path, _ONE_OF)
    elif exactly is not None and first:
        yield invalid(path, None, f"{_ONE_OF}, but multiple fields are set")
    elif first:
        yield from _FIRST(path.child("firstAvailable"), first)
    else:
        yield from _EXACTLY(path.child("exactly"), exactly)


def _names(devices: JsonObject) -> set[str]:
    """The requests of a claim, and their alternatives, as others refer to them."""
    found: set[str] = set()
    for request in get_list(devices, "requests"):
        name = request.get("name", "")
        found.add(name)
        found.update(f"{name}/{each.get('name', '')}" for each in request.get("firstAvailable") or ())
    return found


def _reference(known: set[str]) -> f.Check:
    def check(path: FieldPath, name: str) -> Iterator[FieldError]:
        parts = name.split("/")
        if len(parts) <= 2:
            for part in parts:
                yield from f.LABEL(path, part)
        if name not in known:
            yield invalid(path, name, _NO_REQUEST)

    return check


def _references(known: set[str]) -> f.Field:
    return f.may("requests", c.unique(c.MAX_REQUESTS, c.itself, _reference(known)))


def _attribute(path: FieldPath, constraint: JsonObject) -> Iterable[FieldError]:
    for name in ("matchAttribute", "distinctAttribute"):
        if constraint.get(name) is not None:
            return c.fully_qualified_name(path.child(name), constraint[name])
    return [required(path, _ONE_ATTRIBUTE)]


def _devices(path: FieldPath, devices: JsonObject) -> Iterable[FieldError]:
    references = _references(_names(devices))
    return f.check_fields(
        devices,
        path,
        f.may("requests", c.unique(c.MAX_REQUESTS, c.by("name"), _request)),
        f.may("constraints", c.at_most(c.MAX_REQUESTS, references, _attribute)),
        f.may("config", c.at_most(c.MAX_CONFIGS, references, c.OPAQUE)),
    )


_CLAIM_SPEC = f.part("devices", _devices)
validate_claim = c.bounded(f.spec(_CLAIM_SPEC))
"""Requests with names of their own, and constraints and configuration for these."""
validate_template = c.bounded(f.spec(f.part("metadata", template_metadata), f.part("spec", _CLAIM_SPEC)))
"""What a claim must be, and what the template sets of its metadata."""


def validate_claim_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A claim's spec never changes."""
    if new.get("spec") != old.get("spec"):
        yield invalid(_SPEC, claim_spec(get_object(new, "spec")), IMMUTABLE)


def validate_template_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A template's spec never changes; a changed one is judged as well."""
    yield from validate_template(new)
    if new.get("spec") != old.get("spec"):
        yield invalid(_SPEC, template_spec(get_object(new, "spec")), IMMUTABLE)


_USER = f.within(*f.needed("resource", "name", "uid"))
_SOURCE = f.must("source", f.choice("FromClaim", "FromClass"))


def _device_of(item: JsonObject) -> tuple[Any, ...]:
    return tuple(item.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def _allocation(known: set[str]) -> f.Check:
    result = (
        f.always("request", "", _reference(known)),
        c.driver(),
        f.always("pool", "", c.pool_name),
        c.label("device"),
        c.binding_conditions,
        f.may("tolerations", c.TOLERATIONS),
    )
    return f.within(
        f.part(
            "devices",
            f.may("results", c.at_most(_MAX_RESULTS, *result)),
            f.may("config", c.at_most(2 * c.MAX_CONFIGS, _SOURCE, _references(known), c.OPAQUE)),
        )
    )


def _reserved(new: JsonObject, old: JsonObject, *, deleted: bool) -> Iterator[FieldError]:
    users, at = get_list(new, "reservedFor"), FieldPath("status", "reservedFor")
    if users and new.get("allocation") is None:
        yield forbidden(at, "may not be specified when `allocated` is not set")
    elif deleted and any(user not in get_list(old, "reservedFor") for user in users):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden(at, text)


def validate_claim_status(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """An allocation names the claim's requests and stays; its users are told apart by their UID."""
    status, before, at = get_object(new, "status"), get_object(old, "status"), FieldPath("status")
    allocation = status.get("allocation")
    allocated = {_device_of(result) for result in get_list(allocation or {}, "devices", "results")}

    def is_allocated(path: FieldPath, device: JsonObject) -> Iterator[FieldError]:
        if (found := _device_of(device)) not in allocated:
            yield invalid(path, "/".join(filter(None, found)), "must be an allocated device in the claim")

    device = (c.driver(), f.always("pool", "", c.pool_name), c.label("device"), is_allocated)
    yield from f.check_fields(
        status,
        at,
        f.may("reservedFor", c.unique(_MAX_USERS, c.by("uid"), _USER)),
        f.may("devices", c.unique(None, _device_of, *device)),
    )
    yield from _reserved(status, before, deleted=bool(new["metadata"].get("deletionTimestamp")))
    if allocation is not None and before.get("allocation") is not None:
        if allocation != before["allocation"]:
            yield invalid(at.child("allocation"), allocation, IMMUTABLE)
    elif allocation is not None:
        known = _names(get_object(new, "spec", "devices"))
        yield from _allocation(known)(at.child("allocation"), allocation)
