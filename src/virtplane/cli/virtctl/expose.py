"""``expose``: a service in front of a guest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api import labels
from virtplane.cli.virtctl.connection import KINDS, Connection, connected
from virtplane.cli.virtctl.usage import Integer

_LONGEST_LABEL = 63
_KEPT = 54
_REPLICA_SETS = "virtualmachineinstancereplicasets"
_REPLICA_SET_KINDS = ("vmirs", "vmirss", "virtualmachineinstancereplicaset", _REPLICA_SETS)
_PROTOCOLS = {"tcp": "TCP", "udp": "UDP"}
_TYPES = {"clusterip": "ClusterIP", "nodeport": "NodePort", "loadbalancer": "LoadBalancer"}
_FAMILIES = {
    "": [],
    "ipv4": ["IPv4"],
    "ipv6": ["IPv6"],
    "ipv4,ipv6": ["IPv4", "IPv6"],
    "ipv6,ipv4": ["IPv6", "IPv4"],
}
_POLICIES = {
    "": "",
    "singlestack": "SingleStack",
    "preferdualstack": "PreferDualStack",
    "requiredualstack": "RequireDualStack",
}


@click.command()
@click.argument("kind", metavar="TYPE")
@click.argument("target", metavar="NAME")
@click.option("--cluster-ip", default="", help="The service's address; None for a headless service.")
@click.option("--external-ip", default="", help="Another address that the service is reached at.")
@click.option("--ip-family", default="", help="IPv4, IPv6, or both with a comma between them.")
@click.option("--ip-family-policy", default="", help="One of SingleStack, PreferDualStack, RequireDualStack.")
@click.option("--name", required=True, help="The service's name.")
@click.option("--port", type=Integer(-(2**31), 2**31 - 1), default=0, help="The service's port.")
@click.option("--port-name", default="", help="The name of the port.")
@click.option("--protocol", default="TCP", help="TCP or UDP.")
@click.option("--target-port", default="", help="The guest's port, by number or name.")
@click.option("--type", "type_", default="ClusterIP", help="One of ClusterIP, NodePort, LoadBalancer.")
@connected
async def expose(
    client: Client, connection: Connection, kind: str, target: str, name: str, **given: Any
) -> None:
    """Make a service that leads to a VM, an instance or a replica set."""
    kind = kind.lower()
    spec = service_spec(given)
    owner = await _owner(client, connection, kind, target)
    spec["selector"] = selector(owner)
    spec["ports"] = spec["ports"] or _ports_of(owner)
    if not spec["ports"]:
        raise click.ClickException("couldn't find port via --port flag or introspection")
    metadata = {"name": name, "namespace": connection.namespace, "ownerReferences": [_reference(owner)]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    try:
        await client.create(resources.SERVICES, service)
    except StatusError as error:
        raise click.ClickException(f"service creation failed: {error.message}") from error
    click.echo(f"Service {name} successfully created for {kind} {target}")


def service_spec(given: Mapping[str, Any]) -> JsonObject:
    """The service spec for the flags. Raises click.ClickException."""
    protocol, kind = given["protocol"], given["type_"]
    families, policy = given["ip_family"], given["ip_family_policy"]
    if protocol.lower() not in _PROTOCOLS:
        raise click.ClickException(f"unknown protocol: {protocol}")
    if kind.lower() == "externalname":
        raise click.ClickException(f"type: {kind} not supported")
    if kind.lower() not in _TYPES:
        raise click.ClickException(f"unknown service type: {kind}")
    if families.lower() not in _FAMILIES:
        raise click.ClickException(f"unknown IPFamily/s: {families}")
    if policy.lower() not in _POLICIES:
        raise click.ClickException(f"unknown IPFamilyPolicy/s: {policy}")
    wanted = _FAMILIES[families.lower()]
    target = given["target_port"]
    port = {
        "name": given["port_name"],
        "protocol": _PROTOCOLS[protocol.lower()],
        "port": given["port"],
        "targetPort": int(target) if target.isdigit() else target,
    }
    spec: JsonObject = {
        "type": _TYPES[kind.lower()],
        "clusterIP": given["cluster_ip"],
        "externalIPs": [given["external_ip"]] if given["external_ip"] else [],
        "ipFamilies": wanted,
        "ipFamilyPolicy": _POLICIES[policy.lower()] or ("PreferDualStack" if len(wanted) > 1 else ""),
    }
    return {"ports": [_without_empty(port)] if given["port"] else [], **_without_empty(spec)}


def _without_empty(document: JsonObject) -> JsonObject:
    return {key: value for key, value in document.items() if value not in ("", [])}


async def _owner(client: Client, connection: Connection, kind: str, name: str) -> JsonObject:
    from virtplane.api import resources as kinds

    plural = _REPLICA_SETS if kind in _REPLICA_SET_KINDS else KINDS.get(kind)
    found = {
        "virtualmachines": kinds.VIRTUAL_MACHINES,
        "virtualmachineinstances": kinds.VIRTUAL_MACHINE_INSTANCES,
        _REPLICA_SETS: kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS,
    }.get(plural or "")
    if found is None:
        raise click.ClickException(f"unsupported resource type: {kind}")
    try:
        owner = await client.get(found, name, connection.namespace)
    except StatusError as error:
        raise click.ClickException(f"error fetching {found.kind}: {error.message}") from error
    return {**owner, "apiVersion": found.api_version, "kind": found.kind}


def selector(owner: JsonObject) -> JsonObject:
    """The selector of the target's instances. Raises click.ClickException."""
    if owner["kind"] != "VirtualMachineInstanceReplicaSet":
        return {labels.VMI_ID: instance_id(get_str(owner, "metadata", "name"))}
    wanted = get_object(owner, "spec", "selector")
    if wanted.get("matchExpressions") or not wanted.get("matchLabels"):
        text = "cannot expose VirtualMachineInstanceReplicaSet without any selector labels"
        raise click.ClickException(text)
    return get_object(wanted, "matchLabels")


def instance_id(name: str) -> str:
    """The value of the instance label: the name, or its beginning with a digest."""
    if len(name) <= _LONGEST_LABEL:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_KEPT]}-{digest[:8]}"


def _ports_of(owner: JsonObject) -> list[JsonObject]:
    """The ports of the owner's interface on the pod network. Raises UnfitDocument."""
    from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec

    path = ("spec",) if owner["kind"] == "VirtualMachineInstance" else ("spec", "template", "spec")
    spec = decode(VirtualMachineInstanceSpec, get_object(owner, *path))
    networks = {network.name for network in spec.networks if network.pod is not None}
    ports = [
        port
        for interface in spec.domain.devices.interfaces
        if interface.name in networks
        for port in interface.ports
    ]
    return [
        _without_empty({"name": f"port-{number}", "protocol": port.protocol or "", "port": port.port})
        for number, port in enumerate(ports, 1)
    ]


def _reference(owner: JsonObject) -> JsonObject:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": get_str(owner, "metadata", "name"),
        "uid": get_str(owner, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": False,
    }


COMMANDS = {"expose": expose}
