"""Which networks a pod asks for: the annotation, in its short and its JSON form. Pure.

The forms and the texts of refusals are those of Multus; the bounds are ours, since users write this.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from kindling.node.networks.problems import NetworkProblem
from kubecore import json
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import structs

NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
SYSTEM_NAMESPACE = "kube-system"
"""Where definitions of default networks are."""

MAX_ANNOTATION = 64 * 1024
MAX_NETWORKS = 32
_MAX_INTERFACE = 15
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_FORBIDDEN = re.compile(r"[\s/:\x00-\x1f\x7f]")
_OCTETS = r"[0-9A-Fa-f]{2}(?P<mark>[:-])([0-9A-Fa-f]{2}(?P=mark)){%d}[0-9A-Fa-f]{2}"
_MAC = re.compile(rf"{_OCTETS % 4}|[0-9A-Fa-f]{{4}}(\.[0-9A-Fa-f]{{4}}){{2}}")
_GUID = re.compile(_OCTETS % 6)


class PortMapping(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A port of the node that leads to one of the pod on this network."""

    host_port: int = 0
    container_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Limits of an interface: bits per second, and bits at once."""

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0


class NetworkSelection(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One network that a pod asks for; `interface` is empty where the node chooses the name."""

    name: str = ""
    namespace: str = ""
    ips: tuple[str, ...] = ()
    mac: str = ""
    infiniband_guid: str = ""
    interface: str = ""
    deprecated_interface: str = msgspec.field(name="interfaceRequest", default="")
    port_mappings: tuple[PortMapping, ...] = msgspec.field(name="portMappings", default=())
    bandwidth: Bandwidth | None = None
    device: str = msgspec.field(name="deviceID", default="")
    cni_args: Mapping[str, Any] = {}
    default_route: tuple[str, ...] = ()
    ipam_claim: str = msgspec.field(name="ipam-claim-reference", default="")

    @property
    def network(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes it another attachment when it changes; other members take effect when it is made."""
        return self.namespace, self.name, self.interface


def selections(pod: JsonObject) -> tuple[NetworkSelection, ...]:
    """The networks that a pod asks for beside its default one. Raises NetworkProblem."""
    text = get_str(pod, "metadata", "annotations", NETWORKS)
    if not text:
        return ()
    found = parse(text, get_str(pod, "metadata", "namespace"))
    for family in (4, 6):
        routes = [route for item in found for route in item.default_route if _version(route) == family]
        if len(routes) > 1:
            raise NetworkProblem("multus does not support ECMP for default-route")
    return found


def default_network(pod: JsonObject) -> NetworkSelection | None:
    """The network that a pod asks for in the place of the cluster's own. Raises NetworkProblem."""
    annotations = get_object(pod, "metadata", "annotations")
    if DEFAULT_NETWORK not in annotations:
        return None
    where = "tryLoadK8sPodDefaultNetwork"
    text = get_str(annotations, DEFAULT_NETWORK)
    try:
        found = parse(text, SYSTEM_NAMESPACE)
    except NetworkProblem as problem:
        raise NetworkProblem(f"{where}: failed to parse CRD object: {problem}") from problem
    if len(found) != 1:
        raise NetworkProblem(f"{where}: more than one default network is specified: {text}")
    return found[0]


def parse(text: str, namespace: str) -> tuple[NetworkSelection, ...]:
    """The networks of an annotation; those without a namespace are in `namespace`. Raises NetworkProblem."""
    where = "parsePodNetworkAnnotation"
    if not text:
        raise NetworkProblem(f'{where}: pod annotation does not have "network" as key')
    if len(text) > MAX_ANNOTATION:
        raise NetworkProblem(f"{where}: the annotation has more than {MAX_ANNOTATION} characters")
    if any(mark in text for mark in '[{"'):
        found, form = _from_json(text), _SUBDOMAIN
    else:
        found, form = [_from_text(item.strip()) for item in text.split(",")], _LABEL
    if len(found) > MAX_NETWORKS:
        raise NetworkProblem(f"{where}: {len(found)} networks are more than a pod may have ({MAX_NETWORKS})")
    return tuple(_checked(_completed(item, namespace), form) for item in found)


def _from_json(text: str) -> list[NetworkSelection]:
    where = (
        "parsePodNetworkAnnotation: failed to parse pod Network Attachment Selection Annotation JSON format"
    )
    try:
        listed = json.decode(text.encode())
        if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
            raise NetworkProblem(f"{where}: not a list of objects")
        return [structs.decode(NetworkSelection, item) for item in listed]
    except (orjson.JSONDecodeError, json.TooDeep, structs.UnfitDocument) as error:
        raise NetworkProblem(f"{where}: {error}") from error


def _from_text(item: str) -> NetworkSelection:
    """``namespace/name@interface``, of which only the name is needed."""
    where = "parsePodNetworkAnnotation: parsePodNetworkObjectName"
    if item.count("/") > 1:
        raise NetworkProblem(f"{where}: Invalid network object (failed at '/')")
    namespace, _, rest = item.rpartition("/")
    if rest.count("@") > 1:
        raise NetworkProblem(f"{where}: Invalid network object (failed at '@')")
    name, _, interface = (part.strip() for part in rest.partition("@"))
    return NetworkSelection(name=name, namespace=namespace.strip(), interface=interface)


def _completed(item: NetworkSelection, namespace: str) -> NetworkSelection:
    return msgspec.structs.replace(
        item,
        namespace=item.namespace or namespace,
        interface=item.interface or item.deprecated_interface,
        deprecated_interface="",
    )


def _checked(item: NetworkSelection, form: re.Pattern[str]) -> NetworkSelection:
    where = "parsePodNetworkAnnotation"
    for part, wanted in ((item.namespace, _LABEL), (item.name, form)):
        if not wanted.fullmatch(part) or len(part) > 253:
            raise NetworkProblem(
                f"{where}: parsePodNetworkObjectName: Failed to parse: one or more items did not match "
                "comma-delimited format (must consist of lower case alphanumeric characters). Must start and "
                f"end with an alphanumeric character), mismatch @ '{part[:253]}'"
            )
    if item.interface and not is_interface_name(item.interface):
        raise NetworkProblem(
            f"{where}: parsePodNetworkObjectName: Failed to parse interface name: must be less than 15 chars "
            f"and not contain '/' or spaces. interface name '{item.interface[:64]}'"
        )
    if item.mac and not _MAC.fullmatch(item.mac):
        raise NetworkProblem(f"{where}: failed to mac: address {item.mac[:64]}: invalid MAC address")
    if item.infiniband_guid and not _GUID.fullmatch(item.infiniband_guid):
        guid = item.infiniband_guid[:64]
        raise NetworkProblem(
            f"{where}: failed to validate infiniband GUID: address {guid}: invalid MAC address"
        )
    for address in item.ips:
        check_address(address)
    for address in item.default_route:
        if "/" in address or _version(address) is None:
            raise NetworkProblem(f"{where}: default-route: invalid IP address: {address[:64]}")
    if item.device:
        raise NetworkProblem(f"{where}: deviceID: pods get devices from device plugins only")
    if item.ipam_claim and not _SUBDOMAIN.fullmatch(item.ipam_claim):
        raise NetworkProblem(f"{where}: ipam-claim-reference: invalid name {item.ipam_claim[:64]!r}")
    return item


def is_interface_name(name: str) -> bool:
    """Whether Linux takes the name, and no path or list of arguments changes its meaning by it."""
    return (
        0 < len(name.encode()) <= _MAX_INTERFACE
        and name.isascii()
        and not name.startswith(("-", "."))
        and not _FORBIDDEN.search(name)
        and not any(mark in name for mark in ";=%")
    )


def check_address(text: str) -> None:
    """Refuse what is neither an address nor one with the length of its prefix. Raises NetworkProblem."""
    if "/" in text:
        try:
            if "%" in text:
                raise ValueError("a zone is not part of an address")
            ipaddress.ip_interface(text)
        except ValueError as error:
            raise NetworkProblem(f'failed to parse CIDR "{text[:64]}": {error}') from error
    elif _version(text) is None:
        raise NetworkProblem(f'failed to parse IP address "{text[:64]}"')


def _version(address: str) -> int | None:
    try:
        return ipaddress.ip_address(address).version if "%" not in address else None
    except ValueError:
        return None
