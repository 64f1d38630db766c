"""Attaching pods to their secondary networks, before their first container and while they run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kindling.node.networks import changes, definitions, network_status, routes, selection
from kindling.node.networks.changes import Addition, Changes
from kindling.node.networks.claims import Claims
from kindling.node.networks.cni import Plugins
from kindling.node.networks.definitions import Definitions, Network
from kindling.node.networks.overlays import Overlays
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.records import Attachment, PodName, Records
from kindling.node.networks.requests import (
    arguments_of,
    capabilities_of,
    check_addresses,
    check_ports,
    with_addresses,
)
from kindling.node.networks.selection import NetworkSelection
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.programs import run_program
from kindling.node.runtime.containerd import Containerd
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.resources import PODS

_log = logging.getLogger(__name__)

RecordEvent = Callable[[JsonObject, str, str, str, str], None]
"""Records an event: pod, type, reason, message, container."""
_POD_LINK = "eth0"
_LOOK_SECONDS = 20.0
_SYNC_SECONDS = 30.0
"""How often a pod's networks are compared with what it asks for; a change of the pod is immediate."""
_RETRY_SECONDS = 10.0
"""Before what failed for a running pod is tried again."""
_CLUSTER_NETWORK = "kindling"
"""The name in the CNI configuration that the container runtime uses."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Where things are on a node, and what administrators chose."""

    is_isolated: bool = False
    """Pods use definitions of their own namespace and of `open_namespaces` only."""
    open_namespaces: Collection[str] = ("default",)
    node_ports: Collection[int] = ()
    """Ports of the node's own servers, which no portMappings take over."""
    plugins: Path = Path("/usr/lib/cni")
    plugin_seconds: float = 60.0
    """That one plugin may take; with DHCP it waits for a server."""
    records: Path = Path("/var/lib/cni/secondary")
    files: Path = Path("/etc/cni/multus/net.d")


class PodNetworks:
    """The secondary networks of a node's pods."""

    def __init__(
        self, client: Client, runtime: Containerd, record_event: RecordEvent, settings: NetworkSettings
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._record_event = record_event
        self._settings = settings
        self._definitions = Definitions(client, settings.files)
        self._claims = Claims(client)
        self._plugins = Plugins(settings.plugins, settings.plugin_seconds)
        self._records = Records(settings.records)
        self._overlays = Overlays()
        self._locks: dict[str, asyncio.Lock] = {}

    def load(self) -> None:
        """Read what earlier agents attached. Raises OSError."""
        self._records.load()

    async def check(self, pod: JsonObject) -> None:
        """Find the pod's networks before its sandbox is made. Raises NetworkProblem."""
        if get_bool(pod, "spec", "hostNetwork"):
            return
        with _worded(pod):
            self._refuse_default(pod)
            for wanted in selection.selections(pod):
                await self._find(pod, wanted)

    async def sync(self, pod: JsonObject, observed: PodRuntimeStatus) -> float:
        """Attach the pod's sandbox to the networks that the pod wants now; returns the seconds until the
        next attempt.

        Without its networks no container starts: raises NetworkProblem, OSError, with an event. Containers
        that have run go on.
        """
        if observed.sandbox is None:
            return _SYNC_SECONDS
        sandbox = observed.sandbox.id
        is_live = any(item.sandbox_id == sandbox for item in observed.all_containers())
        try:
            await self.attach(pod, sandbox, is_live=is_live)
        except (NetworkProblem, OSError) as error:
            if not is_live:
                problem = NetworkProblem(f'failed to setup network for sandbox "{sandbox}": {error}')
                text = f"Failed to create pod sandbox: {problem.rpc_text}"
                self._record_event(pod, "Warning", "FailedCreatePodSandBox", text, "")
                raise problem from error
            name = f"{get_str(pod, 'metadata', 'namespace')}/{get_str(pod, 'metadata', 'name')}"
            _log.warning(
                "networks of pod %s are not as it asks, trying again in %g s: %s", name, _RETRY_SECONDS, error
            )
            return _RETRY_SECONDS
        return _SYNC_SECONDS

    async def attach(self, pod: JsonObject, sandbox: str, *, is_live: bool) -> None:
        """Attach and detach what differs from what the pod wants now. Raises NetworkProblem, OSError.

        `is_live` says that containers have run in the sandbox.
        """
        if get_bool(pod, "spec", "hostNetwork"):
            return
        if not self._records.of(sandbox) and not get_str(pod, "metadata", "annotations", selection.NETWORKS):
            return
        async with self._lock(sandbox):
            with _worded(pod):
                wanted = selection.selections(pod)
                found = changes.compute(wanted, self._records.of(sandbox))
            for gone in found.remove:
                await self._remove(pod, gone, is_live=is_live)
            if found.add:
                await self._add_all(pod, sandbox, found, is_live=is_live)
            await self._tell(pod, sandbox, found.order)

    async def detach(self, sandbox: str) -> None:
        """Undo all attachments of a sandbox that ends. What fails is logged, and tried again by `sweep`."""
        if not self._records.of(sandbox):
            return
        async with self._lock(sandbox):
            for attachment in reversed(self._records.of(sandbox)):
                try:
                    await self._undo(attachment)
                except (NetworkProblem, OSError) as error:
                    _log.warning(
                        "detaching pod %s/%s from network %s failed, trying again: %s",
                        attachment.pod.namespace,
                        attachment.pod.name,
                        attachment.wanted.network,
                        error,
                    )
        self._locks.pop(sandbox, None)

    async def sweep(self, present: Collection[str]) -> None:
        """Undo the attachments of sandboxes that are gone, and remove overlays without pods."""
        for sandbox in self._records.sandboxes() - set(present):
            await self.detach(sandbox)
        try:
            await self._overlays.sweep(self._records.bridges)
        except (NetworkProblem, OSError) as error:
            _log.warning("networks that no pod is on any more are left, trying again: %s", error)

    def _lock(self, sandbox: str) -> asyncio.Lock:
        return self._locks.setdefault(sandbox, asyncio.Lock())

    def _refuse_default(self, pod: JsonObject) -> None:
        wanted = selection.default_network(pod)
        if wanted is not None:
            raise NetworkProblem(
                f"{selection.DEFAULT_NETWORK}: {wanted.network}: this node's pods have the network of the "
                "cluster as their default network"
            )

    async def _find(self, pod: JsonObject, wanted: NetworkSelection) -> Network:
        """The network that a pod asks for. Raises NetworkProblem."""
        settings, namespace = self._settings, get_str(pod, "metadata", "namespace")
        if settings.is_isolated and wanted.namespace not in (namespace, *settings.open_namespaces):
            raise NetworkProblem(
                "GetNetworkDelegates: namespace isolation enabled, annotation violates permission, pod is in "
                f"namespace {namespace} but refers to target namespace {wanted.namespace}"
            )
        check_ports(wanted, settings.node_ports)
        where = "GetNetworkDelegates: failed getting the delegate"
        try:
            return await self._definitions.read(wanted)
        except definitions.NotFound as problem:
            self._record_event(pod, "Warning", "NoNetworkFound", str(problem), "")
            raise NetworkProblem(f"{where}: getKubernetesDelegate: {problem}") from problem
        except NetworkProblem as problem:
            raise NetworkProblem(f"{where}: {problem}") from problem

    async def _add_all(self, pod: JsonObject, sandbox: str, found: Changes, *, is_live: bool) -> None:
        path = _namespace_path(await self._runtime.sandbox_network(sandbox))
        for addition in found.add:
            try:
                with _worded(pod):
                    network = await self._find(pod, addition.wanted)
                # To undo the attachment would remove an interface that the pod has already.
                if await _has_link(path, addition.interface):
                    name = addition.interface
                    raise NetworkProblem(f"validateIfName: interface name {name} already exists")
                attachment = await self._planned(pod, sandbox, path, addition, network)
                made = await self._add(attachment, network)
            except (NetworkProblem, OSError):
                if is_live:
                    text = _changed(pod, "failed adding", addition.interface, addition.wanted)
                    self._record_event(pod, "Warning", "FailedAddingInterface", text, "")
                raise
            self._tell_added(pod, made, is_live=is_live)
        await self._route(sandbox, path)

    async def _planned(
        self, pod: JsonObject, sandbox: str, path: str, addition: Addition, network: Network
    ) -> Attachment:
        """The attachment as it is written down before it is made."""
        metadata, wanted = get_object(pod, "metadata"), addition.wanted
        namespace, addresses = get_str(metadata, "namespace"), wanted.ips
        plugins: Sequence[Mapping[str, Any]] = network.plugins
        if network.overlay is not None:
            mtu = await self._overlays.mtu(network.overlay)
            plugins = (network.overlay.plugin(mtu), *plugins[1:])
        if wanted.ipam_claim and network.keeps_addresses:
            held = await self._claims.addresses(namespace, wanted.ipam_claim, network.name)
            for address in held:
                selection.check_address(address)
            addresses = held or addresses
            plugins = with_addresses(plugins)
        check_addresses(wanted, plugins, addresses)
        return Attachment(
            sandbox=sandbox,
            interface=addition.interface,
            wanted=wanted,
            pod=PodName(namespace=namespace, name=get_str(metadata, "name"), uid=get_str(metadata, "uid")),
            namespace_path=path,
            name=network.name,
            plugins=tuple(plugins),
            capabilities=capabilities_of(wanted, addresses),
            arguments=arguments_of(wanted, addresses),
            made=max((item.made for item in self._records.of(sandbox)), default=0) + 1,
        )

    async def _add(self, attachment: Attachment, network: Network) -> Attachment:
        """Make an attachment, or undo what was made of it. Raises NetworkProblem, OSError."""
        pod, wanted = attachment.pod, attachment.wanted
        await self._records.write(attachment)
        try:
            if network.overlay is not None:
                await self._overlays.prepare(network.overlay)
            made = await self._records.completed(attachment, await self._plugins.add(attachment))
            if wanted.ipam_claim and network.keeps_addresses and made.result is not None:
                await self._claims.fulfil(pod.namespace, wanted.ipam_claim, pod.name, made.result)
        except (NetworkProblem, OSError) as error:
            try:
                await self._undo(attachment)
            except (NetworkProblem, OSError) as second:
                where = f"{attachment.interface} of pod {pod.namespace}/{pod.name}"
                _log.warning("undoing interface %s failed, trying again: %s", where, second)
            whose = f"{pod.namespace}/{pod.name}/{pod.uid}:{attachment.name}"
            raise NetworkProblem(
                f'[{whose}]: error adding container to network "{attachment.name}": {error}'
            ) from error
        return made

    async def _remove(self, pod: JsonObject, attachment: Attachment, *, is_live: bool) -> None:
        interface, wanted = attachment.interface, attachment.wanted
        is_told = is_live and attachment.result is not None
        try:
            await self._undo(attachment)
        except (NetworkProblem, OSError):
            if is_told:
                text = _changed(pod, "failed removing", interface, wanted, brief=True)
                self._record_event(pod, "Warning", "FailedRemovingInterface", text, "")
            raise
        if is_told:
            text = _changed(pod, "removed", interface, wanted, brief=True)
            self._record_event(pod, "Normal", "RemovedInterface", text, "")

    async def _undo(self, attachment: Attachment) -> None:
        """Undo an attachment and forget it. Raises NetworkProblem, OSError."""
        try:
            await self._plugins.delete(attachment)
        except NetworkProblem as problem:
            # What was never made may be impossible to undo as well, such as an incomplete configuration.
            is_there = await _has_link(attachment.namespace_path, attachment.interface)
            if attachment.result is not None or is_there:
                raise
            where = f"{attachment.interface} of sandbox {attachment.sandbox}"
            _log.warning("interface %s was not made and is forgotten: %s", where, problem)
        await self._records.remove(attachment)

    async def _route(self, sandbox: str, path: str) -> None:
        attached = self._records.of(sandbox)
        gateways = {item.interface: item.wanted.default_route for item in attached}
        chosen = {interface: addresses for interface, addresses in gateways.items() if addresses}
        if chosen:
            await routes.choose_default(path, [_POD_LINK, *gateways], chosen)

    def _tell_added(self, pod: JsonObject, made: Attachment, *, is_live: bool) -> None:
        if is_live:
            text = _changed(pod, "added", made.interface, made.wanted)
        else:
            addresses = " ".join(get_str(item, "address") for item in get_list(made.result, "ips"))
            text = f"Add {made.interface} [{addresses}] from {made.wanted.network}"
        self._record_event(pod, "Normal", "AddedInterface", text, "")

    async def _tell(self, pod: JsonObject, sandbox: str, order: Sequence[str]) -> None:
        """Write the status annotation unless it says so already. Raises NetworkProblem."""
        metadata = get_object(pod, "metadata")
        attached = {item.interface: item for item in self._records.of(sandbox)}
        shown = get_str(metadata, "annotations", network_status.ANNOTATION)
        told = [network_status.default_entry(_CLUSTER_NETWORK, await self._runtime.sandbox_network(sandbox))]
        for item in (attached[name] for name in order):
            told += network_status.entries(item.wanted.network, item.result or {})
        text = network_status.text(told)
        if text == shown:
            return
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {network_status.ANNOTATION: text}}}
        name, namespace = get_str(metadata, "name"), get_str(metadata, "namespace")
        try:
            await self._client.patch(PODS, name, patch, namespace, type="merge", subresource="status")
        except (StatusError, ConnectionFailed) as error:
            if isinstance(error, StatusError) and error.code in (404, 409):
                _log.debug("the networks of pod %s/%s are not told: it is gone: %s", namespace, name, error)
                return
            raise NetworkProblem(f"error setting the networks status: {error}") from error


def _namespace_path(result: JsonObject) -> str:
    """The file of a sandbox's network namespace. Raises NetworkProblem."""
    path = get_str(result, "Interfaces", _POD_LINK, "Sandbox")
    if not path:
        raise NetworkProblem("the sandbox has no network of its own")
    return path


async def _has_link(path: str, interface: str) -> bool:
    """Whether there is an interface in the network namespace at `path`. Raises OSError."""
    if not await asyncio.to_thread(Path(path).exists):
        return False
    command = ("nsenter", f"--net={path}", "ip", "-o", "link", "show", "dev", interface)
    code, _, _ = await run_program(*command, seconds=_LOOK_SECONDS)
    return code == 0


class _worded:
    """Puts the pod before what keeps it from finding its networks, as Multus words it."""

    def __init__(self, pod: JsonObject) -> None:
        self._metadata = get_object(pod, "metadata")

    def __enter__(self) -> None:
        return

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, NetworkProblem):
            metadata = self._metadata
            name = "/".join(get_str(metadata, part) for part in ("namespace", "name", "uid"))
            text = f"Multus: [{name}]: error loading k8s delegates k8s args: {error}"
            raise NetworkProblem(text) from error


def _changed(
    pod: JsonObject, done: str, interface: str, wanted: NetworkSelection, *, brief: bool = False
) -> str:
    """The text of an event about an interface of a running pod, as multus-dynamic-networks words it."""
    metadata = get_object(pod, "metadata")
    joint = "from" if done.endswith(("removed", "removing")) else "to"
    details = ""
    if not brief and (wanted.ips or wanted.mac or wanted.cni_args):
        arguments = f"{wanted.cni_args}" if wanted.cni_args else "<nil>"
        details = f"(ips: [{' '.join(wanted.ips)}], mac: {wanted.mac}, cni-args: {arguments[:500]})"
    whose = f"{get_str(metadata, 'namespace')}/{get_str(metadata, 'name')}"
    return f"pod [{whose}]: {done} interface {interface} {joint} network: {wanted.name}{details}"
