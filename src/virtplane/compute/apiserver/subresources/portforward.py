"""Connections to ports of guests, over the pod network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from kubecore import errors
from kubecore.destinations import Destinations
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.subresources import refusals, streams

Launchers = Callable[[VirtualMachineInstance], Awaitable[list[JsonObject]]]
_MAX_PORT = 65535


class PortForwards:
    """Serves ``portforward``. `launchers` gives the pods that are marked as an instance's."""

    def __init__(self, launchers: Launchers, destinations: Destinations) -> None:
        self._launchers = launchers
        self._destinations = destinations

    async def serve(self, request: web.Request, vmi: VirtualMachineInstance) -> web.StreamResponse:
        """Connect the client to a port of the guest. Raises StatusError."""
        claimed = refusals.forward_address(vmi)
        port = port_number(request.match_info.get("port", ""))
        chosen = guest_address(vmi, await self._launchers(vmi), claimed)
        if not chosen:
            raise errors.bad_request(f"the pod of VirtualMachineInstance {vmi.metadata.name} has no address")
        address = await self._destinations.resolve(chosen)
        if request.match_info.get("protocol", "tcp").lower() == "udp":
            client = await streams.accept(request)
            await streams.forward_datagrams(client, address, port)
            return client
        try:
            reader, writer = await asyncio.open_connection(address, port)
        except OSError as error:
            host = f"[{address}]" if ":" in address else address
            reason = os.strerror(error.errno).lower() if error.errno else str(error)
            text = f"dialing VM: dial tcp {host}:{port}: connect: {reason}"
            raise refusals.internal(text) from error
        client = await streams.accept(request)
        await streams.forward(client, reader, writer)
        return client


def port_number(text: str) -> int:
    """A port from a path. Raises StatusError (400)."""
    if not text.isascii() or not text.isdecimal():
        raise errors.bad_request("port must not be empty")
    if len(text) > len(str(_MAX_PORT)) or not 1 <= int(text) <= _MAX_PORT:
        raise errors.bad_request(f"port must be between 1 and {_MAX_PORT}")
    return int(text)


def guest_address(vmi: VirtualMachineInstance, pods: Iterable[JsonObject], claimed: str) -> str:
    """The guest's address: one of its pod's, or empty if there is none.

    `claimed` is what the instance's status says. The guest's agent has a part in that, so that it only
    chooses among the pod's addresses, which the node gave out; never one that the node has itself.
    """
    found: list[str] = []
    for pod in pods:
        owner = meta.controller_of(pod)
        is_own = owner is not None and owner.get("uid") == vmi.metadata.uid
        if not is_own or get_object(pod, "spec").get("hostNetwork"):
            continue
        if get_str(pod, "spec", "nodeName") != (vmi.status.node_name or ""):
            continue
        addresses = _addresses(pod, "podIP", "podIPs")
        nodes = _addresses(pod, "hostIP", "hostIPs")
        found += [address for address in addresses if address not in nodes]
    return claimed if claimed in found else next(iter(found), "")


def _addresses(pod: JsonObject, one: str, many: str) -> list[str]:
    listed = [get_str(entry, "ip") for entry in get_list(pod, "status", many)]
    return [address for address in (get_str(pod, "status", one), *listed) if address]
