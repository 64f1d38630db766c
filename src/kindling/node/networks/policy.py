"""What of a NetworkAttachmentDefinition root runs on the node. Pure.

A plugin is one of a fixed list, and gets the members that this module knows of it and no others: what it does
not know it would ignore anyway, and what a later version of it knows is let through when it was looked at.
Members that name files, device paths or arguments of other programs are refused, and so are the links of the
pod network: whoever is on them unfiltered is any pod, and the node.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from kindling.network import pod_filter
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.selection import is_interface_name
from kubecore.json import JsonObject, get_bool, get_object, get_str

UPLINK = "eth0"
"""A node's link to the other nodes and the machine."""
STATE = "/run/cni-secondary"
"""Where plugins keep which addresses are taken, and what they changed of an interface."""
MAX_PLUGINS = 16

_FOR_ALL = ("type", "capabilities", "dns", "mtu")
_BRIDGE = (
    "bridge isGateway isDefaultGateway forceAddress hairpinMode promiscMode vlan vlanTrunk mac ipam "
    "preserveDefaultVlan macspoofchk enabledad disableContainerInterface portIsolation"
)
_TUNING = "sysctl mac promisc allmulti txQLen"
_MEMBERS: Mapping[str, str] = {
    "bandwidth": "ingressRate ingressBurst egressRate egressBurst",
    "bridge": _BRIDGE,
    "cnv-bridge": _BRIDGE,
    "cnv-tuning": _TUNING,
    "dummy": "ipam",
    "host-device": "device ipam",
    "ipvlan": "master mode linkInContainer ipam",
    "macvlan": "master mode mac linkInContainer bcqueuelen ipam",
    "portmap": "snat markMasqBit",
    "ptp": "ipam",
    "sbr": "",
    "tap": "mac multiQueue owner group selinuxcontext ipam",
    "tuning": _TUNING,
    "vlan": "master vlanId linkInContainer ipam",
    "vrf": "vrfname table",
}
"""The plugins that may run, each with its members."""
_PROGRAMS = {"cnv-bridge": "bridge", "cnv-tuning": "tuning"}
"""Plugins that clusters of virtual machines install as copies with names of their own."""
INSIDE = frozenset({"cnv-tuning", "sbr", "tuning", "vrf"})
"""Plugins that change nothing outside of the pod's network namespace."""
_IPAM: Mapping[str, str] = {
    "dhcp": "provide request",
    "host-local": "subnet rangeStart rangeEnd gateway ranges routes",
    "static": "addresses routes dns",
}
_REFUSED = frozenset(
    {
        "chrootDir", "CNIDeviceInfoFile", "conditionsV4", "conditionsV6", "daemonSocketPath", "dataDir",
        "deviceID", "externalSetMarkChain", "hwaddr", "kernelpath", "kubeconfig", "logFile", "pciBusID",
        "resolvConf", "runtimeConfig", "socketDir",
    }
)  # fmt: skip
_NETWORK_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")
_SYSCTL = re.compile(r"net([./][A-Za-z0-9_-]+)+")
_ARGUMENTS = ("ips", "mac", "mtu", "promisc", "allmulti", "sysctl", "txQLen")
"""Members of ``args.cni`` that the plugins know."""


def program_of(plugin: str) -> str:
    """The file of a plugin in the directory of plugins."""
    return _PROGRAMS.get(plugin, plugin)


def check_name(name: str) -> str:
    """The network's name, which plugins use as a name of files. Raises NetworkProblem."""
    if not _NETWORK_NAME.fullmatch(name):
        raise NetworkProblem(f"invalid network config name: {name[:128]}")
    return name


def admitted(plugin: Mapping[str, Any], pod_links: Collection[str]) -> JsonObject:
    """The configuration that a plugin is run with; `pod_links` are the ports of the pod network's bridge.

    Raises NetworkProblem.
    """
    kind = get_str(plugin, "type")
    if kind not in _MEMBERS:
        raise NetworkProblem(f'plugin type="{kind[:64]}" is not one that this node runs')
    _refuse(kind, plugin)
    _check_link(kind, plugin, pod_links)
    known = (*_FOR_ALL, *_MEMBERS[kind].split())
    result: JsonObject = {key: plugin[key] for key in known if key in plugin}
    if "ipam" in result:
        result["ipam"] = _ipam(kind, get_object(plugin, "ipam"))
    if "sysctl" in result:
        _check_sysctls(kind, result["sysctl"])
    if program_of(kind) == "tuning":
        result["dataDir"] = f"{STATE}/tuning"
    arguments = get_object(plugin, "args", "cni")
    if arguments:
        result["args"] = {"cni": _arguments(kind, arguments)}
    return result


def _arguments(kind: str, arguments: JsonObject) -> JsonObject:
    known = {key: arguments[key] for key in _ARGUMENTS if key in arguments}
    if "sysctl" in known:
        _check_sysctls(kind, known["sysctl"])
    return known


def _refuse(kind: str, members: Mapping[str, Any]) -> None:
    named = sorted(_REFUSED & set(members))
    if named:
        raise NetworkProblem(
            f'plugin type="{kind}": {", ".join(named)}: files and devices of the node are not chosen by a '
            "network-attachment-definition"
        )
    if members.get("ipMasq"):
        raise NetworkProblem(
            f'plugin type="{kind}": ipMasq: nodes do not route from secondary networks to the pod network'
        )


def _ipam(kind: str, ipam: JsonObject) -> JsonObject:
    if not ipam:
        return {}
    manager = get_str(ipam, "type")
    if not manager:
        return {}
    if manager not in _IPAM:
        raise NetworkProblem(
            f'plugin type="{kind}": ipam type="{manager[:64]}" is not one that this node runs'
        )
    _refuse(manager, ipam)
    result = {key: ipam[key] for key in ("type", *_IPAM[manager].split()) if key in ipam}
    if manager == "host-local":
        result["dataDir"] = f"{STATE}/addresses"
    return result


def _check_link(kind: str, plugin: Mapping[str, Any], pod_links: Collection[str]) -> None:
    """Refuse links of the pod network; plugins take it or the uplink where no other is named."""
    member = {"bridge": "bridge", "cnv-bridge": "bridge", "host-device": "device"}.get(kind, "master")
    if member not in _MEMBERS[kind].split():
        return
    name = get_str(plugin, member)
    if not name:
        raise NetworkProblem(f'plugin type="{kind}": {member} is not set')
    if not is_interface_name(name):
        raise NetworkProblem(f'plugin type="{kind}": {member}: "{name[:64]}" is not the name of a link')
    if get_bool(plugin, "linkInContainer"):
        return
    if name in (UPLINK, "lo", pod_filter.BRIDGE) or name in pod_links:
        raise NetworkProblem(f'plugin type="{kind}": {member}: "{name}" belongs to the pod network')


def _check_sysctls(kind: str, sysctls: Any) -> None:
    if not isinstance(sysctls, dict):
        raise NetworkProblem(f'plugin type="{kind}": sysctl is not an object')
    for name in sysctls:
        if not _SYSCTL.fullmatch(name):
            raise NetworkProblem(
                f'plugin type="{kind}": sysctl "{name[:64]}" is not one of the pod\'s network'
            )
