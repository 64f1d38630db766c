"""The reconciler of the node's instances."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Literal

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import now_rfc3339
from kubecore.runtime import DONE, Controller, EventRecorder, Informer, Key, RequeueAfter, Result, key_of
from virtplane.api.config import ClusterConfig
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.domain.disks import MissingSource
from virtplane.compute.handler import decisions, status
from virtplane.compute.handler.api import in_time
from virtplane.compute.handler.decisions import Action, Observation
from virtplane.compute.handler.launcher import LauncherBroken, LauncherGone
from virtplane.compute.handler.libvirtcalls import HypervisorError
from virtplane.compute.handler.machine import Machine
from virtplane.compute.handler.network.setup import NetworkSetupError
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.storage.cloudinit import CloudInitError
from virtplane.compute.handler.storage.images import BadImage
from virtplane.compute.handler.storage.volumes import UnsupportedVolume, VolumeBlocked, VolumeNotReady
from virtplane.compute.handler.threads import StepBlocked

logger = logging.getLogger(__name__)

_WORKERS = 512
"""More than the guests of a node (large ones have 500 pods): none waits for a worker that another guest's
launcher, libvirt or storage holds up. An idle worker costs 1.2 KiB."""

_RETRY_SECONDS = 1.0
_BEHIND_SECONDS = 0.1
_BEHIND_FOR_SECONDS = 30.0
"""A cache that has not caught up by then never will: the API's storage was put back to an earlier time."""

_AGENT_SECONDS = 10.0
_FAILED = "Synchronizing with the Domain failed."
"""KubeVirt's reason for a guest that is not as its instance says."""

_NOT_READY = "VolumeNotReady"

_CRITICAL = (NetworkSetupError, UnsupportedVolume)
"""A guest that these happen to can never run in its pod."""

_RECOVERABLE = (
    HypervisorError,
    BadImage,
    CloudInitError,
    MissingSource,
    LauncherBroken,
    LauncherGone,
    StepBlocked,
    OSError,
    ValueError,
)


class InstanceController:
    """Brings the node's guests to what their instances say, and reports what they are."""

    def __init__(
        self,
        client: Client,
        informer: Informer,
        recorder: EventRecorder,
        settings: HandlerSettings,
        config: ClusterConfig,
        *,
        emulation: bool,
    ) -> None:
        self.machines: dict[str, Machine] = {}
        """By the instance's UID."""
        self.controller = Controller("virt-handler-vm", self.reconcile, workers=_WORKERS, max_delay=30.0)
        self.controller.watch(informer)
        self._client = client
        self._informer = informer
        self._recorder = recorder
        self._settings = settings
        self._config = config
        self._emulation = emulation
        self._last_written: dict[str, tuple[int, float]] = {}
        """The resourceVersion of our own last write, and when that was, by the instance's UID."""

    def machine_of(self, namespace: str, name: str) -> Machine | None:
        """The running machine of an instance, for the streams and actions of the console server."""
        vmi = self._informer.get(namespace, name)
        return self.machines.get(get_str(vmi, "metadata", "uid")) if vmi is not None else None

    def instance(self, namespace: str, name: str) -> JsonObject | None:
        """The instance as the cache has it."""
        return self._informer.get(namespace, name)

    def has_ended(self, uid: str) -> bool:
        """Whether no guest of that instance runs here any more; False while that is not known."""
        if not self._informer.has_synced:
            return False
        vmi = next((each for each in self._informer.list() if meta.uid(each) == uid), None)
        return vmi is None or decisions.is_final(vmi)

    async def close(self) -> None:
        """Close all connections; guests go on."""
        await asyncio.gather(*(machine.close() for machine in self.machines.values()))

    async def reconcile(self, key: Key) -> Result:
        """Bring one guest a step closer to its instance, and report what it is."""
        vmi = self._informer.get(*key)
        await self._forget_others(key, vmi)
        if vmi is None or not decisions.belongs_to_node(vmi, self._settings.node_name):
            return DONE
        if self._is_behind(vmi):
            return RequeueAfter(_BEHIND_SECONDS)
        pod_uid = decisions.pod_on_node(vmi, self._settings.node_name)
        if not pod_uid and get_str(vmi, "metadata", "uid") not in self.machines:
            return await self._report_lost(key, vmi)
        machine = self._machine(key, vmi, pod_uid)
        seen = await machine.observe()
        action = decisions.next_action(vmi, seen, datetime.now(UTC))
        error = await self._act(machine, vmi, action)
        lasting = machine.fatal or ("" if machine.lines.gone else machine.lines.lasting_trouble)
        if error is None and lasting:
            error = _FAILED, lasting
        return await self._report(machine, vmi, error, await machine.observe())

    async def _forget_others(self, key: Key, vmi: JsonObject | None) -> None:
        """Drop machines of this name that belong to earlier instances or whose pod has ended."""
        uid = get_str(vmi, "metadata", "uid")
        name = f"{key[0]}_{key[1]}"
        for other, machine in list(self.machines.items()):
            ended = other == uid and vmi is not None and decisions.is_final(vmi) and machine.lines.gone
            if machine.name == name and (other != uid or ended):
                del self.machines[other]
                self._last_written.pop(other, None)
                await machine.close()
                await self._unmount_images(key, machine)

    async def _unmount_images(self, key: Key, machine: Machine) -> None:
        try:
            await machine.unmount_images()
        except (OSError, StepBlocked) as error:
            logger.warning(
                "Container disks of an ended pod could not be unmounted: the kubelet cannot remove the pod."
                " Restart virt-handler on this node to try again",
                extra={"vmi": f"{key[0]}/{key[1]}", "pod": machine.paths.pod_uid, "err": str(error)},
            )

    async def _report_lost(self, key: Key, vmi: JsonObject) -> Result:
        """The pod ended while virt-handler was away (as when the node restarts): its guest has failed."""
        if decisions.is_final(vmi):
            return DONE
        lost = Machine(self._settings, vmi, "", lambda: self.controller.enqueue(key))
        seen = Observation(launcher_ready=False, launcher_gone=True, domain=None)
        return await self._report(lost, vmi, None, seen)

    def _is_behind(self, vmi: JsonObject) -> bool:
        """True while the cache has not caught up with our own last write."""
        written, moment = self._last_written.get(get_str(vmi, "metadata", "uid"), (0, 0.0))
        is_recent = asyncio.get_running_loop().time() - moment < _BEHIND_FOR_SECONDS
        return is_recent and _version(vmi) < written

    def _machine(self, key: Key, vmi: JsonObject, pod_uid: str) -> Machine:
        uid = get_str(vmi, "metadata", "uid")
        machine = self.machines.get(uid)
        if machine is None:
            machine = Machine(self._settings, vmi, pod_uid, lambda: self.controller.enqueue(key))
            self.machines[uid] = machine
        return machine

    async def _act(self, machine: Machine, vmi: JsonObject, action: Action) -> tuple[str, str] | None:
        """Take the step; returns what to report as the synchronisation error."""
        try:
            if action is Action.START:
                await self._start(machine, vmi)
            elif action is Action.SHUT_DOWN:
                if machine.shutdown_started is None:
                    self._event(vmi, "Normal", "ShuttingDown", "Signaled Graceful Shutdown")
                await machine.press_power_button()
            elif action is Action.DESTROY:
                self._event(vmi, "Normal", "Deleted", "VirtualMachineInstance stopping")
                await machine.cut_power()
            elif action is Action.RELEASE:
                await machine.release(0 if get_str(vmi, "status", "phase") == "Succeeded" else 1)
            elif machine.domain is not None and machine.domain.is_active:
                await machine.recall(vmi)
                machine.refresh_facts(vmi)
        except VolumeBlocked as error:
            if not _is_reported(vmi, _NOT_READY, str(error)):
                text = "The guest cannot start yet; look at the storage of the volume"
                logger.warning(text, extra={"vmi": _text(vmi), "err": str(error)})
                self._event(vmi, "Warning", "SyncFailed", str(error))
            return _NOT_READY, str(error)
        except VolumeNotReady as error:
            return _NOT_READY, str(error)
        except _CRITICAL as error:
            text = "The guest cannot run in its pod; its instance fails. Correct it and start it again"
            logger.warning(text, extra={"vmi": _text(vmi), "err": str(error)})
            self._event(vmi, "Warning", "SyncFailed", str(error))
            if action is Action.START:
                machine.fatal = str(error)
            return _FAILED, str(error)
        except _RECOVERABLE as error:
            level = logging.DEBUG if _is_reported(vmi, _FAILED, str(error)) else logging.WARNING
            extra = {"vmi": _text(vmi), "step": action.value, "err": str(error)}
            logger.log(level, "The guest could not be synchronized; trying again", extra=extra)
            self._event(vmi, "Warning", "SyncFailed", str(error))
            return _FAILED, str(error)
        return None

    async def _start(self, machine: Machine, vmi: JsonObject) -> None:
        smbios = {key: str(value) for key, value in get_object(self._config.raw, "smbios").items() if value}
        await machine.start(vmi, emulation=self._emulation, options={"smbios": smbios})
        self._event(vmi, "Normal", "Created", "VirtualMachineInstance defined.")
        await machine.recall(vmi)

    async def _report(
        self, machine: Machine, vmi: JsonObject, error: tuple[str, str] | None, seen: Observation
    ) -> Result:
        phase = "Failed" if machine.fatal and not decisions.is_final(vmi) else decisions.next_phase(vmi, seen)
        report = status.Report(
            phase=phase,
            domain=seen.domain,
            domain_known=seen.domain_known or seen.launcher_gone,
            facts=machine.facts,
            emulation=self._emulation,
            macs=machine.macs,
            pod_addresses=machine.pod_addresses,
            machine=machine.machine_type,
            sync_error=error,
            credentials=machine.credentials.outcome,
            now=now_rfc3339(),
        )
        fresh = status.render(vmi, report)
        if fresh != vmi.get("status"):
            await self._write(vmi, fresh)
            self._announce(vmi, phase)
            self._announce_credentials(vmi, fresh)
        return self._again(vmi, phase, error, seen)

    async def _write(self, vmi: JsonObject, fresh: JsonObject) -> None:
        changed = deep_copy(vmi)
        changed["status"] = fresh
        try:
            written = await in_time(self._client.update(VIRTUAL_MACHINE_INSTANCES, changed))
        except StatusError as failure:
            if failure.code == 404:
                return
            raise
        moment = asyncio.get_running_loop().time()
        self._last_written[get_str(vmi, "metadata", "uid")] = (_version(written), moment)

    def _announce(self, vmi: JsonObject, phase: str) -> None:
        before = get_str(vmi, "status", "phase")
        if phase == before:
            return
        if phase == "Running":
            self._event(vmi, "Normal", "Started", "VirtualMachineInstance started.")
        elif phase == "Succeeded":
            self._event(vmi, "Normal", "Stopped", "The VirtualMachineInstance was shut down.")
        elif phase == "Failed":
            self._event(vmi, "Warning", "Stopped", "The VirtualMachineInstance crashed.")

    def _announce_credentials(self, vmi: JsonObject, fresh: JsonObject) -> None:
        before, after = (
            meta.get_condition({"status": each}, status.CREDENTIALS) or {}
            for each in (get_object(vmi, "status"), fresh)
        )
        if not after or all(before.get(key) == after.get(key) for key in ("status", "message")):
            return
        if after["status"] == "True":
            text = "Access credentials sync successful."
            self._event(vmi, "Normal", "AccessCredentialsSyncSuccess", text)
        else:
            text = f"Access credentials sync failed: {after.get('message', '')}"
            self._event(vmi, "Warning", "AccessCredentialsSyncFailed", text)

    def _again(self, vmi: JsonObject, phase: str, error: tuple[str, str] | None, seen: Observation) -> Result:
        if phase in decisions.FINAL_PHASES:
            # The launcher may end once the outcome is written; that write brings the next look.
            return DONE
        if error is not None:
            return RequeueAfter(_RETRY_SECONDS)
        if not seen.launcher_ready or not seen.domain_known:
            # Connecting ends with a call of its own; a launcher that ends before it listens has none.
            return RequeueAfter(_RETRY_SECONDS)
        if decisions.is_leaving(vmi, seen):
            grace = decisions.grace_seconds(vmi)
            return RequeueAfter(min(decisions.SHUTDOWN_REPEAT_SECONDS, max(grace, _BEHIND_SECONDS)))
        return RequeueAfter(_AGENT_SECONDS) if phase == "Running" else DONE

    def _event(self, vmi: JsonObject, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._recorder.event(vmi, kind, reason, message)


def _is_reported(vmi: JsonObject, reason: str, message: str) -> bool:
    """Whether the condition Synchronized says so already; a step is repeated each second."""
    known = meta.get_condition(vmi, "Synchronized") or {}
    return (known.get("reason"), known.get("message")) == (reason, message)


def _text(vmi: JsonObject) -> str:
    return "/".join(key_of(vmi))


def _version(vmi: JsonObject) -> int:
    """Where in the API's history an instance stands."""
    text = get_str(vmi, "metadata", "resourceVersion")
    return int(text) if text.isdecimal() else 0
