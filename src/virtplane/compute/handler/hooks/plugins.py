"""Plugins: their domain hooks change the domain that is defined, their node hooks hear of a guest's life.

Sidecars listen in the launcher's pod and are the tenant's as much as the plugin's: see ``calls``.
Services of node hooks listen on the node, below the folder that virt-handler has of it. Expressions are
evaluated in threads, for they may take seconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lxml import etree

from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.launcherpods import PLUGIN_SOCKETS
from virtplane.api.plugin_v1alpha1.plugin import DomainHook, NodeHook, Plugin, SidecarMutation
from virtplane.compute.handler.hooks import messages
from virtplane.compute.handler.hooks.calls import (
    Channel,
    HookError,
    asked,
    connect,
    document,
    own_domain,
    parsed,
)
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import HandlerSettings, PodPaths
from virtplane.compute.handler.threads import StepBlocked, Steps
from virtplane.compute.handler.words import repeatable
from virtplane.compute.plugins import hooks, sockets

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from virtplane.compute.domain.xml import Element

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_READY_SECONDS = 30.0
"""How long a sidecar has to open its socket."""

_SIDECAR_CONNECT_SECONDS, _NODE_CONNECT_SECONDS = 5.0, 1.0
_SPARE_SECONDS = 10.0
"""A call ends by itself before its thread counts as blocked."""

_FAILURES = (HookError, OSError, StepBlocked)


class PluginError(ValueError):
    """A plugin keeps its guest from going on."""


class MachinePlugins:
    """The hooks of plugins for one instance."""

    def __init__(self, settings: HandlerSettings, guest: str, paths: PodPaths, steps: Steps) -> None:
        self._node = settings.node_name
        self._share = settings.share_directory
        self._guest = guest
        self._sockets = paths.empty_dir(PLUGIN_SOCKETS)
        self._steps = steps
        self._told: set[str] = set()

    async def define(
        self, plugins: Sequence[Plugin], vmi: VirtualMachineInstance, name: str, xml: str
    ) -> str:
        """The XML of the domain `name` after every domain hook has changed it. Raises PluginError."""
        if not any(plugin.spec.domain_hooks for plugin in plugins):
            return xml
        domain = parsed("virt-handler", xml.encode())
        for plugin in hooks.ordered(plugins):
            called = f"plugin {plugin.metadata.name}"
            if not plugin.spec.domain_hooks or not await self._concerns(plugin, vmi, domain):
                continue
            for index, hook in enumerate(plugin.spec.domain_hooks):
                if not await self._is_true(hook.condition, vmi, domain, f"{called} hook {index}"):
                    continue
                try:
                    domain = await self._changed(plugin, hook, vmi, name, domain)
                except _FAILURES as error:
                    if not hooks.may_fail(plugin, hook):
                        raise PluginError(f"{called} hook {index} failed: {error}") from error
                    self._pass_over(f"{called} hook {index}", error)
        return etree.tostring(domain, encoding="unicode")

    async def tell(self, plugins: Sequence[Plugin], point: str, vmi: VirtualMachineInstance) -> None:
        """Call the node hooks of that point. Raises PluginError."""
        for plugin in hooks.ordered(plugins):
            wanting = [hook for hook in plugin.spec.node_hooks if point in hook.permitted_hooks]
            if not wanting or not await self._concerns(plugin, vmi, None):
                continue
            for hook in wanting:
                await self._tell_one(plugin, hook, point, vmi)

    async def tell_once(self, plugins: Sequence[Plugin], point: str, vmi: VirtualMachineInstance) -> None:
        """Call the node hooks of that point unless all of them succeeded before. Raises PluginError."""
        if point not in self._told:
            await self.tell(plugins, point, vmi)
            self._told.add(point)

    async def _concerns(self, plugin: Plugin, vmi: VirtualMachineInstance, domain: Element | None) -> bool:
        return await self._is_true(plugin.spec.condition, vmi, domain, f"plugin {plugin.metadata.name}")

    async def _is_true(
        self, text: str | None, vmi: VirtualMachineInstance, domain: Element | None, whose: str
    ) -> bool:
        """Whether a condition about domains holds. No strategy passes over one that has no value."""
        if not text:
            return True
        # Most nodes have no plugins; the interpreter takes memory.
        from virtplane.compute.plugins.expressions import domain_condition  # noqa: PLC0415

        return await self._evaluated(partial(domain_condition, text, encode(vmi), domain), whose)

    async def _evaluated(self, evaluate: partial[bool], whose: str) -> bool:
        try:
            return await self._steps.run("condition of a plugin", evaluate)
        except (ValueError, StepBlocked) as error:
            raise PluginError(f"{whose} condition evaluation failed: {error}") from error

    async def _changed(
        self, plugin: Plugin, hook: DomainHook, vmi: VirtualMachineInstance, name: str, domain: Element
    ) -> Element:
        """The domain as one hook makes it. Raises HookError, OSError, StepBlocked."""
        who, before = f"plugin {plugin.metadata.name}", etree.tostring(domain)
        if hook.cel is not None:
            mutate = partial(_mutated, hook.cel.expression, vmi, domain)
            after = await self._steps.run("mutation of a plugin", mutate)
        elif hook.sidecar is not None:
            socket = await self._ready_socket(plugin, hook.sidecar)
            seconds = hooks.seconds(hook)
            call = partial(self._call_sidecar, who, socket, before, vmi, seconds)
            after = await self._steps.run("sidecar of a plugin", call, seconds=seconds + _SPARE_SECONDS)
        else:
            return domain
        return own_domain(who, name, after)

    async def _ready_socket(self, plugin: Plugin, sidecar: SidecarMutation) -> PurePosixPath:
        """The sidecar's socket, below the volume's folder, once it is there. Raises HookError."""
        try:
            socket = sockets.sidecar_socket(plugin.metadata.name, sidecar.socket_path)
        except sockets.SocketError as error:
            raise HookError(str(error)) from error
        loop = asyncio.get_running_loop()
        until = loop.time() + _READY_SECONDS
        while not await self._steps.run("socket of a plugin", self._is_there, socket):
            if loop.time() >= until:
                text = f"sidecar socket {sidecar.socket_path} not ready after {_READY_SECONDS:g}s"
                raise HookError(text)
            await asyncio.sleep(_POLL_SECONDS)
        return socket

    def _is_there(self, socket: PurePosixPath) -> bool:
        if not self._sockets.is_dir():
            return False
        with Root(self._sockets, beneath=True, links=False) as root:
            try:
                return root.mode(str(socket)) != 0
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise HookError(f'socket path "{socket}" is a symlink, which is not allowed') from error

    def _call_sidecar(
        self,
        who: str,
        socket: PurePosixPath,
        domain: bytes,
        vmi: VirtualMachineInstance,
        seconds: float,
    ) -> bytes:
        interface = messages.plugins()
        values = {
            "domain_type": "libvirt",
            "domain": domain,
            "vmi": document(vmi),
            "sidecar_context": {"invocation_context": hooks.BOOT},
        }
        request = interface.message("MutateDomainRequest", values)
        # The folder of each plugin is the kubelet's, but the launcher has them all.
        with Channel(self._sockets / socket, self._sockets, links=False) as channel:
            connect(channel, _SIDECAR_CONNECT_SECONDS)
            call = interface.stub(channel, "DomainHookService")["MutateDomain"]
            answer = asked(call, request, seconds, f"MutateDomain RPC to {who} failed")
        made: bytes = answer.domain
        return made

    async def _tell_one(
        self, plugin: Plugin, hook: NodeHook, point: str, vmi: VirtualMachineInstance
    ) -> None:
        called = f"node hook {point} from plugin {plugin.metadata.name}"
        if hook.condition:
            from virtplane.compute.plugins.expressions import node_condition  # noqa: PLC0415 - as above

            evaluate = partial(node_condition, hook.condition, encode(vmi))
            if not await self._evaluated(evaluate, called):
                return
        seconds = hooks.seconds(hook)
        call = partial(self._call_node, hook.socket, point, vmi, seconds)
        try:
            await self._steps.run("node hook", call, seconds=seconds + _SPARE_SECONDS)
        except _FAILURES as error:
            if not hooks.may_fail(plugin, hook):
                raise PluginError(f"{called} failed: {error}") from error
            self._pass_over(called, error)

    def _call_node(self, path: str, point: str, vmi: VirtualMachineInstance, seconds: float) -> None:
        try:
            socket = self._share / sockets.node_socket(path)
        except sockets.SocketError as error:
            raise HookError(str(error)) from error
        interface = messages.plugins()
        values = {"hookPoint": point, "vmi": document(vmi), "node_context": {"node_name": self._node}}
        request = interface.message("ExecuteNodeHookRequest", values)
        with Channel(socket, self._share, links=False) as channel:
            connect(channel, _NODE_CONNECT_SECONDS)
            call = interface.stub(channel, "NodeHookService")["ExecuteNodeHook"]
            asked(call, request, seconds, "the call failed")

    def _pass_over(self, called: str, error: Exception) -> None:
        text = "A hook failed and is passed over, as its plugin says"
        logger.warning(text, extra={"vmi": self._guest, "hook": called, "err": repeatable(error)})


def _mutated(text: str, vmi: VirtualMachineInstance, domain: Element) -> bytes:
    from virtplane.compute.plugins.expressions import ExpressionError, mutated  # noqa: PLC0415 - as above

    try:
        return etree.tostring(mutated(text, encode(vmi), domain))
    except ExpressionError as error:
        raise HookError(str(error)) from error
