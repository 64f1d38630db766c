"""``discovery.k8s.io``: EndpointSlices. Endpoints themselves are in ``core``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery import checks
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.address_forms import address_warnings
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required
from kubecore.resources import ENDPOINT_SLICES

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MAX_ENDPOINTS = 1000
MAX_ADDRESSES = 100
MAX_PORTS = 20000
MAX_HINTS = 8
_HOST_NAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def _addresses(kind: str) -> f.Check:
    """A list of addresses of this type."""

    def check(path: FieldPath, values: list[str]) -> Iterator[FieldError]:
        if not values:
            yield required(path, "must contain at least 1 address")
        yield from f.fewer(MAX_ADDRESSES)(path, values)
        for position, value in enumerate(values):
            at, parsed = path.index(position), checks.parse_address(value)
            if kind == "FQDN":
                yield from f.SUBDOMAIN(at, value)
            elif kind in ADDRESS_TYPES and (problems := checks.address(at, value)):
                yield from problems
            elif kind in ADDRESS_TYPES and parsed is not None:
                if f"IPv{parsed.version}" != kind:
                    yield invalid(path, value, f"must be an {kind} address")
                yield from checks.remote_address(at, value)

    return check


def _hints(rule: f.Check) -> f.Check:
    """A list of names that satisfy `rule`, each once, unless there are too many."""
    named_once = f.items(f.Once("name"), f.always("name", "", rule))
    return lambda path, hints: f.fewer(MAX_HINTS)(path, hints) or named_once(path, hints)


def _topology(path: FieldPath, topology: Mapping[str, Any]) -> Iterator[FieldError]:
    if _HOST_NAME in topology:
        yield forbidden(path.key(_HOST_NAME), "may not be set as it is mapped to nodeName")
    if _ZONE in topology:
        yield invalid(path, _ZONE, "may not be set as it is mapped to zone")


_PORTS = f.items(
    f.may("name", f.LABEL),
    f.Once("name"),
    f.given("port", checks.port),
    f.must("protocol", f.PROTOCOL),
    f.given("appProtocol", f.QUALIFIED),
)


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterable[FieldError]:
    return f.fewer(MAX_PORTS)(path, ports) or _PORTS(path, ports)


_TYPE = f.must("addressType", f.choice(*ADDRESS_TYPES))
_ENDPOINT = (
    f.given("nodeName", f.SUBDOMAIN),
    f.given("hostname", f.LABEL),
    f.part("hints", f.may("forZones", _hints(f.LABEL_VALUE)), f.may("forNodes", _hints(f.SUBDOMAIN))),
    f.may("deprecatedTopology", _topology),
)


def validate_slice(obj: JsonObject) -> Iterable[FieldError]:
    """Addresses of one type, ports with unique names; too many endpoints are not looked at."""
    if len(get_list(obj, "endpoints")) > MAX_ENDPOINTS:
        return f.document(_TYPE, f.may("endpoints", f.fewer(MAX_ENDPOINTS)))(obj)
    addresses = f.always("addresses", (), _addresses(obj.get("addressType", "")))
    return f.document(_TYPE, f.may("endpoints", f.items(addresses, *_ENDPOINT)), f.may("ports", _ports))(obj)


def validate_slice_update(new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """A change: endpoints that are as they were are not judged again."""
    same = get_list(new, "endpoints") == get_list(old, "endpoints")
    return validate_slice({**new, "endpoints": []} if same else new)


def slice_warnings(obj: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Deprecated address types, and addresses that are not in canonical form."""
    if obj.get("addressType") == "FQDN" and (old is None or old.get("addressType") != "FQDN"):
        yield "spec.addressType: FQDN endpoints are deprecated"
    for number, endpoint in enumerate(get_list(obj, "endpoints")):
        for position, value in enumerate(get_list(endpoint, "addresses")):
            at = FieldPath("endpoints").index(number).child("addresses").index(position)
            yield from address_warnings(at, value)


class SliceStrategy(BuiltinStrategy):
    """Some of the endpoints of a service."""

    has_status = False
    metadata_checks = (0, 1)
    rules = Rules(
        validate_slice,
        update=validate_slice_update,
        immutable_texts=("addressType",),
        warnings=slice_warnings,
    )

    def complete(self, obj: JsonObject) -> None:
        """Ports have a name (perhaps empty) and a protocol."""
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """Changed labels of a slice count as well."""
        if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
            return True
        return super().generation_changed(new, old)


def _slice_ports(obj: JsonObject) -> str:
    ports = obj.get("ports") or []
    if not ports:
        return p.UNSET
    texts = ["*" if port.get("port") is None else str(port["port"]) for port in ports]
    return p.limited(texts)


def _slice_addresses(obj: JsonObject) -> str:
    endpoints = get_list(obj, "endpoints")
    addresses = [address for endpoint in endpoints for address in get_list(endpoint, "addresses")]
    return p.limited(addresses) if addresses else p.UNSET


def definitions() -> list[ResourceDefinition]:
    """Endpoint slices."""
    columns = (p.plain("AddressType", "addressType"), p.plain("Ports", _slice_ports))
    return [
        builtin(
            ENDPOINT_SLICES,
            SliceStrategy(),
            table=p.Table(p.NAME, *columns, p.plain("Endpoints", _slice_addresses), p.AGE),
        )
    ]
