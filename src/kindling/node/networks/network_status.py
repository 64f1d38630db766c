"""The annotation that tells what networks a pod has, in the form that Multus writes. Pure."""

from __future__ import annotations

import ipaddress
import json as text_json
from collections.abc import Iterable, Mapping
from typing import Any

from kubecore.json import JsonObject, get_int, get_list, get_object, get_str

ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
_ANYWHERE = ("0.0.0.0", "::")


def text(entries: Iterable[JsonObject]) -> str:
    """The annotation: a list whose entries are indented by four, each on its own."""
    return "[" + ",".join(text_json.dumps(item, indent=4, ensure_ascii=False) for item in entries) + "]"


def entries(network: str, result: Mapping[str, Any]) -> list[JsonObject]:
    """What a CNI result says of the pod's side: one entry for each interface there."""
    interfaces = get_list(result, "interfaces")
    gateways = [
        gateway
        for route in get_list(result, "routes")
        if _is_default(get_str(route, "dst")) and (gateway := get_str(route, "gw"))
    ]
    dns = _dns(get_object(result, "dns"))
    inside = [(index, item) for index, item in enumerate(interfaces) if get_str(item, "sandbox")]
    if len(interfaces) == 1 or not inside:
        name = inside[-1][1] if inside else {}
        return [_entry(network, name, _addresses(result, None), dns, gateways)]
    last = inside[-1][0]
    return [
        _entry(network, item, _addresses(result, index, is_last=index == last), dns, gateways)
        for index, item in inside
    ]


def default_entry(network: str, result: JsonObject, interface: str = "eth0") -> JsonObject:
    """The entry of the cluster's own network, from the CNI result as containerd shows it."""
    found = get_object(result, "Interfaces", interface)
    configured = found.get("IPConfigs") or []
    gateway = next((str(item["Gateway"]) for item in configured if item.get("Gateway")), "")
    routed = any(_is_default(str(route.get("dst"))) for route in get_list(result, "Routes"))
    return _entry(
        network,
        {"name": interface, "mac": str(found.get("Mac") or "")},
        [str(item["IP"]) for item in configured],
        {},
        [gateway] if gateway and routed else [],
        is_default=True,
    )


def _entry(
    network: str,
    interface: Mapping[str, Any],
    addresses: list[str],
    dns: JsonObject,
    gateways: list[str],
    *,
    is_default: bool = False,
) -> JsonObject:
    """One entry: what is empty is left out, except for the name and dns."""
    optional: JsonObject = {
        "interface": get_str(interface, "name"),
        "ips": addresses,
        "mac": get_str(interface, "mac"),
        "mtu": get_int(interface, "mtu"),
        "default": is_default,
    }
    result: JsonObject = {"name": network}
    result |= {key: value for key, value in optional.items() if value}
    result["dns"] = dns
    if gateways:
        result["gateway"] = gateways
    return result


def _addresses(result: Mapping[str, Any], index: int | None, *, is_last: bool = False) -> list[str]:
    """The addresses of an interface, or all; those that name no interface belong to the last one."""
    found = []
    for item in get_list(result, "ips"):
        of = item.get("interface")
        if index is None or of == index or (of is None and is_last):
            found.append(get_str(item, "address").partition("/")[0])
    return found


def _dns(dns: JsonObject) -> JsonObject:
    return {key: dns[key] for key in ("nameservers", "domain", "search", "options") if dns.get(key)}


def _is_default(destination: str) -> bool:
    try:
        return str(ipaddress.ip_interface(destination).ip) in _ANYWHERE
    except ValueError:
        return False
