"""Nodes that are played: launchers' pods run at once, and guests are domains of libvirt's test driver."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import libvirt

from kubecore import resources
from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from kubecore.runtime import DONE, Controller, Key, Manager, Result
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.domain import document
from virtplane.compute.domain.context import DiskSource, DomainContext, InterfaceLink
from virtplane.compute.handler import status
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.network.cards import Card
from virtplane.compute.handler.status import Report

_WORKERS = 8
_MAC = "02:00:00:00:00:01"
_RUNNING = DomainState("Running", "Unknown")


@dataclass
class PlayedNodes:
    """Stands in for kubelets and virt-handlers; `running` has when each guest was reported as running."""

    client: Client
    names: tuple[str, ...]
    running: dict[str, float] = field(default_factory=dict)

    async def register(self) -> None:
        """Create the nodes, with a fresh heartbeat."""
        for name in self.names:
            metadata = {
                "name": name,
                "labels": {labels.SCHEDULABLE: "true"},
                "annotations": {labels.HEARTBEAT: now_rfc3339()},
            }
            await self.client.create(
                resources.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            )

    async def beat(self) -> None:
        """One more heartbeat of each."""
        for name in self.names:
            patch = {"metadata": {"annotations": {labels.HEARTBEAT: now_rfc3339()}}}
            await self.client.patch(resources.NODES, name, patch, type="merge")

    async def run(self) -> None:
        """Run pods and guests until cancelled."""
        manager = Manager(self.client)
        pods = manager.informer(resources.PODS)
        guests = manager.informer(VIRTUAL_MACHINE_INSTANCES, struct=VirtualMachineInstance)
        hypervisor = libvirt.open("test:///default")

        async def run_pod(key: Key) -> Result:
            pod = pods.get(*key)
            if pod is not None and get_str(pod, "status", "phase") != "Running":
                await self._run_pod(pod)
            return DONE

        async def run_guest(key: Key) -> Result:
            vmi = guests.get(*key)
            if vmi is not None and vmi.status.phase == "Scheduled":
                await self._run_guest(hypervisor, vmi)
            return DONE

        kubelets, handlers = (
            Controller(name, act, _WORKERS) for name, act in (("pods", run_pod), ("guests", run_guest))
        )
        kubelets.watch(pods)
        handlers.watch(guests)
        manager.add(kubelets)
        manager.add(handlers)
        try:
            await manager.run()
        finally:
            hypervisor.close()

    async def _run_pod(self, pod: JsonObject) -> None:
        name, namespace = meta.name(pod), meta.namespace(pod)
        node = get_str(pod, "spec", "nodeName")
        if not node:
            node = self.names[hash(name) % len(self.names)]
            target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            target["target"] = {"apiVersion": "v1", "kind": "Node", "name": node}
            await self.client.create(resources.PODS, target, namespace, subresource="binding", name=name)
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        states = [
            {
                "name": each["name"],
                "ready": True,
                "restartCount": 0,
                "image": each["image"],
                "imageID": "",
                "state": {"running": {"startedAt": now_rfc3339()}},
            }
            for each in pod["spec"]["containers"]
        ]
        conditions = [{"type": kind, "status": "True"} for kind in kinds]
        running = {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}
        patch: JsonObject = {"status": {**running, "containerStatuses": states}}
        await self.client.patch(
            resources.PODS, name, patch, namespace, type="strategic", subresource="status"
        )

    async def _run_guest(self, hypervisor: libvirt.virConnect, vmi: VirtualMachineInstance) -> None:
        await asyncio.to_thread(_start, hypervisor, vmi)
        card = Card(_MAC, "eth0", addresses=("10.0.0.1",))
        report = Report(
            phase="Running",
            domain=_RUNNING,
            domain_known=True,
            facts=GuestFacts(),
            emulation=False,
            cards={each.name: card for each in vmi.spec.domain.devices.interfaces},
            machine="pc-q35-7.2",
            sync_error=None,
            credentials=None,
            now=now_rfc3339(),
        )
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        changes = status.patch(vmi, status.render(vmi, report))
        await self.client.patch(VIRTUAL_MACHINE_INSTANCES, name, changes, namespace, type="json")
        self.running[name] = time.monotonic()


def _start(hypervisor: libvirt.virConnect, vmi: VirtualMachineInstance) -> None:
    """Define the domain that virt-handler would, and start it, unless that was done before."""
    context = DomainContext(
        emulation=False,
        disks={volume.name: DiskSource("/dev/null") for volume in vmi.spec.volumes},
        interfaces={each.name: InterfaceLink("tap0", _MAC) for each in vmi.spec.domain.devices.interfaces},
    )
    xml = document.render(vmi, context).replace('type="kvm"', 'type="test"', 1)
    domain = hypervisor.defineXML(xml)
    if not domain.isActive():
        domain.create()
