"""The networks of one guest: prepared before it starts, and kept as its instance says while it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from virtplane.api.kubevirt_v1.network_configuration import InterfaceBindingPlugin
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import InterfaceLink
from virtplane.compute.domain.interfaces import (
    plugged_interfaces,
    render_interface,
    with_link,
    xml_of,
)
from virtplane.compute.handler.launchers.control import LauncherLink
from virtplane.compute.handler.launchers.netns import enter_and_run
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.network import lease, passt, setup
from virtplane.compute.handler.network.cards import ABSENT, Card, Differences, differences, is_wanted_up
from virtplane.compute.handler.network.plan import (
    Plan,
    PodInterface,
    UnusableNetwork,
    is_tapped,
    plan_wire,
)
from virtplane.compute.handler.threads import Steps
from virtplane.compute.podlinks import TAP, LinkNames, Wire, leaving_wire, wires

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class NotPlugged(OSError):
    """An interface could not be attached to, or removed from, a running guest; it is tried again."""


class GuestNetworks:
    """The interfaces of one guest and the links of its pod behind them."""

    def __init__(self, domain: str, vmi: str, steps: Steps) -> None:
        """`domain` is libvirt's name of the guest, `vmi` the instance for log lines."""
        self.cards: dict[str, Card] = {}
        """The guest's interfaces, by their names in the specification."""
        self._domain = domain
        self._vmi = vmi
        self._steps = steps
        self._followed: tuple[Wire, ...] = ()
        """The interfaces of the specification with which the domain last agreed."""
        self._cleared: frozenset[str] = frozenset()
        self.is_recalled = False
        """Whether `cards` are what a running guest has; not yet when virt-handler has restarted."""
        self.plugins: Mapping[str, InterfaceBindingPlugin] = {}
        """The registered binding plug-ins, by name."""

    async def prepare(self, vmi: VirtualMachineInstance, link: LauncherLink) -> dict[str, InterfaceLink]:
        """Wire what a guest starts with. Raises NetworkSetupError, StepBlocked and OSError, and what requests
        to the launcher raise.
        """
        starting = [wire for wire in wires(vmi, self.plugins) if wire.interface.state != ABSENT]
        return await self._wire(vmi, link, starting)

    async def recall(self, vmi: VirtualMachineInstance, link: LauncherLink, hypervisor: Hypervisor) -> None:
        """Find again what was prepared before virt-handler restarted. Raises what `prepare` raises, and
        HypervisorError.
        """
        if self.is_recalled:
            return
        plugged = plugged_interfaces(await hypervisor.description(self._domain))
        found = [wire for wire in wires(vmi, self.plugins) if wire.interface.name in plugged]
        await self._wire(vmi, link, [wire for wire in found if wire.interface.name not in self.cards])
        for wire in found:
            present = plugged[wire.interface.name]
            if present.name not in self.cards and present.mac:
                # A binding plug-in's sidecar made it; only the domain knows its MAC.
                self.cards[present.name] = Card(present.mac, wire.names.pod, is_up=present.is_up)
        self.is_recalled = True

    async def follow(
        self, vmi: VirtualMachineInstance, link: LauncherLink, hypervisor: Hypervisor, *, emulation: bool
    ) -> None:
        """Attach, detach and switch what differs from the instance.

        A pod's interface may come later, and a guest takes its time to let one go: what is left is done by a
        later call. Raises HypervisorError, NotPlugged, StepBlocked and OSError, and what requests to the
        launcher raise.
        """
        named = {item.name for item in vmi.spec.domain.devices.interfaces}
        wanted = (
            *wires(vmi, self.plugins),
            *(leaving_wire(name) for name in self.cards if name not in named),
        )
        if wanted == self._followed:
            return
        xml = await hypervisor.description(self._domain)
        plugged = plugged_interfaces(xml)
        for name, card in self.cards.items():
            if name in plugged:
                self.cards[name] = replace(card, is_up=plugged[name].is_up)
        found = differences(wanted, plugged, self._cleared)
        self._followed = () if found else wanted
        await self._apply(vmi, link, hypervisor, found, xml, emulation=emulation)

    async def _apply(
        self,
        vmi: VirtualMachineInstance,
        link: LauncherLink,
        hypervisor: Hypervisor,
        found: Differences,
        xml: str,
        *,
        emulation: bool,
    ) -> None:
        for wire in found.switch:
            name, is_up = wire.interface.name, is_wanted_up(wire)
            await hypervisor.update_device(self._domain, with_link(xml, name, is_up=is_up))
            if name in self.cards:
                self.cards[name] = replace(self.cards[name], is_up=is_up)
        for wire in found.unplug:
            await hypervisor.detach_interface(self._domain, wire.interface.name)
        for wire in found.clear:
            await self._clear(wire, link)
        for wire in found.plug:
            await self._plug(vmi, wire, link, hypervisor, emulation=emulation)

    async def _plug(
        self,
        vmi: VirtualMachineInstance,
        wire: Wire,
        link: LauncherLink,
        hypervisor: Hypervisor,
        *,
        emulation: bool,
    ) -> None:
        name = wire.interface.name
        try:
            if await self._pod_interface(link.process, wire.names) is None:
                return  # The pod is not on that network yet.
            prepared = (await self._wire(vmi, link, [wire]))[name]
        except setup.NetworkSetupError as error:
            raise NotPlugged(f"interface {name} is not plugged in: {error}") from error
        self._cleared -= {name}
        node = render_interface(vmi, wire.interface, prepared, emulation=emulation)
        try:
            await hypervisor.attach_device(self._domain, xml_of(node))
        except HypervisorError:
            del self.cards[name]  # The status does not say that the guest has it.
            raise
        logger.info("Interface plugged in", extra={"vmi": self._vmi, "interface": name})

    async def _clear(self, wire: Wire, link: LauncherLink) -> None:
        name = wire.interface.name
        try:
            await link.request("end-dhcp", interface=wire.names.bridge)
        except ValueError as error:
            # A launcher of an older release keeps its socket, which hears nothing without the bridge.
            logger.info("DHCP goes on", extra={"vmi": self._vmi, "interface": name, "err": str(error)})
        try:
            await self._in_network(link.process, lambda: setup.remove(wire.names))
        except setup.NetworkSetupError as error:
            raise NotPlugged(f"interface {name} is not removed: {error}") from error
        self.cards.pop(name, None)
        self._cleared |= {name}

    async def _wire(
        self, vmi: VirtualMachineInstance, link: LauncherLink, chosen: Iterable[Wire]
    ) -> dict[str, InterfaceLink]:
        """Make the links of interfaces, as often as wanted, and have the launcher serve DHCP there."""
        prepared = {}
        for wire in chosen:
            if not is_tapped(wire) and wire.attachment != TAP and not passt.is_passt(wire):
                continue
            pod = await self._pod_interface(link.process, wire.names)
            if pod is None:
                raise setup.NetworkSetupError(f"the pod has no network interface {wire.names.pod}")
            if wire.attachment == TAP:
                prepared[wire.interface.name] = await self._ready_made(link.process, wire, pod)
                continue
            if passt.is_passt(wire):
                prepared[wire.interface.name] = await self._passt(vmi, link, wire, pod)
                continue
            try:
                plan = plan_wire(vmi, wire, pod)
            except UnusableNetwork as error:
                raise setup.NetworkSetupError(str(error)) from error
            await self._apply_plan(vmi, link, plan)
            addresses = tuple(str(address.ip) for address in pod.addresses) if wire.is_primary else ()
            self.cards[plan.interface] = Card(
                plan.mac, wire.names.pod, plan.queues, addresses, is_up=is_wanted_up(wire)
            )
            prepared[plan.interface] = InterfaceLink(wire.names.tap, plan.mac, pod.mtu, plan.queues)
        return prepared

    async def _ready_made(self, launcher: Process, wire: Wire, pod: PodInterface) -> InterfaceLink:
        """The tap that a network's CNI plugin made, beside the pod's interface or in its place."""
        has_tap = await self._pod_interface(launcher, replace(wire.names, pod=wire.names.tap)) is not None
        mac = wire.interface.mac_address or pod.mac
        addresses = tuple(str(address.ip) for address in pod.addresses) if wire.is_primary else ()
        self.cards[wire.interface.name] = Card(mac, wire.names.pod, addresses=addresses)
        return InterfaceLink(wire.names.tap if has_tap else wire.names.pod, mac, pod.mtu)

    async def _passt(
        self, vmi: VirtualMachineInstance, link: LauncherLink, wire: Wire, pod: PodInterface
    ) -> InterfaceLink:
        """Have the launcher start passt, which waits for the guest."""
        name, ports = wire.interface.name, passt.forwarded(vmi, wire.interface)
        await self._in_network(link.process, passt.allow_in_pod)
        await self._steps.run("open files", passt.allow_files, link.process, ports, name)
        await link.request("passt", cable=passt.socket(vmi), arguments=passt.arguments(wire, pod, ports))
        mac = passt.guest_mac(wire.interface, pod)
        addresses = tuple(str(address.ip) for address in pod.addresses)
        self.cards[name] = Card(mac, wire.names.pod, addresses=addresses, is_up=is_wanted_up(wire))
        return InterfaceLink("", mac, socket=passt.socket(vmi))

    async def _apply_plan(self, vmi: VirtualMachineInstance, link: LauncherLink, plan: Plan) -> None:
        await self._in_network(link.process, lambda: setup.apply(plan))
        resolver = lease.parse_resolver(await self._steps.run("resolver", _resolver, link.process))
        offer = lease.lease(plan, vmi, resolver)
        if offer is not None:
            await link.request("dhcp", interface=plan.names.bridge, lease=offer)

    async def _pod_interface(self, launcher: Process, names: LinkNames) -> PodInterface | None:
        return await self._in_network(launcher, lambda: setup.read_pod_interface(names))

    async def _in_network(self, launcher: Process, function: Callable[[], _Result]) -> _Result:
        """Run `function` in the pod's network namespace. Raises what it raises, StepBlocked and OSError."""

        def run() -> _Result:
            namespace = launcher.network()
            try:
                return enter_and_run(namespace, function)
            finally:
                os.close(namespace)

        return await self._steps.run("network", run)


def _resolver(launcher: Process) -> str:
    with launcher.root() as root:
        return root.read("etc/resolv.conf").decode()
