"""Reconciles the virtual machine instances of the node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from kubecore.client import Client
from kubecore.objects.structs import UnfitDocument
from kubecore.objects.times import now_rfc3339
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, RequeueAfter, Result, key_of
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.plugin_v1alpha1.plugin import Plugin
from virtplane.compute.domain.disks import MissingSource
from virtplane.compute.domain.document import domain_name
from virtplane.compute.handler import decisions, status
from virtplane.compute.handler.agent import support
from virtplane.compute.handler.decisions import Action, Observation
from virtplane.compute.handler.guestmetrics import Guest
from virtplane.compute.handler.instanceevents import InstanceEvents
from virtplane.compute.handler.launchers.control import LauncherBroken, LauncherGone
from virtplane.compute.handler.libvirtd import ioerrors
from virtplane.compute.handler.libvirtd.calls import DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.domainoptions import domain_options
from virtplane.compute.handler.lifecycle import Lifecycle
from virtplane.compute.handler.machine import Machine, ServersSpent
from virtplane.compute.handler.network.functions import FunctionsUnknown
from virtplane.compute.handler.network.setup import NetworkSetupError
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.statuswrites import StatusWrites
from virtplane.compute.handler.storage.bootfiles import MissingFirmware
from virtplane.compute.handler.storage.claims import ClaimSettings, NotEnoughSpace
from virtplane.compute.handler.storage.cloudinit import CloudInitError
from virtplane.compute.handler.storage.images import BadImage
from virtplane.compute.handler.storage.volumes import UnsupportedVolume, VolumeBlocked, VolumeNotReady
from virtplane.compute.handler.threads import StepBlocked
from virtplane.compute.handler.words import repeatable

logger = logging.getLogger(__name__)

_WORKERS = 512
"""More than the guests of a node (large ones have 500 pods): none waits for a worker that another guest's
launcher, libvirt or storage holds up. An idle worker costs 1.2 KiB."""

_RETRY_SECONDS = 1.0
_BEHIND_SECONDS = 0.1
_AGENT_SECONDS = 10.0
_IDLE = (Action.NOTHING, Action.WAIT)
_FAILED = "Synchronizing with the Domain failed."
"""KubeVirt's reason for a guest that is not as its instance says."""

_NOT_READY = "VolumeNotReady"

_CRITICAL = (NetworkSetupError, UnsupportedVolume, MissingFirmware, ServersSpent)
"""A guest that these happen to can never run in its pod."""

_RECOVERABLE = (
    HypervisorError,
    BadImage,
    CloudInitError,
    MissingSource,
    LauncherBroken,
    LauncherGone,
    NotEnoughSpace,
    StepBlocked,
    OSError,
    ValueError,
)


class InstanceController:
    """Brings each guest of the node to the state that its instance describes, and reports its status."""

    def __init__(
        self,
        client: Client,
        informer: Informer[VirtualMachineInstance],
        recorder: EventRecorder,
        settings: HandlerSettings,
        config: Callable[[], ClusterConfig],
        *,
        emulation: bool,
        plugins: Callable[[], Sequence[Plugin]] = tuple,
    ) -> None:
        self.machines: dict[str, Machine] = {}
        """By the instance's UID."""
        self.controller = Controller("virt-handler-vm", self.reconcile, workers=_WORKERS, max_delay=30.0)
        self.controller.watch(informer)
        self._informer = informer
        self.events = InstanceEvents(recorder)
        self._lifecycle = Lifecycle(plugins, self.events)
        self._settings = settings
        self._config = config
        self._emulation = emulation
        self.writes = StatusWrites(client)

    def machine_of(self, namespace: str, name: str) -> Machine | None:
        """The running machine of an instance, for the streams and actions of the console server.

        Raises UnfitDocument.
        """
        vmi = self._informer.get(namespace, name)
        return self.machines.get(vmi.metadata.uid) if vmi is not None else None

    def instance(self, namespace: str, name: str) -> VirtualMachineInstance | None:
        """The instance from the cache. Raises UnfitDocument."""
        return self._informer.get(namespace, name)

    def guests(self) -> list[Guest]:
        """The running guests whose libvirt is connected."""
        found = []
        for vmi in self._informer.list():
            machine = self.machines.get(vmi.metadata.uid)
            connection = machine.hypervisor if machine is not None else None
            if vmi.status.phase == "Running" and machine is not None and connection and connection.is_open:
                found.append(Guest(vmi, machine.name, connection, machine.agent.figures))
        return found

    def has_ended(self, uid: str) -> bool:
        """Whether no guest of that instance runs on this node; False while that is unknown."""
        if not self._informer.has_synced:
            return False
        vmi = next((each for each in self._informer.list() if each.metadata.uid == uid), None)
        # Instances that cannot be decoded at the moment are missing from the list.
        return decisions.is_final(vmi) if vmi is not None else not self._informer.unfit

    async def close(self) -> None:
        """Close all connections; guests keep running."""
        await asyncio.gather(*(machine.close() for machine in self.machines.values()))

    async def reconcile(self, key: Key) -> Result:
        """Reconcile one instance: take the next step, and report the status."""
        try:
            vmi = self._informer.get(*key)
        except UnfitDocument:
            return await self._leave_alone(key)
        await self._forget_others(key, vmi)
        if vmi is None:
            self._lifecycle.forget(key)
            self.writes.counts.forget(*key)
        if vmi is None or not decisions.belongs_to_node(vmi, self._settings.node_name):
            return DONE
        if self.writes.is_unseen(vmi):
            return RequeueAfter(_BEHIND_SECONDS)
        pod_uid = decisions.pod_on_node(vmi, self._settings.node_name)
        if not pod_uid and vmi.metadata.uid not in self.machines:
            return await self._report_lost(key, vmi)
        machine = self._machine(key, vmi, pod_uid)
        machine.networks.plugins = self._config().binding_plugins
        seen = await machine.observe()
        action = decisions.next_action(vmi, seen, datetime.now(UTC))
        error = await self._act(machine, vmi, action)
        is_held = action is Action.RELEASE and error is not None
        seen = await machine.observe()
        if error is None and action in _IDLE and _is_unread(machine, seen):
            # Libvirt answered only now, so that the step did nothing for its guest.
            error = await self._act(machine, vmi, Action.NOTHING)
        self._tell_of_guest(machine, vmi)
        lasting = machine.fatal or ("" if machine.lines.gone else machine.lines.lasting_trouble)
        if error is None and lasting:
            error = _FAILED, lasting
        result = await self._report(machine, vmi, error, seen)
        return RequeueAfter(_RETRY_SECONDS) if is_held else result

    async def _forget_others(self, key: Key, vmi: VirtualMachineInstance | None) -> None:
        """Drop machines of this name that belong to earlier instances or whose pod has ended."""
        for uid, machine in self._machines_of(key):
            is_own = vmi is not None and uid == vmi.metadata.uid
            if not is_own:
                await self._forget(key, uid, machine)
            elif vmi is not None and decisions.is_final(vmi) and machine.lines.gone:
                await self._lifecycle.after_end(machine, vmi)
                await self._forget(key, uid, machine)

    async def _leave_alone(self, key: Key) -> Result:
        """Leave an instance alone that cannot be decoded: the cache has logged what to correct. Its guest
        keeps running.

        Only the end of its pod matters. Its deletion causes no event, so it is checked again later.
        """
        found = self._machines_of(key)
        for uid, machine in found:
            seen = await machine.observe()
            if seen.launcher_gone:
                await self._forget(key, uid, machine)
            elif seen.terminating and seen.domain_known and seen.domain is not None and seen.domain.is_active:
                # Otherwise the launcher ends the guest when its grace period has passed.
                with contextlib.suppress(HypervisorError):
                    await machine.press_power_button()
        return RequeueAfter(decisions.SHUTDOWN_REPEAT_SECONDS) if found else DONE

    def _machines_of(self, key: Key) -> list[tuple[str, Machine]]:
        name = domain_name(*key)
        return [(uid, machine) for uid, machine in self.machines.items() if machine.name == name]

    async def _forget(self, key: Key, uid: str, machine: Machine) -> None:
        del self.machines[uid]
        await machine.close()
        await self._unmount_images(key, machine)

    async def _unmount_images(self, key: Key, machine: Machine) -> None:
        try:
            await machine.unmount_images()
        except (OSError, StepBlocked) as error:
            logger.warning(
                "Disks of an ended pod could not be unmounted: the kubelet cannot remove the pod."
                " Restart virt-handler on this node to try again",
                extra={"vmi": f"{key[0]}/{key[1]}", "pod": machine.paths.pod_uid, "err": str(error)},
            )

    async def _report_lost(self, key: Key, vmi: VirtualMachineInstance) -> Result:
        """Report a guest as failed whose pod ended while virt-handler did not run (as when the node
        restarts).
        """
        if decisions.is_final(vmi):
            return DONE
        lost = Machine(self._settings, vmi, "", lambda: self.controller.enqueue(key))
        seen = Observation(launcher_ready=False, launcher_gone=True, domain=None)
        await self._lifecycle.after_end(lost, vmi)
        return await self._report(lost, vmi, None, seen)

    def _machine(self, key: Key, vmi: VirtualMachineInstance, pod_uid: str) -> Machine:
        uid = vmi.metadata.uid
        machine = self.machines.get(uid)
        if machine is None:
            machine = Machine(self._settings, vmi, pod_uid, lambda: self.controller.enqueue(key))
            self.machines[uid] = machine
        return machine

    async def _act(
        self, machine: Machine, vmi: VirtualMachineInstance, action: Action
    ) -> tuple[str, str] | None:
        """Take the step; returns the error to report in the condition Synchronized."""
        try:
            await self._take(machine, vmi, action)
        except VolumeBlocked as error:
            why = repeatable(error)
            if not status.is_reported(vmi, _NOT_READY, why):
                text = "The guest cannot start yet; look at the storage of the volume"
                logger.warning(text, extra={"vmi": _text(vmi), "err": why})
                self.events.send(vmi, "Warning", "SyncFailed", why)
            return _NOT_READY, why
        except (VolumeNotReady, FunctionsUnknown) as error:
            return _NOT_READY if isinstance(error, VolumeNotReady) else _FAILED, repeatable(error)
        except _CRITICAL as error:
            why = repeatable(error)
            text = "The guest cannot run in its pod; its instance fails. Correct it and start it again"
            logger.warning(text, extra={"vmi": _text(vmi), "err": why})
            self.events.send(vmi, "Warning", "SyncFailed", why)
            if action is Action.START:
                machine.fatal = why
            return _FAILED, why
        except _RECOVERABLE as error:
            why = repeatable(error)
            level = logging.DEBUG if status.is_reported(vmi, _FAILED, why) else logging.WARNING
            extra = {"vmi": _text(vmi), "step": action.value, "err": why}
            logger.log(level, "The guest could not be synchronized; trying again", extra=extra)
            self.events.send(vmi, "Warning", "SyncFailed", why)
            return _FAILED, why
        return None

    async def _take(self, machine: Machine, vmi: VirtualMachineInstance, action: Action) -> None:
        """Take the step. Raises what its parts raise."""
        if action is Action.START:
            await self._start(machine, vmi)
        elif action is Action.SHUT_DOWN:
            await self._lifecycle.before_stop(machine, vmi)
            if machine.shutdown_started is None:
                self.events.send(vmi, "Normal", "ShuttingDown", "Signaled Graceful Shutdown")
            await machine.press_power_button()
        elif action is Action.DESTROY:
            await self._lifecycle.before_stop(machine, vmi)
            self.events.send(vmi, "Normal", "Deleted", "VirtualMachineInstance stopping")
            await machine.cut_power()
        elif action is Action.RELEASE:
            await self._lifecycle.before_release(machine, vmi)
            await machine.release(0 if vmi.status.phase == "Succeeded" else 1)
        elif machine.domain is not None and machine.domain.is_active:
            await self._follow(machine, vmi, machine.domain)
        elif machine.domain is not None:
            await machine.plugs.clear()

    async def _follow(self, machine: Machine, vmi: VirtualMachineInstance, domain: DomainState) -> None:
        """Bring a running guest nearer to what its instance asks for."""
        await machine.recall(vmi)
        machine.agent.refresh(vmi, is_running=domain.status == "Running")
        await machine.follow_networks(vmi, emulation=self._emulation)
        await machine.grow_disks(vmi, self._claim_settings())
        if machine.hypervisor is not None:
            for text in await machine.io_errors.follow(vmi, domain, machine.hypervisor):
                self.events.send(vmi, "Warning", ioerrors.EVENT, text)
        await self._follow_plugs(machine, vmi)

    async def _start(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        try:
            await machine.start(
                vmi,
                emulation=self._emulation,
                options=domain_options(self._config().configuration),
                claim_settings=self._claim_settings(),
                ovmf_folder=self._config().ovmf_path(vmi.spec.architecture or "amd64"),
                plugins=self._lifecycle.plugins(),
            )
        finally:
            self._pass_on_remarks(machine, vmi)
        self.events.send(vmi, "Normal", "Created", "VirtualMachineInstance defined.")
        await machine.recall(vmi)

    async def _follow_plugs(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        try:
            await machine.follow_plugs(vmi, self._claim_settings())
        finally:
            self._pass_on_remarks(machine, vmi)

    def _pass_on_remarks(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        for remark in machine.remarks:
            self.events.send(vmi, "Normal", "ToleratedSmallPV", remark)
        machine.remarks.clear()

    def _tell_of_guest(self, machine: Machine, vmi: VirtualMachineInstance) -> None:
        if machine.lines.ping_failed:
            machine.lines.ping_failed = False
            text = f"GuestAgentPing probe failed for VMI {vmi.metadata.name}"
            self.events.send(vmi, "Warning", "GuestAgentPingFailed", text)
        hypervisor = machine.hypervisor
        if hypervisor is not None and hypervisor.has_panicked:
            hypervisor.has_panicked = False
            self.events.tell_panic(vmi)

    def _agent_versions(self) -> tuple[str, ...]:
        configured = self._config().configuration.supported_guest_agent_versions
        return tuple(configured) or support.DEFAULT_VERSIONS

    def _claim_settings(self) -> ClaimSettings:
        developer = self._config().configuration.developer_configuration
        percent, reserved = (
            developer.pvc_tolerate_less_space_up_to_percent,
            developer.minimum_reserve_pvc_bytes,
        )
        return ClaimSettings(percent or 0, reserved or 0)

    async def _report(
        self, machine: Machine, vmi: VirtualMachineInstance, error: tuple[str, str] | None, seen: Observation
    ) -> Result:
        phase = "Failed" if machine.fatal and not decisions.is_final(vmi) else decisions.next_phase(vmi, seen)
        report = status.Report(
            phase=phase,
            domain=seen.domain,
            domain_known=seen.domain_known or seen.launcher_gone,
            facts=machine.agent.facts,
            emulation=self._emulation,
            cards=machine.networks.cards,
            cards_known=machine.networks.is_recalled,
            machine=machine.machine_type,
            sync_error=error,
            credentials=machine.agent.credentials.outcome,
            plugged=machine.plugs.found,
            now=now_rfc3339(),
            shape=machine.cpu_memory.shape,
            memory_error=machine.cpu_memory.memory_error,
            agent_versions=self._agent_versions(),
        )
        fresh = status.render(vmi, report)
        if fresh != vmi.status:
            # What a phase depends on changes it a few times only.
            if fresh.phase == vmi.status.phase and self.writes.is_too_often(vmi):
                return RequeueAfter(_RETRY_SECONDS)
            await self.writes.write(vmi, fresh)
            self.events.announce(vmi, fresh)
            await self._lifecycle.after_write(machine, vmi, fresh)
        return self._again(vmi, phase, error, seen)

    def _again(
        self, vmi: VirtualMachineInstance, phase: str, error: tuple[str, str] | None, seen: Observation
    ) -> Result:
        if phase in decisions.FINAL_PHASES:
            # The launcher may exit once the status is written; the event of that write causes the next
            # reconcile.
            return DONE
        if error is not None or not seen.launcher_ready or not seen.domain_known:
            # A new connection calls reconcile, but a launcher that ends before it listens never has one.
            return RequeueAfter(_RETRY_SECONDS)
        if decisions.is_leaving(vmi, seen):
            grace = decisions.grace_seconds(vmi)
            return RequeueAfter(min(decisions.SHUTDOWN_REPEAT_SECONDS, max(grace, _BEHIND_SECONDS)))
        return RequeueAfter(_AGENT_SECONDS) if phase == "Running" else DONE


def _is_unread(machine: Machine, seen: Observation) -> bool:
    """Whether a guest runs of which this virt-handler does not know yet what it has."""
    is_active = seen.domain_known and seen.domain is not None and seen.domain.is_active
    return is_active and not machine.networks.is_recalled


def _text(vmi: VirtualMachineInstance) -> str:
    return "/".join(key_of(vmi))
